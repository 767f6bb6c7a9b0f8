"""Consumer groups: create, update and delete them, list their members, and measure their lag.

Each broker has its own configuration of a group. Members report the queues they own through the
broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from orbitmq.admin.calls import Calls
from orbitmq.admin.explanation import GroupView, QueueExplanation, explain
from orbitmq.admin.group_values import GroupConnections, GroupMember, GroupProgress, GroupQueue
from orbitmq.admin.topics import TopicOperations, attribute_changes
from orbitmq.common.errors import AlreadyExistsError, NotFoundError, OrbitError
from orbitmq.common.topic_names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from orbitmq.protocol.bodies.clients import ConsumerConnection, MessageQueue
from orbitmq.protocol.bodies.consume_stats import ConsumeStats
from orbitmq.protocol.bodies.groups import GroupConfig, GroupTable
from orbitmq.protocol.bodies.nameserver import PERM_READ, TopicList
from orbitmq.protocol.bodies.running_info import ConsumerRunningInfo
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.headers.clients import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from orbitmq.protocol.headers.groups import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumeStatsRequestHeader,
)
from orbitmq.protocol.headers.topics import QueryTopicsByConsumerRequestHeader
from orbitmq.protocol.versions import describe


class GroupOperations:
    """Manages consumer groups and reports their progress."""

    def __init__(self, calls: Calls, topics: TopicOperations) -> None:
        self._calls = calls
        self._topics = topics

    # -- configurations and members

    async def names(self) -> list[str]:
        """Return all groups that brokers know, including RocketMQ's own, in order."""
        tables = await self._calls.gather(await self._calls.readers(), self.configs_at)
        return sorted({name for table in tables.found.values() for name in table})

    async def configs(self, group: str) -> dict[str, GroupConfig]:
        """Return a group's configuration at each broker; raise NotFoundError if none has it."""
        tables = await self._calls.gather(await self._calls.readers(), self.configs_at)
        found = {name: table[group] for name, table in tables.found.items() if group in table}
        if not found:
            unasked = ", ".join(tables.unreachable)
            raise NotFoundError(
                f"no broker knows group {group}{f'; unreachable: {unasked}' if unasked else ''};"
                " create it, start a consumer of it, or check its name with: orbitmq group list"
            )
        return found

    async def configs_at(self, address: str) -> Mapping[str, GroupConfig]:
        """Return all groups of one broker.

        A single group cannot be requested: a broker creates a group that it is asked for.
        """
        return GroupTable.decode(
            (await self._calls.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body
            or b"{}"
        ).groups

    async def connections(self, group: str) -> GroupConnections:
        """Return the online members of a group and their subscriptions."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        offline = (ResponseCode.CONSUMER_NOT_ONLINE,)
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        answers = await self._calls.gather(
            await self._calls.readers(),
            lambda address: self._calls.ask(address, code, header, accept=offline),
        )
        connections = {
            name: ConsumerConnection.decode(answer.body)
            for name, answer in answers.found.items()
            if answer.code == 0 and answer.body
        }
        first = next(iter(connections.values()), ConsumerConnection())
        return GroupConnections(
            members=_members(connections),
            subscriptions={
                topic: wanted
                for each in connections.values()
                for topic, wanted in sorted(each.subscriptions.items())
            },
            consume_type=first.consume_type,
            message_model=first.message_model,
            consume_from_where=first.consume_from_where,
            unreachable=answers.unreachable,
            conflicts=tuple(
                dict.fromkeys(
                    conflict for each in connections.values() for conflict in each.conflicts
                )
            ),
        )

    async def of_topic(self, topic: str) -> dict[str, GroupConnections]:
        """Return the groups that consume a topic, online or with offsets in it, and their online
        members.
        """
        names = await self._topics.groups(topic)
        return dict(zip(names, await asyncio.gather(*map(self.connections, names)), strict=True))

    # -- progress

    async def progress(
        self, group: str, topic: str | None = None, *, with_owners: bool = True
    ) -> GroupProgress:
        """Return a group's progress in every queue of its topics, or of one topic.

        With `with_owners`, each queue names the member that owns it, if that member is online and
        reports.
        """
        connections = await self.connections(group)
        progress = await self._progress(group, connections, topic)
        if not with_owners:
            return progress
        running = await self.running_infos(group, connections)
        owners = {
            queue: client_id
            for client_id, info in running.items()
            if isinstance(info, ConsumerRunningInfo)
            for queue, held in info.queues.items()
            if not held.is_dropped
        }
        return replace(
            progress,
            queues=tuple(replace(each, owner=owners.get(each.queue)) for each in progress.queues),
        )

    async def _progress(
        self, group: str, connections: GroupConnections, topic: str | None = None
    ) -> GroupProgress:
        readers = await self._calls.readers()
        answers = await self._calls.gather(
            readers, lambda address: self._stats(address, group, topic)
        )
        stats_of = dict(answers.found)
        missing = (
            []
            if topic
            else [
                name
                for name in connections.subscriptions
                if not any(_has(stats, name) for stats in stats_of.values())
            ]
        )
        # Brokers report a topic that is subscribed but has no committed offset only by its name.
        for name in missing:
            more = await self._calls.gather(readers, partial(self._stats, group=group, topic=name))
            for broker, stats in more.found.items():
                known = stats_of.get(broker)
                stats_of[broker] = (
                    stats
                    if known is None
                    else ConsumeStats(known.queues | stats.queues, known.consume_tps)
                )
        return GroupProgress(
            queues=tuple(
                sorted(
                    (each for stats in stats_of.values() for each in _queues(stats)),
                    key=lambda each: each.queue,
                )
            ),
            consumed_per_s=sum(stats.consume_tps for stats in stats_of.values()),
            unreachable=answers.unreachable,
        )

    async def _stats(
        self, address: str, group: str, topic: str | None = None, topics: Iterable[str] = ()
    ) -> ConsumeStats:
        header = GetConsumeStatsRequestHeader(
            consumer_group=group, topic=topic, topic_list=";".join(topics) or None
        )
        unknown = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        return ConsumeStats.decode(
            (
                await self._calls.ask(
                    address, RequestCode.GET_CONSUME_STATS, header, accept=unknown
                )
            ).body
            or b"{}"
        )

    # -- member state

    async def running_info(
        self, group: str, client_id: str, *, with_stacks: bool = False
    ) -> ConsumerRunningInfo:
        """Return the state that a member reports about itself."""
        connections = await self.connections(group)
        member = next((each for each in connections.members if each.client_id == client_id), None)
        if member is None:
            online = ", ".join(each.client_id for each in connections.members) or "none"
            raise NotFoundError(
                f"no member {client_id} of group {group} is online; online members: {online}"
            )
        return await self._running_info(await self._calls.readers(), group, member, with_stacks)

    async def running_infos(
        self, group: str, connections: GroupConnections
    ) -> dict[str, ConsumerRunningInfo | str]:
        """Return the state of all members by client id, or why a member did not report it."""
        readers = await self._calls.readers() if connections.members else {}

        async def ask(member: GroupMember) -> ConsumerRunningInfo | str:
            try:
                return await self._running_info(readers, group, member, with_stacks=False)
            except OrbitError as problem:
                return str(problem)

        infos = await asyncio.gather(*map(ask, connections.members))
        return {
            member.client_id: info for member, info in zip(connections.members, infos, strict=True)
        }

    async def _running_info(
        self, readers: Mapping[str, str], group: str, member: GroupMember, with_stacks: bool
    ) -> ConsumerRunningInfo:
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=member.client_id, jstack_enable=with_stacks
        )
        address = next((readers[name] for name in member.brokers if name in readers), None)
        if address is None:
            raise NotFoundError(
                f"the brokers of {member.client_id} ({', '.join(member.brokers)}) are no longer"
                " registered"
            )
        return ConsumerRunningInfo.decode(
            (await self._calls.ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)).body
            or b"{}"
        )

    async def explain(
        self, group: str, topic: str | None = None, *, seconds: float = 1.0
    ) -> list[QueueExplanation]:
        """Explain for each queue of the group's topics, or of one topic, why it progresses or not.

        Looks twice, `seconds` apart.
        """
        configs = await self.configs(group)
        connections = await self.connections(group)
        topics = (
            {topic}
            if topic
            else set(connections.subscriptions) | await self._topics_with_offsets(group)
        )
        before = await self._queues(group, connections, topics)
        running = await self.running_infos(group, connections)
        await asyncio.sleep(seconds)
        return explain(
            GroupView(
                group=group,
                now_ms=self._calls.session.clock.now_ms(),
                seconds=seconds,
                configs=configs,
                connections=connections,
                before=before,
                now=await self._queues(group, connections, topics),
                routed=await self._routed(topics),
                running=running,
            )
        )

    async def _queues(
        self, group: str, connections: GroupConnections, topics: Iterable[str]
    ) -> dict[MessageQueue, GroupQueue]:
        """Return the group's progress in these topics, subscribed or not."""
        found = {
            each.queue: each
            for each in (await self._progress(group, connections)).queues
            if each.queue.topic in topics
        }
        others = [topic for topic in topics if topic not in connections.subscriptions]
        if others:
            answers = await self._calls.gather(
                await self._calls.readers(),
                lambda address: self._stats(address, group, topics=others),
            )
            queues = (each for stats in answers.found.values() for each in _queues(stats))
            found |= {each.queue: each for each in queues if each.queue.topic in topics}
        return found

    async def _topics_with_offsets(self, group: str) -> set[str]:
        """Return the topics in which the group has offsets; brokers of 4.9 report only subscribed
        ones.
        """
        header, unknown = (
            QueryTopicsByConsumerRequestHeader(group=group),
            (ResponseCode.REQUEST_CODE_NOT_SUPPORTED,),
        )
        code = RequestCode.QUERY_TOPICS_BY_CONSUMER
        answers = await self._calls.gather(
            await self._calls.readers(),
            lambda address: self._calls.ask(address, code, header, accept=unknown),
        )
        bodies = [
            answer.body
            for answer in answers.found.values()
            if answer.code == ResponseCode.SUCCESS and answer.body
        ]
        return {topic for body in bodies for topic in TopicList.decode(body).topics}

    async def _routed(self, topics: Iterable[str]) -> frozenset[MessageQueue]:
        found: set[MessageQueue] = set()
        for topic in topics:
            try:
                route = await self._topics.route(topic)
            except NotFoundError:
                continue  # a retry topic not created yet
            readable = [queues for queues in route.queue_datas if queues.perm & PERM_READ]
            found.update(
                MessageQueue(topic, queues.broker_name, number)
                for queues in readable
                for number in range(queues.read_queue_nums)
            )
        return frozenset(found)

    # -- changes

    async def create(
        self, config: GroupConfig, *, cluster: str | None = None, broker: str | None = None
    ) -> list[str]:
        """Create a group on every master of a cluster, or on one broker; return the names of those
        that have it.

        An identical group stays as it is. Raises AlreadyExistsError without changing anything if it
        exists with other settings.
        """
        masters = await self._calls.masters(cluster, broker)
        tables = await asyncio.gather(*map(self.configs_at, masters.values()))
        for name, table in zip(masters, tables, strict=True):
            if config.name in table and table[config.name] != config:
                raise AlreadyExistsError(
                    f"group {config.name} already exists on {name} with other settings; change it"
                    " with: orbitmq group update"
                )
        await self._put(
            {
                address: (None, config)
                for address, table in zip(masters.values(), tables, strict=True)
                if config.name not in table
            }
        )
        return list(masters)

    async def update(
        self,
        group: str,
        change: Callable[[GroupConfig], GroupConfig],
        *,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> dict[str, GroupConfig]:
        """Change a group on each master that has it, based on its settings there; return the new
        settings by broker name.
        """
        masters = await self._calls.masters(cluster, broker)
        tables = await asyncio.gather(*map(self.configs_at, masters.values()))
        before = {
            name: table[group]
            for name, table in zip(masters, tables, strict=True)
            if group in table
        }
        if not before:
            raise NotFoundError(
                f"no group {group} at {', '.join(masters)}; create it, or check its name with:"
                " orbitmq group list"
            )
        after = {name: change(config) for name, config in before.items()}
        await self._put(
            {
                masters[name]: (before[name], config)
                for name, config in after.items()
                if config != before[name]
            }
        )
        return after

    async def _put(self, wanted: Mapping[str, tuple[GroupConfig | None, GroupConfig]]) -> None:
        def body(before: GroupConfig | None, config: GroupConfig) -> bytes:
            return replace(
                config,
                attributes=attribute_changes(
                    before.attributes if before else {}, config.attributes
                ),
            ).encode()

        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self._calls.for_each_server(
            wanted, lambda address: self._calls.ask(address, code, body=body(*wanted[address]))
        )

    async def delete(
        self, group: str, *, cluster: str | None = None, with_offsets: bool = True
    ) -> list[str]:
        """Delete a group with its retry and dead-letter topics on every master of a cluster; return
        where it was.

        Online members create it again with their next heartbeat.
        """
        masters = await self._calls.masters(cluster)
        tables = await asyncio.gather(*map(self.configs_at, masters.values()))
        had = [name for name, table in zip(masters, tables, strict=True) if group in table]
        if not had:
            raise NotFoundError(
                f"no group {group} at {', '.join(masters)}; check its name with: orbitmq group list"
            )
        # Brokers of 4.9 use another name for the field.
        header = DeleteSubscriptionGroupRequestHeader(
            group_name=group, clean_offset=with_offsets, remove_offset=with_offsets
        )
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        await self._calls.for_each_server(
            (masters[name] for name in had), lambda address: self._calls.ask(address, code, header)
        )
        for topic in (RETRY_PREFIX + group, DEAD_LETTER_PREFIX + group):
            try:
                await self._topics.delete(topic, cluster=cluster)
            except NotFoundError:
                continue  # never created
        return had


def _members(connections: Mapping[str, ConsumerConnection]) -> tuple[GroupMember, ...]:
    """Return each client once, with all brokers that list it."""
    brokers: dict[str, list[str]] = {}
    first: dict[str, GroupMember] = {}
    for broker, connection in connections.items():
        for client in connection.connections:
            brokers.setdefault(client.client_id, []).append(broker)
            first.setdefault(
                client.client_id,
                GroupMember(
                    client.client_id,
                    client.client_addr,
                    client.language,
                    describe(client.version),
                    (),
                ),
            )
    return tuple(
        member._replace(brokers=tuple(brokers[client_id]))
        for client_id, member in sorted(first.items())
    )


def _queues(stats: ConsumeStats) -> Iterator[GroupQueue]:
    for queue, consumed in stats.queues.items():
        yield GroupQueue(
            queue=queue,
            broker_offset=consumed.broker_offset,
            consumer_offset=consumed.consumer_offset,
            pull_offset=consumed.pull_offset,
            last_consumed_ms=consumed.last_timestamp,
        )


def _has(stats: ConsumeStats, topic: str) -> bool:
    return any(queue.topic == topic for queue in stats.queues)
