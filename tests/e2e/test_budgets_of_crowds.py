"""Crowds of peers that take nothing, or never finish what they begin, against real processes:
others are served, and memory comes back.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from interop import subject
from interop.apache import Server, running
from interop.broker_clients import our_broker
from interop.frames import Connection, Request
from support.broker.bad_input import SERVED
from support.broker.bad_peers import MIB, SERVED_WITHIN_S, everybody_else_is_served, own_mib
from support.common.waiting import wait_until

UNSENT_MAX = 32 * MIB
SEND = SERVED[310].good_fields
PULL = SERVED[11].good_fields
LIMITS = {"maxUnsentBytes": UNSENT_MAX, "maxTlsHandshakes": 300}
CLOSED = re.compile(
    r"closed peer=(\S+) why=it holds (\d+) of the (\d+) unsent bytes of all .* may hold (\d+)"
    r" \(maxUnsentBytes\)"
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = our_broker(
        tmp_path_factory.mktemp("budgets") / "home",
        ["127.0.0.1:1"],
        {"mappedFileSizeCommitLog": 64 * MIB, **LIMITS},
    )
    with running(started):
        yield started


def send(client: Connection) -> None:
    assert client.ask(Request(310, {**SEND, "b": "Others", "d": "1"}, b"hello")).code == 0


def deaf_peer(server: Server) -> socket.socket:
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.connect(("127.0.0.1", server.port))
    return peer


def test_of_sixty_pullers_that_never_read_the_greediest_are_closed_and_a_sender_is_served(
    broker: Server,
) -> None:
    with Connection(broker.address, SERVED_WITHIN_S) as producer:
        assert producer.ask(Request(310, {**SEND, "b": "Large", "d": "1"}, bytes(MIB))).code == 0
    before_mib = own_mib(broker)
    pulls = Request(11, {**PULL, "topic": "Large"}).encode(1) * 40
    with everybody_else_is_served(broker, send, growth_mib_max=96), ExitStack() as stack:
        peers = [stack.enter_context(deaf_peer(broker)) for _ in range(60)]
        names = {f"127.0.0.1:{peer.getsockname()[1]}" for peer in peers}
        for peer in peers:
            with contextlib.suppress(ConnectionError):  # it may be closed by now
                peer.sendall(pulls)
        # Each leaves some 4 MiB unread, so there is room for some eight of them.
        wait_until(
            lambda: len(CLOSED.findall(broker.console())) >= 45,
            "that the greediest are closed",
            seconds=SERVED_WITHIN_S,
        )
        with Connection(broker.address, SERVED_WITHIN_S) as other:
            for _ in range(20):
                send(other)
        closed = CLOSED.findall(broker.console())
        assert {peer for peer, *_ in closed} <= names, "only those that did not read"
        for _, size, total, limit in closed:
            assert int(limit) == UNSENT_MAX
            assert UNSENT_MAX < int(total) <= UNSENT_MAX + int(size), (
                "the sum was within its limit before these bytes"
            )
    wait_until(
        lambda: own_mib(broker) < before_mib + 32, "that memory comes back", seconds=SERVED_WITHIN_S
    )


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("budgets") / "names"
    started = subject.name_server(home, {name: str(value) for name, value in LIMITS.items()})
    with running(started):
        yield started


def client_hello() -> bytes:
    context, outgoing = ssl.create_default_context(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("kind", ["broker", "name_server"])
def test_stalled_handshakes_are_few_keep_no_tls_client_out_and_cost_little(
    request: pytest.FixtureRequest, kind: str
) -> None:
    server: Server = request.getfixturevalue(kind)
    hello = client_hello()
    before_mib = own_mib(server)
    with ExitStack() as stack:
        for _ in range(1400):
            peer = stack.enter_context(
                socket.create_connection(("127.0.0.1", server.port), SERVED_WITHIN_S)
            )
            with contextlib.suppress(ConnectionError):  # it may be refused at once
                peer.sendall(hello)

        def is_served_by_tls() -> bool:
            anybody = ssl.create_default_context()
            anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
            try:
                with (
                    socket.create_connection(("127.0.0.1", server.port), SERVED_WITHIN_S) as raw,
                    anybody.wrap_socket(raw) as secure,
                ):
                    return (
                        Connection(secure, SERVED_WITHIN_S).ask(Request(105, {"topic": "T"})).code
                        is not None
                    )
            except OSError:
                # all handshakes are younger than a second: it is refused, and tries again as clients do
                return False

        wait_until(is_served_by_tls, "that a TLS client is served", seconds=SERVED_WITHIN_S)
        assert own_mib(server) < before_mib + 64
    assert "(maxTlsHandshakes)" in server.console()
