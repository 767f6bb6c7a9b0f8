"""Whatever happens to topics.json, to the manifest and to other files that follow from the log, in
any combination, after topics were deleted and created again: a start gives exactly the messages of
the present life of each topic, or refuses and names the file.

What a start can know is computed by a model. With topics.json as it was, everything. Without it,
everything too after a clean stop whose manifest is there; else it may take a message of an earlier
life for one of the present, but none of another queue, and none twice.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.broker.metadata.persistent_file import ConfigFile
from orbitmq.broker.metadata.topics import TopicRules, Topics
from orbitmq.common.errors import CorruptFileError
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.store.recovery import LostLogError
from orbitmq.store.types import QueueKey
from orbitmq.testing.manual_clock import ManualClock
from support.broker.manual_worker import InlineWorker, ManualLoop
from support.store import derived_files
from support.store.damage import Damage, damages, inflict
from support.store.indexes import UnsyncedLayer
from support.store.logs import NOW_MS
from support.store.stores import BATCH_SIZE, batch, new_store, numbers, order

PLAIN, BATCH = ("orders", "audit"), "bulk"
QUEUES = [QueueKey(topic, queue_id) for topic in (*PLAIN, BATCH) for queue_id in range(2)]
QUEUE_COUNT = 2


class BrokerStore:
    """A store and its topics as a broker has them, and which records each queue should have."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.expected: dict[QueueKey, list[int]] = defaultdict(list)
        self.logged: dict[QueueKey, list[int]] = defaultdict(list)  # of any life
        self._next = 0
        self.open()
        self.topics.renew()  # topics.json is there from the start
        self.loop.run()

    def open(self) -> None:
        self.loop = ManualLoop()
        self.topics = Topics(
            TopicRules(broker_name="broker-a"),
            ConfigFile(self.topics_file, InlineWorker(), self.loop),
            ManualClock(NOW_MS),
            lambda _names: None,
            messages=self,
        )
        self.store = new_store(
            self.root, UnsyncedLayer(), ManualClock(NOW_MS), self.topics,
            batch_queue_file_size=46 * 4,
        )  # fmt: skip
        self.store.open()
        counts: dict[str, int] = {}
        for key in (*self.store.queues.plain, *self.store.queues.batch):
            counts[key.topic] = max(counts.get(key.topic, 0), key.queue_id + 1)
        self.topics.restore(counts)
        self.loop.run()

    @property
    def topics_file(self) -> Path:
        return self.root / "config" / "topics.json"

    def has_messages(self, topic: str) -> bool:
        return self.store.queues.has_messages(topic)

    def log_end(self) -> int:
        return self.store.log.end_offset

    def create(self, topic: str) -> None:
        if self.topics.find(topic) is None:
            self.topics.update(TopicConfig(topic, QUEUE_COUNT, QUEUE_COUNT))
            self.loop.run()

    def delete(self, topic: str) -> None:
        if self.topics.find(topic) is not None:
            self.topics.delete(topic)
            self.loop.run()
            self.store.delete_topic(topic)
            for queue in QUEUES:
                if queue.topic == topic:
                    self.expected.pop(queue, None)

    def put(self, queue: QueueKey, count: int) -> None:
        self.create(queue.topic)
        for _ in range(count):
            self.store.put((batch if queue.topic == BATCH else order)(self._next, queue))
            self.expected[queue].append(self._next)
            self.logged[queue].append(self._next)
            self._next += 1

    def end(self, *, clean: bool) -> None:
        if clean:
            self.store.close()
        else:
            self.store.abandon()

    def found(self) -> dict[QueueKey, list[int]]:
        return {queue: read for queue in QUEUES if (read := numbers(self.store, queue))}

    def check(self, *, exactly: bool) -> None:
        """Every queue has its messages, and the next one comes behind them."""
        found = self.found()
        if exactly:
            assert found == {queue: records for queue, records in self.expected.items() if records}
        for queue, records in found.items():
            assert records == sorted(set(records))
            assert set(records) <= set(self.logged[queue])
            places = BATCH_SIZE if queue.topic == BATCH else 1
            end = self.store.queues.max_offset(*queue)
            assert end == places * len(records) or (end > places * len(records) and not exactly)


PUTS = st.tuples(st.just("put"), st.sampled_from(QUEUES), st.integers(1, 12))
DELETES = st.tuples(st.just("delete"), st.sampled_from((*PLAIN, BATCH)))
STEPS = st.lists(st.one_of(PUTS, PUTS, DELETES, st.just(("restart",))), min_size=1, max_size=5)


def run(broker: BrokerStore, steps: list[tuple]) -> None:  # type: ignore[type-arg]
    """Do what was drawn."""
    for step in steps:
        match step:
            case ("put", queue, count):
                broker.put(queue, count)
            case ("delete", topic):
                broker.delete(topic)
            case ("restart",):
                broker.end(clean=True)
                broker.open()


HARM: dict[str, Callable[[Path, bytes], object]] = {
    "an older file": lambda path, old: path.write_bytes(old),
    "a cut file": lambda path, _old: derived_files.cut(path),
    "no file": lambda path, _old: path.unlink(),
    "neither file nor backup": lambda path, _old: derived_files.unlink_all(
        (path, path.with_name(path.name + ".bak"))
    ),
}


@settings(max_examples=150, deadline=None)
@given(
    STEPS,
    st.lists(DELETES, max_size=2),
    STEPS,
    st.booleans(),
    st.sampled_from([None, *HARM]),
    st.lists(st.tuples(st.integers(0, 50), damages()), max_size=3),
)
def test_a_start_has_the_present_life_of_every_topic_or_says_what_it_lacks(
    first: list[tuple],  # type: ignore[type-arg]
    deleted: list[tuple],  # type: ignore[type-arg]
    second: list[tuple],  # type: ignore[type-arg]
    is_clean: bool,
    harm: str | None,
    wanted: list[tuple[int, Damage]],
) -> None:
    with tempfile.TemporaryDirectory(prefix="orbitmq-topics-") as folder:
        root, older, other = Path(folder, "store"), Path(folder, "older"), Path(folder, "other")
        others = BrokerStore(other)
        for queue in QUEUES[1:]:
            others.put(queue, 5)
        others.end(clean=True)
        broker = BrokerStore(root)
        run(broker, first)
        shutil.copytree(root, older)
        run(broker, [*deleted, *second])
        broker.end(clean=is_clean)
        before = contents(root)
        if harm is not None:
            HARM[harm](broker.topics_file, (older / "config/topics.json").read_bytes())
        inflict(root, older, other, derived_files.queue_files, wanted)
        changed = {name for name, content in contents(root).items() if before[name] != content}
        refusal = refusal_of(broker)
        if isinstance(refusal, LostLogError):
            assert is_clean
            assert changed & {"queues.manifest", "checkpoint"}
            assert all(name in str(refusal) for name in ("queues.manifest", "checkpoint"))
            return
        if refusal is not None:
            assert "config/topics.json" in changed
            assert str(broker.topics_file) in str(refusal)
            return
        exactly = "config/topics.json" not in changed or (
            is_clean and "queues.manifest" not in changed
        )
        broker.check(exactly=exactly)
        for _ in range(2):
            found = broker.found()
            broker.end(clean=True)
            broker.open()
            assert broker.found() == found, "another start sees the same"
        broker.end(clean=True)


def refusal_of(broker: BrokerStore) -> Exception | None:
    """Open the store; why it could not be."""
    try:
        broker.open()
    except (LostLogError, CorruptFileError) as error:
        return error
    return None


def contents(root: Path) -> dict[str, bytes | None]:
    """The files that say which topics there are, and what is proven."""
    names = ("config/topics.json", "queues.manifest", "checkpoint")
    return {name: (root / name).read_bytes() if (root / name).exists() else None for name in names}


def two_lives(root: Path, topic: str = "orders") -> tuple[BrokerStore, bytes]:
    """A topic that was deleted and created again, and topics.json of its first life."""
    broker = BrokerStore(root)
    first, second = QueueKey(topic, 0), QueueKey(topic, 1)
    broker.put(first, 20)
    broker.put(second, 5)
    old = broker.topics_file.read_bytes()
    broker.delete(topic)
    broker.put(first, 4)
    return broker, old


@pytest.mark.parametrize("has_manifest", [False, True], ids=["no manifest", "manifest"])
@pytest.mark.parametrize("new_queues", [(0,), (1,), (0, 1)])
def test_a_deletion_that_was_not_saved_happened_to_the_whole_topic_or_not_at_all(
    tmp_path: Path, has_manifest: bool, new_queues: tuple[int, ...]
) -> None:
    """Acknowledged messages of some queues must not go while those of their neighbours stay."""
    broker = BrokerStore(tmp_path)
    queues = [QueueKey("orders", queue_id) for queue_id in range(2)]
    for queue in queues:
        broker.put(queue, 3)
    if has_manifest:
        broker.end(clean=True)
        broker.open()
    for queue in queues:
        broker.put(queue, 2)
    before, saved = broker.found(), broker.topics_file.read_bytes()
    broker.delete("orders")
    for queue_id in new_queues:
        broker.put(queues[queue_id], 1)
    after = broker.found()
    broker.end(clean=False)
    broker.topics_file.write_bytes(saved)
    broker.open()
    assert broker.found() in (before, after)
    broker.end(clean=True)


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.getMessage().startswith(event) and record.levelno >= logging.WARNING
    ]


@pytest.mark.parametrize("topic", ["orders", BATCH])
@pytest.mark.parametrize("queues", ["kept", "missing"])
@pytest.mark.parametrize("harm", HARM)
def test_the_manifest_tells_which_life_of_a_topic_is_the_present_one(
    harm: str, queues: str, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker, old = two_lives(tmp_path, topic)
    broker.end(clean=True)
    HARM[harm](broker.topics_file, old)
    if queues == "missing":
        for path in derived_files.queue_files(tmp_path):
            if path.parent.parent.name == topic:
                path.unlink()
    broker.open()
    broker.check(exactly=True)
    if harm == "an older file":
        (line,) = told(caplog, "topic_begin_corrected")
        assert f"topic={topic} " in line
        assert " begin=0 corrected=" in line
    caplog.clear()
    broker.put(QueueKey(topic, 0), 2)
    broker.end(clean=True)
    broker.open()
    broker.check(exactly=True)
    assert told(caplog, "topic") == []
    broker.end(clean=True)


def test_a_topic_that_the_manifest_of_a_clean_stop_does_not_list_stays_without_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = BrokerStore(tmp_path)
    broker.put(QueueKey("orders", 0), 20)
    broker.delete("orders")
    broker.put(QueueKey("audit", 0), 3)
    broker.end(clean=True)
    derived_files.cut(broker.topics_file)
    broker.open()
    broker.check(exactly=True)
    assert broker.topics.find("orders") is None
    assert told(caplog, "topic_restored topic=orders") == []
    broker.end(clean=True)


def test_topics_that_an_older_file_lacks_are_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = BrokerStore(tmp_path)
    broker.put(QueueKey("orders", 0), 2)
    old = broker.topics_file.read_bytes()
    broker.put(QueueKey("audit", 1), 3)
    broker.end(clean=True)
    broker.topics_file.write_bytes(old)
    broker.open()
    broker.check(exactly=True)
    assert len(told(caplog, "topics_file_older")) == 1
    assert len(told(caplog, "topic_restored topic=audit queues=2")) == 1
    broker.end(clean=True)


def test_where_nothing_is_proven_a_start_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker, _old = two_lives(tmp_path)
    broker.end(clean=True)
    derived_files.cut(broker.topics_file)
    for path in derived_files.queue_files(tmp_path):
        path.unlink()
    broker.open()
    broker.check(exactly=False)
    assert len(told(caplog, "topic_begins_unproven")) == 1
    assert len(told(caplog, "record_left_out")) == 1
    broker.end(clean=True)


def test_queues_that_a_topic_does_not_have_any_more_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = BrokerStore(tmp_path)
    broker.put(QueueKey("orders", 1), 3)
    broker.topics.update(TopicConfig("orders", 1, 1))
    broker.loop.run()
    broker.end(clean=True)
    broker.open()
    (line,) = told(caplog, "topic_queues_hidden")
    assert "topic=orders queues=1 found=2" in line
    assert "orbitmq topic update orders --queues 2" in line
    broker.end(clean=True)
