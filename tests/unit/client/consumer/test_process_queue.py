"""The messages of a queue between pull and commit, against a model of the finished ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orbitmq.client.consumer.process_queue import CacheLimits, ProcessQueue
from orbitmq.client.messages import ReceivedMessage
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.clients import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)


def message(offset: int, body: bytes = b"body") -> ReceivedMessage:
    hosts = b"\x7f\x00\x00\x01" + bytes(4)
    stored = StoredMessage(
        "T", 0, offset, offset * 100, 0, 0, 0, hosts, 0, hosts, 0, 0, body, 0, b"", 100
    )
    return ReceivedMessage(QUEUE, "T", body, stored)


class ProcessQueueMachine(RuleBasedStateMachine):
    """Pulls, takes, finishes and gives back at random."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = ProcessQueue()
        self.next_offset = 100
        self.pulled = 100
        self.unfinished: dict[int, int] = {}  # offset → size
        self.waiting: list[int] = []
        self.taken: list[list[ReceivedMessage]] = []

    @rule(
        gaps=st.lists(st.integers(0, 3), max_size=8), rest=st.integers(0, 3), size=st.integers(1, 9)
    )
    def pull(self, gaps: list[int], rest: int, size: int) -> None:
        offsets = []
        for gap in gaps:  # of filtered messages
            self.next_offset += gap
            offsets.append(self.next_offset)
            self.next_offset += 1
        self.next_offset += rest
        self.queue.put([message(offset, bytes(size)) for offset in offsets], self.next_offset)
        self.unfinished |= dict.fromkeys(offsets, size)
        self.waiting += offsets

    @rule(count=st.integers(1, 5))
    def take(self, count: int) -> None:
        found = self.queue.take(count)
        assert [each.queue_offset for each in found] == self.waiting[:count]
        del self.waiting[:count]
        if found:
            self.taken.append(found)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def finish(self, data: Any) -> None:
        messages = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        self.queue.finish(messages)
        self.queue.finish(messages)  # finishing twice has no effect
        for each in messages:
            del self.unfinished[each.queue_offset]

    @precondition(lambda self: self.taken)
    @rule()
    def give_the_first_back(self) -> None:
        messages = self.taken.pop()
        self.queue.give_back(messages)
        self.waiting = [each.queue_offset for each in messages] + self.waiting

    @invariant()
    def it_commits_up_to_the_first_that_is_not_finished(self) -> None:
        if self.queue.commit_offset is not None:
            assert self.queue.commit_offset == min(self.unfinished, default=self.next_offset)
        assert len(self.queue) == len(self.unfinished)
        assert self.queue.size == sum(self.unfinished.values())
        assert self.queue.waiting_count == len(self.waiting)
        assert self.queue.span == (
            max(self.unfinished) - min(self.unfinished) if self.unfinished else 0
        )


TestProcessQueueMachine = ProcessQueueMachine.TestCase


def test_what_comes_twice_counts_once() -> None:
    queue = ProcessQueue()
    queue.put([message(5), message(6)], 7)
    queue.finish(queue.take(1))
    queue.put([message(5), message(6), message(7)], 8)
    assert [each.queue_offset for each in queue.take(9)] == [6, 7]
    assert queue.commit_offset == 6


def test_it_says_why_no_more_should_be_pulled() -> None:
    queue = ProcessQueue()
    limits = CacheLimits(count_max=2, bytes_max=100, span_max=10)
    assert queue.pressure(limits, in_order=False) is None
    queue.put([message(0), message(20)], 21)
    assert (
        queue.pressure(limits, in_order=False)
        == "the first unfinished message is 20 offsets before the last, more than 10"
    )
    assert queue.pressure(limits, in_order=True) is None
    queue.put([message(21)], 22)
    assert queue.pressure(limits, in_order=True) == "3 messages are unfinished, more than 2"
    queue.finish(queue.take(3))
    queue.put([message(30, bytes(101))], 31)
    assert queue.pressure(limits, in_order=True) == "101 bytes are unfinished, more than 100"
