"""Two brokers that receive the same bytes, one with the fast path and one without: their replies
and files are compared.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from orbitmq.broker.config.replication_keys import BrokerRole
from orbitmq.broker.consume.pending_pulls import PendingPulls
from orbitmq.broker.consume.service import PullService
from orbitmq.broker.delay.rewriter import DelayRewriter
from orbitmq.broker.fast_path.path import BrokerFastPath
from orbitmq.broker.observability.watermarks import WaterMark
from orbitmq.broker.processors.pull import PullProcessor
from orbitmq.broker.processors.send import SendProcessor
from orbitmq.broker.processors.transactions import TransactionProcessor
from orbitmq.broker.produce.admission import Admission, Meters
from orbitmq.broker.produce.internal_writer import InternalMessageWriter
from orbitmq.broker.transactions.ending import HalfMessageRewriter, TransactionEnding
from orbitmq.broker.transactions.service import Transactions
from orbitmq.common.clock import Clock
from orbitmq.common.errors import ProtocolError
from orbitmq.message.flags import TransactionType
from orbitmq.message.message_id import UniqueIds
from orbitmq.message.message_type import MessageType
from orbitmq.message.property_rules import DeferralKind
from orbitmq.protocol import frame
from orbitmq.protocol.command import RemotingCommand, SerializeType
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler, PlainHandler
from orbitmq.remoting.lanes import Reply
from orbitmq.testing.manual_clock import ManualClock
from support.broker.listeners import Unheard
from support.broker.services import ExpectedDelivery, send_service, write_replies
from support.broker.socketless import BrokerRoom
from support.remoting.channels import InlineSlices
from support.store.logs import HOST

UNIQUE = "UNIQ_KEY\x01AC110001000018B4AAC2147F4BAF0000\x02"
PROPERTIES = UNIQUE + "WAIT\x01true\x02TAGS\x01TagA\x02KEYS\x01k1 k2\x02"
SEND = {
    "a": "producers",
    "b": "T",
    "c": "TBW102",
    "d": "4",
    "e": "1",
    "f": "0",
    "g": "1700000000001",
    "h": "7",
    "i": PROPERTIES,
    "j": "0",
}
SEND |= {"k": "false", "m": "false", "n": "broker-a"}
PULL = {
    "consumerGroup": "g",
    "topic": "T",
    "queueId": "1",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "2",
    "commitOffset": "0",
}
PULL |= {
    "suspendTimeoutMillis": "15000",
    "subscription": "*",
    "subVersion": "1",
    "expressionType": "TAG",
}

END = {
    "producerGroup": "producers",
    "tranStateTableOffset": "0",
    "commitLogOffset": "0",
    "commitOrRollback": "8",
    "msgId": "AC110001",
}
END |= {"fromTransactionCheck": "false", "transactionId": "AC110001000018B4AAC2147F4BAF0000"}

Bytes = tuple[int, bytes]  # of which connection


def request(
    code: int,
    fields: dict[str, str],
    body: bytes = b"",
    *,
    binary: bool = False,
    opaque: int = 1,
    flag: int = 0,
) -> bytes:
    """A frame as an ordinary client writes it."""
    kind = SerializeType.ROCKETMQ if binary else SerializeType.JSON
    return frame.encode(
        RemotingCommand(
            code, ext_fields=fields, body=body, opaque=opaque, flag=flag, serialize_type=kind
        )
    )


def raw_frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    """A frame around whatever a header is."""
    return (
        (4 + len(header) + len(body)).to_bytes(4, "big")
        + (kind << 24 | len(header)).to_bytes(4, "big")
        + header
        + body
    )


def json_header(code: int, fields: Any, **members: Any) -> bytes:
    """A JSON header, compact as clients write it."""
    return json.dumps(
        {"code": code, "extFields": fields, **members}, separators=(",", ":")
    ).encode()


class Totals(Unheard):
    """What was counted, summed up."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or ManualClock()
        self._sums: Counter[tuple[Any, ...]] = Counter()
        self._calls = 0

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    @property
    def sums(self) -> Counter[tuple[Any, ...]]:
        for hand_over in self.collectors:
            hand_over()
        return self._sums

    @property
    def calls(self) -> int:
        return self._calls if self.sums else 0

    def stored(
        self,
        topic: str,
        count: int,
        size: int,
        message_type: MessageType = MessageType.NORMAL,
        puts: int = 1,
    ) -> None:
        self._calls += 1
        self._sums["put", topic, message_type] += count
        self._sums["put bytes", topic, message_type] += size
        self._sums["puts", topic, message_type] += puts

    def put_took(self, latency_ms: int, puts: int = 1) -> None:
        self._sums["took", latency_ms] += puts

    def put_failed(self, latency_ms: int, puts: int = 1) -> None:
        self._sums["failed", latency_ms] += puts

    def put_into_queue(self, topic: str, queue_id: int, took_ms: int, puts: int = 1) -> None:
        self._sums["queue", topic, queue_id] += puts
        self._sums["queue took", topic, queue_id] += took_ms

    def put_into_level(self, queue_id: int, count: int, size: int) -> None:
        self._sums["level", queue_id] += count
        self._sums["level bytes", queue_id] += size

    def refused(self, cause: str, count: int = 1) -> None:
        self._sums["refused", cause] += count

    def dead_letter(self, topic: str, group: str) -> None:
        self._sums["dead", group, topic] += 1

    def prepared(self, topic: str) -> None:
        self._sums["half", topic] += 1

    def ended(self, topic: str, kind: TransactionType | None, age_ms: int) -> None:
        self._sums["ended", topic, kind] += 1
        self._sums["age", topic] += age_ms

    def pulled(
        self,
        group: str,
        topic: str,
        queue_id: int,
        count: int,
        size: int,
        latency_ms: int = 0,
        behind_bytes: int = 0,
        behind_ms: int = 0,
    ) -> None:
        self.looked(1 if count else 0, 0 if count else 1, count, latency_ms)
        if count:
            self.got(group, topic, count, size)
            self.got_from_queue(group, topic, queue_id, latency_ms, behind_bytes, behind_ms)

    def looked(self, found: int, missed: int, messages: int, latency_ms_max: int) -> None:
        self._sums["found",] += found
        self._sums["missed",] += missed

    def got(self, group: str, topic: str, count: int, size: int, gets: int = 1) -> None:
        self._calls += 1
        self._sums["get", group, topic] += count
        self._sums["get bytes", group, topic] += size
        self._sums["gets", group, topic] += gets

    def got_from_queue(
        self,
        group: str,
        topic: str,
        queue_id: int,
        took_ms: int,
        behind_bytes: int,
        behind_ms: int,
        gets: int = 1,
    ) -> None:
        self._sums["queue gets", group, topic, queue_id] += gets
        self._sums["get took", group, topic, queue_id] += took_ms
        self._sums["behind", group, topic, queue_id] = behind_bytes
        self._sums["late", group, topic, queue_id] = behind_ms


class PathRoom(BrokerRoom):
    """A broker that serves bytes, one iteration at a time. `general` has the codes of requests that
    took the general path.
    """

    def __init__(self, folder: Path, *, fast: bool, **store_settings: Any) -> None:
        super().__init__(folder, **store_settings)
        self.folder = folder / "store"
        settings: Any = self.settings
        settings.region_id, settings.trace_on = "DefaultRegion", True
        settings.lite_pull_message_enable, settings.slave_read_enable = True, False
        self.totals = Totals(self.clock)
        self.general: list[int] = []
        self.cpu_ms = 0  # that the loop is said to have computed
        self.admission = Admission(
            settings,
            Meters(
                slow_replica=lambda: None,
                write_ms=lambda: self.store.log_write_ms,
                cpu_ms=lambda: self.cpu_ms,
                waiting=self._waiting,
            ),
        )
        ids = UniqueIds(address=HOST[:-4], pid=1, process_number=2, now_ms=self.clock.now_ms)
        settings.message_delay_level, settings.timer_wheel_enable, settings.timer_precision_ms = (
            "1s 5s",
            True,
            1000,
        )
        (
            settings.timer_max_delay_sec,
            settings.timer_stop_enqueue,
            settings.reject_transaction_message,
        ) = (
            259_200,
            False,
            False,
        )
        settings.broker_role, settings.transaction_time_out = BrokerRole.ASYNC_MASTER, 6000
        self.delivery = ExpectedDelivery()
        self.delay = DelayRewriter(settings, self.clock.now_ms, self.delivery)
        self.transactions = Transactions(
            settings,
            store=self.store,
            reads=self.store.reads,
            own=InternalMessageWriter(self.store, self.store, self.totals),
            offsets=self.offsets,
            delay=self.delay,
            checks=cast("Any", None),
            store_host=HOST,
            clock=self.clock,
            listener=self.totals,
            ensure_topic=lambda topic: None,
        )
        self.transactions.load()
        self.service = send_service(
            self,
            self.totals,
            new_unique_key=ids.next,
            busy=lambda: self.admission.refusal(self.clock.monotonic_ms()),
            rewriters=(HalfMessageRewriter(self.transactions), self.delay),
            quick_rewriters={
                DeferralKind.LEVEL: self.delay.quick_level,
                DeferralKind.TIMED: self.delay.quick_timed,
                DeferralKind.HALF: self.transactions.quick_half,
            },
        )
        replies = write_replies(self, self.totals)
        sends = SendProcessor(self.service, replies=replies, hooks=None)
        ending = TransactionEnding(
            settings=settings,
            service=self.transactions,
            record_at=self.store.reads.record_at,
            now_ms=self.clock.now_ms,
        )
        ends = TransactionProcessor(ending, replies)
        self.hold = PendingPulls()
        self.pull_service = PullService(
            settings=settings,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            consumers=self.consumers,
            reads=self.store.reads,
            pending=self.hold,
            clock=self.clock,
            listener=self.totals,
            filters=self.filters,
            record_of=self.store.reads.record_of,
            slices=InlineSlices(),
        )
        self.pulls = PullProcessor(self.pull_service, found=None)
        self.store.dispatcher.add_listener(self.pull_service.arrived, self.pull_service.is_awaiting)
        self.endpoint = self.peers.endpoint
        dispatcher = self.endpoint.dispatcher
        for processor in (sends, self.pulls, ends):
            for code, handler in processor.handlers().items():
                dispatcher.register(code, self._noting(code, handler))
        if fast:
            limits = frame.FrameLimits()
            self.endpoint.fast_path = BrokerFastPath(
                self.service,
                self.pull_service,
                self.pulls.resume,
                self.offsets,
                limits,
                dispatcher.is_direct,
                self.transactions,
            )
        self.channels = [self._connect(port) for port in (50_000, 50_001, 50_002)]
        self._unconsumed = [bytearray() for _ in self.channels]
        self._closed: dict[int, str] = {}

    def _waiting(self, now_ms: int) -> WaterMark:
        return WaterMark(self.store.flushing.waiting_count, self.store.flushing.waited_ms(now_ms))

    def _connect(self, port: int) -> Channel:
        channel = self.peers.connect()
        channel.remote_address = f"127.0.0.1:{port}"
        return channel

    def _noting(self, code: int, handler: Handler) -> PlainHandler:
        def noted(channel: Channel, request: RemotingCommand) -> Reply:
            self.general.append(code)
            return cast("PlainHandler", handler)(channel, request)

        return noted

    def turn(self, *received: Bytes) -> None:
        """All connections that are ready are read, then the turn ends."""
        for number, data in received:
            if number in self._closed:
                continue
            pending = self._unconsumed[number]
            pending += data
            try:
                consumed = self.endpoint.receive(
                    self.channels[number].link, pending, 0, len(pending)
                )
                del pending[:consumed]
            except ProtocolError as error:
                self._closed[number] = str(error)
        self.endpoint.end_of_iteration()

    def answers(self) -> dict[int, Any]:
        """What each connection got since this was asked last, by opaque, and why it was closed."""
        found: dict[int, Any] = {}
        for number, channel in enumerate(self.channels):
            link: Any = channel.link
            data, link.written = bytes(link.written), bytearray()
            frames, at = [], 0
            while at < len(data):
                stop = frame.frame_end(data, at, len(data), frame.FrameLimits())
                assert stop, "an answer that is not whole"
                frames.append((frame.decode(data, at, stop).opaque, data[at:stop]))
                at = stop
            found[number] = (sorted(frames), self._closed.get(number))
        return found

    def files(self) -> dict[str, bytes]:
        """The files of log, queues and index, after the store was closed."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for part in ("commitlog", "consumequeue", "index")
            for path in sorted((self.folder / part).rglob("*"))
            if path.is_file()
        }


class TwoRooms:
    """The same broker twice: `fast` has the fast path, `plain` has none."""

    def __init__(self, folder: Path, **store_settings: Any) -> None:
        self.fast = PathRoom(folder / "fast", fast=True, **store_settings)
        self.plain = PathRoom(folder / "plain", fast=False, **store_settings)

    @property
    def both(self) -> tuple[PathRoom, PathRoom]:
        return self.fast, self.plain

    def turn(self, *received: Bytes | bytes) -> dict[int, Any]:
        """Let both read the same and compare what they answer; bytes without a connection are of
        the first.
        """
        told = [each if isinstance(each, tuple) else (0, each) for each in received]
        for room in self.both:
            room.turn(*told)
            room.store.flushing.flush_log()
            room.loop.run()  # a topic that is new is saved
        answers = self.fast.answers()
        assert answers == self.plain.answers()
        return answers

    def sent(self, frames: Iterable[bytes]) -> list[RemotingCommand]:
        """The answers to frames that are one turn of the first connection."""
        answered: Sequence[tuple[int, bytes]] = self.turn(b"".join(frames))[0][0]
        return [frame.decode_one(data) for _, data in answered]

    def close(self) -> None:
        """Compare what was counted, and all files."""
        for room in self.both:
            room.transactions.follow()
            room.close()
        assert self.fast.totals.sums == self.plain.totals.sums
        assert self.fast.offsets.encode() == self.plain.offsets.encode()
        assert self.fast.topics.encode() == self.plain.topics.encode()
        assert self.fast.files() == self.plain.files()
        assert list(self.fast.transactions.pending) == list(self.plain.transactions.pending)
        assert self.fast.transactions.pending.floors() == self.plain.transactions.pending.floors()
