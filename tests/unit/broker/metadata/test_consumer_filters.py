"""Filters of groups: how they come with heartbeats, change, die, live again, and are kept in a
file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.metadata.bloom import Bloom
from orbitmq.broker.metadata.consumer_filters import (
    LOADED_DEAD_MS,
    ConsumerFilters,
    expression_problem,
)
from orbitmq.broker.metadata.persistent_file import ConfigFile
from orbitmq.common.slices import finish
from orbitmq.protocol.bodies.consumer_filters import FilterData, decode_filters
from orbitmq.protocol.bodies.subscriptions import SubscriptionData
from orbitmq.testing.manual_clock import ManualClock
from support.broker.manual_worker import InlineWorker, ManualLoop

DAY_MS = 86_400_000


class Room:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "consumerFilter.json"
        self.clock = ManualClock()
        self.loop = ManualLoop()
        self.filters = self.loaded()

    def loaded(self, bloom: Bloom | None = None) -> ConsumerFilters:
        file = ConfigFile(self.path, InlineWorker(), self.loop)
        self.filters = ConsumerFilters(bloom or Bloom.of(20, 32), file, self.clock, DAY_MS)
        self.filters.load()
        return self.filters

    def hear(self, *subscriptions: SubscriptionData, group: str = "g") -> None:
        self.clock.advance_ms(1)
        finish(self.filters.heard(group, subscriptions))
        self.loop.run()

    def data(self, topic: str = "T", group: str = "g") -> FilterData | None:
        known = self.filters.find(topic, group)
        return None if known is None else known.data

    def saved(self) -> list[FilterData]:
        return decode_filters(self.path.read_bytes())


def by_sql(
    expression: str, version: int = 1, topic: str = "T", kind: str | None = "SQL92"
) -> SubscriptionData:
    return SubscriptionData(topic, expression, version, expression_type=kind)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def test_a_heartbeat_brings_a_filter_and_tags_bring_none(room: Room) -> None:
    room.hear(
        by_sql("a > 1", 5),
        SubscriptionData("U", "tag", 5),
        by_sql("x", topic="V", kind=None),
        by_sql("", topic="W"),
    )
    data = room.data()
    assert data is not None
    assert (data.expression, data.client_version, data.born_time_ms, data.is_dead) == (
        "a > 1",
        5,
        room.clock.now_ms(),
        False,
    )
    assert data.bloom is not None
    assert (data.bloom.bit_count, data.bloom.positions) == (112, (90, 68, 28))
    assert [room.data(topic) for topic in "UVW"] == [None, None, None]
    assert room.saved() == [data]


def test_a_newer_version_replaces_and_an_older_one_changes_nothing(room: Room) -> None:
    room.hear(by_sql("a > 1", 5))
    first = room.data()
    for version in (4, 5):
        room.hear(by_sql("a > 2", version))
        assert room.data() == first
    room.hear(by_sql("a > 2", 6))
    second = room.data()
    assert second is not None
    assert (second.expression, second.client_version, second.born_time_ms) == (
        "a > 2",
        6,
        room.clock.now_ms(),
    )


def test_a_newer_version_of_the_same_expression_stays_as_old_as_it_is(room: Room) -> None:
    room.hear(by_sql("a > 1", 5))
    born_ms = room.clock.now_ms()
    room.hear(by_sql("a > 1", 9))
    data = room.data()
    assert data is not None
    assert (data.client_version, data.born_time_ms, data.is_dead) == (9, born_ms, False)


def test_a_group_that_left_or_subscribes_no_more_has_a_dead_filter_and_lives_again(
    room: Room,
) -> None:
    room.hear(by_sql("a > 1", 5), by_sql("b > 1", 5, "U"))
    room.hear(by_sql("a > 1", 5))
    dead = room.data("U")
    assert dead is not None
    assert (dead.is_dead, dead.dead_time_ms) == (True, room.clock.now_ms())
    room.filters.left("g")
    assert [data.is_dead for data in map(room.data, "TU") if data] == [True, True]
    room.hear(by_sql("a > 1", 5), by_sql("b > 1", 7, "U"))
    assert [(data.is_dead, data.dead_time_ms) for data in map(room.data, "TU") if data] == [
        (False, 0),
        (False, 0),
    ]
    room.filters.left("other")
    assert [data.is_dead for data in room.saved()] == [False, False]


def test_a_newer_expression_that_cannot_be_used_takes_the_old_one_away(room: Room) -> None:
    room.hear(by_sql("a > > 1", 5))
    assert room.data() is None
    room.hear(by_sql("a > 1", 6))
    room.hear(by_sql("a > > 1", 7))
    assert room.data() is None
    assert room.saved() == []
    room.hear(by_sql("a > 1", 8, kind="WRONG"))
    assert room.data() is None


def test_filters_that_are_dead_for_long_are_forgotten(room: Room) -> None:
    room.hear(by_sql("a > 1"))
    room.hear(by_sql("a > 1"), group="alive")
    room.filters.left("g")
    room.clock.advance_ms(DAY_MS - 1)
    room.filters.clean()
    assert room.data() is not None
    room.clock.advance_ms(1)
    room.filters.clean()
    room.loop.run()
    assert room.data() is None
    assert [data.group for data in room.saved()] == ["alive"]


def test_what_is_loaded_is_dead_until_its_group_is_heard(room: Room) -> None:
    room.hear(by_sql("a > 1", 5))
    room.clock.advance_ms(60_000)
    room.loaded()
    data = room.data()
    assert data is not None
    assert (data.is_dead, data.dead_time_ms) == (True, room.clock.now_ms() - LOADED_DEAD_MS)
    assert room.filters.find("T", "g").expression.matches({"a": "2"}.get)  # type: ignore[union-attr]
    room.hear(by_sql("a > 1", 5))
    assert room.data() == data._replace(dead_time_ms=0)
    room.loaded()
    data = room.data()
    assert data is not None
    assert data.dead_time_ms >= data.born_time_ms


def test_a_file_whose_bits_have_other_places_is_left_out_as_a_whole(room: Room) -> None:
    room.hear(by_sql("a > 1"), by_sql("b > 1", topic="U"))
    assert list(room.loaded(Bloom.of(10, 32))) == []
    assert len(list(room.loaded())) == 2


def test_a_filter_of_the_file_that_cannot_be_used_is_left_out_alone(room: Room) -> None:
    room.hear(by_sql("a > 1"), by_sql("b > 1", topic="U"))
    room.path.write_bytes(room.path.read_bytes().replace(b"b > 1", b"b > > 1"))
    room.loaded()
    assert room.data() is not None
    assert room.data("U") is None


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("SQL92", "a > 1", None),
        (
            "SQL92",
            "a > > 1",
            (
                "the SQL92 expression 'a > > 1' cannot be used: at column 5: found `>`, expected a"
                " property"
            ),
        ),
        (
            "SQL92",
            "",
            "the SQL92 expression '' cannot be used: the expression is empty",
        ),
        ("SQL92", None, "the SQL92 expression None cannot be used: the expression is empty"),
        (
            "WRONG",
            "a > 1",
            (
                "the WRONG expression 'a > 1' cannot be used: expression type"
                " WRONG is not supported: use SQL92"
            ),
        ),
    ],
)
def test_what_is_wrong_with_an_expression_is_said(
    kind: str, text: str | None, problem: str | None
) -> None:
    found = expression_problem(kind, text)
    assert found == problem if problem is None or found is None else found.startswith(problem)
