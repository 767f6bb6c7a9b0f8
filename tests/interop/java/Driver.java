import com.alibaba.fastjson.JSON;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Drives the real client and prints JSON lines.
 *
 * Driver roundtrip NAMESRV TOPIC COUNT   sends COUNT messages and consumes them: a line per message sent and consumed
 * Driver load NAMESRV TOPIC              until standard input ends: sends on one client, and asks for the route with a new client (so a
 *                                        new connection) each time; counts what failed
 */
public class Driver {
    private static final AtomicInteger INSTANCES = new AtomicInteger();

    public static void main(String[] args) {
        try {
            if (args[0].equals("roundtrip")) {
                roundtrip(args[1], args[2], Integer.parseInt(args[3]));
            } else if (args[0].equals("load")) {
                load(args[1], args[2]);
            } else {
                throw new IllegalArgumentException("no such mode: " + args[0]);
            }
            System.exit(0);
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1); // the client's threads would keep the process alive
        }
    }

    private static DefaultMQProducer producer(String nameServer) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("driver-producer");
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("driver-" + INSTANCES.incrementAndGet());
        producer.start();
        return producer;
    }

    private static String body(int i) {
        // Every fifth is large enough for the client to compress it.
        String text = "message " + i + " – später";
        return i % 5 == 4 ? text.repeat(400) : text;
    }

    private static void roundtrip(String nameServer, String topic, int count) throws Exception {
        DefaultMQProducer producer = producer(nameServer);
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "tag" + i % 3, "key-" + i, body(i).getBytes(StandardCharsets.UTF_8));
            SendResult result = producer.send(message, 10_000);
            print("event", "sent", "key", "key-" + i, "status", result.getSendStatus().name(), "broker", result.getMessageQueue().getBrokerName());
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("driver-consumer-" + topic);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("driver-" + INSTANCES.incrementAndGet());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        Set<String> missing = ConcurrentHashMap.newKeySet();
        for (int i = 0; i < count; i++) {
            missing.add("key-" + i);
        }
        CountDownLatch all = new CountDownLatch(count);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String key = message.getKeys();
                int number = Integer.parseInt(key.substring("key-".length()));
                boolean whole = Arrays.equals(message.getBody(), body(number).getBytes(StandardCharsets.UTF_8));
                print("event", "consumed", "key", key, "whole", whole, "tag", message.getTags());
                if (missing.remove(key)) {
                    all.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean complete = all.await(60, TimeUnit.SECONDS);
        consumer.shutdown();
        producer.shutdown();
        print("event", "done", "complete", complete);
    }

    private static void load(String nameServer, String topic) throws Exception {
        DefaultMQProducer sender = producer(nameServer);
        sender.send(new Message(topic, "first".getBytes(StandardCharsets.UTF_8)), 10_000);
        AtomicInteger sends = new AtomicInteger();
        AtomicInteger routes = new AtomicInteger();
        Set<String> failures = ConcurrentHashMap.newKeySet();
        CountDownLatch end = new CountDownLatch(1);
        Thread sending = new Thread(() -> {
            while (end.getCount() > 0) {
                try {
                    sender.send(new Message(topic, "load".getBytes(StandardCharsets.UTF_8)), 10_000);
                    sender.fetchPublishMessageQueues(topic);
                    sends.incrementAndGet();
                    Thread.sleep(5);
                } catch (Exception e) {
                    failures.add("send: " + e);
                }
            }
        });
        Thread asking = new Thread(() -> {
            while (end.getCount() > 0) {
                try {
                    DefaultMQProducer fresh = producer(nameServer);
                    fresh.fetchPublishMessageQueues(topic);
                    fresh.shutdown();
                    print("event", "route", "number", routes.incrementAndGet());
                } catch (Exception e) {
                    failures.add("route: " + e);
                }
            }
        });
        sending.start();
        asking.start();
        while (System.in.read() >= 0) {
            // only the end of the input matters
        }
        end.countDown();
        sending.join(20_000);
        asking.join(20_000);
        sender.shutdown();
        print("event", "done", "sends", sends.get(), "routes", routes.get(), "failures", failures);
    }

    private static synchronized void print(Object... members) {
        Map<String, Object> line = new TreeMap<>();
        for (int i = 0; i < members.length; i += 2) {
            line.put((String) members[i], members[i + 1]);
        }
        System.out.println(JSON.toJSONString(line));
    }
}
