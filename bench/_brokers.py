"""Fake brokers that only register: they fill a name server's tables like real ones, and keep their
connections open.

One connection per broker, since a name server drops the brokers of a closed connection. Every topic
is on every broker.
"""

from __future__ import annotations

import json
import socket
from types import TracebackType
from typing import Self

from _harness import ask
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand

CLUSTER = "BenchCluster"
_DATA_VERSION = {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}


def registration_body(topics: int) -> bytes:
    """Return the body of REGISTER_BROKER that announces topics T0, T1, … with eight queues each."""
    table = {
        name: {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": 8,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": 8,
        }
        for name in (f"T{number}" for number in range(topics))
    }
    wrapper = {
        "dataVersion": _DATA_VERSION,
        "mappingDataVersion": _DATA_VERSION,
        "topicConfigTable": table,
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    return json.dumps(
        {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}, separators=(",", ":")
    ).encode()


class FakeBrokers:
    """Masters broker-0, broker-1, … that are registered at one name server within the
    `with` block.
    """

    def __init__(self, port: int, *, brokers: int, topics: int) -> None:
        self._port = port
        self._body = registration_body(topics)
        self._identities = [
            {
                "brokerName": f"broker-{n}",
                "brokerAddr": f"10.0.{n // 250}.{n % 250 + 1}:10911",
                "clusterName": CLUSTER,
                "brokerId": "0",
            }
            for n in range(brokers)
        ]
        self._peers: list[socket.socket] = []

    def __enter__(self) -> Self:
        try:
            for identity in self._identities:
                peer = socket.create_connection(("127.0.0.1", self._port), timeout=60)
                self._peers.append(peer)
                extra = {
                    "haServerAddr": identity["brokerAddr"].replace("10911", "10912"),
                    "compressed": "false",
                    "bodyCrc32": "0",
                }
                header = {
                    **identity,
                    **extra,
                    "enableActingMaster": "false",
                    "heartbeatTimeoutMillis": "600000",
                }
                self._demand(peer, RequestCode.REGISTER_BROKER, header, self._body)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def keep_alive(self) -> None:
        """Send a heartbeat on every connection; needed at least every two minutes."""
        for peer, identity in zip(self._peers, self._identities, strict=True):
            self._demand(
                peer, RequestCode.QUERY_DATA_VERSION, identity, json.dumps(_DATA_VERSION).encode()
            )

    def close(self) -> None:
        for peer in self._peers:
            peer.close()

    def _demand(
        self, peer: socket.socket, code: RequestCode, header: dict[str, str], body: bytes
    ) -> None:
        answer = ask(peer, RemotingCommand(code, ext_fields=header, body=body))
        if answer.code != 0:
            raise RuntimeError(
                f"{code.name} of {header['brokerName']}: the name server answered {answer!r}"
            )
