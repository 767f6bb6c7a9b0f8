import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * ClientLoad NAMESRV   the real client as one of those that bench/client.py measures. Each line of standard input is an order in JSON, each is
 * answered by one line; bench/_client_player.py says what they hold. Ends with its input.
 */
public class ClientLoad {
    private static final int FIRST_WITHIN_MS = 30_000;
    private static final int LOOK_EVERY_MS = 20;
    private static final LongAdder NO_FAILURES = new LongAdder();
    private static final byte[] BODY = new byte[256];
    private static String nameServer;
    private static int clients;

    public static void main(String[] args) throws Exception {
        nameServer = args[0];
        Arrays.fill(BODY, (byte) 'x');
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new TreeMap<>();
            try {
                JSONObject order = JSON.parseObject(line);
                Look[] looks = order.getString("group").isEmpty() ? send(order) : consume(order);
                answer.put("messages", looks[1].messages - looks[0].messages);
                answer.put("failed", looks[1].failed - looks[0].failed);
                answer.put("seconds", (looks[1].atNanos - looks[0].atNanos) / 1e9);
                answer.put("cpu_seconds", (looks[1].cpuNanos - looks[0].cpuNanos) / 1e9);
            } catch (Throwable e) {
                e.printStackTrace();
                answer.put("problem", e.toString());
            }
            System.out.println(JSON.toJSONString(answer));
        }
        System.exit(0); // the client's threads would keep the process alive
    }

    /** What was done and used up to some moment. */
    private static final class Look {
        private static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        private final long messages;
        private final long failed;
        private final long atNanos = System.nanoTime();
        private final long cpuNanos = SYSTEM.getProcessCpuTime();

        private Look(LongAdder counted, LongAdder failures) {
            messages = counted.sum();
            failed = failures.sum();
        }
    }

    private interface Call {
        void run() throws Exception;
    }

    private static Look[] send(JSONObject order) throws Exception {
        String topic = order.getString("topic");
        int batch = order.getIntValue("batch");
        DefaultMQProducer producer = new DefaultMQProducer("bench");
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("load-" + clients++);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        try {
            return callers(order, batch == 1 ? () -> producer.send(new Message(topic, BODY)) : () -> producer.send(messages(topic, batch)));
        } finally {
            producer.shutdown();
        }
    }

    private static List<Message> messages(String topic, int count) {
        List<Message> made = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            made.add(new Message(topic, BODY));
        }
        return made;
    }

    /** Lets that many threads call for as long as the order says; calls that fail are counted. The first, before they start, may not fail. */
    private static Look[] callers(JSONObject order, Call call) throws Exception {
        int batch = order.getIntValue("batch");
        LongAdder counted = new LongAdder();
        AtomicBoolean isOver = new AtomicBoolean();
        LongAdder failures = new LongAdder();
        List<Thread> callers = new ArrayList<>();
        call.run();
        for (int i = 0; i < order.getIntValue("callers"); i++) {
            callers.add(new Thread(() -> {
                while (!isOver.get()) {
                    try {
                        call.run();
                        counted.add(batch);
                    } catch (Exception e) {
                        failures.increment();
                    }
                }
            }));
        }
        callers.forEach(Thread::start);
        pause(order.getDoubleValue("settle_s"));
        Look begin = new Look(counted, failures);
        pause(order.getDoubleValue("seconds"));
        Look end = new Look(counted, failures);
        isOver.set(true);
        for (Thread caller : callers) {
            caller.join();
        }
        return new Look[] {begin, end};
    }

    private static Look[] consume(JSONObject order) throws Exception {
        LongAdder counted = new LongAdder();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(order.getString("group"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("load-" + clients++);
        consumer.setHeartbeatBrokerInterval(1_000); // it can miss the one after its first rebalance, and gets nothing until the next
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(order.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            counted.add(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            return watch(order, counted);
        } finally {
            consumer.shutdown();
        }
    }

    /** From the first message on, until the time is over or nothing is left. */
    private static Look[] watch(JSONObject order, LongAdder counted) throws Exception {
        long deadlineMs = System.currentTimeMillis() + FIRST_WITHIN_MS;
        while (counted.sum() == 0) {
            if (System.currentTimeMillis() > deadlineMs) {
                throw new IllegalStateException("no message of " + order.getString("topic") + " within " + FIRST_WITHIN_MS + " ms");
            }
            Thread.sleep(LOOK_EVERY_MS);
        }
        Look begin = new Look(counted, NO_FAILURES);
        Look end = begin;
        while (end.atNanos - begin.atNanos < order.getDoubleValue("seconds") * 1e9 && end.messages < order.getLongValue("messages")) {
            Thread.sleep(LOOK_EVERY_MS);
            end = new Look(counted, NO_FAILURES);
        }
        return new Look[] {begin, end};
    }

    private static void pause(double seconds) throws InterruptedException {
        Thread.sleep((long) (seconds * 1000));
    }
}
