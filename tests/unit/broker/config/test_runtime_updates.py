"""A whole broker whose configuration is changed while it runs: the next request sees the new
values, and so does the next start.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.message.record import decode_all
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.store.flush.schedule import FlushDue, FlushSchedule
from support.broker.process import create_request, pull_request, send_request
from support.broker.running import RunningBroker, broker, request
from support.common.waiting import until
from support.remoting.peers import run


async def filled(ask: RunningBroker, count: int = 20) -> None:
    await ask(create_request("T"))
    for number in range(count):
        assert (await ask(send_request("T", b"%d" % number))).code == ResponseCode.SUCCESS


async def pulled(ask: RunningBroker) -> int:
    """How many messages one pull brings."""
    answer = await ask(pull_request("T", 0))
    assert answer.code == ResponseCode.SUCCESS, answer
    return len(list(decode_all(answer.body or b"")))


def test_reads_follow_their_limits(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as ask:
            await filled(ask)
            assert await pulled(ask) == 20
            await ask.update(maxTransferCountOnMessageInMemory=5)
            assert await pulled(ask) == 5
            await ask.update(maxTransferBytesOnMessageInMemory=1)
            assert await pulled(ask) == 1
            await ask.update(accessMessageInMemoryMaxRatio=0)
            assert await pulled(ask) == 8, "all of them are old messages now"
            await ask.update(maxTransferCountOnMessageInDisk=3)
            assert await pulled(ask) == 3
            await ask.update(maxTransferBytesOnMessageInDisk=1)
            assert await pulled(ask) == 1

    run(scenario)


def test_a_read_with_a_filter_looks_as_far_as_it_is_told(tmp_path: Path) -> None:
    async def looked(ask: RunningBroker) -> int:
        pull = pull_request("T", 0)
        pull.ext_fields = {
            **(pull.ext_fields or {}),
            "subscription": "tag-of-none",
            "maxMsgNums": "1",
        }
        return int(((await ask(pull)).ext_fields or {})["nextBeginOffset"])

    async def scenario() -> None:
        async with broker(tmp_path) as ask:
            await filled(ask)
            assert await looked(ask) == 20
            await ask.update(maxFilterMessageSize=60)
            assert await looked(ask) == 3

    run(scenario)


def test_sends_follow_their_limits(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as ask:
            assert (await ask(send_request("T", b"1" * 100))).code == ResponseCode.SUCCESS
            await ask.update(maxMessageSize=99)
            assert (await ask(send_request("T", b"1" * 100))).code == ResponseCode.MESSAGE_ILLEGAL
            assert (await ask(send_request("T", b"1" * 99))).code == ResponseCode.SUCCESS
            await ask.update(maxMessageSize=100, maxTopicLength=3)
            assert (await ask(send_request("T", b"1" * 100))).code == ResponseCode.SUCCESS
            assert (await ask(send_request("Long", b"1"))).code == ResponseCode.MESSAGE_ILLEGAL
            await ask.update(regionId="Elsewhere")
            assert ((await ask(send_request("T", b"1"))).ext_fields or {})[
                "MSG_REGION"
            ] == "Elsewhere"

    run(scenario)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The times at which an interval of flushing was over."""
    found: list[int] = []
    due = FlushSchedule.due

    def noted(schedule: FlushSchedule, now_ms: int, flushed: int, end: int) -> FlushDue:
        if now_ms >= schedule.next_ms:
            found.append(now_ms)
        return due(schedule, now_ms, flushed, end)

    monkeypatch.setattr(FlushSchedule, "due", noted)
    return found


async def some_rounds(rounds: list[int]) -> None:
    enough = len(rounds) + 4
    await until(lambda: len(rounds) >= enough, "more rounds of flushing")


def test_the_log_is_flushed_when_intervals_and_pages_say_so(
    tmp_path: Path, rounds: list[int]
) -> None:
    never = "2000000000"
    keys = {
        "flushIntervalCommitLog": "20",
        "flushCommitLogLeastPages": never,
        "flushCommitLogThoroughInterval": never,
    }

    async def scenario() -> None:
        async with broker(tmp_path, **keys) as ask:
            log = ask.components.store.log
            await filled(ask, 1)
            await some_rounds(rounds)  # it could be flushed, and is not: too few pages are new
            assert log.flushed_offset < log.end_offset
            await ask.update(flushCommitLogLeastPages=0)
            await until(lambda: log.flushed_offset == log.end_offset)

    run(scenario)


def test_queues_are_flushed_when_intervals_and_pages_say_so(
    tmp_path: Path, rounds: list[int]
) -> None:
    never = "2000000000"
    keys = {
        "flushIntervalConsumeQueue": "20",
        "flushConsumeQueueLeastPages": never,
        "flushConsumeQueueThoroughInterval": never,
    }
    keys |= {"flushIntervalCommitLog": "20", "flushCommitLogLeastPages": "0"}

    async def scenario() -> None:
        async with broker(tmp_path, **keys) as ask:
            await filled(ask, 1)
            checkpoint = ask.components.store.checkpoint
            await some_rounds(rounds)
            assert checkpoint.queues_time_ms == 0
            await ask.update(flushConsumeQueueLeastPages=0)
            await until(lambda: checkpoint.queues_time_ms > 0)

    run(scenario)


def test_an_idle_connection_is_closed_when_the_time_for_it_is_made_shorter(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as ask:
            await ask.update(serverChannelMaxIdleTimeSeconds=1)
            await until(lambda: not ask.client.connections, "the server closes the connection")

    run(scenario)


def test_what_the_broker_calls_others_with_follows(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as ask:
            await ask.update(connectTimeoutMillis=7, clientChannelMaxIdleTimeSeconds=8)
            await ask.update(clientCloseSocketIfTimeout="false", enableReconnectForGoAway="false")
            config = ask.components.client.config
            assert (config.connect_timeout_ms, config.idle_ms_max) == (7, 8000)
            assert (config.close_on_timeout, config.reconnect_on_go_away) == (False, False)

    run(scenario)


def test_a_stop_says_go_away_if_that_was_turned_on_meanwhile(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as ask:
            await ask.update(enableShutdownGracefully="true", shutdownWaitTimeSeconds=2)
            stopping = asyncio.create_task(ask.broker.stop())
            async with RemotingClient(
                ClientConfig(reconnect_on_go_away=False), ask.components.clock
            ) as client:

                async def is_sent_away() -> bool:
                    asked = request(RequestCode.GET_BROKER_RUNTIME_INFO)
                    return (await client.invoke(ask.address, asked)).code == ResponseCode.GO_AWAY

                await until(is_sent_away)
            await stopping

    run(scenario)


def test_versions_move_with_as_many_commits_as_is_said_and_pages_have_as_many_topics(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as ask:
            await filled(ask, 1)
            await ask.update(
                consumerOffsetUpdateVersionStep=1,
                splitMetadataSize=2,
                delayOffsetUpdateVersionStep=3,
            )
            version = ask.components.metadata.offsets.data_version.counter
            fields = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "1"}
            await ask(pull_request("T", 0))
            assert (
                await ask(request(RequestCode.UPDATE_CONSUMER_OFFSET, **fields))
            ).code == ResponseCode.SUCCESS
            assert ask.components.metadata.offsets.data_version.counter == version + 1
            page = await ask(
                request(RequestCode.GET_ALL_TOPIC_CONFIG, topicSeq="0", maxTopicNum="100")
            )
            assert (page.body or b"").count(b'"topicName"') == 2
            assert ask.components.delay.levels.progress.version_step == 3

    run(scenario)


def test_tables_are_saved_as_often_as_is_said(tmp_path: Path) -> None:
    keys = dict.fromkeys(
        (
            "flushConsumerOffsetInterval",
            "flushDelayOffsetInterval",
            "transactionMetricFlushInterval",
        ),
        "200",
    )

    async def scenario() -> None:
        async with broker(tmp_path, timerFlushIntervalMs="200", **keys) as ask:
            chores = {chore.work: chore.period_s for chore in ask.broker._requests.upkeep._periodic}  # type: ignore[union-attr]
            slow = {name: 2_000_000 + at for at, name in enumerate((*keys, "timerFlushIntervalMs"))}
            await ask.update(**slow)
            asked = {period() for period in chores.values() if callable(period)}
            assert asked == {ms / 1000 for ms in slow.values()}

    run(scenario)


def test_an_update_is_found_at_the_next_start_of_a_broker_without_a_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as ask:
            await filled(ask)
            await ask.update(maxTransferCountOnMessageInMemory=5)
        async with broker(tmp_path) as again:
            assert await pulled(again) == 5

    run(scenario)


def test_an_update_of_what_may_not_be_changed_is_answered_with_its_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as ask:
            answer = await ask(
                RemotingCommand(
                    RequestCode.UPDATE_BROKER_CONFIG, body=b"storePathRootDir=/tmp/elsewhere\n"
                )
            )
            assert (answer.code, answer.remark) == (
                ResponseCode.NO_PERMISSION,
                (
                    "Can not update config in black list. storePathRootDir cannot be changed while the server runs:"
                    " set it in the configuration file and restart. Nothing was changed."
                ),
            )

    run(scenario)
