"""Pulls: who may read which queue, what of it is found, and what waits for a message that is not there yet.

The executable specification of pulling: whatever serves pulls faster gives the same answers. Looking up and holding happen without anything
in between, so no message slips by. Invariant: a pull is answered once, now or when `PullHold` releases it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Final, Protocol

from orbitmq.broker.consumers import Consumers
from orbitmq.broker.filters.choosing import Filters
from orbitmq.broker.groups import Groups
from orbitmq.broker.long_polling import HeldPull, PullHold, RecordOf
from orbitmq.broker.offsets import Offsets
from orbitmq.broker.plugins.interfaces import PluggableReads
from orbitmq.broker.subscriptions import build_subscription
from orbitmq.broker.topics import Topics
from orbitmq.common.clock import Clock
from orbitmq.common.errors import RequestRefused
from orbitmq.common.slices import Slices
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import PERM_READ, TopicConfig
from orbitmq.protocol.bodies.subscriptions import MessageModel, SubscriptionData
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.pull import ForbiddenBy, PullForbiddenResponseHeader, PullMessageRequestHeader, PullMessageResponseHeader
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler, failure
from orbitmq.remoting.slices import SliceQueue
from orbitmq.store.dispatch import Arrival
from orbitmq.store.reads import GetResult, GetStatus, MessageFilter
from orbitmq.store.types import QueueKey, QueueOffset

COMMITS_OFFSET: Final = 1  # of the pull's system flag
SUSPENDS: Final = 2
HAS_SUBSCRIPTION: Final = 4

_SHARE_NS: Final = 2_000_000  # of answers to pulls that waited, in a slice or a window; one that began within it is the last
_WINDOW_NS: Final = 5_000_000

_EMPTY: Final = (GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE)
_RESET: Final = "OFFSET_RESET"
# A connection that is not read any more must not be sent messages by the pulls that it had waiting.
_UNTAKEN: Final = "the peer does not take the answers that were sent to it; take them, then pull again"
_CODES: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}

# Hears of each pull that found messages, before its answer leaves.
Found = Callable[[Channel, PullMessageRequestHeader, GetResult], None]


class PullSettings(Protocol):
    """What of the configuration pulls look at."""

    @property
    def broker_ip1(self) -> str: ...
    @property
    def broker_permission(self) -> int: ...
    @property
    def lite_pull_message_enable(self) -> bool: ...
    @property
    def slave_read_enable(self) -> bool: ...


class PullListener(Protocol):
    """Hears of every look into a queue, and what it found; and of pulls that waited. `collectors` are called when that is looked at."""

    @property
    def collectors(self) -> list[Callable[[], object]]: ...

    def pulled(
        self, group: str, topic: str, queue_id: int, count: int, size: int, latency_ms: int = 0, behind_bytes: int = 0, behind_ms: int = 0
    ) -> None: ...

    def looked(self, found: int, missed: int, messages: int, latency_ms_max: int) -> None:
        """So many looks found so many messages together, others none; the longest took that long."""
        ...

    def got(self, group: str, topic: str, count: int, size: int, gets: int = 1) -> None:
        """A group got so many messages of that many bytes together, in so many answers."""
        ...

    def got_from_queue(self, group: str, topic: str, queue_id: int, took_ms: int, behind_bytes: int, behind_ms: int, gets: int = 1) -> None:
        """So many answers from a queue took that long together; the last was so far behind the end of the log, and of time."""
        ...

    def answered(
        self, request: int, response: int, took_ms: int, is_oneway: bool = False, times: int = 1, *, is_long_polling: bool = False
    ) -> None: ...


class PullProcessor:
    """11 and 361."""

    def __init__(
        self,
        settings: PullSettings,
        topics: Topics,
        groups: Groups,
        offsets: Offsets,
        consumers: Consumers,
        reads: PluggableReads,
        hold: PullHold,
        clock: Clock,
        listener: PullListener,
        filters: Filters,
        record_of: RecordOf,
        slices: SliceQueue,
        found: Found | None = None,
    ) -> None:
        self.settings = settings
        self.topics = topics
        self.groups = groups
        self.offsets = offsets
        self.consumers = consumers
        self.reads = reads
        self.hold = hold
        self.monotonic_ms = clock.monotonic_ms
        self.now_ms = clock.now_ms
        self.listener = listener
        self.filters = filters
        self._record_of = record_of
        self._slices = slices
        self._is_waking = self._is_expiring = self._is_answering = False
        self._released: deque[HeldPull] = deque()  # and not answered yet
        self.share_ns = _SHARE_NS
        self._window_ns = self._spent_ns = 0
        self._found = found
        self.serve_again: Callable[[HeldPull], bool] | None = None  # a faster way to answer one that waited, which may say no

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def pull(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Answer a pull, or let it wait."""
        try:
            return self._pull(channel, request, may_wait=True)
        except _Forbidden as refused:
            return refused.answer(request)

    # -- those that wait

    def arrived(self, arrival: Arrival) -> None:
        """Answer the pulls that wait for this message: a crowd in slices."""
        released = self.hold.on_arrival(arrival.queue, arrival.next_offset, arrival.tags_code, self._record_of)
        if released:
            self._answer_all(released)
        if self.hold.has_more_to_wake and not self._is_waking:
            self._is_waking = True
            self._slices.start(self._wake())

    def _wake(self) -> Slices[None]:
        try:
            while self.hold.has_more_to_wake:
                yield
                self._answer_all(self.hold.wake_more())
        finally:
            self._is_waking = False

    def expire(self) -> None:
        """Answer the pulls that waited long enough: a crowd in slices."""
        if not self._is_expiring:
            self._is_expiring = True
            self._slices.start(self._expire())

    def _expire(self) -> Slices[None]:
        try:
            while True:
                self._answer_all(self.hold.expire(self.monotonic_ms()))
                next_ms = self.hold.next_ms
                if next_ms is None or next_ms > self.monotonic_ms():
                    return
                yield
        finally:
            self._is_expiring = False

    def _answer_all(self, released: Sequence[HeldPull]) -> None:
        """Answer pulls that wait no more, behind those that are to be answered before: what would take too long now, in slices."""
        self._released.extend(released)
        if self._is_answering:
            return
        begun_ns = monotonic_ns()
        if begun_ns - self._window_ns > _WINDOW_NS:
            self._window_ns, self._spent_ns = begun_ns, 0
        self._answer_some(begun_ns + self.share_ns - self._spent_ns)
        self._spent_ns += monotonic_ns() - begun_ns
        if self._released:
            self._is_answering = True
            self._slices.start(self._answer_rest())

    def _answer_some(self, until_ns: int) -> None:
        while self._released:
            self._again(self._released.popleft())
            if monotonic_ns() > until_ns:
                return

    def _answer_rest(self) -> Slices[None]:
        try:
            while self._released:
                yield
                self._answer_some(monotonic_ns() + self.share_ns)
        finally:
            self._is_answering = False

    def _again(self, pull: HeldPull) -> None:
        if not pull.channel.is_open:
            return
        if self.serve_again is not None and self.serve_again(pull):
            return
        try:
            answer = self._pull(pull.channel, pull.request, may_wait=False)
        except _Forbidden as refused:
            answer = refused.answer(pull.request)
        except Exception as problem:  # the topic may be gone meanwhile
            answer = failure(pull.request, problem)
        assert answer is not None, "a pull waits once"
        took_ms = self.monotonic_ms() - pull.held_ms
        self.listener.answered(pull.request.code, answer.code, took_ms, is_long_polling=True)
        pull.channel.send(answer)

    # -- one pull

    def _pull(self, channel: Channel, request: RemotingCommand, *, may_wait: bool) -> RemotingCommand | None:
        begun_ms = self.monotonic_ms()
        header = PullMessageRequestHeader.from_fields(request.ext_fields)
        group, topic = self._checked(channel, request, header)
        wanted = self._wanted(header, group)
        reset = self.offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        queue = QueueKey(header.topic, header.queue_id)
        result = self.reads.get(queue, QueueOffset(header.queue_offset), count_max=header.max_msg_nums, wanted=wanted)
        if may_wait and header.sys_flag & COMMITS_OFFSET:
            self.offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset, client=channel.remote_address)
        next_offset = result.next_offset if reset is None else reset
        self.offsets.commit_pull(header.consumer_group, header.topic, header.queue_id, next_offset)
        if reset is not None:
            return self._answer(request, group, topic, result, ResponseCode.PULL_OFFSET_MOVED, _RESET, next_offset)
        code = answer_code(result, header.queue_offset)
        if code == ResponseCode.PULL_NOT_FOUND and may_wait and header.sys_flag & SUSPENDS and not request.is_oneway:
            held = HeldPull(channel, request, QueueOffset(header.queue_offset), header.suspend_timeout_millis, wanted)
            if self.hold.hold(queue, held, self.monotonic_ms()):
                return None
        if code == ResponseCode.SUCCESS and not may_wait and not channel.link.reading:
            return self._answer(request, group, topic, result, ResponseCode.PULL_NOT_FOUND, _UNTAKEN, header.queue_offset)
        if may_wait or code == ResponseCode.SUCCESS:
            self.listener.pulled(
                header.consumer_group,
                header.topic,
                header.queue_id,
                result.message_count,
                len(result.records),
                self.monotonic_ms() - begun_ms,
                result.behind_bytes,
                max(self.now_ms() - result.last_store_time_ms, 0) if result.message_count else 0,
            )
        if self._found is not None and code == ResponseCode.SUCCESS:
            self._found(channel, header, result)
        # To the original a queue that nobody sent to is an empty one.
        status = GetStatus.NO_MESSAGE_IN_QUEUE if result.status in _EMPTY else result.status
        return self._answer(request, group, topic, result, code, status.name, next_offset)

    def _answer(
        self,
        request: RemotingCommand,
        group: GroupConfig,
        topic: TopicConfig,
        result: GetResult,
        code: ResponseCode,
        remark: str,
        next_offset: int,
    ) -> RemotingCommand:
        suggested = 0
        if self.settings.slave_read_enable:
            suggested = group.which_broker_when_consume_slowly if result.suggest_slave else group.broker_id
        fields = PullMessageResponseHeader(
            suggest_which_broker_id=suggested,
            next_begin_offset=next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            topic_sys_flag=topic.sys_flag,
            group_sys_flag=group.sys_flag,
        )
        body = bytes(result.records) if code == ResponseCode.SUCCESS else None
        return request.answer(code, remark, header=fields, body=body)

    # -- who may read

    def _checked(self, channel: Channel, request: RemotingCommand, header: PullMessageRequestHeader) -> tuple[GroupConfig, TopicConfig]:
        """Everything that can be refused before the subscription is looked at, in the original's order."""
        settings = self.settings
        if not settings.broker_permission & PERM_READ:
            raise _Forbidden(
                ForbiddenBy.BROKER,
                f"the broker[{settings.broker_ip1}] pulling message is forbidden (brokerPermission={settings.broker_permission})",
            )
        if request.code == RequestCode.LITE_PULL_MESSAGE and not settings.lite_pull_message_enable:
            raise _Forbidden(
                ForbiddenBy.BROKER, f"the broker[{settings.broker_ip1}] for lite pull consumer is forbidden (litePullMessageEnable=false)"
            )
        group = self.groups.find(header.consumer_group)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist: create it, or set autoCreateSubscriptionGroup=true",
            )
        if not group.consume_enable:
            raise _Forbidden(ForbiddenBy.GROUP, f"subscription group no permission, {header.consumer_group}: its consumeEnable is false")
        topic = self.topics.find(header.topic)
        if topic is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! Send to it, or create it"
            )
        if not topic.perm & PERM_READ:
            raise _Forbidden(
                ForbiddenBy.TOPIC, f"the topic[{header.topic}] pulling message is forbidden: its perm is {topic.perm}, without read"
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:[{topic.read_queue_nums}] "
                f"consumer:[/{channel.remote_address}]: pull one of 0 to {topic.read_queue_nums - 1}",
            )
        return group, topic

    def _wanted(self, header: PullMessageRequestHeader, config: GroupConfig) -> MessageFilter | None:
        """What the pull wants: as it says, or as its group said in its last heartbeat."""
        is_own = bool(header.sys_flag & HAS_SUBSCRIPTION)
        if is_own:
            subscription = build_subscription(header.topic, header.subscription, header.expression_type, header.sub_version)
        else:
            subscription = self._known_subscription(header, config)
        return self.filters.of_pull(header.consumer_group, subscription, header.sub_version, is_own=is_own)

    def _known_subscription(self, header: PullMessageRequestHeader, config: GroupConfig) -> SubscriptionData:
        name = header.consumer_group
        online = self.consumers.find(name)
        if online is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist, {name}: no member has sent a heartbeat yet"
            )
        if online.message_model is MessageModel.BROADCASTING and not config.consume_broadcast_enable:
            raise _Forbidden(
                ForbiddenBy.BROADCASTING,
                f"the consumer group[{name}] can not consume by broadcast way: its consumeBroadcastEnable is false",
            )
        if not self.groups.is_readable(name, header.topic):
            raise _Forbidden(ForbiddenBy.SUBSCRIPTION, f"the consumer group[{name}] is forbidden for topic[{header.topic}]")
        subscription = online.subscriptions.get(header.topic)
        if subscription is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist, group {name} subscribes other topics than {header.topic}",
            )
        if subscription.sub_version < header.sub_version:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the consumer's subscription not latest: known is {subscription.sub_version} of {name}; the next heartbeat brings it",
            )
        return subscription


def answer_code(result: GetResult, offset: int) -> ResponseCode:
    """What a pull from that offset is told."""
    if result.status in _EMPTY:
        return ResponseCode.PULL_NOT_FOUND if offset == 0 else ResponseCode.PULL_OFFSET_MOVED
    return _CODES[result.status]


class _Forbidden(RequestRefused):
    """A pull of somebody who may not; `by` says whose rule that is."""

    def __init__(self, by: ForbiddenBy, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.by = by

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        return request.answer(self.code, self.remark, header=PullForbiddenResponseHeader(forbidden_type=self.by))
