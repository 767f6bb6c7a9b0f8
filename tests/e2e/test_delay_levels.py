"""Delay levels, as users see them: a message comes when its level is over, not before; once, in
order; and after kills too.
"""

from __future__ import annotations

import json

import pytest

from orbitmq.blocking import Producer
from orbitmq.client.messages import Message
from orbitmq.testing import LocalCluster
from support.common.waiting import wait_until
from support.embedded.local_cluster import bodies

SOON_S = 1.2  # what a kill may take back of the time that was


def sent(mq: LocalCluster, *messages: tuple[bytes, int]) -> None:
    with Producer(mq.name_server) as producer:
        for body, level in messages:
            producer.send(Message("T", body, delay_level=level))


@pytest.fixture
def mq():  # type: ignore[no-untyped-def]
    with LocalCluster(virtual_clock=True, topics={"T": 1}) as cluster:
        yield cluster


def test_a_delayed_message_comes_when_its_level_is_over_and_not_a_millisecond_before(
    mq: LocalCluster,
) -> None:
    sent(mq, (b"later", 3))
    mq.advance_ms(9_999)
    assert bodies(mq) == []
    mq.advance_ms(1)
    assert bodies(mq) == [b"later"]
    mq.advance(60)
    assert bodies(mq) == [b"later"]


def test_levels_do_not_wait_for_each_other_and_each_keeps_its_order(mq: LocalCluster) -> None:
    sent(
        mq,
        *((b"%d at %d" % (number, level), level) for number in range(100) for level in (2, 1)),
        (b"now", 0),
    )
    assert bodies(mq) == [b"now"]
    mq.advance(1)
    assert bodies(mq)[1:] == [b"%d at 1" % number for number in range(100)]
    mq.advance(4)
    assert bodies(mq)[101:] == [b"%d at 2" % number for number in range(100)]


def test_a_level_above_the_last_is_the_last(mq: LocalCluster) -> None:
    sent(mq, (b"far", 99))
    mq.advance(7_199)
    assert bodies(mq) == []
    mq.advance(1)
    assert bodies(mq) == [b"far"]


def test_what_was_not_delivered_before_a_restart_is_delivered_after_it_and_nothing_twice(
    mq: LocalCluster,
) -> None:
    sent(mq, (b"first", 1), (b"second", 2))
    mq.advance(2)
    mq.restart()
    assert bodies(mq) == [b"first"]
    assert json.loads(
        (mq.store() / "config/delayOffset.json")
        .read_text()
        .replace("1:", '"1":')
        .replace("2:", '"2":')
    )["offsetTable"] == {
        "1": 1,
        "2": 0,
    }
    mq.advance(4)
    assert bodies(mq) == [b"first", b"second"]


def test_a_kill_loses_no_delayed_message(mq: LocalCluster) -> None:
    sent(mq, *((b"%d" % number, 1) for number in range(200)))
    mq.advance(0.7)
    mq.kill()
    mq.restart()
    mq.advance(2)
    assert set(bodies(mq)) == {b"%d" % number for number in range(200)}
    mq.advance(SOON_S)
    mq.kill()
    mq.restart()
    mq.advance(15)
    mq.kill()
    mq.restart()
    mq.advance(15)
    assert set(bodies(mq)) == {b"%d" % number for number in range(200)}
    assert len(bodies(mq)) <= 400


@pytest.mark.slow
def test_a_broker_process_that_is_killed_delivers_nothing_twice() -> None:
    with LocalCluster(processes=True, topics={"T": 1}) as cluster:
        sent(cluster, *((b"%d" % number, 1) for number in range(100)))
        wait_until(lambda: len(bodies(cluster)) == 100, "all are delivered")
        cluster.kill()
        cluster.restart()
        sent(cluster, (b"more", 1))
        wait_until(lambda: b"more" in bodies(cluster), "the broker delivers again")
        assert bodies(cluster) == [*(b"%d" % number for number in range(100)), b"more"]


def test_other_levels_may_be_configured() -> None:
    with LocalCluster(
        virtual_clock=True, topics={"T": 1}, broker={"messageDelayLevel": "2s 20m"}
    ) as cluster:
        sent(cluster, (b"far", 2), (b"soon", 1))
        cluster.advance(1.5)
        assert bodies(cluster) == []
        cluster.advance(0.5)
        assert bodies(cluster) == [b"soon"]
        cluster.advance(1190)
        assert bodies(cluster) == [b"soon"]
        cluster.advance(10)
        assert sorted(bodies(cluster)) == [b"far", b"soon"]
