package main

import (
	"context"
	"sync"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// How often something happened, by its name.
type counts struct {
	changing sync.Mutex
	of       map[string]int
}

func newCounts() *counts {
	return &counts{of: map[string]int{}}
}

// One more: 1 at the first time.
func (c *counts) next(name string) int {
	c.changing.Lock()
	defer c.changing.Unlock()
	c.of[name]++
	return c.of[name]
}

var states = map[string]primitive.LocalTransactionState{
	"commit": primitive.CommitMessageState, "rollback": primitive.RollbackMessageState, "unknown": primitive.UnknowState}

// The producer of a group, and how each of its transactions ends.
type transactions struct {
	sender  rocketmq.TransactionProducer
	calls   *counts
	reading sync.Mutex
	answers map[string][]string
	others  string
}

func (t *transactions) next(key string) string {
	t.reading.Lock()
	defer t.reading.Unlock()
	answers := t.answers[key]
	if answers == nil {
		answers = []string{t.others}
	}
	return answers[min(t.calls.next(key), len(answers))-1]
}

func (t *transactions) ExecuteLocalTransaction(sent *primitive.Message) primitive.LocalTransactionState {
	return states[t.next(sent.GetKeys())]
}

func (t *transactions) CheckLocalTransaction(asked *primitive.MessageExt) primitive.LocalTransactionState {
	answer := t.next(asked.GetKeys())
	tell(event{"event": "checked", "key": asked.GetKeys(), "state": answer, "body": string(asked.Body)})
	return states[answer]
}

func (p *peer) transact(given order) error {
	of, ok := p.transactions[given.Group]
	if !ok {
		of = &transactions{calls: newCounts(), answers: map[string][]string{}}
		made, err := rocketmq.NewTransactionProducer(of, p.producerOptions(given.Group)...)
		if err != nil {
			return err
		}
		of.sender = made
		p.transactions[given.Group] = of
		if err := made.Start(); err != nil {
			return err
		}
	}
	of.reading.Lock()
	of.answers[given.Key], of.others = given.States, given.Others
	of.reading.Unlock()
	result, err := of.sender.SendMessageInTransaction(context.Background(), message(given))
	if err == nil {
		tell(event{"event": "transacted", "key": given.Key, "ok": result.Status == primitive.SendOK, "id": result.MsgID})
	}
	return err
}
