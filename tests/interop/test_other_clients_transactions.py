"""Transactions of Apache's Go and C++ clients with the original brokers, 5.5.0 and 4.9.7, and with
ours.
"""

from __future__ import annotations

import pytest

from interop.client_matrix_room import Room
from interop.other_clients import StartClient

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]

STATES = {
    "committed": ["commit"],
    "rolled-back": ["rollback"],
    "committed-later": ["unknown", "unknown", "commit"],
    "rolled-back-later": ["unknown", "rollback"],
}


def test_consumers_see_what_was_committed_and_nothing_else(
    room: Room, start_client: StartClient, language: str
) -> None:
    topic = room.topic(f"Deals-{language}")
    with start_client(room.address) as peer:
        for key, states in STATES.items():
            peer.transact(f"dealers-{language}", topic, key, *states)
        peer.consume(f"readers-{language}", topic)
        for key in ("committed", "committed-later"):
            peer.wait_consumed(key)
        peer.wait_for("checked", key="rolled-back-later")
        asked = {event["key"] for event in peer.happened("checked")}
        assert room.name == "5.5.0" or asked == {
            "committed-later",
            "rolled-back-later",
        }  # which may ask within 3 s about those that ended
        assert all(event["body"] == f"body of {event['key']}" for event in peer.happened("checked"))
        found = {
            event["key"]: (event["topic"], event["body"], event["times"])
            for event in peer.happened("consumed")
        }
    assert found == {key: (topic, f"body of {key}", 0) for key in ("committed", "committed-later")}


def test_somebody_of_the_group_is_asked_when_the_producer_is_gone(
    room: Room, start_client: StartClient, language: str
) -> None:
    topic, group = room.topic(f"Heirs-{language}"), f"heirs-{language}"
    with start_client(room.address) as gone:
        gone.transact(group, topic, "left", "unknown")
    with start_client(room.address) as heir:
        heir.transact(group, topic, "own", "rollback", others="commit")
        heir.consume(f"{group}-readers", topic)
        assert heir.wait_for("checked", key="left")["body"] == "body of left"
        assert heir.wait_consumed("left")[0]["body"] == "body of left"
        assert not heir.consumed("own")
