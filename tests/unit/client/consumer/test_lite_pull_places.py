"""The messages a poll returns and the positions it reports, against a model of two queues."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq.client.consumer.poll_buffer import PollBuffer, consumed, position
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.messages import ReceivedMessage
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.clients import MessageQueue

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(2)]
queues = st.sampled_from(QUEUES)


def message(queue: MessageQueue, offset: int) -> ReceivedMessage:
    hosts = b"\x7f\x00\x00\x01" + bytes(4)
    stored = StoredMessage(
        queue.topic,
        queue.queue_id,
        offset,
        offset * 100,
        0,
        0,
        0,
        hosts,
        0,
        hosts,
        0,
        0,
        b"body",
        0,
        b"",
        100,
    )
    return ReceivedMessage(queue, queue.topic, b"body", stored)


@dataclass(eq=False)
class Reading:
    """A queue with its cache, without a reader."""

    queue: MessageQueue
    next_offset: int | None
    cache: ProcessQueue = field(default_factory=ProcessQueue)
    is_dropped: bool = False


@dataclass
class Model:
    """A queue: the wanted messages, how far it was read, and what became of the messages read."""

    wanted: list[bool] = field(default_factory=list)
    read_to: int = 0
    waiting: list[int] = field(default_factory=list)
    handed: list[int] = field(default_factory=list)
    committed: int = 0

    def begin(self, offset: int) -> None:
        self.read_to, self.waiting, self.handed = offset, [], []

    @property
    def consumed(self) -> int:
        return min([*self.handed, *self.waiting, self.read_to])


class PlacesMachine(RuleBasedStateMachine):
    """Reads, polls, commits, seeks, pauses, loses queues and crashes at random."""

    def __init__(self) -> None:
        super().__init__()
        self.models = {queue: Model() for queue in QUEUES}
        self.restart()

    def restart(self) -> None:
        self.hand_out = PollBuffer()
        self.readings = {
            queue: Reading(queue, model.committed) for queue, model in self.models.items()
        }
        for model in self.models.values():
            model.begin(model.committed)

    @rule(queue=queues, wanted=st.lists(st.booleans(), min_size=1, max_size=6))
    def send(self, queue: MessageQueue, wanted: list[bool]) -> None:
        self.models[queue].wanted += wanted

    @rule(queue=queues, count=st.integers(1, 4))
    def read(self, queue: MessageQueue, count: int) -> None:
        model, reading = self.models[queue], self.readings[queue]
        found = [
            offset for offset in range(model.read_to, len(model.wanted)) if model.wanted[offset]
        ][:count]
        model.read_to = found[-1] + 1 if len(found) == count else len(model.wanted)
        model.waiting += found
        reading.cache.put([message(queue, offset) for offset in found], model.read_to)
        reading.next_offset = model.read_to
        if found:
            self.hand_out.arrived(reading)

    @rule(count=st.integers(1, 5))
    def ask(self, count: int) -> None:
        for model in self.models.values():
            model.handed = []
        ready = sum(
            len(model.waiting)
            for queue, model in self.models.items()
            if queue not in self.hand_out.paused
        )
        found = self.hand_out.take(count)
        assert len(found) == min(count, ready)
        for queue, model in self.models.items():
            offsets = [each.queue_offset for each in found if each.queue == queue]
            assert offsets == model.waiting[: len(offsets)]
            assert not offsets or queue not in self.hand_out.paused
            model.handed, model.waiting = offsets, model.waiting[len(offsets) :]

    @rule()
    def give_back(self) -> None:
        self.hand_out.give_back()
        for model in self.models.values():
            model.waiting, model.handed = model.handed + model.waiting, []

    @rule(by_hand=st.booleans())
    def commit(self, by_hand: bool) -> None:
        if by_hand:
            self.hand_out.settle()
        for queue, model in self.models.items():
            model.handed = [] if by_hand else model.handed
            offset = consumed(self.readings[queue])
            assert offset is not None
            model.committed = offset

    @rule(queue=queues, data=st.data())
    def seek(self, queue: MessageQueue, data: Any) -> None:
        model, reading = self.models[queue], self.readings[queue]
        offset = data.draw(st.integers(0, len(model.wanted)))
        reading.cache, reading.next_offset = ProcessQueue(), offset
        model.begin(offset)

    @rule(queue=queues)
    def pause(self, queue: MessageQueue) -> None:
        self.hand_out.paused.add(queue)

    @rule(queue=queues)
    def resume(self, queue: MessageQueue) -> None:
        self.hand_out.paused.discard(queue)

    @rule(queue=queues)
    def lose_and_get_again(self, queue: MessageQueue) -> None:
        model, reading = self.models[queue], self.readings[queue]
        reading.is_dropped = True
        model.committed = model.consumed
        self.readings[queue] = Reading(queue, model.committed)
        model.begin(model.committed)

    @rule()
    def crash(self) -> None:
        self.restart()

    @invariant()
    def everything_is_told_as_it_is(self) -> None:
        for queue, model in self.models.items():
            reading = self.readings[queue]
            assert consumed(reading) == model.consumed
            assert position(reading) == (model.waiting[0] if model.waiting else model.read_to)


TestPlaces = PlacesMachine.TestCase


def test_queues_take_turns_so_that_none_waits_for_a_long_one() -> None:
    hand_out = PollBuffer()
    for queue, count in zip(QUEUES, (5, 2), strict=True):
        reading = Reading(queue, 0)
        reading.cache.put([message(queue, offset) for offset in range(count)], count)
        hand_out.arrived(reading)
    order = [each.queue.queue_id for _ in range(7) for each in hand_out.take(1)]
    assert order == [0, 1, 0, 1, 0, 0, 0]


def test_where_a_queue_begins_is_not_known_before_somebody_asked() -> None:
    reading = Reading(QUEUES[0], None)
    assert consumed(reading) is None
    assert position(reading) is None
