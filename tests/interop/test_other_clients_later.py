"""Messages of Apache's Go and C++ clients that come later, with the original brokers, 5.5.0 and
4.9.7, and with ours.
"""

from __future__ import annotations

import time

import pytest

from interop.client_matrix_room import OURS, Room
from interop.other_clients import StartClient

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]

only_5 = pytest.mark.parametrize(
    "room", [pytest.param("5.5.0", marks=pytest.mark.needs("java", "maven")), OURS], indirect=True
)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("level", [1, 5, 18, 19])
def test_a_message_comes_after_the_delay_of_its_level(
    room: Room, start_client: StartClient, language: str, level: int
) -> None:
    topic = room.topic(f"Level-{level}-{language}")
    with start_client(room.address) as peer:
        peer.consume(f"waiting-{level}-{language}", topic)
        peer.send(topic, "later", tag="tag", level=level)
        peer.send(topic, "now", tag="tag")
        (later,) = peer.wait_consumed("later")
        (now,) = peer.wait_consumed("now")
        assert peer.events.index(now) < peer.events.index(later)
    assert (
        later["storedMs"] - later["bornMs"] >= 1000
    )  # the delay of every level; one that is too large is the last
    assert (later["topic"], later["tag"], later["body"]) == (topic, "tag", "body of later")


TIMERS = ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"]


@only_5
@pytest.mark.parametrize("name", TIMERS)
def test_a_message_comes_at_the_time_that_its_property_says(
    room: Room, start_client: StartClient, language: str, name: str
) -> None:
    topic = room.topic(f"Timer-{name}-{language}")
    with start_client(room.address) as peer:
        peer.consume(f"waiting-{name}-{language}", topic)
        begin_ms = now_ms()
        values = {
            "TIMER_DELAY_SEC": "3",
            "TIMER_DELAY_MS": "2900",
            "TIMER_DELIVER_MS": str(begin_ms + 2900),
        }
        peer.send(topic, "later", properties={name: values[name]})
        peer.send(topic, "now")
        (later,) = peer.wait_consumed("later")
        (now,) = peer.wait_consumed("now")
        assert peer.events.index(now) < peer.events.index(later)
    early_ms = 0 if room.name == OURS else 1000  # the original rounds down to its slots
    assert later["storedMs"] >= begin_ms + int(values["TIMER_DELAY_MS"]) - early_ms
    assert later["body"] == "body of later"


def test_the_property_of_the_cloud_service_is_only_a_property(
    room: Room, start_client: StartClient, language: str
) -> None:
    topic = room.topic(f"StartDeliver-{language}")
    at_ms = now_ms() + 3_600_000
    with start_client(room.address) as peer:
        peer.consume(f"at-once-{language}", topic)
        peer.send(topic, "soon", properties={"__STARTDELIVERTIME": str(at_ms)})
        (soon,) = peer.wait_consumed("soon")
    assert soon["storedMs"] < at_ms
