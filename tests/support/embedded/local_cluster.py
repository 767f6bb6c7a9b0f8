"""What tests of `LocalCluster` ask its brokers, in blocking calls, and what a cluster must not
leave behind.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from orbitmq.common.clock import SystemClock
from orbitmq.protocol.bodies.nameserver import TopicRouteData
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.nameserver import GetRouteInfoRequestHeader
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.testing.local_cluster import LocalCluster
from support.broker.process import all_bodies, send_request
from support.common.waiting import wait_until

T = TypeVar("T")


def asked(ask: Callable[[RemotingClient], Awaitable[T]]) -> T:
    """What a client of its own finds."""

    async def main() -> T:
        async with asyncio.timeout(60), RemotingClient(ClientConfig(), SystemClock()) as client:
            return await ask(client)

    return asyncio.run(main())


def send(mq: LocalCluster, *bodies: bytes, broker: str | None = None, topic: str = "T") -> None:
    """Send messages to the first queue of a topic."""

    async def ask(client: RemotingClient) -> None:
        for body in bodies:
            answer = await client.invoke(
                mq.broker_address(broker), send_request(topic, body), 30_000
            )
            assert answer.code == ResponseCode.SUCCESS, answer

    asked(ask)


def bodies(mq: LocalCluster, broker: str | None = None, topic: str = "T") -> list[bytes]:
    """All messages of the first queue of a topic."""
    return asked(lambda client: all_bodies(client, mq.broker_address(broker), topic))


def route(mq: LocalCluster, topic: str = "T") -> dict[str, int]:
    """The brokers that the name server knows for a topic, and how many queues each has."""

    async def ask(client: RemotingClient) -> dict[str, int]:
        header = GetRouteInfoRequestHeader(topic=topic)
        answer = await client.invoke(
            mq.name_server, RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        assert answer.code == ResponseCode.SUCCESS, answer
        found = TopicRouteData.decode(answer.body or b"")
        return {data.broker_name: data.write_queue_nums for data in found.queue_datas}

    return asked(ask)


@contextmanager
def nothing_left(temporary: Path) -> Iterator[None]:
    """See that threads, descriptors, children and files in `temporary`, where temporary folders are
    made meanwhile, are as before.
    """
    before_dir, tempfile.tempdir = tempfile.tempdir, str(temporary)
    threads, before = set(threading.enumerate()), _descriptors() | _children()
    try:
        yield
    finally:
        tempfile.tempdir = before_dir

    def left() -> list[object]:
        gc.collect()  # a map of a file ends with its last reader
        return [
            *(set(threading.enumerate()) - threads),
            *((_descriptors() | _children()) - before),
            *temporary.iterdir(),
        ]

    wait_until(lambda: not left(), "nothing is left", seconds=10)


def _descriptors() -> set[str]:
    links = list(Path("/proc/self/fd").iterdir())
    return {
        f"{link.name} {link.readlink()}" for link in links if link.is_symlink()
    }  # that of the list itself is gone


def _children() -> set[str]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that just ended
            found |= {f"process {pid}" for pid in (task / "children").read_text().split()}
    return found
