"""A store with messages that come later, handed from the original 5.5.0 to ours and back: each
delivers what the other let wait.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop import apache, subject
from interop.apache import Release, Server
from interop.broker_clients import BROKER_NAME, Cluster, our_broker
from interop.client_matrix_room import OURS, TIMEOUT_MS
from orbitmq import (
    ClientSettings,
    Message,
    MessageQueue,
    Producer,
    ProducerSettings,
    PullConsumer,
    ReceivedMessage,
)
from support.common.waiting import until, wait_until

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(300)]

TOPIC = "Later"
WAIT_MS = 40_000  # long enough for a broker to stop and for another to start
SETTINGS = {
    "messageDelayLevel": f"1s {WAIT_MS // 1000}s",
    "timerWheelEnable": "true",
    "recallMessageEnable": "true",
    "mappedFileSizeTimerLog": "5200",
    "timerRollWindowSlot": "172800",
}


@pytest.fixture(scope="module")
def names(module_home: Path) -> Iterator[Server]:
    server = subject.name_server(module_home / "names")
    with apache.running(server):
        yield server


def broker_of(who: str, release: Release, home: Path, names: Server) -> Server:
    if who == OURS:
        return our_broker(home, [names.address], SETTINGS)
    return apache.broker(
        release,
        home,
        [names.address],
        name=BROKER_NAME,
        settings=SETTINGS,
        options=("-Dtls.server.mode=disabled",),
    )


async def stored(client: ClientSettings) -> list[ReceivedMessage]:
    """All that the topic's queue has."""
    async with PullConsumer(client, "readers") as reader:
        queue = MessageQueue(TOPIC, BROKER_NAME, 0)
        at, end, found = await reader.min_offset(queue), await reader.max_offset(queue), []
        while at < end:
            result = await reader.pull(queue, at)
            found += result.messages
            at = result.next_offset
        return found


async def fill(client: ClientSettings) -> dict[bytes, int]:
    """Send messages of every kind; when each of those is due that are to come."""
    due = {}
    async with Producer(client, settings=ProducerSettings(timeout_ms=TIMEOUT_MS)) as producer:
        for number in range(20):
            now_ms = time.time_ns() // 1_000_000
            for body, message in {
                b"level %d" % number: Message(TOPIC, b"level %d" % number, delay_level=2),
                b"delay %d" % number: Message(
                    TOPIC, b"delay %d" % number, delay_ms=WAIT_MS + 50 * number
                ),
                b"time %d" % number: Message(
                    TOPIC, b"time %d" % number, deliver_at_ms=now_ms + WAIT_MS + 50 * number
                ),
            }.items():
                result = await producer.send(message)
                due[body] = now_ms + WAIT_MS + (0 if message.delay_level else 50 * number)
                if body.endswith(b"7") and result.recall_handle is not None:
                    await producer.recall(TOPIC, result.recall_handle)
                    del due[body]
        for message in (
            Message(TOPIC, b"soon by level", delay_level=1),
            Message(TOPIC, b"soon by time", delay_ms=1_500),
        ):
            due[message.body] = time.time_ns() // 1_000_000 + 1_000
            await producer.send(message)

    async def two_came() -> bool:
        return len(await stored(client)) >= 2

    await until(two_came)
    return due


@pytest.mark.parametrize(("first", "second"), [(OURS, "5.5.0"), ("5.5.0", OURS)])
def test_what_one_let_wait_the_other_delivers_once_and_in_time(
    apache_5: Release, names: Server, tmp_path: Path, first: str, second: str
) -> None:
    client = ClientSettings(name_servers=names.address, timeout_ms=TIMEOUT_MS)
    before = broker_of(first, apache_5, tmp_path / "first", names)
    with apache.running(before):
        cluster = Cluster(names, before)
        cluster.wait_registered()
        cluster.make_topics({TOPIC: 1})
        due = asyncio.run(fill(client))
    after = broker_of(second, apache_5, tmp_path / "second", names)
    shutil.copytree(tmp_path / "first/store", tmp_path / "second/store", dirs_exist_ok=True)
    with apache.running(after):
        Cluster(names, after).wait_registered()
        wait_until(
            lambda: len(asyncio.run(stored(client))) >= len(due), "all messages came", seconds=120
        )
        found = asyncio.run(stored(client))
    assert sorted(message.body for message in found) == sorted(due)
    for message in found:
        assert message.stored_at_ms >= due[message.body], message
    levels = [message.body for message in found if message.body.startswith(b"level")]
    assert levels == [b"level %d" % number for number in range(20)]
