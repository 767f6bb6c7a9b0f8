import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * CrashLoad NAMESRV BROKER TOPIC QUEUES   sends to every queue from a thread of its own, one message at a time and each once, and consumes them
 * in order, whatever becomes of the broker. Prints a JSON line before and after each send, and for each message consumed. The first line of
 * standard input ends the sending, the end of the input ends it all.
 */
public class CrashLoad {
    private static volatile boolean sending = true;

    public static void main(String[] args) {
        try {
            DefaultMQProducer producer = new DefaultMQProducer("crash-producer");
            producer.setNamesrvAddr(args[0]);
            producer.setInstanceName("producer");
            producer.setSendMsgTimeout(2_000);
            producer.setRetryTimesWhenSendFailed(0);
            producer.setPollNameServerInterval(500);
            producer.start();
            DefaultMQPushConsumer consumer = consumer(args[0], args[2]);
            consumer.start();
            List<Thread> senders = new ArrayList<>();
            for (int id = 0; id < Integer.parseInt(args[3]); id++) {
                MessageQueue queue = new MessageQueue(args[2], args[1], id);
                senders.add(new Thread(() -> send(producer, queue)));
            }
            senders.forEach(Thread::start);
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            in.readLine();
            sending = false;
            for (Thread sender : senders) {
                sender.join();
            }
            print("event", "stopped");
            while (in.readLine() != null) {
                // only the end of the input matters
            }
            consumer.shutdown();
            producer.shutdown();
            System.exit(0);
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1); // the client's threads would keep the process alive
        }
    }

    private static void send(DefaultMQProducer producer, MessageQueue queue) {
        for (int number = 0; sending; number++) {
            String key = queue.getQueueId() + "-" + number;
            print("event", "try", "queue", queue.getQueueId(), "number", number);
            try {
                SendResult sent = producer.send(new Message(queue.getTopic(), "tag", key, key.getBytes(StandardCharsets.UTF_8)), queue);
                print("event", "acknowledged", "queue", queue.getQueueId(), "number", number, "offset", sent.getQueueOffset(),
                    "status", sent.getSendStatus().name());
            } catch (Exception e) {
                pause(); // whether it was stored is not known; the broker needs a moment to come back
            }
        }
    }

    private static void pause() {
        try {
            Thread.sleep(20);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static DefaultMQPushConsumer consumer(String nameServer, String topic) throws Exception {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer("crash-consumer");
        made.setNamesrvAddr(nameServer);
        made.setInstanceName("consumer");
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        made.setPollNameServerInterval(500);
        made.setHeartbeatBrokerInterval(500);
        made.setPersistConsumerOffsetInterval(100);
        made.setPullTimeDelayMillsWhenException(100);
        made.subscribe(topic, "*");
        made.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                print("event", "consumed", "queue", message.getQueueId(), "offset", message.getQueueOffset(), "key", message.getKeys());
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        return made;
    }

    private static synchronized void print(Object... members) {
        Map<String, Object> line = new TreeMap<>();
        for (int i = 0; i < members.length; i += 2) {
            line.put((String) members[i], members[i + 1]);
        }
        System.out.println(JSON.toJSONString(line));
    }
}
