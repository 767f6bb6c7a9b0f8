import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * AccessSuite NAMESRV SCENARIO...   clients that sign with the keys of the file `key` in their home: what they may do with the topic Allowed,
 * and what they hear of Denied.
 */
public class AccessSuite extends Suite {
    public static void main(String[] args) throws Exception {
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000"); // a retry topic that comes to be is found soon
        run(AccessSuite.class, args);
    }

    private static DefaultMQProducer signing() throws Exception {
        DefaultMQProducer made = new DefaultMQProducer("suite-producer", hook());
        made.setNamesrvAddr(nameServer);
        made.setInstanceName(instance());
        made.setSendMsgTimeout(10_000);
        made.start();
        return made;
    }

    private static DefaultMQPushConsumer consumer(String group) throws Exception {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(group, hook(), new AllocateMessageQueueAveragely());
        made.setNamesrvAddr(nameServer);
        made.setInstanceName(instance());
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        made.setPollNameServerInterval(1000);
        made.subscribe("Allowed", "*");
        return made;
    }

    private static DefaultMQPullConsumer puller() throws Exception {
        DefaultMQPullConsumer made = new DefaultMQPullConsumer("alices-pulls", hook());
        made.setNamesrvAddr(nameServer);
        made.setInstanceName(instance());
        made.start();
        return made;
    }

    static void mayDo() throws Exception {
        DefaultMQProducer producer = signing();
        Set<String> sent = new TreeSet<>();
        String id = producer.send(message("Allowed", "tag", "single", "single")).getMsgId();
        sent.add("single");
        List<Message> batch = new ArrayList<>();
        for (String key : new String[] {"batch-0", "batch-1"}) {
            batch.add(message("Allowed", "tag", key, key));
            sent.add(key);
        }
        producer.send(batch);
        producer.sendOneway(message("Allowed", "tag", "oneway", "oneway"));
        sent.add("oneway");
        answer("sent", sent);

        Set<String> pushed = new ConcurrentSkipListSet<>();
        DefaultMQPushConsumer push = consumer("alices-push");
        push.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean again = false;
            for (MessageExt message : messages) {
                again |= message.getKeys().equals("single") && message.getReconsumeTimes() == 0;
                pushed.add(message.getKeys() + (message.getReconsumeTimes() > 0 ? " again" : ""));
            }
            return again ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        push.setConsumeMessageBatchMaxSize(1);
        push.start();
        Set<String> ordered = new ConcurrentSkipListSet<>();
        DefaultMQPushConsumer inOrder = consumer("alices-in-order");
        inOrder.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(message -> ordered.add(message.getKeys()));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        inOrder.start();
        DefaultLitePullConsumer lite = new DefaultLitePullConsumer("alices-lite", hook());
        lite.setNamesrvAddr(nameServer);
        lite.setInstanceName(instance());
        lite.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        lite.subscribe("Allowed", "*");
        lite.start();
        Set<String> polled = new TreeSet<>();
        await("all are polled", () -> {
            lite.poll(500).forEach(message -> polled.add(message.getKeys()));
            return polled.containsAll(sent);
        });
        lite.commitSync();
        await("all are consumed, one of them again", () -> pushed.containsAll(sent) && pushed.contains("single again"));
        await("all are consumed in order", () -> ordered.containsAll(sent));
        answer("pushed", pushed);
        answer("ordered", ordered);
        answer("polled", polled);

        DefaultMQPullConsumer puller = puller();
        int queues = 0;
        for (MessageQueue queue : puller.fetchSubscribeMessageQueues("Allowed")) {
            puller.pull(queue, "*", 0, 32);
            puller.updateConsumeOffset(queue, 1);
            puller.getOffsetStore().persist(queue);
            await("the offset, which is told one-way, is kept", () -> puller.fetchConsumeOffset(queue, true) == 1);
            queues++;
        }
        answer("committed queues", queues);
        answer("found by its id", producer.viewMessage("Allowed", id).getKeys());
        for (Runnable end : new Runnable[] {lite::shutdown, push::shutdown, inOrder::shutdown, puller::shutdown, producer::shutdown}) {
            end.run();
        }
    }

    static void mayNot() throws Exception {
        DefaultMQProducer producer = signing();
        answerRefusal("send", () -> producer.send(message("Denied", "tag", "key", "body")));
        answerRefusal("batch", () -> producer.send(Collections.singletonList(message("Denied", "tag", "key", "body"))));
        DefaultMQPullConsumer puller = puller();
        answerRefusal("pull", () -> puller.pull(new MessageQueue("Denied", BROKER, 0), "*", 0, 1));
        puller.shutdown();
        producer.shutdown();
    }

    static void isUnknown() throws Exception {
        DefaultMQProducer producer = signing();
        answerRefusal("send", () -> producer.send(message("Allowed", "tag", "key", "body")));
        producer.shutdown();
    }
}
