"""Keys whose effect shows only in a whole broker: each scenario is one that would fail if the key
were not looked at.
"""

from __future__ import annotations

import asyncio
import urllib.request
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from orbitmq.broker.config.broker_config import BrokerConfig, load_broker
from orbitmq.broker.registration.requests import BrokerIdentity, registrations
from orbitmq.common.errors import ConfigurationError
from orbitmq.common.slices import finish
from orbitmq.message.record import decode_all
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.testing.manual_clock import ManualClock
from orbitmq.testing.virtual_time import VirtualTimeLoop
from support.broker.nameserver_link import listening, staged
from support.broker.process import create_request, pull_request, send_request
from support.broker.running import RunningBroker, broker, request
from support.common.free_ports import free_port
from support.common.waiting import until, wait_until
from support.remoting.peers import run

TIMER_TOPIC = "rmq_sys_wheel_timer"


def held_pull() -> RemotingCommand:
    """A pull that would wait for ten minutes."""
    pull = pull_request("T", 0)
    pull.ext_fields = {**(pull.ext_fields or {}), "sysFlag": "6", "suspendTimeoutMillis": "600000"}
    return pull


def topic_of(ask: RunningBroker, name: str) -> TopicConfig | None:
    return ask.components.metadata.topics.find(name)


def test_topics_that_there_are_from_the_start_have_the_names_and_queues_that_keys_say(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        keys = {
            "traceTopicEnable": "true",
            "msgTraceTopicName": "traces",
            "reviveQueueNum": "5",
            "brokerClusterName": "mine",
        }
        async with broker(tmp_path, defaultTopicQueueNums="3", **keys) as ask:
            assert topic_of(ask, "traces") is not None
            revive = topic_of(ask, "rmq_sys_REVIVE_LOG_mine")
            assert revive is not None
            assert revive.write_queue_nums == 5
            sent = send_request("New", b"x")
            sent.ext_fields = {
                **(sent.ext_fields or {}),
                "d": "9",
            }  # so many queues its producer would like
            assert (await ask(sent)).code == ResponseCode.SUCCESS
            made = topic_of(ask, "New")
            assert made is not None
            assert made.write_queue_nums == 3

    run(scenario)


def test_a_pull_waits_for_as_long_as_short_polling_says(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, longPollingEnable="false", shortPollingTimeMills="20") as ask:
            await ask(create_request("T"))
            assert (await ask(held_pull())).code == ResponseCode.PULL_NOT_FOUND

    run(scenario)


def test_what_clients_are_told_to_connect_to_and_where_updates_are_kept_is_what_keys_say(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        kept = tmp_path / "elsewhere" / "kept.properties"
        async with broker(
            tmp_path, brokerIP1="127.0.0.7", bindAddress="127.0.0.1", brokerConfigPath=str(kept)
        ) as ask:
            assert ask.components.identity.address == f"127.0.0.7:{ask.broker.config.listen_port}"
            await ask.update(fileReservedTime=5)
            assert kept.read_text() == "fileReservedTime=5\n"

    run(scenario)


def test_sends_are_answered_with_what_keys_say_of_traces_and_refused_before_their_time(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, traceOn="false") as ask:
            sent = await ask(send_request("T", b"x"))
            assert (sent.code, (sent.ext_fields or {})["TRACE_ON"]) == (
                ResponseCode.SUCCESS,
                "false",
            )
            await ask.update(startAcceptSendRequestTimeStamp=9_999_999_999_999)
            assert (await ask(send_request("T", b"x"))).code == ResponseCode.SYSTEM_ERROR

    run(scenario)


@pytest.mark.parametrize("goes", [True, False])
def test_retry_topics_go_with_their_topic_unless_that_is_off(tmp_path: Path, goes: bool) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, clearRetryTopicWhenDeleteTopic=str(goes).lower()) as ask:
            for topic in ("T", "%RETRY%g_T"):
                ask.components.metadata.topics.for_send_back(topic, 1, 6)
            await ask(pull_request("T", 0))
            ask.components.metadata.offsets.commit("g", "T", 0, 1)
            assert (
                await ask(request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T"))
            ).code == ResponseCode.SUCCESS
            assert (topic_of(ask, "%RETRY%g_T") is None) is goes

    run(scenario)


@pytest.mark.parametrize("enabled", [True, False])
def test_lite_pull_consumers_are_served_unless_that_is_off(tmp_path: Path, enabled: bool) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, litePullMessageEnable=str(enabled).lower()) as ask:
            assert (await ask(send_request("T", b"x"))).code == ResponseCode.SUCCESS
            pull = pull_request("T", 0)
            answer = await ask(
                RemotingCommand(RequestCode.LITE_PULL_MESSAGE, ext_fields=pull.ext_fields)
            )
            assert answer.code == (ResponseCode.SUCCESS if enabled else ResponseCode.NO_PERMISSION)

    run(scenario)


@pytest.mark.parametrize(("enabled", "suggested"), [("true", "1"), ("false", "0")])
def test_consumers_that_fell_behind_are_sent_to_a_slave_if_that_is_wanted(
    tmp_path: Path, enabled: str, suggested: str
) -> None:
    async def scenario() -> None:
        async with broker(
            tmp_path, slaveReadEnable=enabled, accessMessageInMemoryMaxRatio="0"
        ) as ask:
            assert (await ask(send_request("T", b"x"))).code == ResponseCode.SUCCESS
            answer = await ask(pull_request("T", 0))
            assert (answer.ext_fields or {})["suggestWhichBrokerId"] == suggested

    run(scenario)


@pytest.mark.parametrize("off", [None, "messageIndexEnable", "indexFileWriteEnable"])
def test_messages_are_found_by_key_unless_the_index_is_off(tmp_path: Path, off: str | None) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, **({off: "false"} if off else {})) as ask:
            assert (await ask(send_request("T", b"x"))).code == ResponseCode.SUCCESS
            fields = {
                "topic": "T",
                "key": "x",
                "maxNum": "8",
                "beginTimestamp": "0",
                "endTimestamp": "9999999999999",
            }
            answer = await ask(
                request(RequestCode.QUERY_MESSAGE, **fields, _UNIQUE_KEY_QUERY="true")
            )
            found = (
                list(decode_all(answer.body or b"")) if answer.code == ResponseCode.SUCCESS else []
            )
            assert len(found) == (0 if off else 1)

    run(scenario)


def test_metrics_are_served_where_it_is_said_and_carry_the_labels_of_the_configuration(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        port = str(free_port("127.0.0.2"))
        keys = {
            "metricsExporterType": "PROM",
            "metricsPromExporterHost": "127.0.0.2",
            "metricsPromExporterPort": port,
        }
        async with broker(tmp_path, metricsLabel="site:attic", **keys):

            def fetch() -> str:
                with urllib.request.urlopen(
                    f"http://127.0.0.2:{port}/metrics", timeout=30
                ) as answer:
                    return str(answer.read().decode())

            assert 'site="attic"' in await asyncio.to_thread(fetch)

    run(scenario)


def waiting(body: bytes, name: str, value: object) -> RemotingCommand:
    """A send of a message that comes later by that property."""
    sent = send_request("T", body)
    fields = sent.ext_fields or {}
    sent.ext_fields = {**fields, "i": f"{fields['i']}{name}\x01{value}\x02"}
    return sent


def test_slots_and_files_of_the_timer_are_as_large_as_is_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(
            tmp_path,
            timerPrecisionMs="100",
            mappedFileSizeTimerLog="5200",
            timerFlushIntervalMs="20",
        ) as ask:
            await ask(create_request("T"))
            at_ms = ask.components.clock.now_ms() // 1000 * 1000 + 600_123
            assert (
                await ask(waiting(b"x", "TIMER_DELIVER_MS", at_ms))
            ).code == ResponseCode.SUCCESS
            files = ask.components.delay.timed and ask.components.delay.timed.files
            assert files
            await until(lambda: len(files.wheel) > 0, "the timer has the message")
            assert list(files.wheel._slots) == [at_ms // 100 * 100]
            assert [file.stat().st_size for file in (tmp_path / "timerlog").iterdir()] == [5200]

    run(scenario)


def test_the_version_of_delay_offsets_moves_with_every_so_many_deliveries(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(
            tmp_path, messageDelayLevel="1s", delayOffsetUpdateVersionStep="1"
        ) as ask:
            await ask(create_request("T"))
            assert (await ask(waiting(b"x", "DELAY", 1))).code == ResponseCode.SUCCESS
            assert (await ask(held_pull())).code == ResponseCode.SUCCESS
            told = (await ask(request(RequestCode.GET_ALL_DELAY_OFFSET))).body
            assert fastjson.loads(told or b"")["dataVersion"]["counter"] > 0

    run(scenario)


async def recalled(ask: RunningBroker) -> RemotingCommand:
    """Take back a message that comes in a minute, if there is one."""
    text = f"v1 T a {ask.components.clock.now_ms() + 60_000} ID"
    handle = urlsafe_b64encode(text.encode()).decode()
    return await ask(
        request(RequestCode.RECALL_MESSAGE, topic="T", recallHandle=handle, producerGroup="p")
    )


def test_a_recall_is_taken_while_nobody_may_write_unless_that_is_off(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, recallMessageEnable="true") as ask:
            await ask(create_request("T"))
            await ask.update(brokerPermission=4)
            assert (await recalled(ask)).code == ResponseCode.SUCCESS
            await ask.update(allowRecallWhenBrokerNotWriteable="false")
            assert (await recalled(ask)).code == ResponseCode.SERVICE_NOT_AVAILABLE

    run(scenario)


def test_a_recall_names_the_topic_too_if_that_is_wanted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, recallMessageEnable="true") as ask:
            await ask(create_request("T"))
            assert (await recalled(ask)).code == ResponseCode.SUCCESS
            await ask.update(appendTopicForTimerDeleteKey="true")
            assert (await recalled(ask)).code == ResponseCode.SUCCESS
            answer = await ask(pull_request(TIMER_TOPIC, 0))
            named = [
                record.properties()["TIMER_DEL_UNIQKEY"]
                for record in decode_all(answer.body or b"")
            ]
            assert named == ["ID", "T+ID"]

    run(scenario)


def test_the_zone_is_told_with_each_registration() -> None:
    config = load_broker(environment={"ROCKETMQ_ZONE": "attic"}).settings

    async def scenario() -> None:
        async with staged(None) as stage:
            (told,) = map(
                finish, registrations(config, BrokerIdentity.of(config, 10911), stage.topics)
            )
            assert (told.ext_fields or {})["__ZONE_NAME"] == "attic"

    run(scenario)


def test_the_broker_registers_again_after_each_period() -> None:
    clock = ManualClock()
    loop = VirtualTimeLoop(clock)

    async def scenario() -> None:
        async with listening() as (listener, one), staged(one, register_name_server_period=60_000):
            assert len(listener.topics()) == 1
            await loop.advance(9_000)  # the first period is shorter
            assert len(listener.topics()) == 1
            for expected in (2, 3, 4):
                await loop.advance(2_000)
                # Sockets live in real time.
                await asyncio.to_thread(
                    wait_until,
                    lambda expected=expected: len(listener.topics()) >= expected,
                )
                await loop.advance(58_000)
                assert len(listener.topics()) == expected

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario())


@pytest.mark.parametrize(
    ("key", "taken"),
    [
        (
            "authenticationProvider",
            "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
        ),
        (
            "authenticationMetadataProvider",
            "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider",
        ),
        ("authenticationStrategy", "StatefulAuthenticationStrategy"),
        ("authorizationProvider", "DefaultAuthorizationProvider"),
        ("authorizationMetadataProvider", "LocalAuthorizationMetadataProvider"),
        ("authorizationStrategy", "StatelessAuthorizationStrategy"),
    ],
)
def test_a_class_of_access_control_is_the_originals_own_or_refused(key: str, taken: str) -> None:
    load_broker(environment={}, flags={key: taken})
    with pytest.raises(
        ConfigurationError,
        match=f"{key}=com.example.Mine cannot be used: classes of others are not run here",
    ):
        load_broker(environment={}, flags={key: "com.example.Mine"})


def test_a_fast_port_may_be_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        port = free_port("127.0.0.1")
        async with broker(tmp_path, fastListenPort=str(port)) as ask:
            answer = await ask.client.invoke(f"127.0.0.1:{port}", send_request("T", b"x"), 30_000)
            assert answer.code == ResponseCode.SUCCESS
        assert BrokerConfig().fast_listen_port == 10909

    run(scenario)
