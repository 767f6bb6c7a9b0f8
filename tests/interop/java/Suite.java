import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.File;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.zip.CRC32;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * What the scenarios of ClientSuite and ConsumerSuite share. Each scenario is a static method without parameters; its answers are printed as
 * one JSON line. Answers hold nothing of their run (no id, time or address), so that those of two brokers can be compared as they are.
 */
class Suite {
    static final String BROKER = "broker-a";
    static final int WITHIN_MS = 30_000;
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final AtomicInteger INSTANCES = new AtomicInteger();
    static String nameServer;
    private static Map<String, Object> answers;

    /** Runs the named scenarios of a class, one after the other; what one of them threw is its answer. */
    static void run(Class<?> suite, String[] args) throws Exception {
        nameServer = args[0];
        for (int i = 1; i < args.length; i++) {
            answers = new TreeMap<>();
            try {
                suite.getDeclaredMethod(args[i]).invoke(null);
            } catch (java.lang.reflect.InvocationTargetException e) {
                e.getCause().printStackTrace();
                answer("failed", e.getCause().toString());
            }
            Map<String, Object> line = new TreeMap<>();
            line.put("scenario", args[i]);
            line.put("answers", answers);
            print(line);
        }
        System.exit(0); // the client's threads would keep the process alive
    }

    static void print(Map<String, Object> line) {
        synchronized (OUT) {
            OUT.println(JSON.toJSONString(line, SerializerFeature.MapSortField, SerializerFeature.DisableCircularReferenceDetect));
        }
    }

    static synchronized void answer(String name, Object value) {
        answers.put(name, value);
    }

    /** The code and remark with which a call is refused; the text without what the client adds to it. */
    static void answerRefusal(String name, Callable<?> call) {
        try {
            answer(name, "not refused: " + call.call());
        } catch (Throwable e) {
            Throwable cause = e;
            while (!(cause instanceof MQBrokerException) && cause.getCause() != null) {
                cause = cause.getCause();
            }
            if (cause instanceof MQBrokerException) {
                MQBrokerException refused = (MQBrokerException) cause;
                answer(name, Map.of("code", refused.getResponseCode(), "remark", String.valueOf(refused.getErrorMessage())));
            } else {
                answer(name, Map.of("exception", String.valueOf(cause)));
            }
        }
    }

    static void await(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.currentTimeMillis() + WITHIN_MS;
        while (!condition.call()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException(what + ": not within " + WITHIN_MS + " ms");
            }
            Thread.sleep(20);
        }
    }

    static String instance() {
        return "suite-" + INSTANCES.incrementAndGet();
    }

    /** Signs with the keys of the file `key` in the home; null when there is none. */
    static RPCHook hook() {
        return new File(SessionCredentials.KEY_FILE).exists() ? new AclClientRPCHook(new SessionCredentials()) : null;
    }

    static DefaultMQProducer producer() throws Exception {
        DefaultMQProducer made = new DefaultMQProducer("suite-producer");
        made.setNamesrvAddr(nameServer);
        made.setInstanceName(instance());
        made.setSendMsgTimeout(10_000);
        made.start();
        return made;
    }

    static Message message(String topic, String tag, String key, String body) {
        Message made = new Message(topic, tag, key, body.getBytes(StandardCharsets.UTF_8));
        made.putUserProperty("Größe", "日本語 𝄞");
        return made;
    }

    /** Sends `count` messages with the keys PREFIX-0, PREFIX-1, ... to the queues of a topic in turns. */
    static List<SendResult> fill(DefaultMQProducer producer, String topic, int queues, String prefix, int count) throws Exception {
        List<SendResult> results = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            results.add(producer.send(message(topic, "tag" + i % 3, prefix + "-" + i, prefix + " " + i), queue(topic, i % queues)));
        }
        return results;
    }

    static MessageQueue queue(String topic, int id) {
        return new MessageQueue(topic, BROKER, id);
    }

    static Map<String, Object> told(SendResult result) {
        Map<String, Object> told = new TreeMap<>();
        told.put("status", result.getSendStatus().name());
        told.put("queue", result.getMessageQueue().getQueueId());
        told.put("offset", result.getQueueOffset());
        told.put("region", result.getRegionId());
        told.put("trace", result.isTraceOn());
        told.put("ids", result.getMsgId().split(",").length + "/" + result.getOffsetMsgId().split(",").length);
        told.put("transaction", result.getTransactionId() == null ? "none" : result.getMsgId().startsWith(result.getTransactionId()));
        return told;
    }

    static Map<String, Object> told(MessageExt message) {
        Map<String, Object> told = new TreeMap<>();
        told.put("place", message.getTopic() + "/" + message.getQueueId() + "/" + message.getQueueOffset());
        told.put("key", message.getKeys());
        told.put("tag", message.getTags());
        told.put("body", summary(message.getBody()));
        told.put("flag", message.getFlag());
        told.put("sysFlag", message.getSysFlag());
        told.put("reconsumeTimes", message.getReconsumeTimes());
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        properties.replaceAll((name, value) -> name.equals("UNIQ_KEY") ? "an id" : value);
        told.put("properties", properties);
        return told;
    }

    static List<Object> told(Collection<MessageExt> messages) {
        List<Object> all = new ArrayList<>();
        messages.forEach(message -> all.add(told(message)));
        return all;
    }

    static List<String> keys(Collection<MessageExt> messages) {
        List<String> all = new ArrayList<>();
        messages.forEach(message -> all.add(message.getKeys()));
        return all;
    }

    static String summary(byte[] body) {
        CRC32 sum = new CRC32();
        sum.update(body);
        return body.length + " bytes, " + Long.toHexString(sum.getValue());
    }
}
