import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Residents NAMESRV   a producer and a consumer for operators to look at: they exchange twelve messages, print the ids of the first of them,
 * and stay online until the process is killed.
 */
public class Residents extends Suite {
    private static final int MESSAGES = 12;

    public static void main(String[] args) {
        try {
            nameServer = args[0];
            DefaultMQProducer producer = new DefaultMQProducer("resident-producers");
            producer.setNamesrvAddr(nameServer);
            producer.setInstanceName("resident-producer");
            producer.start();
            SendResult first = fill(producer, "Residents", 4, "resident", MESSAGES).get(0);
            producer.sendOneway(new Message("Others", "tag", "key", new byte[] {'x'}), queue("Others", 0));
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("residents");
            consumer.setNamesrvAddr(nameServer);
            consumer.setInstanceName("resident-consumer");
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setHeartbeatBrokerInterval(1_000);
            consumer.setPersistConsumerOffsetInterval(100);
            consumer.subscribe("Residents", "tag0 || tag1 || tag2");
            CountDownLatch wanted = new CountDownLatch(MESSAGES);
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> wanted.countDown());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            wanted.await();
            Map<String, Object> ready = new TreeMap<>();
            ready.put("event", "ready");
            ready.put("id", first.getMsgId());
            ready.put("offsetId", first.getOffsetMsgId());
            print(ready);
            new CountDownLatch(1).await();
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1); // the client's threads would keep the process alive
        }
    }
}
