"""The link to the name servers: what each is told and when, who holds up whom, and what a broker's end leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import logging
import re
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import golden_data
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.nameserver_link import NameServerLink
from orbitmq.broker.registration import BrokerIdentity, RegistrationAnswer, registrations
from orbitmq.common.clock import SystemClock
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.name_server import NameServer
from orbitmq.protocol import frame
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig, TopicRouteData
from orbitmq.protocol.bodies.registration import RegisterBrokerBody
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.nameserver import GetRouteInfoRequestHeader, PutKVConfigRequestHeader
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.client import ClientConfig, RemotingClient
from remoting_peers import address, free_address, run, serving, until

REGISTER, UNREGISTER, VERSION, TOPIC = 103, 104, 322, 217


class Topics:
    """The broker's topics, changed by a test."""

    def __init__(self, *names: str) -> None:
        self.topics = {name: TopicConfig(name, 4, 4) for name in names}
        self.version = DataVersion(counter=1, timestamp=1)

    @property
    def table(self) -> MappingProxyType[str, TopicConfig]:
        return MappingProxyType(self.topics)

    @property
    def data_version(self) -> DataVersion:
        return self.version

    def next_version(self) -> None:
        self.version = DataVersion(counter=self.version.counter + 1, timestamp=1)

    def put(self, name: str, queues: int = 4) -> None:
        self.topics[name] = TopicConfig(name, queues, queues)
        self.next_version()


class Stage:
    """A link, the client it uses, and what it was answered."""

    def __init__(self, client: RemotingClient, name_servers: str | None, **settings: Any) -> None:
        self.client = client
        self.topics = Topics("one", "two")
        self.config = BrokerConfig(broker_name="broker-a", namesrv_addr=name_servers, **settings)
        self.answers: list[RegistrationAnswer] = []
        self.link = NameServerLink(self.config, BrokerIdentity.of(self.config, 10911), self.topics, client, self.answers.append)

    async def change(self, name: str, queues: int = 4) -> None:
        """Change a topic, and wait until name servers have it."""
        self.topics.put(name, queues)
        self.link.topics_changed([name])
        await self.link.settled()

    async def ask(self, name_server: str, topic: str) -> TopicRouteData | None:
        """The route of a topic."""
        request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
        answer = await self.client.invoke(name_server, request)
        return None if answer.body is None else TopicRouteData.decode(answer.body)

    async def queues(self, name_server: str, topic: str) -> int | None:
        """How many queues a name server says that a topic has."""
        route = await self.ask(name_server, topic)
        return None if route is None else route.queue_datas[0].write_queue_nums


@contextlib.asynccontextmanager
async def name_server(folder: Path, port: int = 0) -> AsyncIterator[str]:
    """A name server of ours; its address."""
    server = NameServer(NameServerConfig(listen_port=port, kv_config_path=str(folder / "kvConfig.json")))
    await server.start()
    try:
        yield f"127.0.0.1:{server.address[1]}"
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def staged(name_servers: str | None, **settings: Any) -> AsyncIterator[Stage]:
    """A link that was started, and is stopped with the block."""
    async with RemotingClient(ClientConfig(), SystemClock()) as client:
        stage = Stage(client, name_servers, **settings)
        await stage.link.start()
        try:
            yield stage
        finally:
            await stage.link.stop()


Answer = Callable[[RemotingCommand], RemotingCommand | None]


class Listener:
    """A name server of the test: notes what it is asked, and answers as it is told."""

    def __init__(self) -> None:
        self.asked: list[RemotingCommand] = []
        self.answer: Answer = lambda request: request.answer(0)

    def __call__(self, _: Channel, request: RemotingCommand) -> RemotingCommand | None:
        self.asked.append(request)
        return self.answer(request)

    def topics(self) -> list[set[str]]:
        """The topics of each registration so far."""
        bodies = [request.body for request in self.asked if request.code == REGISTER]
        return [set(RegisterBrokerBody.decode(body).topics) for body in bodies]

    def codes(self) -> list[int]:
        return [request.code for request in self.asked]


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[tuple[Listener, str]]:
    listener = Listener()
    async with serving(handlers=dict.fromkeys((REGISTER, UNREGISTER, VERSION, TOPIC), listener)) as server:
        yield listener, address(server)


def scenario(test: Callable[[Path], Awaitable[None]], folder: Path) -> None:
    run(lambda: test(folder))


def test_every_name_server_has_the_broker_and_its_topics_until_it_stops(tmp_path: Path) -> None:
    async def test(folder: Path) -> None:
        async with name_server(folder / "a") as one, name_server(folder / "b") as two, staged(f"{one};{two}") as stage:
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
        async with name_server(folder) as one, RemotingClient(ClientConfig(), SystemClock()) as client:
            stage = Stage(client, one, compressed_register=compressed, enable_split_registration=True, split_registration_size=2)
            for number in range(5):
                stage.topics.put(f"more-{number}")
            await stage.link.start()
            assert [await stage.queues(one, topic) for topic in ("one", "more-1", "more-4")] == [4, 4, 4]
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
                return request.answer(0)

            listener.answer = answer_and_change
            await stage.change("three")
            assert {"three"} in listener.topics()
            listener.answer = lambda request: request.answer(0)

    run(test)


def test_who_waits_is_told_when_a_name_server_does_not_answer_and_when_the_link_ends() -> None:
    async def test() -> None:
        told: list[str] = []
        async with listening() as (listener, one), staged(one, register_broker_timeout_mills=50) as stage:
            stage.link.when_settled(lambda: told.append("at once"))
            assert told == ["at once"]
            listener.answer = lambda _: None
            stage.topics.put("three")
            stage.link.topics_changed(["three"])
            stage.link.when_settled(lambda: told.append("in time"))
            assert told == ["at once"]
            await until(lambda: len(told) == 2)
            listener.answer = lambda request: request.answer(0)
            stage.config.update("registerBrokerTimeoutMills=20000\n")
            stage.link.period_over()
            await until(lambda: stage.link.name_servers == {one: True})
            listener.answer = lambda request: None if request.code == REGISTER else request.answer(0)
            stage.topics.put("four")
            stage.link.topics_changed(["four"])
            stage.link.when_settled(lambda: told.append("at the end"))
            await stage.link.stop()
            assert told == ["at once", "in time", "at the end"]

    run(test)


def test_a_search_for_name_servers_that_fails_in_any_way_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        searches: list[int] = []
        async with listening() as (_, one), staged(one) as stage:

            async def fail() -> None:
                searches.append(1)
                raise ValueError("no such luck")

            monkeypatch.setattr(stage.link, "refresh", fail)
            object.__setattr__(stage.config, "update_name_server_addr_period", 1)
            again = asyncio.create_task(stage.link._refresh_forever())
            await until(lambda: len(searches) > 2, "it is tried again")
            again.cancel()

    run(test)


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
            assert listener.topics() == [{"one", "two"}, {"three"}, {"four", "five"}, {"one", "two", "three", "four"}]
            fields = listener.asked[0].ext_fields
            assert fields is not None
            assert (fields["brokerAddr"], fields["haServerAddr"], fields["brokerId"]) == ("127.0.0.1:10911", "127.0.0.1:10912", "0")

    run(test)


def test_a_name_server_that_missed_a_change_gets_all_topics() -> None:
    async def test() -> None:
        async with listening() as (listener, one), staged(one) as stage:
            listener.answer = lambda request: request.answer(1, "busy")
            await stage.change("three")
            assert stage.link.name_servers == {one: False}
            listener.answer = lambda request: request.answer(0)
            stage.topics.put("four")
            stage.link.topics_changed(["four"])
            await until(lambda: stage.link.name_servers[one], "the name server is back")
            await stage.change("five")
            assert listener.topics() == [{"one", "two"}, {"three"}, {"one", "two", "three", "four"}, {"five"}]

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
                    response = request.answer(0)
                    response.ext_fields = {"changed": changed}
                    return response

                listener.answer = answer
                stage.link.period_over()
                await stage.link.settled()
            assert listener.codes() == [REGISTER, VERSION, VERSION, REGISTER]

    run(test)


def test_a_topic_alone_is_a_request_that_old_name_servers_need_not_know(tmp_path: Path) -> None:
    async def test(folder: Path) -> None:
        async with name_server(folder) as one, staged(one, enable_single_topic_register=True) as stage:
            await stage.change("three", 7)
            assert await stage.queues(one, "three") == 7
            assert len(stage.answers) == 1
        async with listening() as (listener, old), staged(old, enable_single_topic_register=True) as stage:
            listener.answer = lambda request: request.answer(3 if request.code == TOPIC else 0, "request type 217 not supported")
            await stage.change("three")
            assert listener.codes() == [REGISTER, TOPIC, REGISTER]
            assert listener.topics()[-1] == {"three"}
            assert stage.link.name_servers == {old: True}

    scenario(test, tmp_path)


def test_a_name_server_that_cannot_read_compressed_registrations_gets_them_plain() -> None:
    async def test() -> None:
        async with listening() as (listener, old), RemotingClient(ClientConfig(), SystemClock()) as client:
            listener.answer = lambda request: request.answer(1 if (request.ext_fields or {}).get("compressed") == "true" else 0, "what?")
            stage = Stage(client, old, compressed_register=True)
            await stage.link.start()
            await stage.change("three")
            assert [(request.ext_fields or {})["compressed"] for request in listener.asked] == ["true", "false", "false"]
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


def test_a_name_server_that_is_down_holds_up_no_other_and_is_told_when_it_is_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
                    silent.answer = lambda request: request.answer(0)
                    await stage.link.stop()
        said = [record.getMessage() for record in caplog.records]
        assert len([line for line in said if line.startswith(f"name_server_lost address={down} why='cannot connect to")]) == 1
        assert len([line for line in said if line.startswith(f"name_server_has_us address={down} topics=2")]) == 1
        assert len([line for line in said if line.startswith(f"name_server_lost address={deaf} why=")]) == 1

    scenario(test, tmp_path)


def test_answers_are_handed_over_with_the_topics_that_are_ordered(tmp_path: Path) -> None:
    async def test(folder: Path) -> None:
        async with name_server(folder) as one, staged(one) as stage:
            header = PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="one", value="broker-a:4")
            await stage.client.invoke(one, RemotingCommand.request(RequestCode.PUT_KV_CONFIG, header))
            stage.link.period_over()
            await stage.link.settled()
            first, second = stage.answers
            assert (first.name_server, first.order_topics, first.master_addr) == (one, None, None)
            assert second.order_topics == {"one": "broker-a:4"}

    scenario(test, tmp_path)


def test_no_name_server_at_all_is_allowed() -> None:
    async def test() -> None:
        async with staged(None) as stage:
            await stage.change("three")
            stage.link.period_over()
            assert stage.link.name_servers == {}

    run(test)


@contextlib.contextmanager
def address_server(told: list[str]) -> Iterator[str]:
    """An HTTP server that tells the last of these texts; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/rocketmq/mine" and told[-1] else 404)
            self.end_headers()
            self.wfile.write(told[-1].encode())

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_an_address_server_tells_the_name_servers_and_who_it_no_longer_tells_is_left_alone(tmp_path: Path) -> None:
    async def test(folder: Path) -> None:
        async with listening() as (first, one), name_server(folder / "b") as two:
            told = [""]
            with address_server(told) as domain:
                settings = {"fetch_namesrv_addr_by_address_server": True, "address_server": domain, "address_server_group": "mine"}
                async with staged(None, **settings) as stage:
                    assert stage.link.name_servers == {}
                    for answer, expected in ((f"{one}\n", [one]), (f"{two};{one}", [two, one]), ("", [two, one]), (two, [two])):
                        told.append(answer)
                        await stage.link.refresh()
                        await stage.link.settled()
                        assert list(stage.link.name_servers) == expected
                        assert stage.client.name_servers.in_order()
                    await stage.change("three")
                    assert await stage.queues(two, "three") == 4
                    assert first.topics() == [{"one", "two"}]

    scenario(test, tmp_path)


def test_names_of_name_servers_may_be_looked_up_and_stand_for_every_address(tmp_path: Path) -> None:
    async def test(folder: Path) -> None:
        async with name_server(folder) as one:
            port = one.split(":")[1]
            async with staged(f"localhost:{port}", fetch_name_srv_addr_by_dns_lookup=True) as stage:
                assert stage.link.name_servers[f"127.0.0.1:{port}"]

    scenario(test, tmp_path)


def test_a_new_list_of_name_servers_is_followed(tmp_path: Path) -> None:
    async def test(folder: Path) -> None:
        async with listening() as (first, one), listening() as (second, two), staged(one) as stage:
            stage.config.update(f"namesrvAddr={two}")
            await stage.link.refresh()
            await stage.link.settled()
            assert (first.topics(), second.topics()) == ([{"one", "two"}], [{"one", "two"}])

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path))
        scenario(test, tmp_path)


def test_a_stop_ends_what_is_under_way_and_frees_who_waits() -> None:
    async def test() -> None:
        async with listening() as (listener, one), staged(one) as stage:
            listener.answer = lambda request: None if request.code == REGISTER else request.answer(0)
            stage.topics.put("three")
            stage.link.topics_changed(["three"])
            waiting = asyncio.create_task(stage.link.settled())
            await until(lambda: len(listener.asked) == 2, "the change is under way")
            assert not waiting.done()
            await stage.link.stop()
            await waiting
            assert listener.codes() == [REGISTER, REGISTER, UNREGISTER]

    run(test)


GOLDEN = [each for each in golden_data.frames() if each.is_request and each.request_code == REGISTER and "5.5.0/" in each.name]


@pytest.mark.parametrize("golden", GOLDEN, ids=str)
def test_registrations_are_the_originals_but_for_the_clock_of_mappings(golden: golden_data.GoldenFrame) -> None:
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
    )
    (ours,) = registrations(config, BrokerIdentity.of(config, int(port)), topics, compressed=compressed)
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
        clock = re.compile(rb'("mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":)[0-9]+')
        assert ours.body == clock.sub(rb"\g<1>0", request.body)
