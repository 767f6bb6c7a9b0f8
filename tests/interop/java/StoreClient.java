import com.alibaba.fastjson.JSON;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * StoreClient NAMESRV BROKER SERIES TOPIC...   sends one message of every kind, and more, to the topics that the tests of stores have, then
 * reads the queues of the given topics. Prints JSON lines: one per message sent, one per message read with every field of its record.
 */
public class StoreClient {
    private static final int DELAY_1_S = 1;
    private static final int DELAY_2_H = 18;
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static TransactionMQProducer producer;
    private static String broker;
    private static String series;

    public static void main(String[] args) {
        try {
            broker = args[1];
            series = args[2];
            producer = producer(args[0]);
            DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("store-client-reader");
            consumer.setNamesrvAddr(args[0]);
            consumer.setInstanceName("reader-" + series);
            consumer.start();
            send();
            for (int i = 3; i < args.length; i++) {
                for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(args[i])) {
                    if (queue.getBrokerName().equals(broker)) {
                        read(consumer, queue);
                    }
                }
            }
            print("event", "done");
            System.exit(0);
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1); // the client's threads would keep the process alive
        }
    }

    private static TransactionMQProducer producer(String nameServer) throws Exception {
        TransactionMQProducer made = new TransactionMQProducer("store-client-sender");
        made.setNamesrvAddr(nameServer);
        made.setInstanceName("sender-" + series);
        made.setSendMsgTimeout(20_000);
        made.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object wanted) {
                return (LocalTransactionState) wanted;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        made.start();
        return made;
    }

    private static Message message(String topic, String tag, String keys, byte[] body) {
        Message made = new Message(topic, tag, keys, body);
        made.putUserProperty("Größe", "日本語 𝄞 " + series);
        return made;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void send() throws Exception {
        for (int i = 0; i < 40; i++) {
            Message one = message("Orders", "tag" + i % 3, series + "-order-" + i + " " + series + "-dozen-" + i / 12, bytes("order " + i));
            one.setFlag(i);
            send(one, i % 4);
        }
        for (int i = 0; i < 70; i++) {
            send(message("Letters", null, series + "-letter-" + i, bytes("letter " + i)), 0);
        }
        byte[] every = new byte[256];
        for (int i = 0; i < every.length; i++) {
            every[i] = (byte) i;
        }
        send(message("Bodies", "all", series + "-every-byte", every), 0);
        send(message("Bodies", "long", series + "-compressed", bytes("später ".repeat(5_000))), 1);
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 7; i++) {
            batch.add(message("Batches", "item", series + "-item-" + i, bytes("item " + i)));
        }
        SendResult sent = producer.send(batch, queue("Batches", 0));
        String[] offsetIds = sent.getOffsetMsgId().split(",");
        for (int i = 0; i < batch.size(); i++) {
            tell(batch.get(i), 0, sent.getQueueOffset() + i, offsetIds[i]);
        }
        delayAndTransact();
    }

    private static void delayAndTransact() throws Exception {
        MessageQueue later = queue("Later", 0);
        MessageQueue deals = queue("Deals", 0);
        long laterEnd = producer.maxOffset(later);
        long dealsEnd = producer.maxOffset(deals);
        for (int level : new int[] {DELAY_1_S, DELAY_2_H}) {
            Message delayed = message("Later", "delayed", series + "-level-" + level, bytes("level " + level));
            delayed.setDelayTimeLevel(level);
            print("event", "delayed", "status", producer.send(delayed, later).getSendStatus().name());
        }
        for (LocalTransactionState state : LocalTransactionState.values()) {
            Message half = message("Deals", "deal", series + "-" + state, bytes("deal " + state));
            print("event", "transaction", "status", producer.sendMessageInTransaction(half, state).getSendStatus().name());
        }
        long deadline = System.currentTimeMillis() + 60_000;
        while (producer.maxOffset(later) == laterEnd || producer.maxOffset(deals) == dealsEnd) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("the delayed message or the committed deal did not arrive within a minute");
            }
            Thread.sleep(50);
        }
    }

    private static MessageQueue queue(String topic, int id) {
        return new MessageQueue(topic, broker, id);
    }

    private static void send(Message message, int queueId) throws Exception {
        SendResult sent = producer.send(message, queue(message.getTopic(), queueId));
        tell(message, queueId, sent.getQueueOffset(), sent.getOffsetMsgId());
    }

    private static void tell(Message sent, int queueId, long queueOffset, String offsetId) {
        print("event", "sent", "topic", sent.getTopic(), "queueId", queueId, "queueOffset", queueOffset, "offsetId", offsetId, "flag", sent.getFlag(),
            "uniqueKey", sent.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX), "keys", sent.getKeys(), "tags", sent.getTags(),
            "size", sent.getUserProperty("Größe"), "body", Base64.getEncoder().encodeToString(sent.getBody()));
    }

    private static void read(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        long offset = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        while (offset < end) {
            PullResult pulled = consumer.pull(queue, "*", offset, 32, 20_000);
            if (pulled.getPullStatus() != PullStatus.FOUND) {
                throw new IllegalStateException(queue + " at " + offset + " of " + end + ": " + pulled);
            }
            for (MessageExt found : pulled.getMsgFoundList()) {
                tell(found);
            }
            offset = pulled.getNextBeginOffset();
        }
    }

    private static void tell(MessageExt read) {
        Map<String, String> properties = new TreeMap<>(read.getProperties());
        properties.remove(MessageConst.PROPERTY_MIN_OFFSET); // the client added these
        properties.remove(MessageConst.PROPERTY_MAX_OFFSET);
        print("event", "read", "topic", read.getTopic(), "queueId", read.getQueueId(), "queueOffset", read.getQueueOffset(),
            "logOffset", read.getCommitLogOffset(), "flag", read.getFlag(), "sysFlag", read.getSysFlag(),
            "bornTime", read.getBornTimestamp(), "bornHost", host(read.getBornHost()),
            "storeTime", read.getStoreTimestamp(), "storeHost", host(read.getStoreHost()),
            "reconsumeTimes", read.getReconsumeTimes(), "preparedOffset", read.getPreparedTransactionOffset(), "crc", read.getBodyCRC(),
            "size", read.getStoreSize(), "offsetId", ((MessageClientExt) read).getOffsetMsgId(), "properties", properties,
            "body", read.getBody() == null ? "" : Base64.getEncoder().encodeToString(read.getBody())); // an empty body is read as none
    }

    private static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        StringBuilder hex = new StringBuilder();
        for (byte one : host.getAddress().getAddress()) {
            hex.append(String.format("%02x", one));
        }
        return hex + String.format("%08x", host.getPort());
    }

    private static void print(Object... members) {
        Map<String, Object> line = new TreeMap<>();
        for (int i = 0; i < members.length; i += 2) {
            line.put((String) members[i], members[i + 1]);
        }
        OUT.println(JSON.toJSONString(line));
    }
}
