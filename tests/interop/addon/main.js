'use strict';

// The newer C++ client, by the Node addon that carries it: `node main.js NAMESRV [ACCESS_KEY SECRET]` obeys the orders `send` and `consume`
// of go/orders.go, as far as the addon can, and tells by JSON lines. It ends by force with its input: the addon's own end may not come.
const readline = require('node:readline');
const { Producer, PushConsumer } = require('rocketmq-nodejs');

const [nameServer, ...credentials] = process.argv.slice(2);
const common = { nameServer, logDir: `${process.env.HOME}/client.log` };
const producers = {};
const consumers = [];

function tell(event, members) {
  console.log(JSON.stringify({ event, ...members }));
}

async function started(made) {
  if (credentials.length) made.setSessionCredentials(...credentials, '');
  await made.start();
  return made;
}

const deeds = {
  async send({ group, topic, key, tag, body }) {
    producers[group] ??= await started(new Producer(group, group, common));
    const result = await producers[group].send(topic, body, { keys: key, tags: tag });
    tell('sent', { key, ok: result.statusStr === 'OK', id: result.msgId });
  },

  async consume({ group, topic, expression, failures = {}, attempts = 16 }) {
    const calls = {};
    const made = new PushConsumer(group, group, { ...common, maxReconsumeTimes: attempts });
    made.subscribe(topic, expression);
    made.on('message', ({ keys, tags, body, msgId, topic: of }, ack) => {
      calls[keys] = (calls[keys] ?? 0) + 1;
      tell('consumed', { group, topic: of, key: keys, tag: tags, body, id: msgId });
      ack.done(calls[keys] > (failures[keys] ?? 0));
    });
    consumers.push(await started(made));
    tell('consuming', { group });
  },
};

async function main() {
  tell('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    try {
      await deeds[order.order](order);
    } catch (error) {
      tell('failed', { order: order.order, key: order.key, error: String(error) });
    }
  }
  process.kill(process.pid, 'SIGKILL');
}

main();
