import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Peer NAMESRV TRACED   the other side of a conversation with the real client: each line of standard input is one order, its words separated
 * by U+001F; each thing that happens is printed as one JSON line. With TRACED = true its clients are traced; with a file `key` in its home
 * they sign. Ends with its input.
 *
 * consume GROUP TOPIC              from the first message on: a line "consumed" per message
 * consumeBySql GROUP TOPIC EXPRESSION   the same, of the messages that an SQL92 expression is true of
 * answer GROUP TOPIC PREFIX        consume, and reply to each with PREFIX and its body
 * consumeInOrder GROUP TOPIC       consume, with one message of a queue after the other
 * fail GROUP TOPIC TIMES BODY      consume, and fail at BODY, which comes again so many times
 * failInOrder GROUP TOPIC TIMES BODY   the same with one message of a queue after the other
 * leave GROUP                      end the consumer of a group: a line "left"
 * send GROUP TOPIC KEY BODY        a line "sent"
 * post GROUP TOPIC TAG KEY BODY NAME VALUE SHARD   the same with a property of the user, to the queue that SHARD says
 * batch GROUP TOPIC KEY BODY...    all bodies in one batch, with the keys KEY-0, KEY-1, ...: a line "sent"
 * request TOPIC BODY TIMEOUT_MS    a line "replied" or "failed"
 * transact GROUP TOPIC KEY STATE   a message of a transaction that ends as STATE says: a line "transacted"
 * check GROUP TOPIC STATE          from now on answer checks of GROUP with STATE: a line "checked" per check
 * decode TEXT                      what the original reads in the body of a trace message, with ^ and | in place of its separators
 */
public class Peer extends Suite {
    private static final int BIG = 100_000;
    private static final Map<String, TransactionMQProducer> TRANSACTIONS = new ConcurrentHashMap<>();
    private static final Map<String, LocalTransactionState> CHECKS = new ConcurrentHashMap<>();
    private static final Map<String, DefaultMQProducer> PRODUCERS = new ConcurrentHashMap<>();
    private static final Map<String, DefaultMQPushConsumer> CONSUMERS = new ConcurrentHashMap<>();
    private static boolean traced;

    public static void main(String[] args) throws Exception {
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000"); // what its group did not let it have is tried for again soon
        nameServer = args[0];
        traced = Boolean.parseBoolean(args[1]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        event("ready");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] order = line.split("\u001f");
            try {
                obey(order);
            } catch (Throwable e) {
                e.printStackTrace();
                event("failed", "order", order[0], "why", e.toString());
            }
        }
        System.exit(0);
    }

    private static void obey(String[] order) throws Exception {
        switch (order[0]) {
            case "consume":
                consume(order[1], order[2], MessageSelector.byTag("*"), null);
                break;
            case "consumeBySql":
                consume(order[1], order[2], MessageSelector.bySql(order[3]), null);
                break;
            case "answer":
                consume(order[1], order[2], MessageSelector.byTag("*"), order[3]);
                break;
            case "consumeInOrder":
                consumeInOrder(order[1], order[2]);
                break;
            case "fail":
                fail(order[1], order[2], Integer.parseInt(order[3]), order[4]);
                break;
            case "failInOrder":
                failInOrder(order[1], order[2], Integer.parseInt(order[3]), order[4]);
                break;
            case "leave":
                CONSUMERS.remove(order[1]).shutdown();
                event("left", "group", order[1]);
                break;
            case "send":
                sent(order[3], producer(order[1]).send(message(order[2], order[3], order[4])));
                break;
            case "post":
                Message posted = message(order[2], order[4], order[5]);
                posted.setTags(order[3]);
                posted.putUserProperty(order[6], order[7]);
                sent(order[4], producer(order[1]).send(posted, new SelectMessageQueueByHash(), order[8]));
                break;
            case "batch":
                List<Message> batch = new ArrayList<>();
                for (int i = 4; i < order.length; i++) {
                    batch.add(message(order[2], order[3] + "-" + batch.size(), order[i]));
                }
                sent(order[3], producer(order[1]).send(batch));
                break;
            case "request":
                Message reply = producer("requesters").request(new Message(order[1], order[2].getBytes(StandardCharsets.UTF_8)), Long.parseLong(order[3]));
                event("replied", "body", text(reply.getBody()), "properties", new TreeMap<>(reply.getProperties()));
                break;
            case "transact":
                Message half = new Message(order[2], "tag", order[3], ("body of " + order[3]).getBytes(StandardCharsets.UTF_8));
                TransactionSendResult ended = transactions(order[1]).sendMessageInTransaction(half, LocalTransactionState.valueOf(order[4]));
                event("transacted", "key", order[3], "id", ended.getMsgId(), "state", ended.getLocalTransactionState().name());
                break;
            case "check":
                CHECKS.put(order[1], LocalTransactionState.valueOf(order[3]));
                // so that it knows a broker to tell of itself
                transactions(order[1]).getDefaultMQProducerImpl().getMqClientFactory().updateTopicRouteInfoFromNameServer(order[2]);
                event("checking", "group", order[1]);
                break;
            case "decode":
                for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(order[1].replace('^', '\u0001').replace('|', '\u0002'))) {
                    event("decoded", "context", told(context));
                }
                event("decoded all");
                break;
            default:
                throw new IllegalArgumentException("no such order");
        }
    }

    private static Message message(String topic, String key, String body) {
        return new Message(topic, "tag", key, body.getBytes(StandardCharsets.UTF_8));
    }

    private static void sent(String key, SendResult result) {
        event("sent", "key", key, "id", result.getMsgId(), "offsetId", result.getOffsetMsgId(), "queue", result.getMessageQueue().getQueueId());
    }

    private static DefaultMQProducer producer(String group) throws Exception {
        DefaultMQProducer made = PRODUCERS.get(group);
        if (made == null) {
            made = new DefaultMQProducer(group, hook(), traced, null);
            start(made);
            PRODUCERS.put(group, made);
        }
        return made;
    }

    private static TransactionMQProducer transactions(String group) throws Exception {
        TransactionMQProducer made = TRANSACTIONS.get(group);
        if (made == null) {
            made = new TransactionMQProducer(null, group, null, traced, null);
            made.setTransactionListener(new TransactionListener() {
                @Override
                public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                    return (LocalTransactionState) state;
                }

                @Override
                public LocalTransactionState checkLocalTransaction(MessageExt message) {
                    LocalTransactionState state = CHECKS.getOrDefault(group, LocalTransactionState.UNKNOW);
                    event("checked", "key", message.getKeys(), "state", state.name());
                    return state;
                }
            });
            start(made);
            TRANSACTIONS.put(group, made);
        }
        return made;
    }

    private static void start(DefaultMQProducer made) throws Exception {
        made.setNamesrvAddr(nameServer);
        made.setInstanceName(instance());
        made.setHeartbeatBrokerInterval(1_000);
        made.setSendMsgTimeout(10_000);
        made.start();
    }

    private static void consume(String group, String topic, MessageSelector wanted, String prefix) throws Exception {
        DefaultMQProducer replier = prefix == null ? null : producer("repliers");
        DefaultMQPushConsumer made = consumer(group, topic);
        made.subscribe(topic, wanted);
        made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                consumed(topic, message);
                if (replier != null) {
                    reply(replier, message, prefix);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        made.start();
        event("consuming", "topic", topic);
    }

    private static void consumeInOrder(String group, String topic) throws Exception {
        DefaultMQPushConsumer made = consumer(group, topic);
        made.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(message -> consumed(topic, message));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        made.start();
        event("consuming", "topic", topic);
    }

    private static void fail(String group, String topic, int times, String bad) throws Exception {
        DefaultMQPushConsumer made = consumer(group, topic);
        made.setMaxReconsumeTimes(times);
        made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> consumed(topic, message));
            return isThere(bad, messages) ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        made.start();
        event("consuming", "topic", topic);
    }

    private static void failInOrder(String group, String topic, int times, String bad) throws Exception {
        DefaultMQPushConsumer made = consumer(group, topic);
        made.setMaxReconsumeTimes(times);
        made.setSuspendCurrentQueueTimeMillis(100);
        made.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(message -> consumed(topic, message));
            return isThere(bad, messages) ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        made.start();
        event("consuming", "topic", topic);
    }

    private static boolean isThere(String body, List<MessageExt> messages) {
        return messages.stream().anyMatch(message -> text(message.getBody()).equals(body));
    }

    private static DefaultMQPushConsumer consumer(String group, String topic) throws Exception {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(group, hook(), new AllocateMessageQueueAveragely(), traced, null);
        made.setNamesrvAddr(nameServer);
        made.setInstanceName(instance());
        made.setHeartbeatBrokerInterval(1_000); // one that is skipped while another is under way holds up pulls until the next
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        made.subscribe(topic, "*");
        CONSUMERS.put(group, made);
        return made;
    }

    private static void consumed(String topic, MessageExt message) {
        event("consumed", "topic", topic, "key", message.getKeys(), "body", text(message.getBody()), "id", message.getMsgId(),
            "queue", message.getQueueId(), "offset", message.getQueueOffset(), "properties", new TreeMap<>(message.getProperties()));
    }

    private static void reply(DefaultMQProducer replier, MessageExt request, String prefix) {
        try {
            byte[] body = (prefix + text(request.getBody())).getBytes(StandardCharsets.UTF_8);
            event("answered", "status", replier.send(MessageUtil.createReplyMessage(request, body)).getSendStatus().name());
        } catch (Exception e) {
            event("not answered", "why", e.toString());
        }
    }

    private static Map<String, Object> told(TraceContext context) {
        Map<String, Object> told = new TreeMap<>();
        told.put("type", context.getTraceType().name());
        told.put("time", context.getTimeStamp());
        told.put("region", context.getRegionId());
        told.put("group", context.getGroupName());
        told.put("cost", context.getCostTime());
        told.put("success", context.isSuccess());
        told.put("request", context.getRequestId());
        told.put("code", context.getContextCode());
        for (TraceBean bean : context.getTraceBeans()) {
            told.put("topic", bean.getTopic());
            told.put("id", bean.getMsgId());
            told.put("offsetId", bean.getOffsetMsgId());
            told.put("tags", bean.getTags());
            told.put("keys", bean.getKeys());
            told.put("host", bean.getStoreHost());
            told.put("size", bean.getBodyLength());
            told.put("retries", bean.getRetryTimes());
            told.put("kind", bean.getMsgType() == null ? null : bean.getMsgType().name());
            told.put("transaction", bean.getTransactionId());
            told.put("state", bean.getTransactionState() == null ? null : bean.getTransactionState().name());
            told.put("fromCheck", bean.isFromTransactionCheck());
        }
        return told;
    }

    private static String text(byte[] body) {
        return body.length > BIG ? summary(body) : new String(body, StandardCharsets.UTF_8);
    }

    private static void event(String name, Object... members) {
        Map<String, Object> line = new TreeMap<>();
        line.put("event", name);
        for (int i = 0; i < members.length; i += 2) {
            line.put((String) members[i], members[i + 1]);
        }
        print(line);
    }
}
