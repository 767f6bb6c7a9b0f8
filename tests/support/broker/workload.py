"""A broker in this process with everything on, and a workload that uses all of it: sends of every
type, pulls, retries, dead letters, transactions, replies, refusals, and what operators do. Nothing
of it depends on how fast the machine is: each step waits for its effect.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from orbitmq import (
    SQL92,
    ClientSettings,
    ConsumeLater,
    Credentials,
    Message,
    MessageModel,
    Producer,
    ProducerSettings,
    PushConsumer,
    ReceivedMessage,
    RequestRefusedError,
    SendFailedError,
    TransactionProducer,
    TransactionState,
)
from orbitmq.admin import Admin
from orbitmq.broker.broker import Broker
from orbitmq.broker.config.broker_config import load_broker
from orbitmq.embedded.cluster import ClusterSettings, EmbeddedCluster
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.testing.faulty_disk import FaultyDisk
from support.client.library import FROM_FIRST
from support.common.process_files import ProcessFiles
from support.common.waiting import until

TOPIC, GROUP = "Orders", "billing"
PATIENT = ProducerSettings(timeout_ms=60_000)  # a busy machine needs more than the default
BROADCASTING = replace(FROM_FIRST, message_model=MessageModel.BROADCASTING)
KEYS: Mapping[str, str] = {
    "messageDelayLevel": "1s 1h",
    "startAcceptSendRequestTimeStamp": "1",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "enablePropertyFilter": "true",
    "enableCalcFilterBitMap": "true",
    "recallMessageEnable": "true",
    "dedupWindowMs": "60000",
    "enableConsumeQueueExt": "true",
    "mappedFileSizeCommitLog": str(1 << 20),
    "flushConsumerOffsetInterval": "200",
    "flushDelayOffsetInterval": "200",
    "timerFlushIntervalMs": "200",
    "transactionMetricFlushInterval": "200",
}


class Workload:
    """One broker on a disk that can be told to fail. `settings` are those of a client that may do
    everything.
    """

    def __init__(self, cluster: EmbeddedCluster, credentials: Credentials | None) -> None:
        self.cluster = cluster
        self.disk: FaultyDisk | None = None
        self.credentials = credentials
        self.received: list[ReceivedMessage] = []

    @property
    def settings(self) -> ClientSettings:
        return ClientSettings(
            name_servers=self.cluster.name_server_address,
            timeout_ms=30_000,
            credentials=self.credentials,
        )

    def named(self, instance: str) -> ClientSettings:
        return replace(self.settings, instance_name=instance)

    @property
    def offsets(self) -> Path:
        """Where consumers keep those of broadcasting."""
        assert self.cluster.folder is not None
        return self.cluster.folder / "offsets"

    @property
    def broker(self) -> Broker:
        broker = self.cluster.broker
        assert isinstance(broker, Broker)
        return broker

    def bodies(self) -> set[bytes]:
        return {message.body for message in self.received}

    # -- the steps

    async def send_every_type(self, producer: Producer) -> None:
        """Messages of every type, one way and in batches too."""
        for number in range(20):
            await producer.send(
                Message(
                    TOPIC,
                    b"plain %d" % number,
                    tags="a",
                    keys=f"k{number}",
                    properties={"colour": "blue"},
                )
            )
        for number in range(5):
            await producer.send(Message(TOPIC, b"in order %d" % number, sharding_key="s"))
        await producer.send_oneway(Message(TOPIC, b"one way"))
        await producer.send_batch([Message(TOPIC, b"batch %d" % number) for number in range(5)])
        await producer.send(Message(TOPIC, b"level", delay_level=1))
        await producer.send(Message(TOPIC, b"level, far", delay_level=2))
        await producer.send(Message(TOPIC, b"timed", delay_ms=1_000))
        await producer.send(Message(TOPIC, b"timed, far", delay_ms=3_600_000))
        recalled = await producer.send(Message(TOPIC, b"recalled", delay_ms=7_200_000))
        assert recalled.recall_handle is not None
        await producer.recall(TOPIC, recalled.recall_handle)

    async def end_transactions(self) -> None:
        """One that is committed, one that is rolled back, one that the broker has to ask about, and
        one that stays open.
        """
        commit, rollback, unknown = (
            TransactionState.COMMIT,
            TransactionState.ROLLBACK,
            TransactionState.UNKNOWN,
        )
        ends = {b"committed": commit, b"rolled back": rollback, b"asked": unknown, b"open": unknown}
        producer = TransactionProducer(
            self.named("transactions"),
            group="transactions",
            execute=lambda message, _: ends[message.body],
            check=lambda message: commit if message.body == b"asked" else unknown,
            topics=[TOPIC],
            settings=PATIENT,
        )
        async with producer:
            for body in ends:
                await producer.send_in_transaction(Message(TOPIC, body))
            await until(lambda: {b"committed", b"asked"} <= self.bodies())

    async def ask_and_reply(self, producer: Producer) -> None:
        """A request, and its reply by a consumer."""

        async def reply(message: ReceivedMessage) -> None:
            if message.body == b"ping":
                await replying.reply(message, b"pong")

        await producer.send(Message("Questions", b"so that there is the topic"))
        async with Producer(self.named("replying"), group="replying", settings=PATIENT) as replying:
            consumer = PushConsumer(self.named("replies"), "replies", reply, settings=FROM_FIRST)
            consumer.subscribe("Questions")
            async with consumer:
                answer = await producer.request(Message("Questions", b"ping"), timeout_ms=30_000)
                assert answer.body == b"pong"

    async def be_refused(self, producer: Producer) -> None:
        """Sends that the disk does not take, and changes that cannot be made."""
        if self.disk is not None:
            self.disk.fail("pwrite", errno.ENOSPC, times=1_000_000)
            try:
                await producer.send(Message(TOPIC, b"refused"), timeout_ms=300)
            except SendFailedError:
                pass
            finally:
                self.disk.heal()
            await producer.send(Message(TOPIC, b"taken again"))

    async def operate(self) -> None:
        """What operators do, and what they are refused."""
        async with Admin(self.named("operator")) as admin:
            await admin.topics.create(TopicConfig("Made", 2, 2))
            await admin.groups.create(GroupConfig("made"))
            address = self.cluster.broker_address
            refused = [
                RemotingCommand(
                    RequestCode.UPDATE_AND_CREATE_TOPIC,
                    ext_fields={
                        "topic": "Bad/Name",
                        "defaultTopic": "TBW102",
                        "readQueueNums": "1",
                        "writeQueueNums": "1",
                        "perm": "6",
                        "topicFilterType": "SINGLE_TAG",
                        "order": "false",
                    },
                ),
                RemotingCommand(
                    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                    body=GroupConfig("bad/name").encode(),
                ),
            ]
            for request in refused:
                with pytest.raises(RequestRefusedError):
                    await admin.session.ask(address, request, 30_000)
            mode = fastjson.dumps(
                {"topic": TOPIC, "consumerGroup": GROUP, "mode": "PULL", "popShareQueueNum": 0}
            )
            await admin.session.ask(
                address, RemotingCommand(RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode), 30_000
            )

    async def hold_the_timer_up(
        self, producer: Producer, meanwhile: Callable[[], Awaitable[None]]
    ) -> None:
        """Have the timer take nothing in while a message waits for that."""
        async with Admin(self.named("timer")) as admin:
            await admin.cluster.update_config(
                self.cluster.broker_address, {"timerStopEnqueue": "true"}
            )
            await producer.send(Message(TOPIC, b"not in the wheel yet", delay_ms=3_600_000))
            await meanwhile()
            await admin.cluster.update_config(
                self.cluster.broker_address, {"timerStopEnqueue": "false"}
            )

    async def lose_a_connection(self) -> None:
        """A peer that sends what is no frame."""
        host, _, port = self.cluster.broker_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"\x7f\xff\xff\xff" * 4)
        assert await reader.read() == b""
        writer.close()


async def run(work: Workload, *, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
    """All steps; `meanwhile` is called while consumers are connected and messages wait."""
    again: list[ReceivedMessage] = []

    async def consume(message: ReceivedMessage) -> None:
        work.received.append(message)

    async def fail(message: ReceivedMessage) -> None:
        again.append(message)
        raise ConsumeLater(delay_level=1)

    async with AsyncExitStack() as open_now:
        producer = await open_now.enter_async_context(
            Producer(work.named("producer"), group="producers", settings=PATIENT)
        )
        await producer.send(Message(TOPIC, b"first"))
        consumers = {
            "consumer": PushConsumer(work.named("consumer"), GROUP, consume, settings=FROM_FIRST),
            "failing": PushConsumer(work.named("failing"), "failing", fail, settings=FROM_FIRST),
            "giving up": PushConsumer(
                work.named("giving-up"),
                "giving-up",
                fail,
                settings=replace(FROM_FIRST, max_attempts=1),
            ),
            "filtering": PushConsumer(
                work.named("filtering"), "filtering", consume, settings=FROM_FIRST
            ),
            "broadcast": PushConsumer(
                work.named("broadcast"),
                "broadcast",
                consume,
                settings=replace(
                    FROM_FIRST, message_model=MessageModel.BROADCASTING, offsets_folder=work.offsets
                ),
            ),
            "differing": PushConsumer(
                work.named("differing"), "filtering", consume, settings=FROM_FIRST
            ),
        }
        consumers["consumer"].subscribe(TOPIC)
        consumers["failing"].subscribe(TOPIC, "a")
        consumers["giving up"].subscribe(TOPIC, "a")
        consumers["filtering"].subscribe(TOPIC, "colour = 'blue'", SQL92)
        consumers["broadcast"].subscribe(TOPIC)
        consumers["differing"].subscribe(TOPIC, "a")
        for consumer in consumers.values():
            await open_now.enter_async_context(consumer)
        await work.send_every_type(producer)
        await work.end_transactions()
        await work.ask_and_reply(producer)
        await work.operate()
        await work.be_refused(producer)
        await work.lose_a_connection()
        await until(
            lambda: {b"level", b"timed", b"in order 4", b"batch 4", b"one way"} <= work.bodies()
        )
        await until(lambda: any(message.reconsume_times for message in again))
        await work.hold_the_timer_up(producer, meanwhile or _nothing)


async def _nothing() -> None: ...


@asynccontextmanager
async def started(
    store: Path | None = None,
    *,
    credentials: Credentials | None = None,
    fails: bool = False,
    **keys: str,
) -> AsyncIterator[Workload]:
    """A cluster that runs; with `fails` its broker's disk can be told to."""

    def make(own: Mapping[str, str]) -> Broker:
        config = load_broker(flags=dict(own)).settings
        if not fails:
            return Broker(config)
        root = Path(config.store_path_root_dir)
        root.mkdir(parents=True, exist_ok=True)
        work.disk = FaultyDisk(ProcessFiles(), root)
        return Broker(config, layer=work.disk)

    cluster = EmbeddedCluster(
        ClusterSettings(store=store, broker={**KEYS, "brokerFastFailureEnable": "false", **keys}),
        make_broker=make,
    )
    work = Workload(cluster, credentials)
    await cluster.start()
    try:
        yield work
    finally:
        await cluster.stop()
