"""An index under any order of puts, commits, queries, cuts, cleanings, restarts and kills finds
what a list of records would.
"""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq.store.index import Index, tags_key
from orbitmq.store.index_file import IndexFileState, IndexShape
from orbitmq.store.types import LogOffset
from support.store.indexes import ALWAYS, TIME_MS, Keyed, UnsyncedLayer, make_index

KEYS = ("a", "b", "c", "键")
TOPICS = ("One", "Two", "三")
SHAPE = IndexShape(3, 8)


class IndexMachine(RuleBasedStateMachine):
    """The model: all records, how far they are committed, what the manifest says, and how much of
    the log is there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="orbitmq-index-")
        self.index = self.make()
        self.records: list[Keyed] = []
        self.committed_end = 0
        self.states: tuple[IndexFileState, ...] = ()
        self.described = 0  # the log offset before which all is in the states
        self.log_min = 0
        self.log_end = 0
        self.now_ms = TIME_MS

    def make(self) -> Index:
        return make_index(Path(self.folder.name), UnsyncedLayer(), SHAPE)

    @rule(
        topic=st.sampled_from(TOPICS),
        unique_key=st.none() | st.sampled_from(KEYS),
        keys=st.lists(st.sampled_from(KEYS), max_size=4),
        tags=st.none() | st.sampled_from(KEYS),
        size=st.integers(1, 100),
        passed_ms=st.integers(0, 5000),
    )
    def put(
        self,
        topic: str,
        unique_key: str | None,
        keys: list[str],
        tags: str | None,
        size: int,
        passed_ms: int,
    ) -> None:
        self.now_ms += passed_ms
        record = Keyed(self.log_end, self.now_ms, topic, unique_key, " ".join(keys) or None, tags)
        self.index.put(record.cursor())
        self.records.append(record)
        self.log_end += size

    @rule()
    def commit(self) -> None:
        self.index.commit()
        self.committed_end = self.log_end

    @rule()
    def restart(self) -> None:
        self.committed_end = self.log_end
        self.index.stop()
        states, self.index = self.index.states, self.make()
        assert self.index.load(states, LogOffset(self.log_min)) is None

    @rule()
    def describe(self) -> None:
        """The manifest is written."""
        self.states, self.described = self.index.states, self.committed_end

    @rule()
    def kill_and_dispatch_again(self) -> None:
        """What the manifest knew is there; all that is missing is dispatched again."""
        self.index.close()
        self.index = self.make()
        assert self.index.load(self.states, LogOffset(self.log_min)) is None
        for record in self.records:
            if record.log_offset < self.described:
                assert all(
                    record.log_offset in self.found(record.topic, key) for key in keys_of(record)
                )
            else:
                self.index.put(record.cursor())
        self.commit()

    @rule(data=st.data())
    def lose_the_end_of_the_log(self, data: st.DataObject) -> None:
        self.commit()
        self.log_end = data.draw(
            st.sampled_from([self.log_end, *(record.log_offset for record in self.records)])
        )
        self.log_end = max(self.log_end, self.log_min)
        self.index.truncate(LogOffset(self.log_end))
        self.records = [record for record in self.records if record.log_offset < self.log_end]
        self.committed_end = self.log_end
        self.describe()

    @rule(data=st.data())
    def lose_the_beginning_of_the_log(self, data: st.DataObject) -> None:
        self.log_min = data.draw(st.integers(self.log_min, self.log_end))
        self.index.delete_before(LogOffset(self.log_min))
        gone = sum(record.log_offset < self.log_min for record in self.records)
        self.records = self.records[gone:]

    def found(self, topic: str, key: str, limit: int = 10_000) -> list[int]:
        return list(self.index.query(topic, key, limit, *ALWAYS).offsets)

    @invariant()
    def finds_what_the_list_has(self) -> None:
        """The newest first; of records that the log has no more, some may still be found."""
        for topic in TOPICS:
            for key in (*KEYS, *map(tags_key, KEYS)):
                expected = [
                    record.log_offset
                    for record in reversed(self.records)
                    if record.topic == topic and key in keys_of(record)
                ]
                found = self.found(topic, key)
                assert [offset for offset in found if offset >= self.log_min] == expected
                assert self.found(topic, key, 2) == found[:2]

    @rule(begin=st.integers(-1000, 60_000), length=st.integers(0, 20_000))
    def query_by_time(self, begin: int, length: int) -> None:
        begin_ms = TIME_MS + begin
        for key in KEYS:
            hits = self.index.query("One", key, 10_000, begin_ms, begin_ms + length).offsets
            assert set(hits) <= set(self.found("One", key))

    @invariant()
    def never_holds_more_in_a_file_than_fits(self) -> None:
        headers = [file.header for file in self.index.files]
        assert all(header.entry_count == SHAPE.entries for header in headers[:-1])
        assert all(header.entry_count <= SHAPE.entries for header in headers)
        assert all(before.end_offset <= after.begin_offset for before, after in pairwise(headers))

    def teardown(self) -> None:
        self.index.close()
        self.folder.cleanup()


def keys_of(record: Keyed) -> set[str]:
    found = {
        record.unique_key,
        *(record.keys or "").split(" "),
        record.tags and tags_key(record.tags),
    }
    return {key for key in found if key}


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=60, stateful_step_count=30)
