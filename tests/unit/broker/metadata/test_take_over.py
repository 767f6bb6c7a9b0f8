"""The tables of a slave take over the changes of its master, with its versions, and a restart has
them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.metadata.bloom import Bloom
from orbitmq.broker.metadata.consume_modes import RequestModes
from orbitmq.broker.metadata.consumer_filters import ConsumerFilters
from orbitmq.broker.metadata.groups import GroupRules, Groups
from orbitmq.broker.metadata.persistent_file import ConfigFile
from orbitmq.broker.metadata.topics import TopicRules, Topics
from orbitmq.common.change_log import Position
from orbitmq.common.slices import finish
from orbitmq.protocol.bodies.consumer_filters import BloomPositions, FilterData
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.metadata_rows import GroupRow, OffsetsRow, TopicRow
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig
from orbitmq.protocol.bodies.request_modes import RequestMode
from orbitmq.testing.manual_clock import ManualClock
from support.broker.manual_worker import InlineWorker, ManualLoop
from support.broker.offsets import OffsetsRoom

VERSION = DataVersion(counter=42, timestamp=7, state_version=3)


class Tables:
    """Tables in a folder that outlives them."""

    def __init__(self, folder: Path) -> None:
        self.loop = ManualLoop()
        self.clock = ManualClock()
        self.registered: list[str] = []

        def file(name: str) -> ConfigFile:
            return ConfigFile(folder / name, InlineWorker(), self.loop)

        self.topics = Topics(
            TopicRules(broker_name="a"), file("topics.json"), self.clock, self.registered.extend
        )
        self.groups = Groups(GroupRules(), file("subscriptionGroup.json"), self.clock)
        self.modes = RequestModes(file("messageRequestMode.json"))
        self.filters = ConsumerFilters(
            Bloom.of(20, 32), file("consumerFilter.json"), self.clock, 1000
        )
        for table in (self.topics, self.groups, self.modes, self.filters):
            table.load()


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def test_topics_come_with_version_and_beginnings_and_are_registered(
    tables: Tables, tmp_path: Path
) -> None:
    topics = tables.topics
    topics.update(TopicConfig("Old"))
    tables.registered.clear()
    rows = [TopicRow(TopicConfig("T", 3, 3), 500), TopicRow(TopicConfig("U"), 0)]
    topics.take_over(rows, ["Old", "Unknown"], version=VERSION, log_end=900)
    assert topics.find("T") == TopicConfig("T", 3, 3)
    assert topics.find("Old") is None
    assert (topics.begin_of("T"), topics.begin_of("U"), topics.begin_of("Old")) == (500, 0, 900)
    assert topics.data_version == VERSION
    assert sorted(tables.registered) == ["Old", "T", "U"]
    assert not topics.is_saved("T")
    tables.loop.run()
    assert topics.is_saved("T")
    again = Tables(tmp_path).topics
    assert again.table == topics.table
    assert again.data_version == VERSION
    assert again.begin_of("T") == 500
    assert again.encode() == topics.encode()


def test_a_topic_that_is_taken_over_again_is_not_registered_again(tables: Tables) -> None:
    row = TopicRow(TopicConfig("T"), 5)
    tables.topics.take_over([row], [], version=VERSION, log_end=9)
    tables.registered.clear()
    tables.topics.take_over([row], [], version=VERSION, log_end=9)
    assert tables.registered == []


def test_the_version_is_a_new_object_so_that_the_fast_path_looks_again(tables: Tables) -> None:
    tables.topics.take_over([], [], version=VERSION, log_end=0)
    before = tables.topics.data_version
    tables.topics.take_over([], [], version=VERSION, log_end=0)
    assert tables.topics.data_version == before
    assert tables.topics.data_version is not before


def test_system_topics_stay_whatever_the_master_lacks(tables: Tables) -> None:
    before = dict(tables.topics.table)
    tables.topics.take_over([], list(before), version=VERSION, log_end=0)
    assert tables.topics.table == before


def test_a_take_over_is_no_change_of_its_own(tables: Tables) -> None:
    logs = (tables.topics.changes, tables.groups.changes, tables.modes.changes)
    before = [log.own_changes for log in logs]
    tables.topics.take_over([TopicRow(TopicConfig("T"), 0)], [], version=VERSION, log_end=0)
    tables.groups.take_over([GroupRow("g", GroupConfig("g"), {})], [], version=VERSION)
    tables.modes.take_over([RequestMode("T", "g", "PULL")], [])
    assert [log.own_changes for log in logs] == before
    assert all(log.since(Position(log.number - 1), 9).keys for log in logs)
    tables.topics.update(TopicConfig("U"))
    assert tables.topics.changes.own_changes == before[0] + 1


def test_groups_come_with_what_is_forbidden_to_them(tables: Tables, tmp_path: Path) -> None:
    groups = tables.groups
    groups.update(GroupConfig("old"))
    groups.set_readable("old", "T", False)
    rows = [
        GroupRow("g", GroupConfig("g", retry_max_times=3), {"T": 4}),
        GroupRow("unknown", None, {"U": 4}),
    ]
    groups.take_over(rows, ["old"], version=VERSION)
    assert "old" not in groups
    assert groups.is_readable("old", "T")
    assert not groups.is_readable("g", "T")
    assert not groups.is_readable("unknown", "U")
    assert groups.row("unknown") == rows[1]
    assert groups.row("old") is None
    tables.loop.run()
    again = Tables(tmp_path).groups
    assert again.encode() == groups.encode()
    assert again.data_version == VERSION
    groups.take_over([GroupRow("g", GroupConfig("g"), {})], ["unknown"], version=VERSION)
    assert groups.is_readable("g", "T")
    assert "unknown" not in groups.names


def test_modes_are_set_and_removed(tables: Tables, tmp_path: Path) -> None:
    tables.modes.set(RequestMode("Old", "g", "PULL"))
    tables.modes.take_over([RequestMode("T", "g", "POP", 3)], [("Old", "g"), ("No", "g")])
    assert tables.modes.keys == [("T", "g")]
    tables.loop.run()
    assert Tables(tmp_path).modes.find("T", "g") == RequestMode("T", "g", "POP", 3)


def test_filters_come_with_their_times_and_our_bits(tables: Tables) -> None:
    foreign = BloomPositions(8, (1, 2))
    dead = FilterData("T", "g", "a > 5", "SQL92", 7, 100, foreign, 200)
    finish(tables.filters.take_over_in_slices([dead], []))
    found = tables.filters.find("T", "g")
    assert found is not None
    assert found.data.is_dead
    assert found.data.bloom is not None
    assert found.data.bloom.bit_count == tables.filters.bloom.bit_count
    assert found.data._replace(bloom=foreign) == dead
    assert [each.data.group for each in tables.filters.of_topic("T")] == ["g"]
    finish(tables.filters.take_over_in_slices([], [("T", "g"), ("U", "g")]))
    assert list(tables.filters) == []


def test_a_filter_that_cannot_be_used_replaces_none(
    tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    good = FilterData("T", "g", "a > 5", "SQL92", 7, 100, None)
    finish(tables.filters.take_over_in_slices([good], []))
    finish(tables.filters.take_over_in_slices([good._replace(expression="a >")], []))
    assert tables.filters.find("T", "g") is None
    assert "filter_not_taken_over topic=T group=g" in caplog.text


def test_offsets_replace_those_of_their_key_and_survive_a_kill(tmp_path: Path) -> None:
    room = OffsetsRoom(tmp_path)
    offsets = room.offsets
    offsets.commit("g", "T", 0, 5)
    offsets.commit("g", "T", 1, 6)
    offsets.commit("h", "T", 0, 7)
    offsets.commit("old", "T", 0, 8)
    room.save()
    rows = [OffsetsRow("T@g", {1: 9}), OffsetsRow("U@new", {0: 1})]
    finish(offsets.take_over_in_slices(rows, ["T@old", "T@unknown"], version=VERSION))
    expected = {"g": {1: 9}, "h": {0: 7}, "old": {}}
    assert {group: dict(offsets.of(group, "T")) for group in expected} == expected
    assert offsets.of("new", "U") == {0: 1}
    assert offsets.data_version == VERSION
    room.be_killed()
    again = OffsetsRoom(tmp_path).offsets
    assert {group: dict(again.of(group, "T")) for group in expected} == expected
    assert again.of("new", "U") == {0: 1}


def test_many_offsets_are_noted_in_slices(tmp_path: Path) -> None:
    room = OffsetsRoom(tmp_path)
    row = OffsetsRow("T@g", {queue_id: queue_id for queue_id in range(12_000)})
    work = room.offsets.take_over_in_slices([row], [], version=None)
    next(work)
    assert len(room.offsets.of("g", "T")) == 12_000  # readers see all at once
    finish(work)
    room.be_killed()
    assert OffsetsRoom(tmp_path).offsets.of("g", "T") == row.offsets


def test_offsets_without_a_version_keep_their_own(tmp_path: Path) -> None:
    room = OffsetsRoom(tmp_path)
    before = room.offsets.data_version
    finish(room.offsets.take_over_in_slices([OffsetsRow("T@g", {0: 1})], [], version=None))
    assert room.offsets.data_version == before
