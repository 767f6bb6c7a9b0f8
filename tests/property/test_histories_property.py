"""Histories of messages: those of a correct queue are clean, each fault that is put into one is
found, and any history has the faults that an oracle finds which compares every pair of events.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from random import Random
from typing import NamedTuple

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.testing.histories import MessageHistory

QUEUES = [MessageQueue("t", "broker-a", number) for number in range(2)]


class Delivered(NamedTuple):
    """One delivery: the arguments of `deliver`."""

    message: str
    queue: MessageQueue
    offset: int


class CorrectQueues:
    """Store sends at the next offset, or not at all, and show everything in order."""

    def __init__(self, random: Random, sends: int) -> None:
        self.sent: list[tuple[str, MessageQueue, int | None]] = []  # the offset if acknowledged
        self.stored: dict[MessageQueue, list[str]] = {queue: [] for queue in QUEUES}
        for number in range(sends):
            queue = random.choice(QUEUES)
            fate = random.choice(["acknowledged", "stored", "vanished"])
            offset = len(self.stored[queue])
            if fate != "vanished":
                self.stored[queue].append(f"m{number}")
            self.sent.append((f"m{number}", queue, offset if fate == "acknowledged" else None))

    def reading(self) -> list[Delivered]:
        return [
            Delivered(message, queue, offset)
            for queue, messages in self.stored.items()
            for offset, message in enumerate(messages)
        ]

    def faults(self, deliveries: Iterable[Delivered]) -> dict[str, int]:
        """Check the history that ends with these deliveries."""
        history = MessageHistory()
        for message, queue, offset in self.sent:
            send = history.attempt(message, queue)
            if offset is not None:
                send.acknowledged(queue, offset)
        for each in deliveries:
            history.deliver(*each)
        return history.check().totals.faults()


queues = st.builds(CorrectQueues, st.randoms(use_true_random=False), st.integers(0, 12))


@given(queues)
def test_correct_queues_are_clean(queue: CorrectQueues) -> None:
    assert queue.faults(queue.reading()) == {}


@given(queues, st.data())
def test_each_fault_that_is_put_in_is_found(queue: CorrectQueues, data: st.DataObject) -> None:
    reading = queue.reading()
    assume(len(reading) > 0)
    chosen = data.draw(st.sampled_from(reading))
    others = [each for each in reading if each != chosen]
    is_last = chosen.offset == len(queue.stored[chosen.queue]) - 1
    is_acknowledged = chosen in queue.sent
    foreign = Delivered("foreign", chosen.queue, len(queue.stored[chosen.queue]))
    assert queue.faults(others) == ({"lost": 1} if is_acknowledged else {})
    assert queue.faults([*reading, chosen]) == {"duplicated": 1}
    assert queue.faults([*others, chosen]) == ({} if is_last else {"reordered": 1})
    assert queue.faults([*reading, foreign]) == {"phantom": 1}
    replaced = queue.faults([*reading, foreign._replace(offset=chosen.offset)])
    assert replaced == {"lost": 1, "phantom": 1}


# -- any history, against rules that compare every pair


class Sent(NamedTuple):
    """A send as the oracle knows it; `ended` is when it was acknowledged."""

    message: str
    queue: MessageQueue
    begun: int
    ended: float
    offset: int | None
    is_refused: bool


class Got(NamedTuple):
    """A delivery as the oracle knows it."""

    moment: int
    reader: str
    message: str
    queue: MessageQueue
    offset: int


class Oracle:
    """Counts by the letter of the rules."""

    def __init__(self, sends: list[Sent], got: list[Got]) -> None:
        self.sends, self.got = sends, got
        self.acknowledged = {
            (each.message, each.queue, each.offset) for each in sends if each.offset is not None
        }

    def faults(self) -> dict[str, int]:
        counts = {
            "lost": self.lost(),
            "duplicated": self.duplicated(),
            "reordered": self.late() + self.early(),
            "phantom": self.phantom(),
        }
        return {kind: count for kind, count in counts.items() if count}

    def lost(self) -> int:
        readers = {each.reader for each in self.got} or {""}
        found: set[tuple[str, MessageQueue, int | None]] = {
            place
            for place in self.acknowledged
            for reader in readers
            if not any(each.reader == reader and each[2:] == place for each in self.got)
        }
        for each in self.got:
            last = [other for other in self.got if other[3:] == each[3:]][-1]
            if last.message != each.message:
                found.add((each.message, each.queue, each.offset))
        return len(found)

    def duplicated(self) -> int:
        return sum(
            any(
                other.message == each.message and other.reader == each.reader
                for other in self.got[:at]
            )
            for at, each in enumerate(self.got)
        )

    def late(self) -> int:
        found = 0
        for at, each in enumerate(self.got):
            before = [
                other.offset
                for other in self.got[:at]
                if (other.reader, other.queue) == (each.reader, each.queue)
            ]
            found += each.offset not in before and max(before, default=-1) > each.offset
        return found

    def early(self) -> int:
        spans: dict[tuple[str, MessageQueue, int], tuple[int, float]] = {}
        known = {each.message for each in self.sends}
        places = {*self.acknowledged, *(each[2:] for each in self.got if each.message in known)}
        for message, queue, offset in places:
            assert offset is not None
            every = [each for each in self.sends if each.message == message]
            own = [each for each in every if (each.queue, each.offset) == (queue, offset)]
            spans[message, queue, offset] = (
                min(each.begun for each in own or every),
                min((each.ended for each in own), default=inf),
            )
        return sum(
            any(
                other[1] == queue and other[2] > offset and ended < begun
                for other, (_, ended) in spans.items()
            )
            for (_, queue, offset), (begun, _) in spans.items()
        )

    def phantom(self) -> int:
        return len(
            {
                each[2:]
                for each in self.got
                if not any(
                    (send.message, send.queue, send.is_refused) == (each.message, each.queue, False)
                    and send.begun < each.moment
                    for send in self.sends
                )
            }
        )


# Few messages, queues and offsets, so that everything collides.
MESSAGES = st.sampled_from(["a", "b", "c"])
SENDS = st.tuples(
    MESSAGES, st.sampled_from(QUEUES), st.sampled_from(["open", "refused", "indeterminate", 0, 1])
)
DELIVERIES = st.tuples(
    MESSAGES, st.sampled_from(QUEUES), st.integers(0, 2), st.sampled_from(["x", "y"])
)


@settings(max_examples=400)
@given(st.lists(SENDS | DELIVERIES, max_size=10), st.data())
def test_any_history_has_the_faults_that_the_oracle_finds(
    events: list[tuple[str, MessageQueue, str | int] | tuple[str, MessageQueue, int, str]],
    data: st.DataObject,
) -> None:
    history = MessageHistory()
    sends: list[Sent] = []
    got: list[Got] = []
    pending = []
    moment = 0
    for event in events:
        moment += 1
        if len(event) == 4:
            message, queue, offset, reader = event
            history.deliver(message, queue, offset, reader=reader)
            got.append(Got(moment, reader, message, queue, offset))
        else:
            message, queue, outcome = event
            send = history.attempt(message, queue)
            sends.append(Sent(message, queue, moment, inf, None, outcome == "refused"))
            pending.append((send, len(sends) - 1, outcome))
        is_decided: bool = data.draw(st.booleans())
        if pending and is_decided:
            send, at, outcome = pending.pop(data.draw(st.integers(0, len(pending) - 1)))
            moment += 1
            if outcome == "indeterminate":
                send.indeterminate()
            elif outcome == "refused":
                send.refused()
            elif isinstance(outcome, int):
                send.acknowledged(sends[at].queue, outcome)
                sends[at] = sends[at]._replace(ended=moment, offset=outcome)
    for send, _, outcome in pending:
        if outcome == "refused":
            send.refused()
    assert history.check().totals.faults() == Oracle(sends, got).faults()
