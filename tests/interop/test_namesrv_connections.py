"""What a name server does with connections: bad peers, one-way requests, silence, and notices of
its own; the original and ours alike.
"""

from __future__ import annotations

import socket

import pytest

from interop.conversation import CLUSTERS, Conversation
from interop.frames import Answer, Closed, Connection, Request
from interop.registrations import register, update_config

pytestmark = [pytest.mark.interop, pytest.mark.needs("java", "maven")]

ROUTE = Request(105, {"topic": "T1"})


@pytest.mark.parametrize(
    "frame",
    [
        b"\x00\x00\x00\x0b\x00\x00\x00\x07garbage",
        b"\x00\x00\x00\x0c\x00\x00\x00\x64{      }",  # a header longer than its frame
        b"\x00\x00\x00\x0c\x05\x00\x00\x08{      }",  # an encoding that does not exist
        b"\x02\x00\x00\x00\x00\x00\x00\x08{      }",  # longer than any frame may be
        b"GET / HTTP/1.1\r\nHost: name-server\r\n\r\n",
        # a binary header cut short
        b"\x00\x00\x00\x0c\x01\x00\x00\x08\x00\x69\x00\x00\x00\x00\x00\x00",
    ],
    ids=["no JSON", "long header", "unknown encoding", "long frame", "HTTP", "short binary header"],
)
def test_a_peer_that_does_not_speak_the_protocol_is_cut_off_the_same(
    name_servers: tuple[str, str], frame: bytes
) -> None:
    assert (
        len(frame) >= 12
    )  # the original looks for a proxy's preamble first and waits for as many bytes
    for address in name_servers:
        with Connection(address, timeout_s=5) as connection:
            connection.send_bytes(frame)
            with pytest.raises(Closed):
                connection.receive()


def test_one_way_requests_are_done_and_not_answered_the_same(both: Conversation) -> None:
    for connection in both.on("main"):
        connection.send(Request(100, {"namespace": "one-way", "key": "k", "value": "v"}, flag=2))
        connection.send(Request(9999, flag=2))
    both.ask_settled(
        Request(219, {"namespace": "one-way"})
    )  # its opaque is checked: no other answer came before it
    both.ask(Request(102, {"namespace": "one-way", "key": "k"}))


def test_requests_in_one_packet_are_all_answered(name_servers: tuple[str, str]) -> None:
    for address in name_servers:
        with Connection(address) as connection:
            connection.send_bytes(
                b"".join(Request(206).encode(opaque) for opaque in range(100, 150))
            )
            assert {connection.receive().opaque for _ in range(50)} == set(range(100, 150))


def test_a_broker_that_falls_silent_is_forgotten_and_cut_off_the_same(
    both: Conversation, name_servers: tuple[str, str]
) -> None:
    both.ask(register(heartbeatTimeoutMillis="1000"), on="silent")
    both.ask(register(name="b2", address="10.0.0.2:1"))
    both.ask(CLUSTERS)
    for connection in both.on("silent"):
        with pytest.raises(Closed):
            # within its time limit: a second of silence and the next look at 5 s
            connection.receive()
    both.ask_settled(CLUSTERS)
    both.ask_settled(ROUTE)


def told_of_smallest_ids(name_server: str) -> list[Answer]:
    """What a slave is told, on its own port, when a smaller id joins its group and leaves again."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Connection(name_server) as slave,
        Connection(name_server) as smaller,
    ):
        listener.settimeout(10)
        listening = f"127.0.0.1:{listener.getsockname()[1]}"
        slave.ask(
            register(
                broker_id=2, address=listening, enableActingMaster="true", haServerAddr="10.0.0.1:3"
            )
        )
        smaller.ask(register(broker_id=1, enableActingMaster="true", haServerAddr="10.0.0.1:2"))
        accepted, _ = listener.accept()
        with Connection(accepted) as told:
            joined = told.receive()
            smaller.close()
            left = told.receive()
    assert left.fields.pop("minBrokerAddr") == listening
    return [joined, left]


def test_members_of_a_group_are_told_of_a_new_smallest_id_the_same(
    both: Conversation, name_servers: tuple[str, str]
) -> None:
    both.ask(update_config("notifyMinBrokerIdChanged=true"))
    original, ours = map(told_of_smallest_ids, name_servers)
    both.ask(update_config("notifyMinBrokerIdChanged=false"))
    assert [told.code for told in original] == [905, 905]
    assert [(told.code, told.flag, told.fields, told.body) for told in ours] == [
        (told.code, told.flag, told.fields, told.body) for told in original
    ]
