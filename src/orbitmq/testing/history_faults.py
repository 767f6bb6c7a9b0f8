"""The rules for what a queue of messages may show its readers, and what breaks them.

Pure functions on recorded sends and deliveries: each yields the faults of one kind, as the queue
concerned and a sentence. `histories` records and counts. The rules:

- lost: acknowledged, and a reader did not get it from that queue and offset; or delivered from an
  offset that showed another message later;
- duplicated: delivered to one reader again, from whatever offset;
- reordered: delivered after a message of a higher offset; or stored before a message that was
  acknowledged before its own send began;
- phantom: delivered from a queue to which no send may have put it by then: the send had not begun,
  was refused, or named another queue.

Invariant: moments grow with each recorded event, and no two events share one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from math import inf
from typing import Final, NamedTuple, TypeAlias

from orbitmq.common.errors import InvalidStateError
from orbitmq.protocol.bodies.clients import MessageQueue

UNKNOWN_QUEUE: Final = -1


class SendOutcome(Enum):
    """What a client knows about its send."""

    ACKNOWLEDGED = "acknowledged"
    INDETERMINATE = "indeterminate"  # no reply, or one that promises nothing
    REFUSED = "refused"  # certainly not stored


class QueuePlace(NamedTuple):
    """An offset of a queue."""

    queue: MessageQueue
    offset: int

    def __str__(self) -> str:
        return f"{queue_text(self.queue)}@{self.offset}"


@dataclass(slots=True, eq=False, kw_only=True)
class RecordedSend:
    """One attempt to send a message; call a method when its outcome is known.

    Without an outcome it is indeterminate. A late reply may decide an indeterminate send.
    """

    message: str
    destination: MessageQueue | str  # a topic, if the client does not choose the queue
    next_moment: Callable[[], int]
    begun: int
    ended: float = inf
    outcome: SendOutcome = SendOutcome.INDETERMINATE
    place: QueuePlace | None = None

    def acknowledged(self, queue: MessageQueue, offset: int) -> None:
        """Record that the broker acknowledged it, with its place."""
        self._end(SendOutcome.ACKNOWLEDGED)
        self.place = QueuePlace(queue, offset)

    def indeterminate(self) -> None:
        """Record that it may be stored or not."""
        self._end(SendOutcome.INDETERMINATE)

    def refused(self) -> None:
        """Record that it is certainly not stored."""
        self._end(SendOutcome.REFUSED)

    def may_have_reached(self, queue: MessageQueue) -> bool:
        """Return whether it may have put its message into that queue."""
        return self.outcome is not SendOutcome.REFUSED and self.destination in (queue, queue.topic)

    def _end(self, outcome: SendOutcome) -> None:
        if self.outcome is not SendOutcome.INDETERMINATE:
            raise InvalidStateError(
                f"the send of {self.message} is {self.outcome.value} already: record another"
                " attempt for a retry"
            )
        self.outcome = outcome
        self.ended = self.next_moment()


class RecordedDelivery(NamedTuple):
    """One message as one reader got it."""

    moment: int
    reader: str
    place: QueuePlace
    message: str


Sends: TypeAlias = Sequence[RecordedSend]
Deliveries: TypeAlias = Sequence[RecordedDelivery]
Faults: TypeAlias = Iterator[tuple[MessageQueue, str]]


def lost(sends: Sends, deliveries: Deliveries, readers: Iterable[str]) -> Faults:
    """Yield acknowledged messages that one of `readers` lacks, and delivered ones that were
    replaced.
    """
    shown: defaultdict[QueuePlace, dict[str, None]] = defaultdict(dict)  # in the order of showing
    for each in deliveries:
        shown[each.place].pop(each.message, None)
        shown[each.place][each.message] = None
    got = {(each.reader, each.place, each.message) for each in deliveries}
    counted = set()
    for send in sends:
        place = send.place
        if place is None or (place, send.message) in counted:
            continue
        missing = [name for name in readers if (name, place, send.message) not in got]
        if missing:
            counted.add((place, send.message))
            instead = ", ".join(shown.get(place, ())) or "nothing"
            text = f"{send.message} was acknowledged at {place}; reader {missing[0]!r} lacks it"
            yield place.queue, f"{text}; delivered from there: {instead}"
    for place, messages in shown.items():
        *replaced, kept = messages
        for message in replaced:
            if (place, message) not in counted:
                yield place.queue, f"{message} was delivered from {place}, then {kept} was"


def duplicated(deliveries: Deliveries) -> Faults:
    """Yield messages that a reader got before."""
    first: dict[tuple[str, str, str], QueuePlace] = {}
    for _, reader, place, message in deliveries:
        key = reader, place.queue.topic, message
        if key in first:
            yield place.queue, f"{message} was delivered from {first[key]}, then from {place}"
        first.setdefault(key, place)


def delivered_late(deliveries: Deliveries) -> Faults:
    """Yield messages that a reader got after those of higher offsets."""
    highest: dict[tuple[str, MessageQueue], RecordedDelivery] = {}
    known = set()
    for each in deliveries:
        place, key = each.place, (each.reader, each.place.queue)
        last = highest.setdefault(key, each)
        if place.offset >= last.place.offset:
            highest[key] = each
        elif (each.reader, place) not in known:  # else it is a duplicate
            text = f"{each.message} at {place} was delivered after"
            yield place.queue, f"{text} {last.message} at {last.place}"
        known.add((each.reader, place))


def stored_early(sends: Sends, deliveries: Deliveries) -> Faults:
    """Yield messages that are stored before one that was acknowledged before they were sent."""
    stored: dict[tuple[QueuePlace, str], tuple[int, float]] = {}  # when sends began and ended
    for send in sends:
        if send.place is not None:  # a retry that was deduplicated has the same place
            begun, ended = stored.get((send.place, send.message), (send.begun, send.ended))
            stored[send.place, send.message] = min(begun, send.begun), min(ended, send.ended)
    # Any send of the message may have stored it elsewhere: assume the first, which forbids least.
    first = {send.message: send.begun for send in reversed(sends)}
    for each in deliveries:
        if each.message in first:
            stored.setdefault((each.place, each.message), (first[each.message], inf))
    earliest: dict[MessageQueue, tuple[float, str]] = {}  # acknowledgement at higher offsets
    for place, here in groupby(sorted(stored, reverse=True), key=lambda each: each[0]):
        messages = [message for _, message in here]
        acknowledged, other = earliest.get(place.queue, (inf, ""))
        for message in messages:
            if acknowledged < stored[place, message][0]:
                text = f"{message} at {place} is stored before {other}, which was acknowledged"
                yield place.queue, f"{text} before the send of {message} began"
        earliest[place.queue] = min(
            (acknowledged, other), *((stored[place, each][1], each) for each in messages)
        )


def phantoms(sends: Sends, deliveries: Deliveries) -> Faults:
    """Yield messages that were delivered from a queue, and not sent there before."""
    by_message: defaultdict[str, list[RecordedSend]] = defaultdict(list)
    for send in sends:
        by_message[send.message].append(send)
    counted = set()
    for moment, _, place, message in deliveries:
        if (place, message) not in counted and not any(
            send.begun < moment and send.may_have_reached(place.queue)
            for send in by_message[message]
        ):
            counted.add((place, message))
            yield place.queue, f"{message} was delivered from {place}, and not sent there before"


def queue_of(send: RecordedSend, found_in: dict[str, MessageQueue]) -> MessageQueue:
    """Return the queue in whose numbers a send counts: where it is, or was to go, or was found."""
    if send.place is not None:
        return send.place.queue
    if isinstance(send.destination, MessageQueue):
        return send.destination
    found = found_in.get(send.message)
    if found is not None and found.topic == send.destination:
        return found
    return MessageQueue(send.destination, "", UNKNOWN_QUEUE)


def queue_text(queue: MessageQueue) -> str:
    """Return the name of a queue in reports."""
    number = "?" if queue.queue_id == UNKNOWN_QUEUE else queue.queue_id
    return f"{queue.topic}/{queue.broker_name or '?'}/{number}"
