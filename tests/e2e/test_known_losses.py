"""Losses that the original is known for, by the numbers of their reports: queues not rebuilt, files
torn by power cuts, queues stuck.

Those of transactions are in `test_transaction_regressions`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from orbitmq import (
    ConsumeFromWhere,
    ConsumerSettings,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    blocking,
)
from orbitmq.cli.main import cli
from orbitmq.client.consumer import push_consumer
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.testing import LocalCluster
from support.common.waiting import until
from support.embedded.local_cluster import bodies, send

COUNT = 250
FILE_ENTRIES = 30  # of a queue
SMALL = {
    "mappedFileSizeConsumeQueue": str(20 * FILE_ENTRIES),
    "mappedFileSizeCommitLog": str(16 << 10),
    "flushDiskType": "SYNC_FLUSH",
}
FROM_FIRST = ConsumerSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
NUMBERS = [b"%d" % number for number in range(COUNT)]


@contextmanager
def stopped_cluster(*, killed: bool) -> Iterator[tuple[LocalCluster, list[Path]]]:
    """A broker that had messages and is down, and the files of their queue."""
    with LocalCluster(topics={"T": 1}, broker=SMALL) as mq:
        send(mq, *NUMBERS)
        mq.kill() if killed else mq.stop_broker()
        files = sorted((mq.store() / "consumequeue" / "T" / "0").iterdir())
        assert len(files) >= COUNT // FILE_ENTRIES
        yield mq, files


def goes_on(mq: LocalCluster, expected: list[bytes], first: int = 0) -> None:
    """The broker comes back, has all of these, from that offset on, and what is sent next comes
    behind them.
    """

    def found() -> list[tuple[int, bytes]]:
        with blocking.PullConsumer(mq.name_server, "readers") as reader:
            (queue,) = reader.queues("T")
            messages, at = [], reader.min_offset(queue)
            while at < reader.max_offset(queue):
                pulled = reader.pull(queue, at)
                messages += [(message.queue_offset, message.body) for message in pulled.messages]
                at = pulled.next_offset
            return messages

    mq.restart()
    assert found() == list(enumerate(expected, first))
    send(mq, b"next")
    assert found() == list(enumerate([*expected, b"next"], first))


LOST = {"last": slice(-1, None), "middle": slice(3, 4), "first": slice(0, 1), "all": slice(None)}


@pytest.mark.parametrize("which", ["last", "all"])
def test_7355_queue_files_that_a_crash_took_are_made_again_from_the_log(
    which: str, caplog: pytest.LogCaptureFixture
) -> None:
    with stopped_cluster(killed=True) as (mq, files):
        for file in files[LOST[which]]:
            file.unlink()
        goes_on(mq, NUMBERS)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("which", LOST)
def test_7355_queue_files_that_somebody_deleted_are_found_to_be_missing_and_made_again_by_a_repair(
    which: str, tmp_path: Path
) -> None:
    with stopped_cluster(killed=False) as (mq, files):
        for file in files[LOST[which]]:
            file.unlink()
        shell, config = CliRunner(), tmp_path / "broker.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in SMALL.items()))
        store = (str(mq.store()), "--config", str(config))
        checked = shell.invoke(cli, ["store", "check", *store])
        assert (checked.exit_code, "consumequeue/T/0" in checked.output) == (
            1,
            True,
        ), checked.output
        repaired = shell.invoke(cli, ["store", "repair", *store, "--yes"])
        assert repaired.exit_code == 0, repaired.output
        goes_on(mq, NUMBERS)


@pytest.mark.parametrize("emptied", [1, 3])
@pytest.mark.parametrize("early", [0, 1], ids=["whole log", "log that lost its first file"])
def test_10108_a_queue_whose_last_files_are_empty_since_their_messages_were_lost_with_the_power_does_not_stop_the_start(
    emptied: int, early: int
) -> None:
    with stopped_cluster(killed=True) as (mq, files):
        kept = (len(files) - emptied) * FILE_ENTRIES  # entries
        for file in files[-emptied:]:
            file.write_bytes(bytes(20 * FILE_ENTRIES))
        logs = sorted((mq.store() / "commitlog").iterdir())
        cut_behind(logs, kept)
        first = 0
        for log in logs[:early]:
            first = len(records_of(log.read_bytes()))
            log.unlink()
        goes_on(mq, NUMBERS[first:kept], first)


def records_of(content: bytes) -> list[int]:
    """Where the records of a log file end."""
    ends, at = [], 0
    while content[at + 4 : at + 8] == b"\xda\xa3\x20\xa7":
        at += int.from_bytes(content[at : at + 4], "big")
        ends.append(at)
    return ends


def cut_behind(logs: list[Path], kept: int) -> None:
    """Zeros from the record of the first message on that is not kept, as a power cut leaves files
    that were made for more.
    """
    for log in logs:
        content = log.read_bytes()
        ends = records_of(content)
        end = len(content) if len(ends) <= kept else [0, *ends][kept]
        log.write_bytes(content[:end] + bytes(len(content) - end))
        kept -= min(len(ends), kept)


TORN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "zeros": lambda content: bytes(len(content)),
    "half": lambda content: content[: len(content) // 2],
    "garbage": lambda content: b"\xff" * len(content),
    "old end": lambda content: content + b'"}}',
}


@pytest.mark.parametrize("damage", TORN)
def test_7729_a_broker_whose_configuration_files_were_torn_by_a_power_cut_starts_with_what_it_knew(
    damage: str,
) -> None:
    """Each file once more than it was needed for, so that the copy of before has all of it."""
    with LocalCluster(topics={"T": 2}, broker={"flushDiskType": "SYNC_FLUSH"}) as mq:
        send(mq, *NUMBERS[:5])
        with blocking.Admin(mq.name_server) as admin:
            for name in ("g", "later"):
                admin.topics.create(TopicConfig(f"Topic-{name}", 1, 1))
                admin.groups.create(GroupConfig(name, retry_max_times=7))
            queue = admin.offsets.queues("T")[0]
            admin.offsets.set("g", queue, 3)
        mq.stop_broker()
        mq.restart()
        mq.stop_broker()
        torn = [
            file
            for file in (mq.store() / "config").iterdir()
            if file.suffix == ".json" and file.with_name(file.name + ".bak").exists()
        ]
        assert {file.name for file in torn} >= {"topics.json", "subscriptionGroup.json"}, torn
        for file in torn:
            file.write_bytes(TORN[damage](file.read_bytes()))
        mq.restart()
        with blocking.Admin(mq.name_server) as admin:
            assert {"T", "Topic-g"} <= set(admin.topics.names())
            assert admin.groups.configs("g")["broker-a"].retry_max_times == 7
            assert admin.offsets.committed("g", queue) == 3
        assert bodies(mq) == NUMBERS[:5]


def test_7729_what_was_torn_together_with_its_copy_is_said_and_nothing_is_guessed() -> None:
    with LocalCluster(topics={"T": 1}) as mq:
        send(mq, b"kept")
        mq.create_topic("U", 1)
        mq.stop_broker()
        config = mq.store() / "config"
        good = {name: (config / name).read_bytes() for name in ("topics.json", "topics.json.bak")}
        for name in good:
            (config / name).write_bytes(b"\xff")
        with pytest.raises(Exception, match=r"topics\.json.*restore one of them"):
            mq.restart()
        for name, content in good.items():
            (config / name).write_bytes(content)
        mq.restart()
        assert bodies(mq) == [b"kept"]


# -- queues that are stuck until a consumer is restarted


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers look often for what does not move."""
    monkeypatch.setattr(push_consumer, "WATCH_PERIOD_S", 0.05)


@pytest.fixture
def impatient(watchful: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """And think soon that it is stuck."""
    monkeypatch.setattr(push_consumer, "STUCK_MS_MAX", 300)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(main())


async def send_to_all(mq: LocalCluster, prefix: str) -> set[bytes]:
    """A message to each queue, by a producer of its own."""
    async with Producer(mq.name_server) as producer:
        queues = await producer.queues("T")
        for queue in queues:
            await producer.send(Message("T", f"{prefix} {queue.queue_id}".encode()), queue=queue)
        return {f"{prefix} {queue.queue_id}".encode() for queue in queues}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "fault", ["nothing arrives", "connections break", "nothing arrives and the broker is killed"]
)
def test_1918_after_the_network_was_gone_every_queue_goes_on_without_a_restart_of_its_consumer(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    found: list[ReceivedMessage] = []
    wanted: set[bytes] = set()

    def have_all() -> bool:
        return wanted <= {message.body for message in list(found)}

    async def scenario() -> None:
        consumer = PushConsumer(mq.name_server, "g", found.append, settings=FROM_FIRST)
        consumer.subscribe("T")
        async with consumer:
            wanted.update(await send_to_all(mq, "before"))
            await until(have_all)
            for number in range(3):
                caplog.clear()
                await asyncio.to_thread(mq.partition, reset=fault == "connections break")
                if "killed" in fault:
                    await asyncio.to_thread(mq.kill)
                    await asyncio.to_thread(mq.restart)
                await until(lambda: caplog.text.count("reader_stuck") >= 4)  # of each queue
                await asyncio.to_thread(mq.heal)
                wanted.update(await send_to_all(mq, f"after {number}"))
                await until(have_all)

    with LocalCluster(
        partitions=True, topics={"T": 4}, broker={"flushDiskType": "SYNC_FLUSH"}
    ) as mq:
        run(scenario)


@pytest.mark.usefixtures("impatient")
def test_1918_a_reader_that_begins_anew_leaves_out_nothing_that_waits_for_a_slow_listener(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found: list[bytes] = []
    go_on = threading.Event()

    def listener(message: ReceivedMessage) -> None:
        go_on.wait(60)
        found.append(message.body)

    async def scenario() -> None:
        consumer = PushConsumer(
            mq.name_server,
            "g",
            listener,
            settings=ConsumerSettings(consume_from=FROM_FIRST.consume_from, in_order=True),
        )
        consumer.subscribe("T")
        async with consumer:
            await until(lambda: any(report.cached_count == 10 for report in consumer.reports()))
            await asyncio.to_thread(mq.partition)
            await until(lambda: "reader_stuck" in caplog.text)
            await asyncio.to_thread(mq.heal)
            go_on.set()
            await until(lambda: set(found) == set(NUMBERS[:10]))
            assert list(dict.fromkeys(found)) == NUMBERS[:10]

    with LocalCluster(partitions=True, topics={"T": 1}) as mq:
        send(mq, *NUMBERS[:10])
        try:
            run(scenario)
        finally:
            go_on.set()


@pytest.mark.usefixtures("watchful")
def test_1890_a_listener_that_never_comes_back_holds_up_its_own_message_only_and_is_named() -> None:
    found: list[bytes] = []
    never = threading.Event()

    def listener(message: ReceivedMessage) -> None:
        found.append(message.body)
        if message.body == b"0" and message.reconsume_times == 0:
            never.wait(60)

    async def scenario() -> None:
        settings = ConsumerSettings(consume_from=FROM_FIRST.consume_from, consume_timeout_ms=1_500)
        consumer = PushConsumer(mq.name_server, "g", listener, settings=settings)
        consumer.subscribe("T")
        async with consumer:
            await until(lambda: len(found) == 5)
            (stuck,) = [
                queue for queue in (await consumer.explain()).queues if queue.queue.topic == "T"
            ]
            assert "being consumed or queued for it, the first is" in stuck.why
            await until(lambda: list(consumer.committed_offsets("T").values()) == [5])
            await until(lambda: found.count(b"0") == 2)  # it came again

    with LocalCluster(topics={"T": 1}, broker={"messageDelayLevel": " ".join(["1s"] * 18)}) as mq:
        send(mq, *NUMBERS[:5])
        try:
            run(scenario)
        finally:
            never.set()
