"""Operations on a running cluster, without coroutines."""

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
from orbitmq.blocking.client import Blocking, BlockingClient, OwnCluster, iterates, waits

C_co = TypeVar("C_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class _Noun(Blocking[C_co]):
    """The operations of one noun, on the session of all."""

    def __init__(self, behind: C_co, admin: Admin) -> None:
        super().__init__(behind)
        self._admin = admin

    def _wait(self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._admin._wait(work, *args, **kwargs)

    def _act(self, work: Callable[[], T]) -> T:
        return self._admin._act(work)


class Access(_Noun[AccessOperations]):
    """Users, and what they may do."""

    users = waits(AccessOperations.users)
    create_user = waits(AccessOperations.create_user)
    update_user = waits(AccessOperations.update_user)
    delete_user = waits(AccessOperations.delete_user)
    acls = waits(AccessOperations.acls)
    create_acl = waits(AccessOperations.create_acl)
    update_acl = waits(AccessOperations.update_acl)
    delete_acl = waits(AccessOperations.delete_acl)


class Cluster(_Noun[ClusterOperations]):
    """Brokers and their configuration."""

    info = waits(ClusterOperations.info)
    address = waits(ClusterOperations.address)
    brokers = waits(ClusterOperations.brokers)
    runtime = waits(ClusterOperations.runtime)
    runtimes = waits(ClusterOperations.runtimes)
    config = waits(ClusterOperations.config)
    update_config = waits(ClusterOperations.update_config)


class NameServers(_Noun[NameServerOperations]):
    """What name servers keep."""

    kv_get = waits(NameServerOperations.kv_get)
    kv_list = waits(NameServerOperations.kv_list)
    kv_put = waits(NameServerOperations.kv_put)
    kv_delete = waits(NameServerOperations.kv_delete)
    configs = waits(NameServerOperations.configs)
    update_config = waits(NameServerOperations.update_config)
    wipe_write_perm = waits(NameServerOperations.wipe_write_perm)
    add_write_perm = waits(NameServerOperations.add_write_perm)


class Topics(_Noun[TopicOperations]):
    """Topics and their queues."""

    names = waits(TopicOperations.names)
    route = waits(TopicOperations.route)
    readers = waits(TopicOperations.readers)
    configs = waits(TopicOperations.configs)
    configs_at = waits(TopicOperations.configs_at)
    stats = waits(TopicOperations.stats)
    groups = waits(TopicOperations.groups)
    create = waits(TopicOperations.create)
    update = waits(TopicOperations.update)
    delete = waits(TopicOperations.delete)


class Groups(_Noun[GroupOperations]):
    """Consumer groups."""

    names = waits(GroupOperations.names)
    configs = waits(GroupOperations.configs)
    configs_at = waits(GroupOperations.configs_at)
    of_topic = waits(GroupOperations.of_topic)
    connections = waits(GroupOperations.connections)
    progress = waits(GroupOperations.progress)
    running_info = waits(GroupOperations.running_info)
    running_infos = waits(GroupOperations.running_infos)
    explain = waits(GroupOperations.explain)
    create = waits(GroupOperations.create)
    update = waits(GroupOperations.update)
    delete = waits(GroupOperations.delete)


class Offsets(_Noun[OffsetOperations]):
    """Places in queues, and those of groups."""

    queues = waits(OffsetOperations.queues)
    first = waits(OffsetOperations.first)
    end = waits(OffsetOperations.end)
    at_time = waits(OffsetOperations.at_time)
    at = waits(OffsetOperations.at)
    read = waits(OffsetOperations.read)
    committed = waits(OffsetOperations.committed)
    set = waits(OffsetOperations.set)
    clone = waits(OffsetOperations.clone)
    plan_reset = waits(OffsetOperations.plan_reset)
    reset = waits(OffsetOperations.reset)


class Messages(_Noun[MessageOperations]):
    """Messages that are stored."""

    by_offset_id = waits(MessageOperations.by_offset_id)
    by_unique_key = waits(MessageOperations.by_unique_key)
    by_key = waits(MessageOperations.by_key)
    get = waits(MessageOperations.get)
    view = waits(MessageOperations.view)
    by_time = iterates(MessageOperations.by_time)
    between = iterates(MessageOperations.between)
    consume_directly = waits(MessageOperations.consume_directly)
    track = waits(MessageOperations.track)


class DeadLetters(_Noun[DeadLetterOperations]):
    """What consumers gave up."""

    groups = waits(DeadLetterOperations.groups)
    letters = iterates(DeadLetterOperations.letters)
    redrive = waits(DeadLetterOperations.redrive)


class Transactions(_Noun[TransactionOperations]):
    """Transactions that have not ended."""

    open = waits(TransactionOperations.open)
    find = waits(TransactionOperations.find)
    producers = waits(TransactionOperations.producers)
    resolve = waits(TransactionOperations.resolve)
    resume = waits(TransactionOperations.resume)


class Timers(_Noun[TimerOperations]):
    """Messages that wait for their time."""

    waiting = waits(TimerOperations.waiting)
    find = waits(TimerOperations.find)
    cancel = waits(TimerOperations.cancel)


class Admin(BlockingClient[of_admin.Admin]):
    """`with Admin("127.0.0.1:9876") as admin: admin.topics.names()`."""

    def __init__(self, cluster: OwnCluster = "") -> None:
        super().__init__(of_admin.Admin(cluster))

    @cached_property
    def access(self) -> Access:
        return Access(self._behind.access, self)

    @cached_property
    def cluster(self) -> Cluster:
        return Cluster(self._behind.cluster, self)

    @cached_property
    def name_servers(self) -> NameServers:
        return NameServers(self._behind.name_servers, self)

    @cached_property
    def topics(self) -> Topics:
        return Topics(self._behind.topics, self)

    @cached_property
    def groups(self) -> Groups:
        return Groups(self._behind.groups, self)

    @cached_property
    def offsets(self) -> Offsets:
        return Offsets(self._behind.offsets, self)

    @cached_property
    def messages(self) -> Messages:
        return Messages(self._behind.messages, self)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        return DeadLetters(self._behind.dead_letters, self)

    @cached_property
    def transactions(self) -> Transactions:
        return Transactions(self._behind.transactions, self)

    @cached_property
    def timers(self) -> Timers:
        return Timers(self._behind.timers, self)
