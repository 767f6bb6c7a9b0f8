"""Requests of clients about themselves: heartbeats, goodbyes, queue locks. What others ask about clients is in `client_lists.py`.

Also what becomes of a client without its asking: `on_close` when its connection went, `scan` for those that fell silent. Rules live in
`Producers`, `Consumers`, `QueueLocks` and `PullHold`; here they meet the configuration of groups and topics, and their effects are sent.

What grows with a request, a connection or a group is done in slices. Others may see a client in some of its groups and not yet, or still,
in the rest. Members of a group are notified of its last change; of several while a notification is under way only the last is told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from orbitmq.access.decisions import Denied
from orbitmq.broker.client_ids import ID_CHARS_MAX, ClientIds
from orbitmq.broker.clients import ClientInfo
from orbitmq.broker.consumers import Change, ConsumerGroup, Consumers
from orbitmq.broker.filters.consumer_filters import ConsumerFilters, expression_problem
from orbitmq.broker.groups import Groups
from orbitmq.broker.guards.subscriptions import Refusals, Wanted, Wish, explained, wish_of
from orbitmq.broker.long_polling import PullHold
from orbitmq.broker.producers import Producers
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.broker.settings.guards import SubscriptionConflict
from orbitmq.broker.topics import Topics
from orbitmq.common.clock import Clock
from orbitmq.common.errors import ProtocolError, RemoteError, RequestRefused
from orbitmq.common.slices import SLICE_UNITS, Slices, slices_of
from orbitmq.common.topic_names import RETRY_PREFIX
from orbitmq.protocol.bodies import clients as bodies
from orbitmq.protocol.bodies.nameserver import PERM_READ, PERM_WRITE, TOPIC_UNIT_SUB
from orbitmq.protocol.bodies.subscriptions import ConsumeType, is_tag_type
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import clients as headers
from orbitmq.protocol.headers.base import Header
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.remoting.slices import SliceQueue

log = logging.getLogger(__name__)

T = TypeVar("T")

BODY_BYTES_MAX: Final = 1024 * 1024  # of a heartbeat, or of queues to lock: some 8,000 subscriptions
GROUPS_PER_CONNECTION_MAX: Final = 10_000
GROUP_UNITS: Final = 10  # what a group costs, in units of a slice, beside its members or subscriptions
_REFUSED_TOLD_MAX: Final = 10  # groups of a heartbeat whose refusal is explained
_SILENT: Final = "its client sent no heartbeat for too long"
_NO_FIELDS: Final = Header()  # the original answers some requests with an empty header


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRules:
    """What the broker's configuration says of clients."""

    notify_consumer_ids_changed: bool = True
    reject_pull_consumers: bool = False
    enable_property_filter: bool = False
    subscription_conflict: SubscriptionConflict = SubscriptionConflict.WARN


class Access(Protocol):
    """Who sends requests, and how it is told that one is not allowed."""

    def user_of(self, remote_address: str, request: RemotingCommand) -> str | None: ...

    def refusal(self, remote_address: str, request: RemotingCommand, denied: Denied) -> RequestRefused: ...


class ClientListener(Protocol):
    """Hears how long it took to register the groups of a heartbeat."""

    def consumer_registered(self, took_ms: int) -> None: ...

    def producer_registered(self, took_ms: int) -> None: ...


class ClientProcessor:
    """Serves what clients say of themselves."""

    def __init__(
        self,
        rules: ClientRules,
        *,
        producers: Producers,
        consumers: Consumers,
        locks: QueueLocks,
        hold: PullHold,
        groups: Groups,
        topics: Topics,
        filters: ConsumerFilters,
        clock: Clock,
        access: Access,
        listener: ClientListener,
        slices: SliceQueue,
    ) -> None:
        self.rules = rules
        self._slices = slices
        self._to_notify: dict[str, list[Channel]] = {}  # by group, in the order of their changes
        self._is_notifying = False
        self._is_scanning = False
        self._listener = listener
        self._producers = producers
        self._consumers = consumers
        self._locks = locks
        self._hold = hold
        self._groups = groups
        self._topics = topics
        self._filters = filters
        self._refusals = Refusals()
        self._clock = clock
        self._access = access
        self._ids = ClientIds()

    def handlers(self) -> Mapping[int, Handler]:
        """Which method serves which code."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister_client,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
            RequestCode.LOCK_BATCH_MQ: self.lock_queues,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock_queues,
        }

    # --- coming and going -----------------------------------------------------------------------------------------

    def heartbeat(self, channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        data = yield from _decoded(bodies.HeartbeatData.decode_in_slices, request)
        self._check_groups(channel, data)
        info = ClientInfo(data.client_id, request.language, request.version)
        user = self._access.user_of(channel.remote_address, request)
        self._check_id(channel, request, data.client_id, user, self._ids.use(data.client_id, user, channel))
        now_ms = self._clock.monotonic_ms()
        full_wanted = data.fingerprint == 0
        refused = []
        units = 0
        for consumer in data.consumers:
            units += GROUP_UNITS + len(consumer.subscriptions)
            if units > SLICE_UNITS:
                units = 0
                yield
            wish: dict[str, Wanted] = {}
            for number, part in enumerate(slices_of(consumer.subscriptions)):
                if number:
                    yield
                wish |= wish_of(part)
            if (conflict := self._conflict(channel, info, data, consumer, wish)) is not None:
                refused.append(conflict)
                continue
            full_wanted |= yield from self._consumer_heard(channel, info, data, consumer, wish, now_ms)
            self._listener.consumer_registered(self._clock.monotonic_ms() - now_ms)
        for groups in slices_of(data.producer_groups):
            units += len(groups)
            if units > SLICE_UNITS:
                units = len(groups)
                yield
            for group in groups:
                self._producers.register(group, channel, info, now_ms)
                self._listener.producer_registered(self._clock.monotonic_ms() - now_ms)
        if refused:  # the other groups of the client are served
            more = [f"and so for {len(refused) - _REFUSED_TOLD_MAX} other groups"] if len(refused) > _REFUSED_TOLD_MAX else []
            raise RequestRefused(ResponseCode.NO_PERMISSION, "; ".join(refused[:_REFUSED_TOLD_MAX] + more))
        header = headers.HeartbeatResponseHeader(support_heartbeat_v2=True, subscription_changed=full_wanted)
        return request.answer(ResponseCode.SUCCESS, header=header)

    def _check_groups(self, channel: Channel, data: bodies.HeartbeatData) -> None:
        """Refuse a heartbeat that would put a connection into more groups than a connection may join; nothing has changed."""
        joined = len(self._producers.groups_of(channel)) + len(self._consumers.groups_of(channel))
        count = max(joined, len(data.producer_groups) + len(data.consumers))
        if count > GROUPS_PER_CONNECTION_MAX:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"one connection joins at most {GROUPS_PER_CONNECTION_MAX} groups, and this one has {count}; use several clients",
            )

    def _check_id(self, channel: Channel, request: RemotingCommand, client_id: str, user: str | None, problem: str | None) -> None:
        """Refuse a request whose sender may not act as a client; nothing has changed."""
        if problem is None:
            return
        if user is None:
            raise RequestRefused(ResponseCode.NO_PERMISSION, problem)
        raise self._access.refusal(
            channel.remote_address, request, Denied(problem, who=user, resource=f"Client:{client_id[:ID_CHARS_MAX]}")
        )

    def _conflict(
        self, channel: Channel, info: ClientInfo, heartbeat: bodies.HeartbeatData, data: bodies.ConsumerData, wish: Wish
    ) -> str | None:
        """Why a client may not be a member with the subscriptions that it has, if conflicts are refused; None when it may."""
        known = self._consumers.find(data.group)
        left_out = heartbeat.without_sub and heartbeat.fingerprint != 0
        if left_out or known is None or self.rules.subscription_conflict is not SubscriptionConflict.REFUSE:
            return None
        found = known.conflicts_with(info.client_id, wish)
        if not found:
            self._refusals.remove(channel, data.group)
            return None
        why = f"client {info.client_id} is kept out: {explained(data.group, found)} (subscriptionConflict=refuse)"
        if self._refusals.add(data.group, channel, why):
            log.warning("consumer_refused group=%s client=%s why='%s'", data.group, info.client_id, why)
        return why

    def _consumer_heard(
        self, channel: Channel, info: ClientInfo, heartbeat: bodies.HeartbeatData, data: bodies.ConsumerData, wish: Wish, now_ms: int
    ) -> Slices[bool]:
        """Take one group of a heartbeat in; whether the next heartbeat should bring subscriptions, if this one need not have."""
        if self.rules.reject_pull_consumers and data.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return False
        config = self._groups.find(data.group)
        if config is None:
            log.warning(
                "consumer_refused group=%s client=%s why=there is no such group and it may not be created", data.group, info.client_id
            )
            return False
        known = self._consumers.find(data.group)
        left_out = heartbeat.without_sub and heartbeat.fingerprint != 0
        topics: Iterable[str] = known.subscriptions if left_out and known is not None else wish
        # A group that nobody told the subscriptions of must hear them: the original goes without until the client subscribes anew.
        full_wanted = left_out if known is None else known.fingerprint != heartbeat.fingerprint
        self._topics.for_send_back(
            RETRY_PREFIX + data.group,
            config.retry_queue_nums,
            PERM_READ | PERM_WRITE,
            order=any(found is not None and found.order for found in map(self._topics.find, topics)),
            sys_flag=TOPIC_UNIT_SUB if data.unit_mode else 0,
        )
        change = self._consumers.register(
            channel,
            info,
            data,
            now_ms,
            fingerprint=heartbeat.fingerprint,
            keep_subscriptions=left_out,
            notifies=config.notify_consumer_ids_changed_enable and self.rules.notify_consumer_ids_changed,
            warns=self.rules.subscription_conflict is SubscriptionConflict.WARN,
            wish=wish,
        )
        self._tell(change)
        if not left_out:
            yield from self._filters.heard(data.group, data.subscriptions)
        return full_wanted

    def unregister_client(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = headers.UnregisterClientRequestHeader.from_fields(request.ext_fields)
        if header.producer_group is not None:
            self._producers.unregister(header.producer_group, channel)
        if header.consumer_group is not None:
            self._tell(self._consumers.unregister(header.consumer_group, channel))
        if not self._producers.groups_of(channel) and not self._consumers.groups_of(channel):
            self._ids.left(channel)
        return request.answer(ResponseCode.SUCCESS, header=_NO_FIELDS)

    def on_close(self, channel: Channel) -> None:
        """Take away whoever was reached by a connection that is gone, and what waits on it; its queue locks stay until they are over."""
        self._ids.on_close(channel, self._clock.monotonic_ms())
        self._slices.start(self._take_away(channel))

    def _take_away(self, channel: Channel) -> Slices[None]:
        for part in slices_of(self._producers.on_close(channel)):
            if len(part) == SLICE_UNITS:
                yield
        for changes in slices_of(self._consumers.on_close(channel), SLICE_UNITS // GROUP_UNITS):
            for change in changes:
                self._tell(change)
            if len(changes) == SLICE_UNITS // GROUP_UNITS:
                yield
        while not self._hold.drop(channel):
            yield
        self._refusals.remove(channel)

    def hear_all(self) -> None:
        """Take a sign of life from whoever is connected."""
        now_ms = self._clock.monotonic_ms()
        self._producers.hear_all(now_ms)
        self._consumers.hear_all(now_ms)

    def scan(self) -> None:
        """Take away the clients that fell silent and close their connections; called every SCAN_PERIOD_MS."""
        if not self._is_scanning:
            self._is_scanning = True
            self._slices.start(self._scan())

    def _scan(self) -> Slices[None]:
        try:
            now_ms = self._clock.monotonic_ms()
            for expired in slices_of(self._consumers.scan(now_ms), SLICE_UNITS // GROUP_UNITS):
                for each in expired:
                    self._tell(each.change)
                    each.channel.close(_SILENT)
                if len(expired) == SLICE_UNITS // GROUP_UNITS:
                    yield
            for channels in slices_of(self._producers.scan(now_ms)):
                for channel in channels:
                    channel.close(_SILENT)
                if len(channels) == SLICE_UNITS:
                    yield
            yield from self._locks.scan(now_ms)
            self._ids.scan(now_ms)
        finally:
            self._is_scanning = False

    def _tell(self, change: Change) -> None:
        """Let members rebalance; one that cannot be told will do so by itself within seconds. A group that is gone filters nothing."""
        if self._consumers.find(change.group) is None:
            self._filters.left(change.group)
        if change.notify:
            self._to_notify[change.group] = change.notify  # the last change has all that are members now
            if not self._is_notifying:
                self._is_notifying = True
                self._slices.start(self._notify())

    def _notify(self) -> Slices[None]:
        try:
            units = 0
            while self._to_notify:
                group = next(iter(self._to_notify))
                for part in slices_of(self._to_notify.pop(group)):
                    self._notify_members(group, part)
                    units += GROUP_UNITS + len(part)
                    if units >= SLICE_UNITS:
                        units = 0
                        yield
        finally:
            self._is_notifying = False

    def _notify_members(self, group: str, channels: Sequence[Channel]) -> None:
        for channel in channels:
            header = headers.NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
            try:
                channel.invoke_oneway(RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))
            except RemoteError as problem:
                log.warning("consumer_not_notified group=%s peer=%s why=%s", group, channel.remote_address, problem)

    def check_client_config(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        with _readable(request):
            wanted = bodies.CheckClientRequestBody.decode(request.body).subscription
        if wanted is not None and wanted.expression_type is not None and not is_tag_type(wanted.expression_type):
            if not self.rules.enable_property_filter:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"The broker does not support consumer to filter message by {wanted.expression_type}; "
                    "set enablePropertyFilter=true in its configuration, or subscribe by tags",
                )
            problem = expression_problem(wanted.expression_type, wanted.sub_string)
            if problem is not None:
                raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, problem)
        return request.answer(ResponseCode.SUCCESS)

    # --- queue locks ----------------------------------------------------------------------------------------------

    def lock_queues(self, channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        body, user = yield from self._lock_request(channel, request)
        now_ms = self._clock.monotonic_ms()
        held: list[bodies.MessageQueue] = []
        for number, part in enumerate(slices_of(body.queues)):
            if number:
                yield
            held += self._locks.lock(body.consumer_group, part, body.client_id, now_ms, user)
        return request.answer(ResponseCode.SUCCESS, body=(yield from bodies.encode_locked_queues(held)))

    def unlock_queues(self, channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        body, user = yield from self._lock_request(channel, request)
        for number, part in enumerate(slices_of(body.queues)):
            if number:
                yield
            self._locks.unlock(body.consumer_group, part, body.client_id, user)
        return request.answer(ResponseCode.SUCCESS)

    def _lock_request(self, channel: Channel, request: RemotingCommand) -> Slices[tuple[bodies.LockBatchBody, str | None]]:
        """What is to be locked or unlocked, and by which user; refused if another has the client's id."""
        body = yield from _decoded(bodies.LockBatchBody.decode_in_slices, request)
        user = self._access.user_of(channel.remote_address, request)
        self._check_id(channel, request, body.client_id, user, self._ids.problem(body.client_id, user))
        return body, user

    # --- what is wrong with them -----------------------------------------------------------------------------------

    def conflicts(self, group: ConsumerGroup) -> list[str]:
        """What is wrong with the subscriptions of a group, for operators."""
        is_off = self.rules.subscription_conflict is SubscriptionConflict.OFF
        return [] if is_off else [*group.conflicts, *self._refusals.of(group.name)]


def _decoded(decode: Callable[[bytes | None], Slices[T]], request: RemotingCommand) -> Slices[T]:
    """The request's body, read in slices."""
    size = len(request.body or b"")
    if size > BODY_BYTES_MAX:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"the body of request {request.code} has {size} bytes, and {BODY_BYTES_MAX} are read; use several clients",
        )
    with _readable(request):
        return (yield from decode(request.body))


@contextmanager
def _readable(request: RemotingCommand) -> Iterator[None]:
    """A body that cannot be read is refused, and the connection lives on."""
    try:
        yield
    except ProtocolError as problem:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the body of request {request.code} cannot be read: {problem}") from problem
