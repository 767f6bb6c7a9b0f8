"""What clients saw of messages, and a report of what they should not have seen.

A `MessageHistory` records sends with their outcomes, and deliveries, in the order in which they
happen; `check` counts the faults by the rules of `history_faults`. A topic has one life: record a
topic that is deleted and created again under another name. `is_linearizable` is the check for
values that are overwritten, such as committed offsets. Knows no broker and no clock.

Invariant: a send has one outcome, so attempted = acknowledged + indeterminate + refused. Thread
rule: one thread.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.testing import history_faults
from orbitmq.testing.history_faults import (
    QueuePlace,
    RecordedDelivery,
    RecordedSend,
    SendOutcome,
    queue_of,
    queue_text,
)
from orbitmq.testing.register_histories import is_linearizable

__all__ = ["MessageHistory", "MessageReport", "MessageTally", "RecordedSend", "is_linearizable"]

EXAMPLES_MAX: Final = 5  # faults of each kind that a report names
FAULTS: Final = ("lost", "duplicated", "reordered", "phantom")


@dataclass(slots=True)
class MessageTally:
    """The numbers of one queue, or of all."""

    attempted: int = 0
    acknowledged: int = 0
    indeterminate: int = 0
    delivered: int = 0  # different messages at different offsets, by any reader
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    phantom: int = 0

    def faults(self) -> dict[str, int]:
        """Return the kinds of faults that there are, with their numbers."""
        return {kind: count for kind in FAULTS if (count := getattr(self, kind))}


@dataclass(slots=True)
class MessageReport:
    """The result of a check: totals, the numbers of each queue, and examples by kind of fault."""

    totals: MessageTally = field(default_factory=MessageTally)
    queues: dict[MessageQueue, MessageTally] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        """Whether there are no faults."""
        return not self.totals.faults()

    def line(self, **more: object) -> str:
        """Return one line of JSON: `more`, such as a seed, then the totals, and what is wrong in
        which queue.
        """
        faulty = {
            queue_text(queue): faults
            for queue, tally in sorted(self.queues.items())
            if (faults := tally.faults())
        }
        return json.dumps(
            {**more, **asdict(self.totals), "faulty_queues": faulty, "examples": self.examples}
        )

    def count(self, kind: str, queue: MessageQueue, example: str | None = None) -> None:
        """Count one event of `kind`, and keep the example if it is among the first."""
        for tally in (self.totals, self.queues.setdefault(queue, MessageTally())):
            setattr(tally, kind, getattr(tally, kind) + 1)
        if example is not None and len(named := self.examples.setdefault(kind, [])) < EXAMPLES_MAX:
            named.append(example)


class MessageHistory:
    """Sends and deliveries of uniquely named messages, in the order in which they happened."""

    def __init__(self) -> None:
        self._moment = 0
        self._sends: list[RecordedSend] = []
        self._deliveries: list[RecordedDelivery] = []

    def attempt(self, message: str, destination: MessageQueue | str) -> RecordedSend:
        """Record the begin of a send to a queue, or to a topic if the client chooses no queue; call
        the result's methods to record the outcome.
        """
        send = RecordedSend(
            message=message,
            destination=destination,
            next_moment=self._next_moment,
            begun=self._next_moment(),
        )
        self._sends.append(send)
        return send

    def deliver(self, message: str, queue: MessageQueue, offset: int, *, reader: str = "") -> None:
        """Record a delivery; `reader` is a consumer group, or one reading of whole queues."""
        self._deliveries.append(
            RecordedDelivery(self._next_moment(), reader, QueuePlace(queue, offset), message)
        )

    def check(self, readers: Sequence[str] | None = None) -> MessageReport:
        """Count the faults. Every acknowledged message must have reached each of `readers`: those
        that read to the end, by default all of them.
        """
        sends, deliveries = self._sends, self._deliveries
        if readers is None:
            readers = sorted({each.reader for each in deliveries}) or [""]
        report = MessageReport()
        found_in = {each.message: each.place.queue for each in reversed(deliveries)}
        for send in sends:
            queue = queue_of(send, found_in)
            report.count("attempted", queue)
            if send.outcome is not SendOutcome.REFUSED:
                report.count(send.outcome.value, queue)
        for place, _ in dict.fromkeys((each.place, each.message) for each in deliveries):
            report.count("delivered", place.queue)
        for kind, faults in (
            ("lost", history_faults.lost(sends, deliveries, readers)),
            ("duplicated", history_faults.duplicated(deliveries)),
            ("reordered", history_faults.delivered_late(deliveries)),
            ("reordered", history_faults.stored_early(sends, deliveries)),
            ("phantom", history_faults.phantoms(sends, deliveries)),
        ):
            for queue, example in faults:
                report.count(kind, queue, example)
        return report

    def _next_moment(self) -> int:
        self._moment += 1
        return self._moment
