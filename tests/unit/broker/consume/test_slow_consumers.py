"""Protection from slow consumers: who is disabled, who is not, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orbitmq.broker.consume.slow_consumers import SlowConsumers
from orbitmq.common.slices import finish
from support.broker.settings import broker_settings
from support.broker.socketless import BrokerRoom

LIMIT = 1000


class Stage:
    """A group that reads queue 0 of topic `T`, whose ten messages are more than the limit."""

    def __init__(self, room: BrokerRoom) -> None:
        self.room = room
        self.settings = broker_settings(
            disable_consume_if_consumer_read_slowly=True, consumer_fallbehind_threshold=LIMIT
        )
        self.protection = SlowConsumers(self.settings, room.offsets, room.groups, room.store)
        self.ends = [room.put(b"x" * 200).end for _ in range(10)]

    def read_to(self, offset: int, group: str = "g") -> None:
        self.room.offsets.commit_pull(group, "T", 0, offset)

    @property
    def may_read(self) -> bool:
        return self.room.groups.table["g"].consume_enable


@pytest.fixture
def stage(room: BrokerRoom) -> Stage:
    return Stage(room)


def test_a_group_that_reads_too_far_behind_may_read_no_more(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    group = stage.room.groups.table["g"]
    stage.room.groups.update(replace(group, retry_max_times=3))
    stage.read_to(1)
    finish(stage.protection.check())
    assert stage.room.groups.table["g"] == replace(group, retry_max_times=3, consume_enable=False)
    behind = stage.ends[-1] - stage.ends[0]
    assert (
        f"group_disabled group=g topic=T queue=0 bytes_behind={behind} limit={LIMIT}" in caplog.text
    )
    assert "updateSubGroup -g g -s true" in caplog.text
    stage.room.loop.run()
    assert b'"consumeEnable":false' in stage.room.groups_file.path.read_bytes().replace(b" ", b"")


def test_a_group_that_follows_may_go_on(stage: Stage) -> None:
    for offset in (10, 9, 8):
        stage.read_to(offset)
        finish(stage.protection.check())
    assert stage.may_read


def test_a_group_that_does_not_read_is_left_alone(stage: Stage) -> None:
    stage.read_to(10)
    finish(stage.protection.check())
    for _ in range(10):
        stage.room.put(b"x" * 200)
    finish(stage.protection.check())
    assert stage.may_read, "it was not far behind when it read last"
    stage.read_to(11)
    finish(stage.protection.check())
    assert not stage.may_read


def test_a_group_that_an_operator_enabled_again_is_looked_at_when_it_reads_on(stage: Stage) -> None:
    stage.read_to(1)
    finish(stage.protection.check())
    stage.room.groups.update(replace(stage.room.groups.table["g"], consume_enable=True))
    finish(stage.protection.check())
    assert stage.may_read
    stage.read_to(2)
    finish(stage.protection.check())
    assert not stage.may_read


def test_nobody_is_disabled_unless_that_is_wanted(stage: Stage) -> None:
    stage.settings.disable_consume_if_consumer_read_slowly = False
    stage.read_to(1)
    finish(stage.protection.check())
    assert stage.may_read
    stage.settings.disable_consume_if_consumer_read_slowly = True
    finish(stage.protection.check())
    assert not stage.may_read


def test_groups_topics_and_offsets_that_are_not_there_are_passed_over(stage: Stage) -> None:
    stage.read_to(1, group="gone")
    stage.read_to(99)
    stage.room.offsets.commit_pull("g", "gone", 7, 0)
    finish(stage.protection.check())
    assert stage.may_read
    assert "gone" not in stage.room.groups.table
