"""Blocking operations on a running cluster."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import Any, ParamSpec, TypeVar

from orbitmq.admin import admin as of_admin
from orbitmq.admin.access import AccessOperations
from orbitmq.admin.cluster import ClusterOperations
from orbitmq.admin.dead_letters import DeadLetterOperations
from orbitmq.admin.groups import GroupOperations
from orbitmq.admin.messages import MessageOperations
from orbitmq.admin.name_servers import NameServerOperations
from orbitmq.admin.offsets import OffsetOperations
from orbitmq.admin.timers import TimerOperations
from orbitmq.admin.topics import TopicOperations
from orbitmq.admin.transactions import TransactionOperations
from orbitmq.blocking.client import (
    BlockingClient,
    BlockingFace,
    OwnCluster,
    blocking_iterator,
    blocking_method,
)

C_co = TypeVar("C_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class _OperationsFace(BlockingFace[C_co]):
    """The operations of one noun, on the session shared by all."""

    def __init__(self, wrapped: C_co, admin: Admin) -> None:
        super().__init__(wrapped)
        self._admin = admin

    def _run(
        self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return self._admin._run(work, *args, **kwargs)

    def _run_plain(self, work: Callable[[], T]) -> T:
        return self._admin._run_plain(work)


class Access(_OperationsFace[AccessOperations]):
    """Users and access rules."""

    users = blocking_method(AccessOperations.users)
    create_user = blocking_method(AccessOperations.create_user)
    update_user = blocking_method(AccessOperations.update_user)
    delete_user = blocking_method(AccessOperations.delete_user)
    acls = blocking_method(AccessOperations.acls)
    create_acl = blocking_method(AccessOperations.create_acl)
    update_acl = blocking_method(AccessOperations.update_acl)
    delete_acl = blocking_method(AccessOperations.delete_acl)


class Cluster(_OperationsFace[ClusterOperations]):
    """Brokers and their configuration."""

    info = blocking_method(ClusterOperations.info)
    address = blocking_method(ClusterOperations.address)
    brokers = blocking_method(ClusterOperations.brokers)
    runtime = blocking_method(ClusterOperations.runtime)
    runtimes = blocking_method(ClusterOperations.runtimes)
    config = blocking_method(ClusterOperations.config)
    update_config = blocking_method(ClusterOperations.update_config)


class NameServers(_OperationsFace[NameServerOperations]):
    """The state of name servers."""

    kv_get = blocking_method(NameServerOperations.kv_get)
    kv_list = blocking_method(NameServerOperations.kv_list)
    kv_put = blocking_method(NameServerOperations.kv_put)
    kv_delete = blocking_method(NameServerOperations.kv_delete)
    configs = blocking_method(NameServerOperations.configs)
    update_config = blocking_method(NameServerOperations.update_config)
    wipe_write_perm = blocking_method(NameServerOperations.wipe_write_perm)
    add_write_perm = blocking_method(NameServerOperations.add_write_perm)


class Topics(_OperationsFace[TopicOperations]):
    """Topics and their queues."""

    names = blocking_method(TopicOperations.names)
    route = blocking_method(TopicOperations.route)
    readers = blocking_method(TopicOperations.readers)
    configs = blocking_method(TopicOperations.configs)
    configs_at = blocking_method(TopicOperations.configs_at)
    stats = blocking_method(TopicOperations.stats)
    groups = blocking_method(TopicOperations.groups)
    create = blocking_method(TopicOperations.create)
    update = blocking_method(TopicOperations.update)
    delete = blocking_method(TopicOperations.delete)


class Groups(_OperationsFace[GroupOperations]):
    """Consumer groups."""

    names = blocking_method(GroupOperations.names)
    configs = blocking_method(GroupOperations.configs)
    configs_at = blocking_method(GroupOperations.configs_at)
    of_topic = blocking_method(GroupOperations.of_topic)
    connections = blocking_method(GroupOperations.connections)
    progress = blocking_method(GroupOperations.progress)
    running_info = blocking_method(GroupOperations.running_info)
    running_infos = blocking_method(GroupOperations.running_infos)
    explain = blocking_method(GroupOperations.explain)
    create = blocking_method(GroupOperations.create)
    update = blocking_method(GroupOperations.update)
    delete = blocking_method(GroupOperations.delete)


class Offsets(_OperationsFace[OffsetOperations]):
    """Positions in queues, and offsets of groups."""

    queues = blocking_method(OffsetOperations.queues)
    first = blocking_method(OffsetOperations.first)
    end = blocking_method(OffsetOperations.end)
    at_time = blocking_method(OffsetOperations.at_time)
    at = blocking_method(OffsetOperations.at)
    read = blocking_method(OffsetOperations.read)
    committed = blocking_method(OffsetOperations.committed)
    set = blocking_method(OffsetOperations.set)
    clone = blocking_method(OffsetOperations.clone)
    plan_reset = blocking_method(OffsetOperations.plan_reset)
    reset = blocking_method(OffsetOperations.reset)


class Messages(_OperationsFace[MessageOperations]):
    """Stored messages."""

    by_offset_id = blocking_method(MessageOperations.by_offset_id)
    by_unique_key = blocking_method(MessageOperations.by_unique_key)
    by_key = blocking_method(MessageOperations.by_key)
    get = blocking_method(MessageOperations.get)
    view = blocking_method(MessageOperations.view)
    by_time = blocking_iterator(MessageOperations.by_time)
    between = blocking_iterator(MessageOperations.between)
    consume_directly = blocking_method(MessageOperations.consume_directly)
    track = blocking_method(MessageOperations.track)


class DeadLetters(_OperationsFace[DeadLetterOperations]):
    """Dead letters of groups."""

    groups = blocking_method(DeadLetterOperations.groups)
    letters = blocking_iterator(DeadLetterOperations.letters)
    redrive = blocking_method(DeadLetterOperations.redrive)


class Transactions(_OperationsFace[TransactionOperations]):
    """Open transactions."""

    open = blocking_method(TransactionOperations.open)
    find = blocking_method(TransactionOperations.find)
    producers = blocking_method(TransactionOperations.producers)
    resolve = blocking_method(TransactionOperations.resolve)
    resume = blocking_method(TransactionOperations.resume)


class Timers(_OperationsFace[TimerOperations]):
    """Pending scheduled messages."""

    waiting = blocking_method(TimerOperations.waiting)
    find = blocking_method(TimerOperations.find)
    cancel = blocking_method(TimerOperations.cancel)


class Admin(BlockingClient[of_admin.Admin]):
    """Operations on a cluster.

    `with Admin("127.0.0.1:9876") as admin: admin.topics.names()`.
    """

    def __init__(self, cluster: OwnCluster = "") -> None:
        super().__init__(of_admin.Admin(cluster))

    @cached_property
    def access(self) -> Access:
        return Access(self._wrapped.access, self)

    @cached_property
    def cluster(self) -> Cluster:
        return Cluster(self._wrapped.cluster, self)

    @cached_property
    def name_servers(self) -> NameServers:
        return NameServers(self._wrapped.name_servers, self)

    @cached_property
    def topics(self) -> Topics:
        return Topics(self._wrapped.topics, self)

    @cached_property
    def groups(self) -> Groups:
        return Groups(self._wrapped.groups, self)

    @cached_property
    def offsets(self) -> Offsets:
        return Offsets(self._wrapped.offsets, self)

    @cached_property
    def messages(self) -> Messages:
        return Messages(self._wrapped.messages, self)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        return DeadLetters(self._wrapped.dead_letters, self)

    @cached_property
    def transactions(self) -> Transactions:
        return Transactions(self._wrapped.transactions, self)

    @cached_property
    def timers(self) -> Timers:
        return Timers(self._wrapped.timers, self)
