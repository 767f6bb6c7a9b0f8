import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** ClientSuite NAMESRV SCENARIO...   sends of every kind, pulls and look-ups with the real client; one JSON line per scenario. */
public class ClientSuite extends Suite {
    public static void main(String[] args) throws Exception {
        run(ClientSuite.class, args);
    }

    private static DefaultMQPullConsumer puller(String group) throws Exception {
        DefaultMQPullConsumer made = new DefaultMQPullConsumer(group);
        made.setNamesrvAddr(nameServer);
        made.setInstanceName(instance());
        made.setBrokerSuspendMaxTimeMillis(WITHIN_MS);
        made.setConsumerTimeoutMillisWhenSuspend(2 * WITHIN_MS);
        made.start();
        return made;
    }

    /** Everything that a queue holds. */
    private static List<MessageExt> all(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        long end = consumer.maxOffset(queue);
        for (long offset = consumer.minOffset(queue); offset < end; ) {
            PullResult pulled = consumer.pull(queue, "*", offset, 32);
            found.addAll(pulled.getMsgFoundList());
            offset = pulled.getNextBeginOffset();
        }
        return found;
    }

    static void sync() throws Exception {
        DefaultMQProducer producer = producer();
        List<Object> results = new ArrayList<>();
        for (SendResult result : fill(producer, "Sync", 4, "sync", 10)) {
            results.add(told(result));
        }
        answer("sent", results);
        Message flagged = message("Sync", "flagged", "one two three", "with a flag");
        flagged.setFlag(42);
        flagged.setWaitStoreMsgOK(false);
        answer("flagged", told(producer.send(flagged, queue("Sync", 3))));
        answer("selected", told(producer.send(message("Sync", null, "none", "no tag"), (queues, message, id) -> queues.get((int) id), 2)));
        DefaultMQPullConsumer consumer = puller("sync-reader");
        for (int id = 0; id < 4; id++) {
            answer("queue " + id, told(all(consumer, queue("Sync", id))));
        }
        consumer.shutdown();
        producer.shutdown();
    }

    /** A topic that is not there yet is made by the first message that is sent to it. */
    static void made() throws Exception {
        DefaultMQProducer producer = producer();
        answer("status", producer.send(message("Made", "tag", "key", "first")).getSendStatus().name());
        await("the route of the new topic", () -> producer.fetchPublishMessageQueues("Made").size() == 4);
        producer.getDefaultMQProducerImpl().createTopic("TBW102", "Wide", 6);
        await("the route of the wide topic", () -> producer.fetchPublishMessageQueues("Wide").size() == 6);
        producer.shutdown();
    }

    static void async() throws Exception {
        DefaultMQProducer producer = producer();
        CountDownLatch answered = new CountDownLatch(30);
        List<String> results = Collections.synchronizedList(new ArrayList<>());
        for (int i = 0; i < 30; i++) {
            producer.send(message("Async", "tag", "async-" + i, "async " + i), queue("Async", i % 4), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results.add(result.getSendStatus().name());
                    answered.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    results.add(e.toString());
                    answered.countDown();
                }
            });
        }
        answer("all", answered.await(WITHIN_MS, TimeUnit.MILLISECONDS));
        Collections.sort(results);
        answer("statuses", results);
        answer("kept", kept(producer, "Async"));
        producer.shutdown();
    }

    static void oneway() throws Exception {
        DefaultMQProducer producer = producer();
        for (int i = 0; i < 20; i++) {
            producer.sendOneway(message("Oneway", "tag", "oneway-" + i, "oneway " + i), queue("Oneway", i % 4));
        }
        await("one-way messages", () -> kept(producer, "Oneway") >= 20);
        answer("kept", kept(producer, "Oneway"));
        producer.shutdown();
    }

    private static long kept(DefaultMQProducer producer, String topic) throws Exception {
        long sum = 0;
        for (int id = 0; id < 4; id++) {
            sum += producer.maxOffset(queue(topic, id));
        }
        return sum;
    }

    static void batch() throws Exception {
        DefaultMQProducer producer = producer();
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 7; i++) {
            batch.add(message("Batch", "tag" + i, "batch-" + i, "batch " + i));
        }
        answer("sent", told(producer.send(batch, queue("Batch", 1))));
        answer("again", told(producer.send(batch.subList(0, 1), queue("Batch", 1))));
        DefaultMQPullConsumer consumer = puller("batch-reader");
        answer("found", told(all(consumer, queue("Batch", 1))));
        consumer.shutdown();
        producer.shutdown();
    }

    static void bodies() throws Exception {
        DefaultMQProducer producer = producer();
        byte[] every = new byte[256];
        for (int i = 0; i < every.length; i++) {
            every[i] = (byte) i;
        }
        byte[] noise = new byte[3_900_000];
        new Random(7).nextBytes(noise);
        byte[][] bodies = {{0}, every, "später 日本語 𝄞".getBytes(StandardCharsets.UTF_8), "long ".repeat(20_000).getBytes(StandardCharsets.UTF_8), noise};
        List<String> sent = new ArrayList<>();
        for (byte[] body : bodies) {
            SendResult result = producer.send(new Message("Bodies", "größe", "schlüssel-" + body.length, body), queue("Bodies", 0));
            sent.add(result.getSendStatus() + " " + summary(body));
        }
        answer("sent", sent);
        DefaultMQPullConsumer consumer = puller("bodies-reader");
        answer("found", told(all(consumer, queue("Bodies", 0))));
        consumer.shutdown();
        producer.shutdown();
    }

    private static String told(PullResult result) {
        return result.getPullStatus() + " next " + result.getNextBeginOffset() + " of " + result.getMinOffset() + " to " + result.getMaxOffset()
            + (result.getMsgFoundList() == null ? "" : " " + keys(result.getMsgFoundList()));
    }

    static void pull() throws Exception {
        DefaultMQProducer producer = producer();
        fill(producer, "Pull", 1, "pull", 40);
        DefaultMQPullConsumer consumer = puller("puller");
        MessageQueue queue = queue("Pull", 0);
        answer("queues", consumer.fetchSubscribeMessageQueues("Pull").size());
        answer("first", told(consumer.pull(queue, "*", 0, 10)));
        answer("tagged", told(consumer.pull(queue, "tag1 || tag2", 5, 32)));
        answer("no such tag", told(consumer.pull(queue, "absent", 0, 32)));
        answer("the last", told(consumer.pull(queue, "*", 39, 10)));
        answer("at the end", told(consumer.pull(queue, "*", 40, 10)));
        answer("beyond", told(consumer.pull(queue, "*", 41, 10)));
        answer("far beyond", told(consumer.pull(queue, "*", 1_000_000, 10)));
        answer("empty", told(consumer.pull(queue("Pull", 1), "*", 0, 10)));
        answer("empty, not from its begin", told(consumer.pull(queue("Pull", 1), "*", 3, 10)));
        answerRefusal("no such queue", () -> told(consumer.pull(queue("Pull", 9), "*", 0, 10)));
        answerRefusal("no such topic", () -> told(consumer.pull(queue("Absent", 0), "*", 0, 10)));
        Thread late = new Thread(() -> {
            try {
                producer.send(message("Pull", "tag0", "late", "late"), queue);
            } catch (Exception e) {
                e.printStackTrace();
            }
        });
        late.start();
        answer("waited for", told(consumer.pullBlockIfNotFound(queue, "*", 40, 10)));
        answer("offset before", consumer.fetchConsumeOffset(queue, true));
        consumer.getDefaultMQPullConsumerImpl().getOffsetStore().updateConsumeOffsetToBroker(queue, 17, false);
        answer("offset after", consumer.fetchConsumeOffset(queue, true));
        answer("range", consumer.minOffset(queue) + " to " + consumer.maxOffset(queue));
        answer("range of none", consumer.minOffset(queue("Pull", 3)) + " to " + consumer.maxOffset(queue("Pull", 3)));
        consumer.shutdown();
        producer.shutdown();
    }

    static void lookup() throws Exception {
        DefaultMQProducer producer = producer();
        List<SendResult> sent = fill(producer, "Lookup", 1, "lookup", 20);
        SendResult wanted = sent.get(7);
        MessageExt byOffset = producer.viewMessage("Lookup", wanted.getOffsetMsgId());
        answer("by offset id", told(byOffset));
        await("the index", () -> query(producer, "lookup-19").size() == 1);
        answer("by unique id", told(producer.viewMessage("Lookup", wanted.getMsgId())));
        answer("by key", told(query(producer, "lookup-7")));
        answer("by no key", query(producer, "absent").size());
        MessageQueue queue = queue("Lookup", 0);
        long time = byOffset.getStoreTimestamp();
        answer("by its time", producer.searchOffset(queue, time) <= 7);
        answer("by an early time", producer.searchOffset(queue, time - 3_600_000));
        answer("by a late time", producer.searchOffset(queue, time + 3_600_000));
        answer("by any time, in an empty queue", producer.searchOffset(queue("Lookup", 3), time));
        answer("earliest", producer.earliestMsgStoreTime(queue) <= time);
        answer("earliest of none", producer.earliestMsgStoreTime(queue("Lookup", 3)));
        producer.shutdown();
    }

    private static List<MessageExt> query(DefaultMQProducer producer, String key) throws Exception {
        try {
            QueryResult found = producer.queryMessage("Lookup", key, 32, 0, Long.MAX_VALUE);
            return found.getMessageList();
        } catch (org.apache.rocketmq.client.exception.MQClientException none) {
            return List.of();
        }
    }

    /** What is refused, and in which words. */
    static void refused() throws Exception {
        DefaultMQProducer producer = producer();
        producer.setRetryTimesWhenSendFailed(0);
        fill(producer, "Refused", 1, "refused", 1);
        Message delayed = message("Refused", "tag", "delayed", "delayed");
        delayed.setDelayTimeLevel(3);
        answerRefusal("delayed", () -> producer.send(delayed, queue("Refused", 0)).getSendStatus());
        answerRefusal("no such queue", () -> producer.send(message("Refused", "tag", "far", "far"), queue("Refused", 99)).getSendStatus());
        answerRefusal("forbidden topic", () -> producer.send(message("SCHEDULE_TOPIC_XXXX", "tag", "k", "b"), queue("SCHEDULE_TOPIC_XXXX", 0)).getSendStatus());
        TransactionMQProducer deals = new TransactionMQProducer("suite-deals");
        deals.setNamesrvAddr(nameServer);
        deals.setInstanceName(instance());
        deals.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object wanted) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        deals.start();
        answerRefusal("transaction", () -> deals.sendMessageInTransaction(message("Refused", "tag", "deal", "deal"), null).getSendStatus());
        deals.shutdown();
        DefaultMQPullConsumer consumer = puller("refused-reader");
        MessageExt first = all(consumer, queue("Refused", 0)).get(0);
        String address = first.getStoreHost().toString().substring(1);
        answerRefusal("sent back", () -> {
            consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().getMQClientAPIImpl()
                .consumerSendMessageBack(address, BROKER, first, "refused-reader", 3, 5_000, 16);
            return "sent back";
        });
        answerRefusal("sql", () -> told(pullBySql(consumer, queue("Refused", 0))));
        consumer.shutdown();
        producer.shutdown();
    }

    /** The client asks no broker whose version it does not know: answers to heartbeats tell it, and one that is under way already sends none. */
    static PullResult pullBySql(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        for (int tries = 1;; tries++) {
            consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
            try {
                return consumer.pull(queue, MessageSelector.bySql("a > 1"), 0, 10);
            } catch (MQClientException problem) {
                if (tries == 30 || !String.valueOf(problem.getMessage()).contains("does not upgrade")) {
                    throw problem;
                }
                Thread.sleep(1_000);
            }
        }
    }
}
