"""Pulls: which queues a client may read, what is found there, and what is held until a message
arrives.

The executable specification of pulling: whatever serves pulls faster gives the same replies. Knows
no wire types: a pull comes in as values, and one that is held is resumed by a callback of its
caller, so any protocol can use it.

Reading and holding happen in one step, so no arriving message is missed. Invariant: a pull gets one
reply, now or when `PendingPulls` releases it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from time import monotonic_ns
from typing import Final, NamedTuple, Protocol

from orbitmq.broker.clients.consumers import Consumers
from orbitmq.broker.clients.subscriptions import build_subscription
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.consume.filters.resolver import FilterResolver
from orbitmq.broker.consume.pending_pulls import PendingPull, PendingPulls, RecordOf, Resume
from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.metadata.groups import Groups
from orbitmq.broker.metadata.topics import Topics
from orbitmq.broker.plugins.interfaces import PluggableReads
from orbitmq.common.clock import Clock
from orbitmq.common.errors import Refusal, RefusedError
from orbitmq.common.slices import Slices
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import PERM_READ, TopicConfig
from orbitmq.protocol.bodies.subscriptions import MessageModel, SubscriptionData
from orbitmq.remoting.slices import SliceQueue
from orbitmq.store.dispatch import Arrival
from orbitmq.store.reads import GetResult, GetStatus, MessageFilter
from orbitmq.store.types import QueueKey, QueueOffset

# Time budget for replies to released pulls in one slice, and in one window; a reply that began
# within it is the last.
_SHARE_NS: Final = 2_000_000
_WINDOW_NS: Final = 5_000_000

_EMPTY: Final = (GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE)
_RESET: Final = "OFFSET_RESET"
_NOT_READING: Final = (
    "the peer does not read the replies that were sent to it; read them, then pull again"
)


class PullOutcome(Enum):
    """The outcome of a pull."""

    FOUND = "found"
    NOT_FOUND = "not found"  # no message is there yet
    RETRY = "retry"  # none of the messages read matches: continue after them
    MOVED = "moved"  # the offset is not in the queue, or was reset


_STATUSES: Final = {
    GetStatus.FOUND: PullOutcome.FOUND,
    GetStatus.NO_MATCHED_MESSAGE: PullOutcome.RETRY,
    GetStatus.MESSAGE_WAS_REMOVING: PullOutcome.RETRY,
    GetStatus.OFFSET_FOUND_NULL: PullOutcome.NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: PullOutcome.NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: PullOutcome.MOVED,
    GetStatus.OFFSET_TOO_SMALL: PullOutcome.MOVED,
}


class Forbidder(Enum):
    """Whose settings forbid a pull."""

    BROKER = "broker"
    GROUP = "group"
    TOPIC = "topic"
    BROADCASTING = "broadcasting"
    SUBSCRIPTION = "subscription"


class PullForbiddenError(RefusedError):
    """A pull that settings forbid; the text says which and what to do."""

    def __init__(self, by: Forbidder, remark: str) -> None:
        super().__init__(Refusal.NO_PERMISSION, remark)
        self.by = by


class Subscription(NamedTuple):
    """The subscription that a pull carries."""

    text: str | None
    expression_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """A pull request, free of wire types."""

    group: str
    topic: str
    queue_id: int
    offset: int
    count_max: int
    commit_offset: int | None  # None: commit nothing
    subscription: Subscription | None  # None: that of the group's last heartbeat
    sub_version: int
    client: str  # its address, for logs and errors
    is_lite: bool = False


class Holder(NamedTuple):
    """The holder of a pull that finds no message yet: what `PendingPull` keeps of it."""

    connection: object
    request: object
    size: int
    suspend_ms: int
    resume: Resume


class PullReply(NamedTuple):
    """The outcome of a pull, with what was read."""

    status: PullOutcome
    remark: str
    result: GetResult
    next_offset: int
    suggested_broker_id: int
    topic_sys_flag: int
    group_sys_flag: int


class PullListener(Protocol):
    """Counts reads of queues, and replies to held pulls.

    `collectors` are called before the figures are read.
    """

    @property
    def collectors(self) -> list[Callable[[], object]]: ...

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
    ) -> None: ...

    def looked(self, found: int, missed: int, messages: int, latency_ms_max: int) -> None:
        """Count reads: `found` of them found messages, `missed` none; the longest took that
        long.
        """
        ...

    def got(self, group: str, topic: str, count: int, size: int, gets: int = 1) -> None:
        """Count messages, `size` bytes in all, that a group got in `gets` replies."""
        ...

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
        """Count the latency of `gets` replies from a queue, summed up, and how far the last one was
        behind the end of the log, in bytes and in time.
        """
        ...

    def answered(
        self,
        request: int,
        response: int,
        took_ms: int,
        is_oneway: bool = False,
        times: int = 1,
        *,
        is_long_polling: bool = False,
    ) -> None: ...


class PullService:
    """Serves pulls, holds those that found nothing, and resumes them when a message arrives."""

    def __init__(
        self,
        *,
        settings: BrokerConfig,
        topics: Topics,
        groups: Groups,
        offsets: Offsets,
        consumers: Consumers,
        reads: PluggableReads,
        pending: PendingPulls,
        clock: Clock,
        listener: PullListener,
        filters: FilterResolver,
        record_of: RecordOf,
        slices: SliceQueue,
    ) -> None:
        self.settings = settings
        self.topics = topics
        self.groups = groups
        self.offsets = offsets
        self.consumers = consumers
        self.reads = reads
        self.pending = pending
        self.monotonic_ms = clock.monotonic_ms
        self.now_ms = clock.now_ms
        self.listener = listener
        self.filters = filters
        self._record_of = record_of
        self._slices = slices
        self._is_waking = self._is_expiring = self._is_resuming = False
        self._released: deque[PendingPull] = deque()  # not resumed yet
        self.share_ns = _SHARE_NS
        self._window_ns = self._spent_ns = 0

    # -- held pulls

    def is_awaiting(self) -> bool:
        """Return whether any pull is held."""
        return len(self.pending) > 0

    def arrived(self, arrival: Arrival) -> None:
        """Resume the pulls that wait for this message, many of them in slices."""
        released = self.pending.on_arrival(
            arrival.queue, arrival.next_offset, arrival.tags_code, self._record_of
        )
        if released:
            self._resume_all(released)
        if self.pending.has_more_to_wake and not self._is_waking:
            self._is_waking = True
            self._slices.start(self._wake())

    def _wake(self) -> Slices[None]:
        try:
            while self.pending.has_more_to_wake:
                yield
                self._resume_all(self.pending.wake_more())
        finally:
            self._is_waking = False

    def expire(self) -> None:
        """Resume the pulls whose deadline has passed, many of them in slices."""
        if not self._is_expiring:
            self._is_expiring = True
            self._slices.start(self._expire())

    def _expire(self) -> Slices[None]:
        try:
            while True:
                self._resume_all(self.pending.expire(self.monotonic_ms()))
                next_ms = self.pending.next_ms
                if next_ms is None or next_ms > self.monotonic_ms():
                    return
                yield
        finally:
            self._is_expiring = False

    def _resume_all(self, released: Sequence[PendingPull]) -> None:
        """Resume released pulls in order: now as far as time allows, the rest in slices."""
        self._released.extend(released)
        if self._is_resuming:
            return
        begun_ns = monotonic_ns()
        if begun_ns - self._window_ns > _WINDOW_NS:
            self._window_ns, self._spent_ns = begun_ns, 0
        self._resume_some(begun_ns + self.share_ns - self._spent_ns)
        self._spent_ns += monotonic_ns() - begun_ns
        if self._released:
            self._is_resuming = True
            self._slices.start(self._resume_rest())

    def _resume_some(self, until_ns: int) -> None:
        while self._released:
            pull = self._released.popleft()
            pull.resume(pull)
            if monotonic_ns() > until_ns:
                return

    def _resume_rest(self) -> Slices[None]:
        try:
            while self._released:
                yield
                self._resume_some(monotonic_ns() + self.share_ns)
        finally:
            self._is_resuming = False

    # -- one pull

    def pull(self, request: PullRequest, holder: Holder | None) -> PullReply | None:
        """Read a queue for a client, or hold the pull until a message arrives: then None.

        Without a holder the pull gets a reply now.
        """
        return self._pull(request, holder, is_resumed=False, is_reading=True)

    def resumed(self, request: PullRequest, *, is_reading: bool) -> PullReply:
        """Read a queue for a pull that was held.

        With `is_reading` off its client does not read what was sent to it before, and gets no
        messages.
        """
        reply = self._pull(request, None, is_resumed=True, is_reading=is_reading)
        assert reply is not None, "a pull is held once"
        return reply

    def _pull(
        self, request: PullRequest, holder: Holder | None, *, is_resumed: bool, is_reading: bool
    ) -> PullReply | None:
        begun_ms = self.monotonic_ms()
        group, topic = self._checked(request)
        wanted = self._wanted(request, group)
        reset = self.offsets.take_reset(request.group, request.topic, request.queue_id)
        queue, offset = QueueKey(request.topic, request.queue_id), QueueOffset(request.offset)
        result = self.reads.get(queue, offset, count_max=request.count_max, wanted=wanted)
        if not is_resumed and request.commit_offset is not None:
            self.offsets.commit(
                request.group,
                request.topic,
                request.queue_id,
                request.commit_offset,
                client=request.client,
            )
        next_offset = result.next_offset if reset is None else reset
        self.offsets.commit_pull(request.group, request.topic, request.queue_id, next_offset)
        if reset is not None:
            return self._reply(PullOutcome.MOVED, _RESET, group, topic, result, next_offset)
        status = status_of(result, request.offset)
        if status is PullOutcome.NOT_FOUND and holder is not None:
            held = PendingPull(
                connection=holder.connection,
                request=holder.request,
                size=holder.size,
                offset=offset,
                suspend_ms=holder.suspend_ms,
                wanted=wanted,
                resume=holder.resume,
            )
            if self.pending.hold(queue, held, self.monotonic_ms()):
                return None
        if status is PullOutcome.FOUND and not is_reading:
            return self._reply(
                PullOutcome.NOT_FOUND, _NOT_READING, group, topic, result, request.offset
            )
        if not is_resumed or status is PullOutcome.FOUND:
            for collect in self.listener.collectors:
                collect()  # earlier counts first: for some figures the last value wins
            self.listener.pulled(
                request.group,
                request.topic,
                request.queue_id,
                result.message_count,
                len(result.records),
                self.monotonic_ms() - begun_ms,
                result.behind_bytes,
                max(self.now_ms() - result.last_store_time_ms, 0) if result.message_count else 0,
            )
        # Apache RocketMQ treats a queue that never had a message as empty.
        found = GetStatus.NO_MESSAGE_IN_QUEUE if result.status in _EMPTY else result.status
        return self._reply(status, found.name, group, topic, result, next_offset)

    def _reply(
        self,
        status: PullOutcome,
        remark: str,
        group: GroupConfig,
        topic: TopicConfig,
        result: GetResult,
        next_offset: int,
    ) -> PullReply:
        suggested = 0
        if self.settings.slave_read_enable:
            suggested = (
                group.which_broker_when_consume_slowly if result.suggest_slave else group.broker_id
            )
        return PullReply(
            status, remark, result, next_offset, suggested, topic.sys_flag, group.sys_flag
        )

    # -- permission to read

    def _checked(self, request: PullRequest) -> tuple[GroupConfig, TopicConfig]:
        """Check everything except the subscription, in the order of Apache RocketMQ."""
        settings = self.settings
        if not settings.broker_permission & PERM_READ:
            raise PullForbiddenError(
                Forbidder.BROKER,
                f"the broker[{settings.broker_ip1}] pulling message is forbidden"
                f" (brokerPermission={settings.broker_permission})",
            )
        if request.is_lite and not settings.lite_pull_message_enable:
            raise PullForbiddenError(
                Forbidder.BROKER,
                f"the broker[{settings.broker_ip1}] for lite pull consumer is forbidden"
                " (litePullMessageEnable=false)",
            )
        group = self.groups.find(request.group)
        if group is None:
            raise RefusedError(
                Refusal.NO_GROUP,
                f"subscription group [{request.group}] does not exist: create it, or set"
                " autoCreateSubscriptionGroup=true",
            )
        if not group.consume_enable:
            raise PullForbiddenError(
                Forbidder.GROUP,
                f"subscription group no permission, {request.group}: its consumeEnable is false",
            )
        topic = self.topics.find(request.topic)
        if topic is None:
            raise RefusedError(
                Refusal.NO_TOPIC,
                f"topic[{request.topic}] not exist, apply first please! Send to it, or create it",
            )
        if not topic.perm & PERM_READ:
            raise PullForbiddenError(
                Forbidder.TOPIC,
                f"the topic[{request.topic}] pulling message is forbidden: its perm is"
                f" {topic.perm}, without read",
            )
        if not 0 <= request.queue_id < topic.read_queue_nums:
            raise RefusedError(
                Refusal.INVALID_PARAMETER,
                f"queueId[{request.queue_id}] is illegal, topic:[{request.topic}]"
                f" topicConfig.readQueueNums:[{topic.read_queue_nums}]"
                f" consumer:[/{request.client}]: pull one of 0 to {topic.read_queue_nums - 1}",
            )
        return group, topic

    def _wanted(self, request: PullRequest, config: GroupConfig) -> MessageFilter | None:
        """Return the filter of the pull: its own, or that of its group's last heartbeat."""
        own = request.subscription
        if own is None:
            subscription = self._known_subscription(request, config)
        else:
            subscription = build_subscription(
                request.topic, own.text, own.expression_type, request.sub_version
            )
        return self.filters.resolve(
            request.group, subscription, request.sub_version, is_own=own is not None
        )

    def _known_subscription(self, request: PullRequest, config: GroupConfig) -> SubscriptionData:
        name = request.group
        online = self.consumers.find(name)
        if online is None:
            raise RefusedError(
                Refusal.NO_SUBSCRIPTION,
                f"the consumer's group info not exist, {name}: no member has sent a heartbeat yet",
            )
        if (
            online.message_model is MessageModel.BROADCASTING
            and not config.consume_broadcast_enable
        ):
            raise PullForbiddenError(
                Forbidder.BROADCASTING,
                f"the consumer group[{name}] can not consume by broadcast way: its"
                " consumeBroadcastEnable is false",
            )
        if not self.groups.is_readable(name, request.topic):
            raise PullForbiddenError(
                Forbidder.SUBSCRIPTION,
                f"the consumer group[{name}] is forbidden for topic[{request.topic}]",
            )
        subscription = online.subscriptions.get(request.topic)
        if subscription is None:
            raise RefusedError(
                Refusal.NO_SUBSCRIPTION,
                f"the consumer's subscription not exist, group {name} subscribes other topics than"
                f" {request.topic}",
            )
        if subscription.sub_version < request.sub_version:
            raise RefusedError(
                Refusal.OLD_SUBSCRIPTION,
                f"the consumer's subscription not latest: known is {subscription.sub_version} of"
                f" {name}; the next heartbeat brings it",
            )
        return subscription


def status_of(result: GetResult, offset: int) -> PullOutcome:
    """Return the outcome of a pull from that offset for a read."""
    if result.status in _EMPTY:
        return PullOutcome.NOT_FOUND if offset == 0 else PullOutcome.MOVED
    return _STATUSES[result.status]
