"""A Java client whose connection to the broker is half open comes back with its client id, and gets
its replies; with access control on.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from interop.apache import Release
from interop.broker_clients import Cluster, our_cluster
from interop.client_matrix_room import JAVA_CLIENTS, SETTINGS
from interop.java_peer import java_peer
from orbitmq import Message, Producer
from orbitmq.admin import Admin
from orbitmq.protocol.bodies.clients import HeartbeatData, decode_producer_connection
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from support.access.people import ALICE, OPERATOR, PLAIN_ACL, USERS, add_alice, ask
from support.access.people import run as run_soon
from support.access.people import settings as settings_of
from support.common.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(240)]

# where clients are sent to: there is the relay, and behind it the broker on the same port
TOLD_AS = "127.0.0.2"
WITHIN_S = 120.0
# a consumer of 4.9 waits 30 s for the answer to a pull on a connection that was lost
REQUEST_MS = "90000"


class HalfOpening:
    """A relay whose connections can be lost at the client's end alone: the broker keeps its end,
    and hears nothing on it.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server((TOLD_AS, port))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lost: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                peer, _ = self._listener.accept()
                pair = (peer, socket.create_connection(("127.0.0.1", self._port)))
                self._pairs.append(pair)
                for source, target in (pair, pair[::-1]):
                    threading.Thread(
                        target=self._pass_on, args=(pair, source, target), daemon=True
                    ).start()

    def _pass_on(
        self,
        pair: tuple[socket.socket, socket.socket],
        source: socket.socket,
        target: socket.socket,
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if pair in self._lost:
                    return
                target.sendall(data)
        if pair not in self._lost:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def lose(self) -> int:
        """End every connection for its client, and for nobody else; how many."""
        self._lost, self._pairs = [*self._lost, *self._pairs], []
        for peer, _ in self._lost:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        return len(self._lost)

    def close(self) -> None:
        self._listener.close()
        for pair in (*self._pairs, *self._lost):
            for end in pair:
                end.close()


@contextmanager
def half_opening(port: int) -> Iterator[HalfOpening]:
    relay = HalfOpening(port)
    try:
        yield relay
    finally:
        relay.close()


@pytest.fixture(params=["users", "accounts"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "acl"
    folder.mkdir()
    (folder / "plain_acl.yml").write_text(PLAIN_ACL)
    keys = {
        **SETTINGS,
        **(USERS if request.param == "users" else {"aclEnable": "true", "aclFolder": folder}),
        "brokerIP1": TOLD_AS,
    }
    with our_cluster(tmp_path / "cluster", keys) as cluster:
        yield cluster


def connections(cluster: Cluster) -> list[str]:
    """The client ids of the asker's producer group, one for each connection."""
    header = {"producerGroup": "requesters"}
    answer = ask(
        cluster.broker.address,
        RemotingCommand(RequestCode.GET_PRODUCER_CONNECTION_LIST, ext_fields=header),
        OPERATOR,
    )
    return (
        [each.client_id for each in decode_producer_connection(answer.body)]
        if answer.code == 0 and answer.body
        else []
    )


@pytest.mark.parametrize("release", JAVA_CLIENTS)
def test_a_java_client_that_reconnects_beside_its_half_open_connection_gets_its_replies(
    release: str, cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    broker = cluster.broker.address

    async def prepare() -> None:
        operator = settings_of(cluster.name_server.address, OPERATOR)
        if "users" in request.node.name:
            async with Admin(operator) as admin:
                await add_alice(admin)
        async with Producer(operator) as producer:
            await producer.send(Message("Allowed", b"first"))

    with half_opening(cluster.broker.port) as relay:
        run_soon(prepare)
        with java_peer(
            Release(release).fetch(),
            tmp_path / "peer",
            cluster.name_server.address,
            credentials=ALICE,
        ) as peer:
            peer.do("answer", "java-repliers", "Allowed", "you said ", until="consuming")
            assert (
                peer.do("request", "Allowed", "one", REQUEST_MS, until="replied")["body"]
                == "you said one"
            )
            (asker,) = connections(cluster)
            stolen = RemotingCommand(
                RequestCode.HEART_BEAT, body=HeartbeatData(asker, ("requesters",), ()).encode()
            )
            assert relay.lose() > 0
            wait_until(
                lambda: connections(cluster) == [asker, asker],
                "the asker is there twice, once half open",
                seconds=WITHIN_S,
            )
            refused = ask(broker, stolen, OPERATOR)
            assert f"client id {asker} belongs to another user" in (refused.remark or "")
            assert (
                peer.do("request", "Allowed", "two", REQUEST_MS, until="replied")["body"]
                == "you said two"
            )
            assert connections(cluster) == [asker, asker], "the half-open connection is still there"
