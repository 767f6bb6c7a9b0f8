"""What each topic of a broker must have, while topics are deleted and created again and the broker
is killed: a model without any broker.

A topic has lives, from a creation to the next deletion. A change that was not acknowledged may or
may not outlive a crash, so a topic has the candidates that a restart may show; the restart must
show one of them as a whole. Messages of later candidates, none of which was acknowledged, may be
there too: a deletion that did not happen lets the sends behind it go to the life that it should
have ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

Place = tuple[int, int]  # a queue, and an offset in it
_NUMBERS = count(1)  # of all messages, in the order of sending


class Read(NamedTuple):
    """One message as a consumer gets it."""

    queue: int
    offset: int
    body: bytes


@dataclass(slots=True, eq=False)
class Life:
    """The messages of one life of a topic; of none, `exists` is False, and there are no
    messages.
    """

    name: str
    exists: bool = True
    attempted: set[bytes] = field(default_factory=set)
    known: dict[Place, bytes] = field(
        default_factory=dict
    )  # acknowledged, or read once: there for good

    def next_body(self, padding: int) -> bytes:
        """The next message to send."""
        body = b"%s %d " % (self.name.encode(), next(_NUMBERS)) + b"x" * padding
        self.attempted.add(body)
        return body

    def acknowledge(self, place: Place, body: bytes) -> bool:
        """Note that a message was stored there; False if the place was given before."""
        return self.known.setdefault(place, body) == body


class Differences(NamedTuple):
    """What a topic has too little or too much, in words."""

    lost: list[str]  # acknowledged, or read before, and not there
    phantom: list[str]  # read, and not sent in this life
    duplicated: list[str]
    misplaced: list[str]  # not in the order of sending, or an offset at which nothing is

    def __bool__(self) -> bool:
        return any(map(len, self))


def differences(life: Life, later: Sequence[Life], reads: Sequence[Read]) -> Differences:
    """Compare what was read of a topic with a life, if nothing of `later` ones was acknowledged."""
    places = {(read.queue, read.offset): read.body for read in reads}
    counts = Counter(read.body for read in reads)
    twice = [f"{body[:30]!r} is read {count} times" for body, count in counts.items() if count > 1]
    attempted = (
        life.attempted.union(*(each.attempted for each in later)) if life.exists else set[bytes]()
    )
    missing = [
        (place, body, places.get(place, b"nothing"))
        for place, body in life.known.items()
        if places.get(place) != body
    ]
    return Differences(
        lost=[
            f"{body[:30]!r} is not at {place} but {found[:30]!r}" for place, body, found in missing
        ],
        phantom=[
            f"{read.body[:30]!r} at {read.queue, read.offset}"
            for read in reads
            if read.body not in attempted
        ],
        duplicated=twice
        + (
            [f"{len(reads) - len(places)} offsets are read twice"]
            if len(places) < len(reads)
            else []
        ),
        misplaced=_misplaced(reads),
    )


def _misplaced(reads: Sequence[Read]) -> list[str]:
    found = []
    for queue in sorted({read.queue for read in reads}):
        of_queue = [read for read in reads if read.queue == queue]
        if (offsets := [read.offset for read in of_queue]) != list(range(len(of_queue))):
            found.append(f"queue {queue} has the offsets {offsets}")
        numbers = [int(read.body.split(b" ")[1]) for read in of_queue]
        if numbers != sorted(numbers):
            found.append(f"queue {queue} has the messages {numbers}")
    return found


class Topic:
    """One name, and the lives that a restart may show; the last is that of the running broker."""

    def __init__(self, name: str, queues: int) -> None:
        self.name = name
        self.queues = queues
        self._count = 0
        self.candidates = [Life(f"{name}/0", exists=False)]

    @property
    def life(self) -> Life:
        return self.candidates[-1]

    def begin(self) -> Life:
        """A creation was asked for."""
        return self._next(exists=True)

    def end(self) -> Life:
        """A deletion was asked for."""
        return self._next(exists=False)

    def _next(self, *, exists: bool) -> Life:
        self._count += 1
        self.candidates.append(Life(f"{self.name}/{self._count}", exists=exists))
        return self.life

    def settle(self, life: Life) -> None:
        """That the life began was acknowledged: no restart shows an earlier one."""
        if life in self.candidates:
            del self.candidates[: self.candidates.index(life)]

    def shown(self, *, exists: bool, reads: Sequence[Read]) -> Differences:
        """Compare with what a restart shows. The candidate that it is becomes the only one; if it
        is none, how the nearest differs.
        """
        compared = self._compared(reads)
        possible = [each for each in compared if each[1].exists == exists]
        nearest, life = min(possible or compared, key=lambda each: sum(map(len, each[0])))
        if not possible:
            nearest.misplaced.append(
                f"{self.name} {'exists, and was deleted' if exists else 'is gone'}"
            )
        if not nearest:
            later = self.candidates[self.candidates.index(life) + 1 :]
            life.attempted.update(*(each.attempted for each in later))
            self.candidates = [life]
            life.known |= {(read.queue, read.offset): read.body for read in reads}
        return nearest

    def excess(self, reads: Sequence[Read]) -> Differences:
        """What no candidate may show, even if it lacks messages."""
        return min(
            (found._replace(lost=[]) for found, _ in self._compared(reads)),
            key=lambda found: sum(map(len, found)),
        )

    def _compared(self, reads: Sequence[Read]) -> list[tuple[Differences, Life]]:
        """Every candidate, the last first."""
        lives = self.candidates
        return [
            (differences(lives[at], lives[at + 1 :], reads), lives[at])
            for at in reversed(range(len(lives)))
        ]
