"""Requests made by hand: what brokers send to a name server (registration, plain and compressed),
and the change of its configuration.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from typing import Any

from interop.frames import V5_5_0, Request


def topic(name: str, **members: object) -> dict[str, Any]:
    """One topic configuration."""
    plain = {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
    }
    return {**plain, "topicSysFlag": 0, "writeQueueNums": 4, **members}


TOPICS = (
    topic("T1"),
    topic("T2", topicSysFlag=1),
    topic("T3", topicSysFlag=2),
    topic("T4", topicSysFlag=3, perm=7, readQueueNums=8),
)


def data_version(counter: int = 1, state: int = 0) -> dict[str, int]:
    return {"counter": counter, "stateVersion": state, "timestamp": 5}


def identity(
    name: str = "b1", broker_id: int | str = 0, cluster: str = "c1", address: str | None = None
) -> dict[str, str]:
    """The fields that name a broker."""
    return {
        "brokerName": name,
        "brokerAddr": address or f"10.0.0.1:{10911 + int(broker_id)}",
        "clusterName": cluster,
        "brokerId": str(broker_id),
    }


def fields(**of_identity: Any) -> dict[str, str]:
    """The header of a registration."""
    return {**identity(**of_identity), "haServerAddr": "10.0.0.1:10912"}


def plain_body(
    topics: Iterable[dict[str, Any]] = TOPICS,
    *,
    version: dict[str, int] | None = None,
    filter_servers: list[str] | None = None,
    **wrapper: object,
) -> bytes:
    """The JSON body of a registration."""
    table = {str(each["topicName"]): each for each in topics}
    return json.dumps(
        {
            "filterServerList": filter_servers or [],
            "topicConfigSerializeWrapper": {
                "dataVersion": version or data_version(),
                "topicConfigTable": table,
                **wrapper,
            },
        }
    ).encode()


def compressed_body(
    topics: Iterable[dict[str, Any]] = TOPICS,
    *,
    version: dict[str, int] | None = None,
    mappings: list[dict[str, Any]] | None = None,
) -> bytes:
    """The zlib body of a registration; `mappings` None leaves out the section that 5.x has."""

    def counted(text: str) -> bytes:
        return struct.pack(">i", len(text.encode())) + text.encode()

    lines = [
        f"{each['topicName']} {each['readQueueNums']} {each['writeQueueNums']} {each['perm']}"
        " SINGLE_TAG {}"
        for each in topics
    ]
    plain = (
        counted(json.dumps(version or data_version()))
        + struct.pack(">i", len(lines))
        + b"".join(map(counted, lines))
        + counted("[]")
    )
    if mappings is not None:
        plain += struct.pack(">i", len(mappings)) + b"".join(
            counted(json.dumps(mapping)) for mapping in mappings
        )
    return zlib.compress(plain, 9)


def register(body: bytes | None = None, *, version: int = V5_5_0, **header: Any) -> Request:
    """A registration; fields given as None are left out."""
    named = {
        key: header.pop(key) for key in ("name", "broker_id", "cluster", "address") if key in header
    }
    merged = {**fields(**named), **header}
    sent = {key: str(value) for key, value in merged.items() if value is not None}
    return Request(103, sent, plain_body() if body is None else body, version=version)


def update_config(text: str) -> Request:
    """The change of a name server's configuration, as properties text."""
    return Request(318, None, text.encode())
