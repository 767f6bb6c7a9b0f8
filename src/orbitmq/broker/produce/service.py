"""Sends: what may be sent where, and what is stored of it.

The executable specification of sending: whatever serves sends faster stores and replies the same.
Knows no wire types: a send comes in as values, and its outcome goes out as values, so any protocol
can use it. Invariant: a send that is refused changes nothing, except that a topic may have been
created for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple, TypeAlias

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.metadata.groups import Groups
from orbitmq.broker.metadata.topic_names import check_topic
from orbitmq.broker.metadata.topics import Topics
from orbitmq.broker.plugins.interfaces import PluggableStore
from orbitmq.broker.produce import retry_policy
from orbitmq.broker.produce.admission import Busy, Cause
from orbitmq.broker.produce.deduplication import DedupWindow, First, is_deduplicated
from orbitmq.broker.produce.deferral import Deferred, MessageRewriter, QuickRewriter
from orbitmq.broker.produce.durable_replies import Write
from orbitmq.broker.produce.send_listener import SendListener
from orbitmq.common.errors import (
    InvalidMessageError,
    NotEnoughReplicasError,
    Refusal,
    RefusedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    WriteFailedError,
)
from orbitmq.common.topic_names import FORBIDDEN_TO_SEND, RETRY_PREFIX, SCHEDULE_TOPIC
from orbitmq.message import batch, flags, properties, property_rules
from orbitmq.message.message_type import MessageType, message_type
from orbitmq.message.record_write import MessageRecord
from orbitmq.protocol.bodies.nameserver import PERM_WRITE, TopicConfig
from orbitmq.store.log_batch import Appended
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset

_NEVER: Final = "-1"  # the delay level of dead letters
_Append: TypeAlias = Callable[[Sequence[MessageRecord]], list[Appended]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest:
    """A message or batch that a producer sends, free of wire types."""

    topic: str
    queue_id: int  # below 0: the broker chooses
    body: bytes  # of a batch: its messages, one behind the other
    properties: str
    flag: int
    sys_flag: int
    born_time_ms: int
    born_host: bytes
    reconsume_times: int
    max_reconsume_times: int | None  # None: as the group says
    is_batch: bool
    default_topic: str  # after which a topic that does not exist yet is made
    default_topic_queue_nums: int
    unit_mode: bool


class StoredSend(NamedTuple):
    """What was stored, and where."""

    places: Sequence[Appended | First]  # of each message
    queue_id: int  # of the topic, also while a message is deferred elsewhere
    unique_key: str | None  # a batch may have none
    recall_handle: str | None
    write: Write


class _Checked(NamedTuple):
    """A send that passed all checks."""

    request: SendRequest
    topic: TopicConfig
    message: MessageRecord
    queue_id: int  # as in `StoredSend`
    recall_handle: str | None
    unique_key: str | None
    waits: bool
    message_type: MessageType


class SendService:
    """Stores the messages of producers.

    `messages` is the store as plug-ins present it; `busy` says why the broker accepts no send now;
    `is_undone` whether the message at a log offset was rolled back; `is_in_order` whether a group
    consumes in order now. `rewriters` are asked in their order, `quick_rewriters` by
    `DeferralKind`.
    """

    def __init__(
        self,
        *,
        settings: BrokerConfig,
        topics: Topics,
        groups: Groups,
        store: MessageStore,
        messages: PluggableStore,
        store_host: bytes,
        now_ms: Callable[[], int],
        new_unique_key: Callable[[], str],
        listener: SendListener,
        random: Random,
        busy: Callable[[], Busy | None],
        window: DedupWindow | None,
        is_undone: Callable[[LogOffset], bool],
        is_in_order: Callable[[str], bool],
        rewriters: Sequence[MessageRewriter],
        quick_rewriters: Mapping[int, QuickRewriter],
    ) -> None:
        self.settings = settings
        self.topics = topics
        self._groups = groups
        self.store = store
        self._messages = messages
        self.store_host = store_host
        self.now_ms = now_ms
        self._new_unique_key = new_unique_key
        self.listener = listener
        self._random = random
        self.busy = busy
        self.window = window
        self._is_undone = is_undone
        self._is_in_order = is_in_order
        self._rewriters = rewriters
        self.quick_rewriters = quick_rewriters

    def admit(self) -> None:
        """Raise RefusedError if the broker is behind; the first check, before any work is done."""
        busy = self.busy()
        if busy is not None:
            self.listener.refused(busy.cause.value)
            raise RefusedError(Refusal.BUSY, busy.remark)

    def append(self, request: SendRequest) -> StoredSend:
        """Store a message or a batch. Raises RefusedError."""
        if request.is_batch:
            return self._append_batch(request)
        checked = self._checked(request)
        return self._append(checked, [checked.message], self._append_each)

    def _append_batch(self, request: SendRequest) -> StoredSend:
        """Store the messages of a batch one behind the other, each with the properties that its
        producer gave it and no more.
        """
        if request.topic.startswith(RETRY_PREFIX):
            raise _invalid(
                f"batch request does not support retry group {request.topic}; send its messages one"
                " by one"
            )
        limits = self.store.config.limits
        size_max = limits.body_size_max + limits.around_body_size_max
        if len(request.body) > size_max:  # before anything is made of it
            raise _invalid(
                f"a batch of {len(request.body)} bytes: its records take at most {size_max}; send"
                " fewer messages at once"
            )
        try:
            batch.check_count(request.body)
        except InvalidMessageError as error:
            raise _invalid(str(error)) from error
        checked = self._checked(request)
        try:
            if checked.topic.attributes.get("queue.type") == "BatchCQ":
                batch.make_inner(checked.message)
                return self._append(checked, [checked.message], self._append_each)
            messages = batch.split(checked.message)
        except InvalidMessageError as error:
            raise _invalid(str(error)) from error
        if not messages:
            raise _invalid("a batch without a message; send at least one")
        return self._append(checked, messages, self._messages.append_batch)

    # -- checks

    def _checked(self, request: SendRequest) -> _Checked:
        """Check everything that can be refused, in the order of Apache RocketMQ, and make the
        record to be stored.
        """
        topic, queue_id = self.place_of(request)
        found = properties.parse(request.properties)
        _check_kind(found, request)
        raw = properties.without(request.properties.encode("utf-8", "replace"), properties.POP_CK)
        reported_queue_id, more = queue_id, self.added_properties()
        if request.topic.startswith(RETRY_PREFIX) and self._is_dead_letter(request):
            group = request.topic.removeprefix(RETRY_PREFIX)
            topic, queue_id = (
                retry_policy.dead_letter_topic(self.topics, group),
                retry_policy.DEAD_LETTER_QUEUE,
            )
            raw, more[properties.DELAY] = properties.without(raw, properties.DELAY), _NEVER
            found[properties.DELAY] = _NEVER
            self.listener.dead_letter(found.get(properties.RETRY_TOPIC, request.topic), group)
        unique_key, kind = found.get(properties.UNIQUE_KEY), message_type(found)
        if unique_key is None and not request.is_batch:
            unique_key = more[properties.UNIQUE_KEY] = self._new_unique_key()
        message = MessageRecord(
            topic.name.encode(),
            request.body,
            born_host=request.born_host,
            born_time_ms=request.born_time_ms,
            queue_id=queue_id,
            flag=request.flag,
            sys_flag=request.sys_flag
            | (flags.MULTI_TAGS if topic.filter_type == "MULTI_TAG" else 0),
            reconsume_times=request.reconsume_times,
            properties=properties.extended(raw, more),
        )
        deferred = self._deferred(message, found)
        return _Checked(
            request,
            topic,
            deferred.message,
            reported_queue_id,
            deferred.recall_handle,
            unique_key,
            found.get(properties.WAIT) != "false",
            kind,
        )

    def _deferred(self, message: MessageRecord, found: Mapping[str, str]) -> Deferred:
        """Return the message as it is stored: rewritten by the first rewriter that knows its kind,
        else unchanged.
        """
        for rewriter in self._rewriters:
            deferred = rewriter.rewrite(message, found)
            if deferred is not None:
                return deferred
        return Deferred(message)

    def place_of(self, request: SendRequest) -> tuple[TopicConfig, int]:
        """Return topic and queue of a send, if it may be sent there now; a topic is created if
        need be.
        """
        settings, now_ms = self.settings, self.now_ms()
        if now_ms < settings.start_accept_send_request_time_stamp:
            raise RefusedError(
                Refusal.FAILED,
                f"broker unable to service, until {settings.start_accept_send_request_time_stamp}"
                " (startAcceptSendRequestTimeStamp)",
            )
        topic = self._topic(request)
        queue_id = request.queue_id
        queue_count = max(topic.read_queue_nums, topic.write_queue_nums)
        if queue_id >= queue_count:
            raise RefusedError(
                Refusal.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, {request.topic} has {queue_count} queues:"
                f" send to one of 0 to {queue_count - 1}",
            )
        if queue_id < 0:
            if topic.write_queue_nums < 1:
                raise RefusedError(
                    Refusal.FAILED,
                    f"topic[{request.topic}] has no queue to write to: give it one, or send to a"
                    " queue by its id",
                )
            queue_id = self._random.randrange(topic.write_queue_nums)
        return topic, queue_id

    def _topic(self, request: SendRequest) -> TopicConfig:
        found = self.topics.find(request.topic)
        if not self.settings.broker_permission & PERM_WRITE and found is not None and found.order:
            raise RefusedError(
                Refusal.NO_PERMISSION,
                f"the broker[{self.settings.broker_name}] sending message is forbidden"
                " (brokerPermission)",
            )
        if request.topic in FORBIDDEN_TO_SEND:
            raise RefusedError(
                Refusal.NO_PERMISSION,
                f"Sending message to topic[{request.topic}] is forbidden: the broker alone"
                " writes it",
            )
        if found is None:
            check_topic(request.topic)
            found = self.topics.for_send(
                request.topic,
                request.default_topic,
                request.default_topic_queue_nums,
                unit_mode=request.unit_mode,
            )
        if found is None:
            raise RefusedError(
                Refusal.NO_TOPIC,
                f"topic[{request.topic}] not exist, apply first please! Create it, or let brokers"
                " do so (autoCreateTopicEnable=true)",
            )
        return found

    def _is_dead_letter(self, request: SendRequest) -> bool:
        """Return whether a message that a consumer sends to its retry topic becomes a dead letter;
        one of a group that consumes in order always does.
        """
        name = request.topic.removeprefix(RETRY_PREFIX)
        group = retry_policy.group_of(self._groups, name)
        times_max = retry_policy.times_max(group, request.max_reconsume_times)
        return request.reconsume_times > times_max or self._is_in_order(name)

    def place_fields(self) -> dict[str, str]:
        """Return what messages and replies say of this broker: its region, and whether sends may
        be traced.
        """
        return {
            properties.MSG_REGION: self.settings.region_id,
            properties.TRACE_ON: "true" if self.settings.trace_on else "false",
        }

    def added_properties(self) -> dict[str, str | None]:
        """Return the properties that the broker adds to every message."""
        return {**self.place_fields(), properties.CLUSTER: self.settings.broker_cluster_name}

    # -- storing

    def _append(
        self, checked: _Checked, messages: Sequence[MessageRecord], append: _Append
    ) -> StoredSend:
        """Store the messages, except duplicates if there is a window of them."""
        places: Sequence[Appended | First]
        begun_ms = self.listener.monotonic_ms()
        queue_id, recall_handle = checked.queue_id, checked.recall_handle
        if self.window is None or not is_deduplicated(checked.request.topic):
            places = self._stored(checked, messages, append)
        else:
            places = firsts = self._stored_once(self.window, checked, messages, append)
            queue_id, recall_handle = firsts[0].queue_id, firsts[0].recall_handle

        def settled() -> None:
            took_ms = self.listener.monotonic_ms() - begun_ms
            self.listener.put_took(took_ms)
            self.listener.put_into_queue(
                _topic_of(checked.message), checked.message.queue_id, took_ms
            )

        write = Write(
            end=LogOffset(max(each.end for each in places)),
            topic=checked.topic.name,
            waits=checked.waits,
            count=len(places),
            settled=settled,
        )
        return StoredSend(places, queue_id, checked.unique_key, recall_handle, write)

    def _append_each(self, messages: Sequence[MessageRecord]) -> list[Appended]:
        return [self._messages.append(message) for message in messages]

    def _stored(
        self, checked: _Checked, messages: Sequence[MessageRecord], append: _Append
    ) -> list[Appended]:
        appended = self.committed(lambda: append(messages))
        topic, count, size = (
            _topic_of(checked.message),
            len(appended),
            sum(each.size for each in appended),
        )
        self.listener.stored(topic, count, size, checked.message_type)
        if topic == SCHEDULE_TOPIC:
            self.listener.put_into_level(checked.message.queue_id, count, size)
        return appended

    def _stored_once(
        self,
        window: DedupWindow,
        checked: _Checked,
        messages: Sequence[MessageRecord],
        append: _Append,
    ) -> list[First]:
        """Store the messages that the window does not know; return the places of all."""
        topic, now_ms = checked.request.topic, self.now_ms()
        keys = [
            properties.parse(message.properties).get(properties.UNIQUE_KEY) for message in messages
        ]
        known = [None if key is None else self._first(window, topic, key, now_ms) for key in keys]
        fresh = [message for message, first in zip(messages, known, strict=True) if first is None]
        stored = iter(self._stored(checked, fresh, append) if fresh else ())
        firsts = []
        for key, first in zip(keys, known, strict=True):
            if first is None:
                new = next(stored)
                first = First(
                    new.offset,
                    new.end,
                    checked.queue_id,
                    new.queue_offset,
                    new.store_time_ms,
                    checked.recall_handle,
                )
                if key is not None:
                    window.remember(topic, key, first)
            firsts.append(first)
        return firsts

    def _first(self, window: DedupWindow, topic: str, key: str, now_ms: int) -> First | None:
        """Return the earlier message of that key, unless it was rolled back: sent again, it begins
        another transaction, whose end must count.
        """
        first = window.find(topic, key, now_ms)
        return None if first is None or self._is_undone(first.offset) else first

    def committed(
        self, append: Callable[[], list[Appended]], pending_count: int = 0
    ) -> list[Appended]:
        """Append and write, along with `pending_count` messages that were appended before."""
        appended: list[Appended] = []
        begun_ms = self.listener.monotonic_ms()
        try:
            appended = append()
            self.store.commit()
        except InvalidMessageError as error:
            raise _invalid(str(error)) from error
        except StoreError as error:
            self.listener.put_failed(
                self.listener.monotonic_ms() - begun_ms, max(pending_count + len(appended), 1)
            )
            raise self._refusal(error, pending_count + len(appended)) from error
        return appended

    def _refusal(self, error: StoreError, count: int) -> RefusedError:
        """Return the refusal of `count` messages that the store did not accept."""
        if isinstance(error, StoreReadOnlyError | StoreFullError):
            is_full = (
                isinstance(error, StoreFullError) and self.store.retention.write_refusal is not None
            )
            self.listener.refused((Cause.DISK_FULL if is_full else Cause.DISK_ERROR).value)
            return RefusedError(Refusal.UNAVAILABLE, f"service not available now: {error}")
        if isinstance(error, NotEnoughReplicasError):
            self.listener.refused(Cause.REPLICA.value)
            return RefusedError(Refusal.FAILED, str(error))
        if isinstance(error, WriteFailedError):
            self.listener.refused(Cause.DISK_ERROR.value, count)
            return RefusedError(
                Refusal.UNAVAILABLE,
                f"service not available now: {error}; free or mend the disk of the commit log, or"
                " send to another broker",
            )
        return RefusedError(Refusal.FAILED, f"the message was not stored: {error}")


def _check_kind(found: Mapping[str, str], request: SendRequest) -> None:
    """Refuse what cannot be deferred or be part of a transaction: an ordinary message would be
    neither late nor undone.
    """
    delayed = next((name for name in property_rules.DELAYING if found.get(name, "0") != "0"), None)
    if request.is_batch and delayed is not None:
        raise _invalid(
            f"property {delayed}={found[delayed]}: the messages of a batch cannot come later;"
            " send them one by one"
        )
    is_prepared = found.get(properties.TRANSACTION_PREPARED, "").lower() == "true"
    if request.is_batch and (is_prepared or request.sys_flag & flags.TransactionType.ROLLBACK):
        raise _invalid(
            f"property {properties.TRANSACTION_PREPARED}: a batch cannot be of a transaction;"
            " send its messages one by one"
        )
    if request.sys_flag & flags.TransactionType.ROLLBACK and not is_prepared:
        raise _invalid(
            f"system flag {request.sys_flag:#x} says that the message is of a transaction, and"
            f" property {properties.TRANSACTION_PREPARED} does not: set it to true, or send an"
            " ordinary message"
        )


def _topic_of(message: MessageRecord) -> str:
    """Return the topic in which the message is stored, a holding topic included."""
    return bytes(message.topic).decode()


def _invalid(remark: str) -> RefusedError:
    return RefusedError(Refusal.INVALID_MESSAGE, remark)
