"""Sends, SEND_MESSAGE in both spellings and batches: what may be sent where, what is stored of it, and when the sender hears of it.

The executable specification of sending: whatever serves sends faster answers and stores the same bytes. Knows topics, groups and store;
neither sockets nor time but those it is handed. Invariant: a send that is refused changes nothing, but for a topic that was created for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from random import Random
from typing import Final, NamedTuple, Protocol, TypeAlias

from orbitmq.broker import retries
from orbitmq.broker.admission import Busy, Cause
from orbitmq.broker.groups import Groups
from orbitmq.broker.guards.dedup import DedupWindow, First, is_deduplicated
from orbitmq.broker.plugins.interfaces import PluggableStore
from orbitmq.broker.processors.safe_answers import OUTCOMES as OUTCOMES
from orbitmq.broker.processors.safe_answers import AnswerListener, SafeAnswers
from orbitmq.broker.topic_names import check_topic
from orbitmq.broker.topics import Topics
from orbitmq.common.errors import MessageIllegal, RequestRefused, StoreError, StoreFull, StoreReadOnly, WriteFailed
from orbitmq.common.topic_names import FORBIDDEN_TO_SEND, RETRY_PREFIX, SCHEDULE_TOPIC
from orbitmq.message import batch, flags, hosts, properties
from orbitmq.message.message_id import offset_id
from orbitmq.message.message_type import MessageType, message_type
from orbitmq.message.record_write import Message
from orbitmq.protocol.bodies.nameserver import PERM_WRITE, TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2, SendMessageResponseHeader
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.log_batch import Appended
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset

BORN_HOST: Final = "born_host"  # of a channel's attributes: its peer as records hold it
_NEVER: Final = "-1"  # the delay level of dead letters
_DELAYED: Final = (
    properties.DELAY,
    properties.TIMER_DELAY_SEC,
    properties.TIMER_DELAY_MS,
    properties.TIMER_DELIVER_MS,
)

_Append: TypeAlias = Callable[[Sequence[Message]], list[Appended]]


class SendSettings(Protocol):
    """What of the configuration sends look at."""

    @property
    def broker_cluster_name(self) -> str: ...
    @property
    def broker_name(self) -> str: ...
    @property
    def broker_permission(self) -> int: ...
    @property
    def region_id(self) -> str: ...
    @property
    def trace_on(self) -> bool: ...
    @property
    def start_accept_send_request_time_stamp(self) -> int: ...


class SendListener(AnswerListener, Protocol):
    """Hears what became of sends, and how long that took. `collectors` are called when that is looked at, to tell what they counted."""

    @property
    def collectors(self) -> list[Callable[[], object]]: ...

    def stored(self, topic: str, count: int, size: int, message_type: MessageType = MessageType.NORMAL, puts: int = 1) -> None:
        """So many messages of that many bytes together came into a topic, in so many puts."""
        ...

    def put_took(self, latency_ms: int, puts: int = 1) -> None:
        """So many puts took that long, each, until those who wait for the disk could be answered."""
        ...

    def put_into_queue(self, topic: str, queue_id: int, took_ms: int, puts: int = 1) -> None:
        """So many puts into a queue took that long together."""
        ...

    def put_into_level(self, queue_id: int, count: int, size: int) -> None:
        """So many messages of that many bytes together wait for the time of the delay level of that queue."""
        ...

    def put_failed(self, latency_ms: int, puts: int = 1) -> None:
        """So many puts stored nothing."""
        ...

    def refused(self, cause: str, count: int = 1) -> None:
        """So many sends were refused for the broker's sake, not for their own."""
        ...

    def dead_letter(self, topic: str, group: str) -> None:
        """A group gave up a message of the topic."""
        ...


class Placed(NamedTuple):
    """A message that nobody may read yet, as it is stored until then."""

    message: Message
    recall_handle: str | None = None  # by which its producer may take it back


class WaitKind(IntEnum):
    """Why a message waits."""

    LEVEL = 1  # for the time of its delay level
    TIMED = 2  # for a time of its own
    HALF = 3  # for the end of its transaction


class Waiting(NamedTuple):
    """Where a message waits, and how its record differs from that of an ordinary one."""

    topic: bytes
    queue_id: int
    more: bytes  # properties behind its own
    recall_handle: bytes = b""


# The short form of a placer, for kernels: topic, queue, unique key, and the level or the time; None sends the message the general way.
QuickPlacer: TypeAlias = Callable[[str, int, str, int], Waiting | None]


class Placer(Protocol):
    """Knows one kind of messages that wait, and where."""

    def place(self, message: Message, found: Mapping[str, str]) -> Placed | None:
        """What is stored of a message with these properties; None when it is not of that kind, RequestRefused when it may not be sent."""


class _Sent(NamedTuple):
    """What a producer asked for, once it is known that it may."""

    header: SendMessageRequestHeader
    topic: TopicConfig
    message: Message
    queue_id: int  # that its producer is told: that of the topic, also while the message waits elsewhere
    recall_handle: str | None
    unique_key: str | None  # a batch may have none
    waits: bool  # for the disk, if the broker does
    message_type: MessageType


class SendProcessor:
    """10, 310 and 320."""

    def __init__(
        self,
        settings: SendSettings,
        topics: Topics,
        groups: Groups,
        store: MessageStore,
        store_host: bytes,
        now_ms: Callable[[], int],
        new_unique_key: Callable[[], str],
        listener: SendListener,
        random: Random,
        busy: Callable[[], Busy | None],
        messages: PluggableStore | None = None,
    ) -> None:
        self.settings = settings
        self.topics = topics
        self._groups = groups
        self.store = store
        self._messages = messages or store  # what plug-ins may change of it
        self.store_host = store_host
        self.now_ms = now_ms
        self._new_unique_key = new_unique_key
        self.listener = listener
        self._random = random
        self.busy = busy
        self._answers = SafeAnswers(store, topics, listener)
        self.window: DedupWindow | None = None  # of messages that are not to be stored twice
        self.is_undone: Callable[[LogOffset], bool] = lambda _offset: False  # whether what is stored there was rolled back
        self.is_in_order: Callable[[str], bool] = lambda _group: False  # whether a group consumes in order now
        self.placers: Sequence[Placer] = ()  # in the order in which they are asked
        self.quick_placers: Mapping[int, QuickPlacer] = {}  # of those, by `WaitKind`

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Store one message, or a batch, if the header says that it is one: the code alone does not."""
        self._admit()
        header = send_header(request)
        with self.saying_where():
            if header.batch:
                return self._store_batch(channel, request, header)
            sent = self._checked(channel, request, header)
            return self._answered(channel, request, sent, [sent.message], self._append_each)

    @contextmanager
    def saying_where(self) -> Iterator[None]:
        """Whoever is refused inside hears, as from the original, to which region he spoke, and whether that may be traced."""
        try:
            yield
        except RequestRefused as refused:
            refused.fields = self.place_fields()
            raise

    def _store_batch(self, channel: Channel, request: RemotingCommand, header: SendMessageRequestHeader) -> RemotingCommand | None:
        """Store the messages of a batch one behind the other, each with the properties that its producer gave it and no more."""
        if header.topic.startswith(RETRY_PREFIX):
            raise _illegal(f"batch request does not support retry group {header.topic}; send its messages one by one")
        sent = self._checked(channel, request, header)
        try:
            if sent.topic.attributes.get("queue.type") == "BatchCQ":
                batch.make_inner(sent.message)
                return self._answered(channel, request, sent, [sent.message], self._append_each)
            messages = batch.split(sent.message)
        except MessageIllegal as error:
            raise _illegal(str(error)) from error
        if not messages:
            raise _illegal("a batch without a message; send at least one")
        return self._answered(channel, request, sent, messages, self._messages.append_batch)

    # -- what may be sent

    def _admit(self) -> None:
        """Refuse it when the broker is behind, before anything is done with it."""
        busy = self.busy()
        if busy is not None:
            self.listener.refused(busy.cause.value)
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, busy.remark)

    def _checked(self, channel: Channel, request: RemotingCommand, header: SendMessageRequestHeader) -> _Sent:
        """Everything that can be refused, in the original's order; then the message as it will be stored."""
        topic, queue_id = self.place_of(header)
        found = properties.parse(header.properties or "")
        self._check_kind(found, header)
        reconsume_times = header.reconsume_times or 0
        raw = properties.without((header.properties or "").encode("utf-8", "replace"), properties.POP_CK)
        told_queue_id, more = queue_id, self.added_properties()
        if header.topic.startswith(RETRY_PREFIX) and self._comes_too_often(request, header):
            group = header.topic.removeprefix(RETRY_PREFIX)
            topic, queue_id = retries.dead_letter_topic(self.topics, group), retries.DEAD_LETTER_QUEUE
            raw, more[properties.DELAY] = properties.without(raw, properties.DELAY), _NEVER
            found[properties.DELAY] = _NEVER
            self.listener.dead_letter(found.get(properties.RETRY_TOPIC, header.topic), group)
        unique_key, kind = found.get(properties.UNIQUE_KEY), message_type(found)
        if unique_key is None and not header.batch:
            unique_key = more[properties.UNIQUE_KEY] = self._new_unique_key()
        message = Message(
            topic.name.encode(),
            request.body or b"",
            born_host=born_host_of(channel),
            born_time_ms=header.born_timestamp,
            queue_id=queue_id,
            flag=header.flag,
            sys_flag=header.sys_flag | (flags.MULTI_TAGS if topic.filter_type == "MULTI_TAG" else 0),
            reconsume_times=reconsume_times,
            properties=properties.extended(raw, more),
        )
        placed = self._placed(message, found)
        return _Sent(
            header, topic, placed.message, told_queue_id, placed.recall_handle, unique_key, found.get(properties.WAIT) != "false", kind
        )

    def _placed(self, message: Message, found: Mapping[str, str]) -> Placed:
        """Where the message waits, if it has to: the first placer that knows its kind says so."""
        for placer in self.placers:
            placed = placer.place(message, found)
            if placed is not None:
                return placed
        return Placed(message)

    def place_of(self, header: SendMessageRequestHeader) -> tuple[TopicConfig, int]:
        """The topic and the queue that a header names, if anything may be sent there now; a topic is created if need be."""
        settings, now_ms = self.settings, self.now_ms()
        if now_ms < settings.start_accept_send_request_time_stamp:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {settings.start_accept_send_request_time_stamp} (startAcceptSendRequestTimeStamp)",
            )
        topic = self._topic(header)
        queue_id = header.queue_id
        queue_count = max(topic.read_queue_nums, topic.write_queue_nums)
        if queue_id >= queue_count:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, {header.topic} has {queue_count} queues: send to one of 0 to {queue_count - 1}",
            )
        if queue_id < 0:
            if topic.write_queue_nums < 1:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR, f"topic[{header.topic}] has no queue to write to: give it one, or send to a queue by its id"
                )
            queue_id = self._random.randrange(topic.write_queue_nums)
        return topic, queue_id

    def _topic(self, header: SendMessageRequestHeader) -> TopicConfig:
        found = self.topics.find(header.topic)
        if not self.settings.broker_permission & PERM_WRITE and found is not None and found.order:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self.settings.broker_name}] sending message is forbidden (brokerPermission)",
            )
        if header.topic in FORBIDDEN_TO_SEND:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{header.topic}] is forbidden: the broker alone writes it"
            )
        if found is None:
            check_topic(header.topic)
            found = self.topics.for_send(
                header.topic, header.default_topic, header.default_topic_queue_nums, unit_mode=bool(header.unit_mode)
            )
        if found is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please! Create it, or let brokers do so (autoCreateTopicEnable=true)",
            )
        return found

    def _check_kind(self, found: dict[str, str], header: SendMessageRequestHeader) -> None:
        """Refuse what cannot wait for its time or for its transaction: an ordinary message would be neither late nor undone."""
        delayed = next((name for name in _DELAYED if found.get(name, "0") != "0"), None)
        if header.batch and delayed is not None:
            raise _illegal(f"property {delayed}={found[delayed]}: the messages of a batch cannot come later; send them one by one")
        is_prepared = found.get(properties.TRANSACTION_PREPARED, "").lower() == "true"
        if header.batch and (is_prepared or header.sys_flag & flags.TransactionType.ROLLBACK):
            raise _illegal(f"property {properties.TRANSACTION_PREPARED}: a batch cannot be of a transaction; send its messages one by one")
        if header.sys_flag & flags.TransactionType.ROLLBACK and not is_prepared:
            raise _illegal(
                f"system flag {header.sys_flag:#x} says that the message is of a transaction, and property "
                f"{properties.TRANSACTION_PREPARED} does not: set it to true, or send an ordinary message"
            )

    def _comes_too_often(self, request: RemotingCommand, header: SendMessageRequestHeader) -> bool:
        """Whether a message that a consumer sends to its retry topic is a dead letter: one of a group that consumes in order always is."""
        name = header.topic.removeprefix(RETRY_PREFIX)
        group = retries.group_of(self._groups, name)
        times_max = retries.times_max(group, header.max_reconsume_times, request.version)
        return (header.reconsume_times or 0) > times_max or self.is_in_order(name)

    def place_fields(self) -> dict[str, str]:
        """What messages and answers say of this broker: its region, and whether what is sent to it may be traced."""
        return {properties.MSG_REGION: self.settings.region_id, properties.TRACE_ON: "true" if self.settings.trace_on else "false"}

    def added_properties(self) -> dict[str, str | None]:
        """What the broker adds to every message."""
        return {**self.place_fields(), properties.CLUSTER: self.settings.broker_cluster_name}

    # -- what is answered, and when

    def _answered(
        self, channel: Channel, request: RemotingCommand, sent: _Sent, messages: Sequence[Message], append: _Append
    ) -> RemotingCommand | None:
        """Store them, but for those that are stored already if that is to be known, and answer: at once, or when the disk has them."""
        stored: Sequence[Appended | First]
        begun_ms = self.listener.monotonic_ms()
        if self.window is None or not is_deduplicated(sent.header.topic):
            stored = self._stored(sent, messages, append)
        else:
            firsts = stored = self._stored_once(self.window, sent, messages, append)
            sent = sent._replace(queue_id=firsts[0].queue_id, recall_handle=firsts[0].recall_handle)
        answer = request.answer(ResponseCode.SUCCESS, header=self._header(sent, stored))
        end = max(each.end for each in stored)

        def took() -> None:
            took_ms = self.listener.monotonic_ms() - begun_ms
            self.listener.put_took(took_ms)
            self.listener.put_into_queue(_topic_of(sent.message), sent.message.queue_id, took_ms)

        return self._answers.give(channel, request, answer, end, sent.topic.name, waits=sent.waits, count=len(stored), settled=took)

    def _append_each(self, messages: Sequence[Message]) -> list[Appended]:
        return [self._messages.append(message) for message in messages]

    def _stored(self, sent: _Sent, messages: Sequence[Message], append: _Append) -> list[Appended]:
        appended = self.committed(lambda: append(messages))
        topic, count, size = _topic_of(sent.message), len(appended), sum(each.size for each in appended)
        self.listener.stored(topic, count, size, sent.message_type)
        if topic == SCHEDULE_TOPIC:
            self.listener.put_into_level(sent.message.queue_id, count, size)
        return appended

    def _stored_once(self, window: DedupWindow, sent: _Sent, messages: Sequence[Message], append: _Append) -> list[First]:
        """Store those that the window does not know, and say where all of them are."""
        topic, now_ms = sent.header.topic, self.now_ms()
        keys = [properties.parse(message.properties).get(properties.UNIQUE_KEY) for message in messages]
        known = [None if key is None else self._first(window, topic, key, now_ms) for key in keys]
        fresh = [message for message, first in zip(messages, known, strict=True) if first is None]
        stored = iter(self._stored(sent, fresh, append) if fresh else ())
        firsts = []
        for key, first in zip(keys, known, strict=True):
            if first is None:
                new = next(stored)
                first = First(new.offset, new.end, sent.queue_id, new.queue_offset, new.store_time_ms, sent.recall_handle)
                if key is not None:
                    window.remember(topic, key, first)
            firsts.append(first)
        return firsts

    def _first(self, window: DedupWindow, topic: str, key: str, now_ms: int) -> First | None:
        """The message of that key, unless it was undone: who sends it again then begins another transaction, whose end must count."""
        first = window.find(topic, key, now_ms)
        return None if first is None or self.is_undone(first.offset) else first

    def committed(self, append: Callable[[], list[Appended]], pending_count: int = 0) -> list[Appended]:
        """Append and write, along with so many messages that were appended before."""
        appended: list[Appended] = []
        begun_ms = self.listener.monotonic_ms()
        try:
            appended = append()
            self.store.commit()
        except MessageIllegal as error:
            raise _illegal(str(error)) from error
        except StoreError as error:
            self.listener.put_failed(self.listener.monotonic_ms() - begun_ms, max(pending_count + len(appended), 1))
            raise self._refusal(error, pending_count + len(appended)) from error
        return appended

    def _refusal(self, error: StoreError, count: int) -> RequestRefused:
        """What producers are told of so many messages that the store did not take."""
        if isinstance(error, StoreReadOnly | StoreFull):
            is_full = isinstance(error, StoreFull) and self.store.retention.write_refusal is not None
            self.listener.refused((Cause.DISK_FULL if is_full else Cause.DISK_ERROR).value)
            return RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}", self.place_fields())
        if isinstance(error, WriteFailed):
            self.listener.refused(Cause.DISK_ERROR.value, count)
            remark = f"service not available now: {error}; free or mend the disk of the commit log, or send to another broker"
            return RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, remark, self.place_fields())
        return RequestRefused(ResponseCode.SYSTEM_ERROR, f"the message was not stored: {error}", self.place_fields())

    def _header(self, sent: _Sent, appended: Sequence[Appended | First]) -> SendMessageResponseHeader:
        return SendMessageResponseHeader(
            msg_id=",".join(offset_id(self.store_host, each.offset) for each in appended),
            queue_id=sent.queue_id,
            queue_offset=appended[0].queue_offset,
            transaction_id=sent.unique_key,
            msg_region=self.settings.region_id,
            trace_on=self.settings.trace_on,
            recall_handle=sent.recall_handle,
        )


def send_header(request: RemotingCommand) -> SendMessageRequestHeader:
    """The header of a send in either spelling."""
    in_full = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
    kind = SendMessageRequestHeader if request.code in in_full else SendMessageRequestHeaderV2
    return kind.from_fields(request.ext_fields)


def _topic_of(message: Message) -> str:
    """Where the message is stored, be it to wait there."""
    return bytes(message.topic).decode()


def _illegal(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.MESSAGE_ILLEGAL, remark)


def born_host_of(channel: Channel) -> bytes:
    """The peer as records hold it, worked out once for each connection."""
    found: bytes | None = channel.attributes.get(BORN_HOST)
    if found is None:
        address, _, port = channel.remote_address.rpartition(":")
        found = channel.attributes[BORN_HOST] = hosts.pack(address.strip("[]"), int(port))
    return found
