'use strict';

// A round trip by the Node client: `node main.js NAMESRV` sends messages, consumes them, and prints a JSON line for each.
const { Consumer, Message, Producer } = require('ali-ons');

const NOTES = 30;
const WITHIN_MS = 60_000;
const quiet = { debug() {}, info() {}, warn: console.error, error: console.error };
const httpclient = {}; // asked for, but not used where a name server is named
const common = { httpclient, nameSrv: process.argv[2], accessKeyId: 'none', accessKeySecret: 'none', logger: quiet };

function tell(members) {
  console.log(JSON.stringify(members));
}

function body(n) {
  return n % 10 === 9 ? 'später '.repeat(2_000) : `note ${n} – später`; // the client compresses the long ones
}

async function send() {
  const producer = new Producer({ ...common, producerGroup: 'node-producer' });
  await producer.ready();
  for (let n = 0; n < NOTES; n++) {
    const message = new Message('Notes', `tag${n % 3}`, body(n));
    message.keys = [`note-${n}`];
    const result = await producer.send(message);
    tell({ event: 'sent', key: `note-${n}`, ok: result.sendStatus === 'SEND_OK' });
  }
  await producer.close();
}

function consume(name, tags, wanted) {
  const consumer = new Consumer({ ...common, consumerGroup: `node-${name}`, instanceName: name });
  let count = 0;
  const all = new Promise(resolve => {
    consumer.subscribe('Notes', tags, async message => {
      const key = String(message.keys);
      const n = Number(key.split('-')[1]);
      tell({ event: 'consumed', by: name, key, tag: message.tags, whole: message.body.toString() === body(n) });
      if (++count === wanted) resolve();
    });
  });
  consumer.on('error', error => console.error(error));
  return all;
}

async function main() {
  await send();
  const late = new Promise(resolve => setTimeout(resolve, WITHIN_MS, false));
  const all = Promise.all([consume('all', '*', NOTES), consume('some', 'tag0 || tag2', (NOTES / 3) * 2)]).then(() => true);
  tell({ event: 'done', complete: await Promise.race([all, late]) });
}

main().then(() => process.exit(0), error => {
  console.error(error);
  process.exit(1);
});
