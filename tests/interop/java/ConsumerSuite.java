import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.impl.consumer.ProcessQueue;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** ConsumerSuite NAMESRV SCENARIO...   push and lite pull consumers of the real client; one JSON line per scenario. */
public class ConsumerSuite extends Suite {
    public static void main(String[] args) throws Exception {
        run(ConsumerSuite.class, args);
    }

    private static DefaultMQPushConsumer pusher(String group, String topic, String tags) throws Exception {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(group);
        made.setNamesrvAddr(nameServer);
        made.setInstanceName(instance());
        made.setHeartbeatBrokerInterval(1_000); // the client may miss one when its queues change, and then waits for the next
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        made.subscribe(topic, tags);
        return made;
    }

    /** Keeps what a consumer gets. */
    private static List<MessageExt> collected(DefaultMQPushConsumer consumer) {
        List<MessageExt> got = new CopyOnWriteArrayList<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            got.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return got;
    }

    private static List<String> sorted(List<MessageExt> got) {
        List<String> keys = keys(got);
        Collections.sort(keys);
        return keys;
    }

    static void tags() throws Exception {
        DefaultMQProducer producer = producer();
        fill(producer, "Tags", 4, "tags", 30);
        for (String tags : new String[] {"*", "tag0 || tag2", "tag1"}) {
            DefaultMQPushConsumer consumer = pusher("tags-" + tags.replaceAll("\\W+", "_").replace("_", "x"), "Tags", tags);
            List<MessageExt> got = collected(consumer);
            consumer.start();
            int wanted = tags.equals("*") ? 30 : tags.equals("tag1") ? 10 : 20;
            await("messages with " + tags, () -> got.size() >= wanted);
            answer(tags, sorted(got));
            consumer.shutdown();
        }
        producer.shutdown();
    }

    static void orderly() throws Exception {
        DefaultMQProducer producer = producer();
        fill(producer, "Orderly", 4, "orderly", 60);
        Map<String, List<String>> got = new ConcurrentHashMap<>();
        AtomicInteger count = new AtomicInteger();
        Set<String> again = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = pusher("orderly", "Orderly", "*");
        consumer.setSuspendCurrentQueueTimeMillis(10);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            MessageExt first = messages.get(0);
            if (first.getQueueOffset() == 5 && again.add(first.getKeys())) { // it comes again, and nothing passes it
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            got.computeIfAbsent("queue " + first.getQueueId(), id -> new CopyOnWriteArrayList<>()).addAll(keys(messages));
            count.addAndGet(messages.size());
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        await("all in order", () -> count.get() >= 60);
        answer("queues", new TreeMap<>(got));
        answer("again", new TreeSet<>(again));
        consumer.shutdown();
        producer.shutdown();
    }

    static void broadcast() throws Exception {
        DefaultMQProducer producer = producer();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        List<List<MessageExt>> got = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            DefaultMQPushConsumer consumer = pusher("broadcast", "Broadcast", "*");
            consumer.setMessageModel(consumer.getMessageModel().valueOf("BROADCASTING")); // its package is another one in each release
            got.add(collected(consumer));
            consumer.start();
            consumers.add(consumer);
        }
        fill(producer, "Broadcast", 4, "broadcast", 20);
        for (int i = 0; i < 2; i++) {
            List<MessageExt> own = got.get(i);
            await("all for everybody", () -> own.size() >= 20);
            answer("consumer " + i, sorted(own));
        }
        consumers.forEach(DefaultMQPushConsumer::shutdown);
        producer.shutdown();
    }

    private static DefaultLitePullConsumer lite(String group) {
        DefaultLitePullConsumer made = new DefaultLitePullConsumer(group);
        made.setNamesrvAddr(nameServer);
        made.setInstanceName(instance());
        made.setHeartbeatBrokerInterval(1_000); // the client may miss one when its queues change, and then waits for the next
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        made.setAutoCommit(false);
        return made;
    }

    private static List<MessageExt> polled(DefaultLitePullConsumer consumer, int count) throws Exception {
        List<MessageExt> got = new ArrayList<>();
        try {
            await("so many: " + count, () -> got.addAll(consumer.poll(500)) && got.size() >= count || got.size() >= count);
        } catch (IllegalStateException e) {
            throw new IllegalStateException("polled only " + keys(got), e);
        }
        return got;
    }

    static void liteSubscribe() throws Exception {
        DefaultMQProducer producer = producer();
        fill(producer, "Lite", 4, "lite", 24);
        DefaultLitePullConsumer consumer = lite("lite-subscriber");
        consumer.subscribe("Lite", "tag0 || tag1");
        consumer.start();
        answer("polled", sorted(polled(consumer, 16)));
        consumer.commitSync();
        consumer.shutdown(); // a commit is written with the offsets of the shut-down
        DefaultLitePullConsumer next = lite("lite-subscriber");
        next.subscribe("Lite", "tag0 || tag1");
        next.start();
        producer.send(message("Lite", "tag1", "after", "after"), queue("Lite", 2));
        answer("polled after the commit", sorted(polled(next, 1)));
        next.shutdown();
        producer.shutdown();
    }

    static void liteAssign() throws Exception {
        DefaultMQProducer producer = producer();
        fill(producer, "Assign", 4, "assign", 24);
        DefaultLitePullConsumer consumer = lite("lite-assigned");
        consumer.start();
        List<MessageQueue> own = new ArrayList<>();
        for (MessageQueue queue : consumer.fetchMessageQueues("Assign")) {
            if (queue.getQueueId() < 2) {
                own.add(queue);
            }
        }
        consumer.assign(own);
        answer("assigned", sorted(polled(consumer, 12)));
        for (MessageQueue queue : own) {
            consumer.seek(queue, 2);
        }
        answer("from the third", sorted(polled(consumer, 8)));
        consumer.seekToBegin(own.get(0));
        answer("from the first", polled(consumer, 6).size());
        consumer.seekToEnd(own.get(0));
        answer("by time", consumer.offsetForTimestamp(own.get(0), 0L));
        consumer.commitSync();
        answer("committed", consumer.committed(own.get(1)));
        consumer.shutdown();
        producer.shutdown();
    }

    private static List<Integer> shares(List<DefaultMQPushConsumer> consumers, Set<MessageQueue> all) {
        List<Integer> sizes = new ArrayList<>();
        all.clear();
        for (DefaultMQPushConsumer consumer : consumers) {
            Set<MessageQueue> own = new HashSet<>(consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet());
            own.removeIf(queue -> !queue.getTopic().equals("Shared"));
            all.addAll(own);
            sizes.add(own.size());
        }
        Collections.sort(sizes);
        return sizes;
    }

    static void rebalance() throws Exception {
        DefaultMQProducer producer = producer();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        List<List<MessageExt>> got = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            DefaultMQPushConsumer consumer = pusher("sharers", "Shared", "*");
            got.add(collected(consumer));
            consumer.start();
            consumers.add(consumer);
        }
        Set<MessageQueue> all = new HashSet<>();
        await("three share eight", () -> shares(consumers, all).equals(List.of(2, 3, 3)) && all.size() == 8);
        fill(producer, "Shared", 8, "shared", 80);
        await("all of the first", () -> got.stream().mapToInt(List::size).sum() >= 80);
        Set<String> keys = new TreeSet<>();
        got.forEach(own -> keys.addAll(keys(own)));
        answer("by three", keys.size());
        answer("everybody got some", got.stream().noneMatch(List::isEmpty));
        consumers.remove(0).shutdown();
        await("two share eight", () -> shares(consumers, all).equals(List.of(4, 4)) && all.size() == 8);
        fill(producer, "Shared", 8, "rest", 40);
        await("all of the rest", () -> rest(got).size() == 40);
        answer("by two", rest(got).size());
        consumers.forEach(DefaultMQPushConsumer::shutdown);
        producer.shutdown();
    }

    private static Set<String> rest(List<List<MessageExt>> got) {
        Set<String> keys = new TreeSet<>();
        got.forEach(own -> keys.addAll(keys(own)));
        keys.removeIf(key -> !key.startsWith("rest"));
        return keys;
    }

    /** A new group on a queue that holds ten messages: which of them it gets, besides one that is sent when it listens. */
    static void begins() throws Exception {
        DefaultMQProducer producer = producer();
        fill(producer, "Begins", 1, "begins", 10);
        for (ConsumeFromWhere where : List.of(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)) {
            for (int minutes : new int[] {-60, 60}) {
                if (where != ConsumeFromWhere.CONSUME_FROM_TIMESTAMP && minutes > 0) {
                    continue;
                }
                DefaultMQPushConsumer consumer = pusher("begins-" + where + (minutes > 0 ? "-later" : ""), "Begins", "*");
                consumer.setConsumeFromWhere(where);
                consumer.setConsumeTimestamp(UtilAll.timeMillisToHumanString3(System.currentTimeMillis() + minutes * 60_000L));
                List<MessageExt> got = collected(consumer);
                consumer.start();
                MessageQueue queue = queue("Begins", 0);
                Map<MessageQueue, ProcessQueue> own = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable();
                await("its queue", () -> own.containsKey(queue));
                String last = "last-" + where + minutes;
                producer.send(message("Begins", "tag", last, last), queue);
                // Its threads may tell of the last one before others: only when nothing is left have all before it been told of.
                await("the last one, and all before it", () -> keys(got).contains(last) && own.get(queue).getMsgCount().get() == 0);
                List<String> early = sorted(got);
                early.removeIf(key -> !key.startsWith("begins"));
                answer(where + " " + minutes, early);
                consumer.shutdown();
            }
        }
        producer.shutdown();
    }

    /** Sends ten more, and consumes what the group did not yet, in order, until the last of them. */
    static void goOn() throws Exception {
        DefaultMQProducer producer = producer();
        long begin = producer.maxOffset(queue("GoOn", 0));
        fill(producer, "GoOn", 1, "on-from-" + begin, 10);
        List<String> got = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = pusher("going-on", "GoOn", "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            got.addAll(keys(messages));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        await("the last of ten", () -> got.contains("on-from-" + begin + "-9"));
        answer("got", got);
        consumer.shutdown(); // writes its offsets
        producer.shutdown();
    }
}
