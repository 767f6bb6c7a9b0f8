"""The link to the name servers: what each is told and when, who holds up whom, and what a broker's
end leaves behind.
"""

from __future__ import annotations

import asyncio
import logging
import re
import zlib
from pathlib import Path

import pytest

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.registration.requests import BrokerIdentity, registrations
from orbitmq.common.clock import SystemClock
from orbitmq.common.slices import finish
from orbitmq.protocol import frame
from orbitmq.protocol.bodies.registration import RegisterBrokerBody
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.nameserver import PutKVConfigRequestHeader
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.testing.manual_clock import ManualClock
from orbitmq.testing.virtual_time import VirtualTimeLoop
from support.broker.nameserver_link import (
    REGISTER,
    TOPIC,
    UNREGISTER,
    VERSION,
    Stage,
    Topics,
    listening,
    name_server,
    scenario,
    staged,
)
from support.common import golden_data
from support.common.waiting import until
from support.remoting.peers import free_address, run


def test_every_name_server_has_the_broker_and_its_topics_until_it_stops(tmp_path: Path) -> None:
    async def test(folder: Path) -> None:
        async with (
            name_server(folder / "a") as one,
            name_server(folder / "b") as two,
            staged(f"{one};{two}") as stage,
        ):
            for each in (one, two):
                route = await stage.ask(each, "one")
                assert route is not None
                (broker,) = route.broker_datas
                assert (broker.cluster, broker.broker_name, broker.broker_addrs) == (
                    "DefaultCluster",
                    "broker-a",
                    {0: "127.0.0.1:10911"},
                )
            assert stage.link.name_servers == {one: True, two: True}
            await stage.change("three", 7)
            assert [await stage.queues(each, "three") for each in (one, two)] == [7, 7]
            await stage.change("one", 9)
            assert [await stage.queues(each, "one") for each in (one, two)] == [9, 9]
            await stage.link.stop()
            assert [await stage.ask(each, "one") for each in (one, two)] == [None, None]

    scenario(test, tmp_path)


@pytest.mark.parametrize("compressed", [False, True])
def test_registrations_may_be_compressed_and_split(tmp_path: Path, compressed: bool) -> None:
    async def test(folder: Path) -> None:
        async with (
            name_server(folder) as one,
            RemotingClient(ClientConfig(), SystemClock()) as client,
        ):
            stage = Stage(
                client,
                one,
                compressed_register=compressed,
                enable_split_registration=True,
                split_registration_size=2,
            )
            for number in range(5):
                stage.topics.put(f"more-{number}")
            await stage.link.start()
            assert [await stage.queues(one, topic) for topic in ("one", "more-1", "more-4")] == [
                4,
                4,
                4,
            ]
            assert len(stage.answers) == 4
            await stage.link.stop()

    scenario(test, tmp_path)


def test_who_waits_for_a_change_does_not_wait_for_those_that_come_later() -> None:
    async def test() -> None:
        async with listening() as (listener, one), staged(one) as stage:

            def answer_and_change(request: RemotingCommand) -> RemotingCommand:
                if request.code == REGISTER:
                    stage.topics.put("more")
                    stage.link.topics_changed(["more"])
                return request.reply(0)

            listener.answer = answer_and_change
            await stage.change("three")
            assert {"three"} in listener.topics()
            listener.answer = lambda request: request.reply(0)

    run(test)


def test_who_waits_is_told_when_a_name_server_does_not_answer_and_when_the_link_ends() -> None:
    async def test() -> None:
        told: list[str] = []
        async with (
            listening() as (listener, one),
            staged(one, register_broker_timeout_mills=50) as stage,
        ):
            stage.link.when_settled(lambda: told.append("at once"))
            assert told == ["at once"]
            listener.answer = lambda _: None
            stage.topics.put("three")
            stage.link.topics_changed(["three"])
            stage.link.when_settled(lambda: told.append("in time"))
            assert told == ["at once"]
            await until(lambda: len(told) == 2)
            listener.answer = lambda request: request.reply(0)
            stage.config.update("registerBrokerTimeoutMills=20000\n")
            stage.link.period_over()
            await until(lambda: stage.link.name_servers == {one: True})
            listener.answer = lambda request: None if request.code == REGISTER else request.reply(0)
            stage.topics.put("four")
            stage.link.topics_changed(["four"])
            stage.link.when_settled(lambda: told.append("at the end"))
            await stage.link.stop()
            assert told == ["at once", "in time", "at the end"]

    run(test)


def test_a_name_server_has_as_long_to_answer_as_is_said() -> None:
    loop = VirtualTimeLoop(ManualClock())

    async def test() -> None:
        told: list[str] = []
        async with (
            listening() as (listener, one),
            staged(one, register_broker_timeout_mills=5_000) as stage,
        ):
            listener.answer = lambda _: None
            stage.topics.put("three")
            stage.link.topics_changed(["three"])
            stage.link.when_settled(lambda: told.append("it is over"))
            await loop.advance(4_999)
            told.append("not yet")
            await loop.advance(1)
            listener.answer = lambda request: request.reply(0)
            assert told == ["not yet", "it is over"]

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(test())


def test_a_changed_topic_is_told_alone_and_changes_meanwhile_together() -> None:
    async def test() -> None:
        async with listening() as (listener, one), staged(one) as stage:
            await stage.change("three")
            stage.topics.put("four")
            stage.link.topics_changed(["four"])
            stage.topics.put("five")
            stage.link.topics_changed(["five"])
            await stage.link.settled()
            del stage.topics.topics["five"]
            stage.link.topics_changed(["five"])
            await stage.link.settled()
            assert listener.topics() == [
                {"one", "two"},
                {"three"},
                {"four", "five"},
                {"one", "two", "three", "four"},
            ]
            fields = listener.asked[0].ext_fields
            assert fields is not None
            assert (fields["brokerAddr"], fields["haServerAddr"], fields["brokerId"]) == (
                "127.0.0.1:10911",
                "127.0.0.1:10912",
                "0",
            )

    run(test)


def test_a_name_server_that_missed_a_change_gets_all_topics() -> None:
    async def test() -> None:
        async with listening() as (listener, one), staged(one) as stage:
            listener.answer = lambda request: request.reply(1, "busy")
            await stage.change("three")
            assert stage.link.name_servers == {one: False}
            listener.answer = lambda request: request.reply(0)
            stage.topics.put("four")
            stage.link.topics_changed(["four"])
            await until(lambda: stage.link.name_servers[one], "the name server is back")
            await stage.change("five")
            assert listener.topics() == [
                {"one", "two"},
                {"three"},
                {"one", "two", "three", "four"},
                {"five"},
            ]

    run(test)


def test_every_period_registers_in_full_or_asks_first() -> None:
    async def test() -> None:
        async with listening() as (listener, one), staged(one) as stage:
            stage.link.period_over()
            await stage.link.settled()
            assert listener.topics() == [{"one", "two"}, {"one", "two"}]
        async with listening() as (listener, one), staged(one, force_register=False) as stage:
            for changed in ("false", "true"):

                def answer(request: RemotingCommand, changed: str = changed) -> RemotingCommand:
                    response = request.reply(0)
                    response.ext_fields = {"changed": changed}
                    return response

                listener.answer = answer
                stage.link.period_over()
                await stage.link.settled()
            assert listener.codes() == [REGISTER, VERSION, VERSION, REGISTER]

    run(test)


def test_a_topic_alone_is_a_request_that_old_name_servers_need_not_know(tmp_path: Path) -> None:
    async def test(folder: Path) -> None:
        async with (
            name_server(folder) as one,
            staged(one, enable_single_topic_register=True) as stage,
        ):
            await stage.change("three", 7)
            assert await stage.queues(one, "three") == 7
            assert len(stage.answers) == 1
        async with (
            listening() as (listener, old),
            staged(old, enable_single_topic_register=True) as stage,
        ):
            listener.answer = lambda request: request.reply(
                3 if request.code == TOPIC else 0, "request type 217 not supported"
            )
            await stage.change("three")
            assert listener.codes() == [REGISTER, TOPIC, REGISTER]
            assert listener.topics()[-1] == {"three"}
            assert stage.link.name_servers == {old: True}

    scenario(test, tmp_path)


def test_a_name_server_that_cannot_read_compressed_registrations_gets_them_plain() -> None:
    async def test() -> None:
        async with (
            listening() as (listener, old),
            RemotingClient(ClientConfig(), SystemClock()) as client,
        ):
            listener.answer = lambda request: request.reply(
                1 if (request.ext_fields or {}).get("compressed") == "true" else 0, "what?"
            )
            stage = Stage(client, old, compressed_register=True)
            await stage.link.start()
            await stage.change("three")
            assert [(request.ext_fields or {})["compressed"] for request in listener.asked] == [
                "true",
                "false",
                "false",
            ]
            assert stage.link.name_servers == {old: True}
            await stage.link.stop()

    run(test)


def test_a_permission_that_the_broker_lacks_no_topic_has(tmp_path: Path) -> None:
    async def test(folder: Path) -> None:
        async with name_server(folder) as one, staged(one) as stage:
            stage.config.update("brokerPermission=4")
            stage.topics.next_version()
            stage.link.register_all()
            await stage.link.settled()
            for topic in ("one", "two"):
                route = await stage.ask(one, topic)
                assert route is not None
                assert route.queue_datas[0].perm == 4

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path))
        scenario(test, tmp_path)


def test_a_name_server_that_is_down_holds_up_no_other_and_is_told_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orbitmq.broker")

    async def test(folder: Path) -> None:
        down = free_address()
        async with name_server(folder / "a") as one, listening() as (silent, deaf):
            silent.answer = lambda _: None
            async with RemotingClient(ClientConfig(), SystemClock()) as client:
                stage = Stage(client, f"{down};{one};{deaf}", register_broker_timeout_mills=300)
                await stage.link.start()
                assert await stage.queues(one, "one") == 4
                for queues in (5, 6, 7):
                    await stage.change("one", queues)
                    assert await stage.queues(one, "one") == queues
                assert stage.link.name_servers == {down: False, one: True, deaf: False}
                async with name_server(folder / "b", int(down.split(":")[1])):
                    stage.link.period_over()
                    await until(lambda: stage.link.name_servers[down], "the name server is back")
                    assert await stage.queues(down, "one") == 7
                    silent.answer = lambda request: request.reply(0)
                    await stage.link.stop()
        said = [record.getMessage() for record in caplog.records]
        assert (
            len(
                [
                    line
                    for line in said
                    if line.startswith(f"name_server_lost address={down} why='cannot connect to")
                ]
            )
            == 1
        )
        assert (
            len(
                [
                    line
                    for line in said
                    if line.startswith(f"name_server_has_us address={down} topics=2")
                ]
            )
            == 1
        )
        assert (
            len([line for line in said if line.startswith(f"name_server_lost address={deaf} why=")])
            == 1
        )

    scenario(test, tmp_path)


def test_answers_are_handed_over_with_the_topics_that_are_ordered(tmp_path: Path) -> None:
    async def test(folder: Path) -> None:
        async with name_server(folder) as one, staged(one) as stage:
            header = PutKVConfigRequestHeader(
                namespace="ORDER_TOPIC_CONFIG", key="one", value="broker-a:4"
            )
            await stage.client.invoke(
                one, RemotingCommand.request(RequestCode.PUT_KV_CONFIG, header)
            )
            stage.link.period_over()
            await stage.link.settled()
            first, second = stage.answers
            assert (first.name_server, first.order_topics, first.master_addr) == (one, None, None)
            assert second.order_topics == {"one": "broker-a:4"}

    scenario(test, tmp_path)


def test_a_stop_ends_what_is_under_way_and_frees_who_waits() -> None:
    async def test() -> None:
        async with listening() as (listener, one), staged(one) as stage:
            listener.answer = lambda request: None if request.code == REGISTER else request.reply(0)
            stage.topics.put("three")
            stage.link.topics_changed(["three"])
            waiting = asyncio.create_task(stage.link.settled())
            await until(lambda: len(listener.asked) == 2, "the change is under way")
            assert not waiting.done()
            await stage.link.stop()
            await waiting
            assert listener.codes() == [REGISTER, REGISTER, UNREGISTER]

    run(test)


GOLDEN = [
    each
    for each in golden_data.frames()
    if each.is_request and each.request_code == REGISTER and "5.5.0/" in each.name
]


@pytest.mark.parametrize("golden", GOLDEN, ids=str)
def test_registrations_are_the_originals_but_for_the_clock_of_mappings(
    golden: golden_data.GoldenFrame,
) -> None:
    request = frame.decode_one(golden.frame)
    content = RegisterBrokerBody.decode(request.body)
    version = content.data_version
    assert version is not None
    topics = Topics()
    topics.topics, topics.version = content.topics, version
    fields = dict(request.ext_fields or {})
    host, _, port = fields["brokerAddr"].partition(":")
    compressed = "compressedRegister" in golden.name
    config = BrokerConfig(
        broker_name=fields["brokerName"],
        broker_cluster_name=fields["clusterName"],
        broker_ip1=host,
        listen_port=int(port),
        ha_listen_port=int(fields["haServerAddr"].partition(":")[2]),
        broker_ip2=fields["haServerAddr"].partition(":")[0],
    )
    (ours,) = map(
        finish,
        registrations(config, BrokerIdentity.of(config, int(port)), topics, compressed=compressed),
    )
    own = dict(ours.ext_fields or {})
    assert ours.body is not None
    assert request.body is not None
    assert int(own.pop("bodyCrc32")) == zlib.crc32(ours.body) & 0x7FFFFFFF
    del fields["bodyCrc32"]
    # The original says that what it compressed is not, and its own name servers then refuse it.
    assert (own.pop("compressed"), fields.pop("compressed")) == (str(compressed).lower(), "false")
    assert own == fields
    if compressed:
        assert zlib.decompress(ours.body) == zlib.decompress(request.body)
    else:
        clock = re.compile(
            rb'("mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":)[0-9]+'
        )
        assert ours.body == clock.sub(rb"\g<1>0", request.body)
