"""Membership of clients in groups: heartbeats, unregistration, queue locks.

Also removes clients that send no request: `on_close` when a connection ended, `scan` when clients
fell silent. Rules live in `Producers`, `Consumers`, `QueueLocks` and `PendingPulls`; here they meet
the configuration of groups and topics. Knows no wire types: members are notified through a
callback.

Work that grows with a request, a connection or a group is done in slices. While a client joins or
leaves many groups, others may see it in only some of them. Members of a group are notified of its
last change; of several changes while a notification is under way only the last is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from orbitmq.broker.clients.client_ids import ClientIds
from orbitmq.broker.clients.consumers import Change, ConsumerGroup, Consumers
from orbitmq.broker.clients.producers import Producers
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.clients.registry import ClientInfo, Peer
from orbitmq.broker.clients.subscription_conflicts import Refusals, Wanted, Wish, explained, wish_of
from orbitmq.broker.config.guard_keys import SubscriptionConflict
from orbitmq.broker.consume.pending_pulls import PendingPulls
from orbitmq.broker.metadata.consumer_filters import ConsumerFilters, expression_problem
from orbitmq.broker.metadata.groups import Groups
from orbitmq.broker.metadata.topic_names import GROUP_CHARS_MAX, is_valid_group
from orbitmq.broker.metadata.topics import Topics
from orbitmq.common.clock import Clock
from orbitmq.common.errors import Refusal, RefusedError
from orbitmq.common.slices import SLICE_UNITS, SliceBudget, Slices, slices_of
from orbitmq.common.topic_names import RETRY_PREFIX
from orbitmq.protocol.bodies.clients import ConsumerData, HeartbeatData, MessageQueue
from orbitmq.protocol.bodies.nameserver import PERM_READ, PERM_WRITE, TOPIC_UNIT_SUB
from orbitmq.protocol.bodies.subscriptions import ConsumeType, SubscriptionData, is_tag_type
from orbitmq.remoting.slices import SliceQueue

log = logging.getLogger(__name__)

GROUPS_PER_CONNECTION_MAX: Final = 10_000
GROUP_UNITS: Final = 10  # of a slice, that a group costs besides its members or subscriptions
_REFUSALS_EXPLAINED_MAX: Final = 10  # groups of a heartbeat
_SILENT: Final = "its client sent no heartbeat for too long"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRules:
    """The settings that membership reads."""

    notify_consumer_ids_changed: bool = True
    reject_pull_consumers: bool = False
    enable_property_filter: bool = False
    subscription_conflict: SubscriptionConflict = SubscriptionConflict.WARN


class ClientListener(Protocol):
    """Counts how long it took to register the groups of a heartbeat."""

    def consumer_registered(self, took_ms: int) -> None: ...

    def producer_registered(self, took_ms: int) -> None: ...


class MembershipService:
    """The clients that are online. `notify` is called for each member of a changed group."""

    def __init__(
        self,
        rules: ClientRules,
        *,
        producers: Producers,
        consumers: Consumers,
        locks: QueueLocks,
        pending: PendingPulls,
        groups: Groups,
        topics: Topics,
        filters: ConsumerFilters,
        clock: Clock,
        listener: ClientListener,
        slices: SliceQueue,
        notify: Callable[[Peer, str], None],
    ) -> None:
        self.rules = rules
        self._producers = producers
        self._consumers = consumers
        self._locks = locks
        self._pending = pending
        self._groups = groups
        self._topics = topics
        self._filters = filters
        self._clock = clock
        self._listener = listener
        self._slices = slices
        self._notify = notify
        self._refusals = Refusals()
        self._ids = ClientIds()
        self._to_notify: dict[str, list[Peer]] = {}  # by group, in the order of the changes
        self._is_notifying = False
        self._is_scanning = False

    # --- joining

    def check_groups(self, connection: Peer, data: HeartbeatData) -> None:
        """Refuse a heartbeat that would put a connection into more groups than allowed; nothing has
        changed.
        """
        joined = len(self._producers.groups_of(connection)) + len(
            self._consumers.groups_of(connection)
        )
        count = max(joined, len(data.producer_groups) + len(data.consumers))
        if count > GROUPS_PER_CONNECTION_MAX:
            raise RefusedError(
                Refusal.FAILED,
                f"one connection joins at most {GROUPS_PER_CONNECTION_MAX} groups, and this one has"
                f" {count}; use several clients",
            )

    def claim_id(self, connection: Peer, client_id: str, user: str | None) -> str | None:
        """Bind a client id to a connection; return why another user holds it, or None."""
        return self._ids.use(client_id, user, connection)

    def id_problem(self, client_id: str, user: str | None) -> str | None:
        """Return why a user may not act as a client, or None."""
        return self._ids.problem(client_id, user)

    def heartbeat(self, connection: Peer, info: ClientInfo, data: HeartbeatData) -> Slices[bool]:
        """Register a client in its groups; return whether its next heartbeat must include its
        subscriptions.

        Groups that are refused do not keep the others from being registered; RefusedError is raised
        at the end.
        """
        now_ms = self._clock.monotonic_ms()
        full_wanted = data.fingerprint == 0
        refused = []
        units = 0
        budget = SliceBudget()
        for consumer in data.consumers:
            if budget.spend(GROUP_UNITS):
                yield
            wish: dict[str, Wanted] = {}
            for subscription in consumer.subscriptions:
                wish |= wish_of((subscription,))
                if budget.spend(subscription.units):
                    yield
            if (conflict := self._conflict(connection, info, data, consumer, wish)) is not None:
                refused.append(conflict)
                continue
            full_wanted |= yield from self._register(connection, info, data, consumer, wish, now_ms)
            self._listener.consumer_registered(self._clock.monotonic_ms() - now_ms)
        for groups in slices_of(data.producer_groups):
            units += len(groups)
            if units > SLICE_UNITS:
                units = len(groups)
                yield
            for group in groups:
                self._producers.register(group, connection, info, now_ms)
                self._listener.producer_registered(self._clock.monotonic_ms() - now_ms)
        if refused:
            more = (
                [f"and so for {len(refused) - _REFUSALS_EXPLAINED_MAX} other groups"]
                if len(refused) > _REFUSALS_EXPLAINED_MAX
                else []
            )
            raise RefusedError(
                Refusal.NO_PERMISSION, "; ".join(refused[:_REFUSALS_EXPLAINED_MAX] + more)
            )
        return full_wanted

    def _conflict(
        self,
        connection: Peer,
        info: ClientInfo,
        heartbeat: HeartbeatData,
        data: ConsumerData,
        wish: Wish,
    ) -> str | None:
        """Return why a client may not join a group with its subscriptions, if conflicts are
        refused; None if it may.
        """
        known = self._consumers.find(data.group)
        left_out = heartbeat.without_sub and heartbeat.fingerprint != 0
        if (
            left_out
            or known is None
            or self.rules.subscription_conflict is not SubscriptionConflict.REFUSE
        ):
            return None
        found = known.conflicts_with(info.client_id, wish)
        if not found:
            self._refusals.remove(connection, data.group)
            return None
        why = (
            f"client {info.client_id} is kept out: {explained(data.group, found)}"
            " (subscriptionConflict=refuse)"
        )
        if self._refusals.add(data.group, connection, why):
            log.warning(
                "consumer_refused group=%s client=%s why='%s'", data.group, info.client_id, why
            )
        return why

    def _register(
        self,
        connection: Peer,
        info: ClientInfo,
        heartbeat: HeartbeatData,
        data: ConsumerData,
        wish: Wish,
        now_ms: int,
    ) -> Slices[bool]:
        """Register one consumer group of a heartbeat; return whether the next heartbeat must
        include the subscriptions.
        """
        if self.rules.reject_pull_consumers and data.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return False
        config = self._groups.find(data.group)
        if config is None:
            log.warning(
                "consumer_refused group=%s client=%s why=there is no such group and it may not be"
                " created",
                data.group,
                info.client_id,
            )
            return False
        known = self._consumers.find(data.group)
        left_out = heartbeat.without_sub and heartbeat.fingerprint != 0
        topics: Iterable[str] = known.subscriptions if left_out and known is not None else wish
        # A group whose subscriptions are unknown needs them; Apache RocketMQ goes without until the
        # client subscribes anew.
        full_wanted = left_out if known is None else known.fingerprint != heartbeat.fingerprint
        self._topics.for_send_back(
            RETRY_PREFIX + data.group,
            config.retry_queue_nums,
            PERM_READ | PERM_WRITE,
            order=any(
                found is not None and found.order for found in map(self._topics.find, topics)
            ),
            sys_flag=TOPIC_UNIT_SUB if data.unit_mode else 0,
        )
        change = self._consumers.register(
            connection,
            info,
            data,
            now_ms,
            fingerprint=heartbeat.fingerprint,
            keep_subscriptions=left_out,
            notifies=config.notify_consumer_ids_changed_enable
            and self.rules.notify_consumer_ids_changed,
            warns=self.rules.subscription_conflict is SubscriptionConflict.WARN,
            wish=wish,
        )
        self._changed(change)
        if not left_out:
            yield from self._filters.heard(data.group, data.subscriptions)
        return full_wanted

    # --- leaving

    def unregister(
        self,
        connection: Peer,
        *,
        producer_group: str | None,
        consumer_group: str | None,
    ) -> None:
        """Remove a client from the given groups."""
        if producer_group is not None:
            self._producers.unregister(producer_group, connection)
        if consumer_group is not None:
            self._changed(self._consumers.unregister(consumer_group, connection))
        if not self._producers.groups_of(connection) and not self._consumers.groups_of(connection):
            self._ids.left(connection)

    def on_close(self, connection: Peer) -> None:
        """Remove the client of a closed connection, and its held pulls; its queue locks stay until
        they expire.
        """
        self._ids.on_close(connection, self._clock.monotonic_ms())
        self._slices.start(self._remove(connection))

    def _remove(self, connection: Peer) -> Slices[None]:
        for part in slices_of(self._producers.on_close(connection)):
            if len(part) == SLICE_UNITS:
                yield
        for changes in slices_of(self._consumers.on_close(connection), SLICE_UNITS // GROUP_UNITS):
            for change in changes:
                self._changed(change)
            if len(changes) == SLICE_UNITS // GROUP_UNITS:
                yield
        while not self._pending.drop(connection):
            yield
        self._refusals.remove(connection)

    def hear_all(self) -> None:
        """Count as a heartbeat from every client."""
        now_ms = self._clock.monotonic_ms()
        self._producers.hear_all(now_ms)
        self._consumers.hear_all(now_ms)

    def scan(self) -> None:
        """Remove the clients that fell silent and close their connections; called every
        SCAN_PERIOD_MS.
        """
        if not self._is_scanning:
            self._is_scanning = True
            self._slices.start(self._scan())

    def _scan(self) -> Slices[None]:
        try:
            now_ms = self._clock.monotonic_ms()
            for expired in slices_of(self._consumers.scan(now_ms), SLICE_UNITS // GROUP_UNITS):
                for each in expired:
                    self._changed(each.change)
                    each.channel.close(_SILENT)
                if len(expired) == SLICE_UNITS // GROUP_UNITS:
                    yield
            for connections in slices_of(self._producers.scan(now_ms)):
                for connection in connections:
                    connection.close(_SILENT)
                if len(connections) == SLICE_UNITS:
                    yield
            yield from self._locks.scan(now_ms)
            self._ids.scan(now_ms)
        finally:
            self._is_scanning = False

    # --- notifications

    def _changed(self, change: Change) -> None:
        """Have members rebalance; one that cannot be notified does so by itself within seconds. A
        group that is gone filters nothing.
        """
        if self._consumers.find(change.group) is None:
            self._filters.left(change.group)
        if change.notify:
            self._to_notify[change.group] = change.notify  # all present members
            if not self._is_notifying:
                self._is_notifying = True
                self._slices.start(self._notify_all())

    def _notify_all(self) -> Slices[None]:
        try:
            units = 0
            while self._to_notify:
                group = next(iter(self._to_notify))
                for part in slices_of(self._to_notify.pop(group)):
                    for connection in part:
                        self._notify(connection, group)
                    units += GROUP_UNITS + len(part)
                    if units >= SLICE_UNITS:
                        units = 0
                        yield
        finally:
            self._is_notifying = False

    # --- subscriptions

    def check_subscription(self, wanted: SubscriptionData) -> None:
        """Raise RefusedError unless this broker can filter by a subscription's expression."""
        if wanted.expression_type is None or is_tag_type(wanted.expression_type):
            return
        if not self.rules.enable_property_filter:
            raise RefusedError(
                Refusal.FAILED,
                "The broker does not support consumer to filter message by"
                f" {wanted.expression_type}; set enablePropertyFilter=true in its"
                " configuration, or subscribe by tags",
            )
        problem = expression_problem(wanted.expression_type, wanted.sub_string)
        if problem is not None:
            raise RefusedError(Refusal.INVALID_SUBSCRIPTION, problem)

    def conflicts(self, group: ConsumerGroup) -> list[str]:
        """Return the subscription conflicts of a group, for operators."""
        is_off = self.rules.subscription_conflict is SubscriptionConflict.OFF
        return [] if is_off else [*group.conflicts, *self._refusals.of(group.name)]

    # --- queue locks

    def lock(
        self,
        connection: Peer,
        group: str,
        queues: Sequence[MessageQueue],
        client_id: str,
        user: str | None,
    ) -> Slices[list[MessageQueue]]:
        """Lock queues for a client; return those that it holds now."""
        _check_lock_group(group)
        now_ms = self._clock.monotonic_ms()
        held: list[MessageQueue] = []
        for number, part in enumerate(slices_of(queues)):
            if number:
                yield
            held += self._locks.lock(group, part, client_id, now_ms, user, connection)
        return held

    def unlock(
        self, group: str, queues: Sequence[MessageQueue], client_id: str, user: str | None
    ) -> Slices[None]:
        """Release the queues that a client holds."""
        _check_lock_group(group)
        for number, part in enumerate(slices_of(queues)):
            if number:
                yield
            self._locks.unlock(group, part, client_id, user)


def _check_lock_group(group: str) -> None:
    if not is_valid_group(group):
        raise RefusedError(
            Refusal.FAILED,
            f"a consumer group has up to {GROUP_CHARS_MAX} letters, digits, %, |, _ or -; this"
            f" one is {group[:GROUP_CHARS_MAX]!r}",
        )
