"""What the tests of damaged stores share: a store that knows what it should have, and what can
happen to a file.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from orbitmq.message.record import decode_all
from orbitmq.store.message_store import MessageStore
from orbitmq.store.recovery import LostLogError
from orbitmq.store.topic_lives import LivesProof
from orbitmq.store.types import QueueKey
from orbitmq.testing.manual_clock import ManualClock
from support.store import derived_files
from support.store.indexes import UnsyncedLayer
from support.store.logs import NOW_MS
from support.store.stores import new_store, numbers, order

TOPICS = ("orders", "audit")
QUEUES = [QueueKey(topic, queue_id) for topic in TOPICS for queue_id in range(2)]


class Lives:
    """Topics as their owner keeps them, whatever happens to the store."""

    def __init__(self) -> None:
        self.begins: dict[str, int] = dict.fromkeys(TOPICS, 0)

    def load(self) -> None: ...

    def exists(self, topic: str) -> bool:
        return topic in self.begins

    def begin_of(self, topic: str) -> int:
        return self.begins.get(topic, 0)

    def beginnings(self) -> Mapping[str, int] | None:
        return self.begins

    def begin_again(self, topic: str, log_offset: int) -> None:
        raise AssertionError(f"{topic} begins at {self.begins.get(topic)}, not at {log_offset}")

    def learn(self, proven: LivesProof, log_end: int) -> None:
        assert all(
            proven.begin_of(topic) <= begin <= log_end for topic, begin in self.begins.items()
        )


class Stored:
    """A store that messages were put into and topics deleted in, and which messages each queue
    should have.
    """

    def __init__(self, root: Path, lives: Lives, **settings: Any) -> None:
        self.root = root
        self.lives = lives
        self.expected: dict[QueueKey, list[int]] = defaultdict(list)
        self.logged: dict[str, list[int]] = defaultdict(list)  # by topic, whichever life of it
        self._settings = settings
        self._next = 0
        self.store = self.open()

    def open(self) -> MessageStore:
        self.store = new_store(
            self.root, UnsyncedLayer(), ManualClock(NOW_MS), lives=self.lives, **self._settings
        )
        self.store.open()
        return self.store

    def is_refused(self) -> bool:
        """Open the store; whether it is not, because manifest and checkpoint know of a longer log:
        those of another store do.
        """
        try:
            self.open()
        except LostLogError as error:
            return all(name in str(error) for name in ("queues.manifest", "checkpoint"))
        return False

    def put(self, queue: QueueKey, count: int) -> None:
        if queue.topic not in self.lives.begins:
            self.lives.begins[queue.topic] = self.store.log.end_offset
        for _ in range(count):
            self.store.put(order(self._next, queue))
            self.expected[queue].append(self._next)
            self.logged[queue.topic].append(self._next)
            self._next += 1

    def continue_from(self, other: Stored) -> None:
        """Know what the other knows of the same store."""
        self.expected, self.logged, self._next = other.expected, other.logged, other._next

    def delete(self, topic: str) -> None:
        self.lives.begins.pop(topic, None)
        self.store.delete_topic(topic)
        for queue in QUEUES:
            if queue.topic == topic:
                self.expected.pop(queue, None)

    def copy(self, to: Path) -> None:
        """What somebody has who copies the store while it is open."""
        shutil.copytree(self.root, to)

    def check(self) -> None:
        """Every queue has its messages, and the next one comes behind them."""
        for queue in QUEUES:
            expected = self.expected.get(queue, [])
            if queue.topic in self.lives.begins:
                assert numbers(self.store, queue) == expected, queue
                assert self.store.queues.max_offset(*queue) == len(expected)
            else:
                assert self.store.queues.max_offset(*queue) == 0, queue

    def check_index(self) -> None:
        """Every message of the log is found by its key, once, and by its tags with all others that
        have them.
        """
        for topic, logged in self.logged.items():
            for number in logged:
                assert self._found(topic, f"k{number}") == [number], (topic, number)
            assert self._found(topic, "t", by_tags=True) == logged, topic

    def _found(self, topic: str, key: str, *, by_tags: bool = False) -> list[int]:
        result = self.store.reads.query_records(topic, key, count_max=10_000, by_tags=by_tags)
        return [int(message.body[:6]) for message in decode_all(result.records)]


Damage = Callable[
    [Path, Path, Path], None
]  # of a path, with an older copy of it, and another broker's


KINDS: tuple[Damage, ...] = (
    lambda path, _older, _other: derived_files.unlink(path),
    lambda path, _older, _other: derived_files.zero(path),
    lambda path, _older, _other: derived_files.cut(path),
    lambda path, older, _other: derived_files.replace(path, older),
    lambda path, _older, other: derived_files.replace(path, other),
)


@st.composite
def damages(draw: st.DrawFn) -> Damage:
    if (kind := draw(st.sampled_from([*KINDS, None, None, None]))) is not None:
        return kind
    place, bit = draw(st.floats(0, 1, exclude_max=True)), draw(st.integers(0, 7))
    return lambda path, _older, _other: derived_files.flip(path, place, bit)


PUTS = st.tuples(st.just("put"), st.sampled_from(QUEUES), st.integers(1, 30))
DELETES = st.tuples(st.just("delete"), st.sampled_from(TOPICS))
STEPS = st.lists(
    st.one_of(PUTS, PUTS, PUTS, DELETES, st.just(("restart",)), st.just(("copy",))),
    min_size=1,
    max_size=8,
)


def run_steps(stored: Stored, steps: list[tuple], older: Path) -> None:  # type: ignore[type-arg]
    """Do what was drawn; `older` is a copy of the store in the middle of it, if there is one."""
    for step in steps:
        match step:
            case ("put", queue, count):
                stored.put(queue, count)
            case ("delete", topic):
                stored.delete(topic)
            case ("restart",):
                stored.store.close()
                stored.open()
            case ("copy",) if not older.exists():
                stored.copy(older)


def inflict(
    root: Path,
    older: Path,
    other: Path,
    files: Callable[[Path], list[Path]],
    wanted: list[tuple[int, Damage]],
) -> None:
    """Damage the files that are there, one after the other."""
    for place, damage in wanted:
        if found := files(root):
            path = found[place % len(found)]
            damage(path, older / path.relative_to(root), other / path.relative_to(root))
