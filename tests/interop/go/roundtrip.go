package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	mails  = 30
	orders = 5
	steps  = 8
	within = 60 * time.Second
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func mail(topic, tag, key string) *primitive.Message {
	made := primitive.NewMessage(topic, []byte("body of "+key))
	return made.WithTag(tag).WithKeys([]string{key}).WithShardingKey(key[:7])
}

func sendAll(nameServers []string) {
	sender, err := rocketmq.NewProducer(producer.WithNameServer(nameServers), producer.WithGroupName("go-producer"),
		producer.WithQueueSelector(producer.NewHashQueueSelector()), producer.WithSendMsgTimeout(10*time.Second))
	must(err)
	must(sender.Start())
	ctx := context.Background()
	sent := func(key string, result *primitive.SendResult, err error) {
		must(err)
		tell(map[string]any{"event": "sent", "key": key, "ok": result.Status == primitive.SendOK})
	}
	for n := 0; n < mails; n++ {
		key := fmt.Sprintf("mail-%02d", n)
		one := mail("Mails", fmt.Sprintf("tag%d", n%3), key)
		switch {
		case n%5 == 1:
			must(sender.SendOneWay(ctx, one))
		case n%5 == 2:
			done := make(chan struct{})
			must(sender.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
				sent(key, result, err)
				close(done)
			}, one))
			<-done
		default:
			result, err := sender.SendSync(ctx, one)
			sent(key, result, err)
		}
	}
	result, err := sender.SendSync(ctx, mail("Mails", "batched", "batch-0"), mail("Mails", "batched", "batch-1"))
	sent("batch", result, err)
	for step := 0; step < steps; step++ {
		for order := 0; order < orders; order++ {
			key := fmt.Sprintf("order-%d-%d", order, step)
			result, err := sender.SendSync(ctx, mail("Steps", "step", key))
			sent(key, result, err)
		}
	}
	must(sender.Shutdown())
}

func consumeAll(nameServers []string, name, topic, tags string, orderly bool, wanted int, all *sync.WaitGroup) rocketmq.PushConsumer {
	one, err := rocketmq.NewPushConsumer(consumer.WithNameServer(nameServers), consumer.WithGroupName("go-"+name), consumer.WithInstance(name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerOrder(orderly))
	must(err)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: tags}
	count := 0
	all.Add(1)
	var counting sync.Mutex
	must(one.Subscribe(topic, selector, func(_ context.Context, got ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		counting.Lock()
		defer counting.Unlock()
		for _, each := range got {
			tell(map[string]any{"event": "consumed", "by": name, "key": each.GetKeys(), "tag": each.GetTags(), "queue": each.Queue.QueueId,
				"offset": each.QueueOffset, "body": string(each.Body)})
			if count++; count == wanted {
				all.Done()
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(one.Start())
	return one
}

// Sends messages of several kinds, and consumes them.
func roundTrip(nameServers []string) {
	sendAll(nameServers)
	var all sync.WaitGroup
	consumers := []rocketmq.PushConsumer{
		consumeAll(nameServers, "all", "Mails", "*", false, mails+2, &all),
		consumeAll(nameServers, "some", "Mails", "tag0 || tag2", false, mails/3*2, &all),
		consumeAll(nameServers, "orderly", "Steps", "*", true, orders*steps, &all),
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	complete := true
	select {
	case <-done:
	case <-time.After(within):
		complete = false
	}
	for _, one := range consumers {
		must(one.Shutdown())
	}
	tell(event{"event": "done", "complete": complete})
}
