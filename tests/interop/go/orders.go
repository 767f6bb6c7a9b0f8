package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// An order is one JSON line; what an order does not need is left out of it.
type order struct {
	Order      string            // send, transact, consume, leave, answer or request
	Group      string            // of the producer or consumer, which is made when it is first needed
	Topic      string            //
	Key        string            //
	Tag        string            //
	Body       string            //
	Level      int               // send: of the delay
	Properties map[string]string // send
	States     []string          // transact: how it ends at once, and what is answered to each question; the last one again and again
	Others     string            // transact: what is answered to questions about messages that others of the group sent
	Expression string            // consume
	Sql        bool              // consume: by SQL92, not by tags
	Orderly    bool              // consume
	Failures   map[string]int    // consume: how often the message of a key fails
	Attempts   int32             // consume: how often a message may come again
	Prefix     string            // answer: what is said before the body of a request
	TimeoutMs  int               // request
}

// What one process has of the client: a producer and a consumer for each group.
type peer struct {
	nameServers  []string
	isTraced     bool
	credentials  primitive.Credentials
	producers    map[string]rocketmq.Producer
	transactions map[string]*transactions
	consumers    map[string]rocketmq.PushConsumer
}

func newPeer(nameServers []string, isTraced bool) *peer {
	return &peer{nameServers: nameServers, isTraced: isTraced, producers: map[string]rocketmq.Producer{},
		transactions: map[string]*transactions{}, consumers: map[string]rocketmq.PushConsumer{}}
}

func (p *peer) obey(input io.Reader) {
	deeds := map[string]func(order) error{"send": p.send, "transact": p.transact, "consume": p.consume, "leave": p.leave,
		"answer": p.answer, "request": p.request}
	tell(event{"event": "ready"})
	lines := bufio.NewScanner(input)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var given order
		must(json.Unmarshal(lines.Bytes(), &given))
		if err := deeds[given.Order](given); err != nil {
			tell(event{"event": "failed", "order": given.Order, "key": given.Key, "error": err.Error()})
		}
	}
	must(lines.Err())
}

func (p *peer) trace() *primitive.TraceConfig {
	return &primitive.TraceConfig{GroupName: "tracers", Access: primitive.Local, NamesrvAddrs: p.nameServers, Credentials: p.credentials}
}

func (p *peer) producerOptions(group string) []producer.Option {
	options := []producer.Option{producer.WithNameServer(p.nameServers), producer.WithGroupName(group), producer.WithInstanceName(group),
		producer.WithRetry(2)}
	if !p.credentials.IsEmpty() {
		options = append(options, producer.WithCredentials(p.credentials))
	}
	if p.isTraced {
		options = append(options, producer.WithTrace(p.trace()))
	}
	return options
}

func (p *peer) producer(group string) (rocketmq.Producer, error) {
	if made, ok := p.producers[group]; ok {
		return made, nil
	}
	made, err := rocketmq.NewProducer(p.producerOptions(group)...)
	if err == nil {
		p.producers[group] = made
		err = made.Start()
	}
	return made, err
}

func message(given order) *primitive.Message {
	made := primitive.NewMessage(given.Topic, []byte(given.Body))
	made.WithKeys([]string{given.Key}).WithTag(given.Tag)
	for name, value := range given.Properties {
		made.WithProperty(name, value)
	}
	if given.Level > 0 {
		made.WithDelayTimeLevel(given.Level)
	}
	return made
}

func (p *peer) send(given order) error {
	sender, err := p.producer(given.Group)
	if err != nil {
		return err
	}
	result, err := sender.SendSync(context.Background(), message(given))
	if err == nil {
		tell(event{"event": "sent", "key": given.Key, "ok": result.Status == primitive.SendOK, "id": result.MsgID})
	}
	return err
}

func (p *peer) consume(given order) error {
	calls := newCounts()
	return p.listen(given, func(got *primitive.MessageExt) bool {
		key := got.GetKeys()
		tell(event{"event": "consumed", "group": given.Group, "topic": got.Topic, "key": key, "tag": got.GetTags(), "body": string(got.Body),
			"times": got.ReconsumeTimes, "queue": got.Queue.QueueId, "offset": got.QueueOffset, "bornMs": got.BornTimestamp,
			"storedMs": got.StoreTimestamp, "id": got.MsgId, "properties": got.GetProperties()})
		return calls.next(key) > given.Failures[key]
	})
}

// Consumes one message after the other by a listener that says whether it succeeded.
func (p *peer) listen(given order, listener func(*primitive.MessageExt) bool) error {
	options := []consumer.Option{consumer.WithNameServer(p.nameServers), consumer.WithGroupName(given.Group),
		consumer.WithInstance(given.Group), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(given.Orderly)}
	if given.Attempts > 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(given.Attempts))
	}
	if !p.credentials.IsEmpty() {
		options = append(options, consumer.WithCredentials(p.credentials))
	}
	if p.isTraced {
		options = append(options, consumer.WithTrace(p.trace()))
	}
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: given.Expression}
	if given.Sql {
		selector.Type = consumer.SQL92
	}
	err = made.Subscribe(given.Topic, selector, func(_ context.Context, got ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, each := range got {
			if !listener(each) {
				if given.Orderly {
					return consumer.SuspendCurrentQueueAMoment, nil
				}
				return consumer.ConsumeRetryLater, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	})
	if err == nil {
		err = made.Start()
	}
	if err == nil {
		p.consumers[given.Group] = made
		tell(event{"event": "consuming", "group": given.Group})
	}
	return err
}

func (p *peer) leave(given order) error {
	err := p.consumers[given.Group].Shutdown()
	delete(p.consumers, given.Group)
	tell(event{"event": "left", "group": given.Group})
	return err
}

func (p *peer) answer(given order) error {
	replier, err := p.producer(given.Group + "-replies")
	if err != nil {
		return err
	}
	return p.listen(given, func(got *primitive.MessageExt) bool {
		body := []byte(given.Prefix + string(got.Body))
		reply, err := consumer.CreateReplyMessage(got, body)
		if err == nil {
			reply.Body = body // which the client forgets
			_, err = replier.SendSync(context.Background(), reply)
		}
		if err != nil {
			tell(event{"event": "failed", "order": "answer", "key": got.GetKeys(), "error": err.Error()})
		} else {
			tell(event{"event": "answered", "key": got.GetKeys(), "body": string(body)})
		}
		return true
	})
}

func (p *peer) request(given order) error {
	sender, err := p.producer(given.Group)
	if err != nil {
		return err
	}
	reply, err := sender.Request(context.Background(), time.Duration(given.TimeoutMs)*time.Millisecond, message(given))
	if err == nil && reply == nil {
		err = fmt.Errorf("no reply")
	}
	if err == nil {
		tell(event{"event": "replied", "key": given.Key, "topic": reply.Topic, "body": string(reply.Body), "properties": reply.GetProperties()})
	}
	return err
}
