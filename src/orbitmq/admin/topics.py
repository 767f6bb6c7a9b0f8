"""Topics: create, update and delete them, and report where their queues are and how full.

Each broker has its own configuration of a topic; name servers follow the brokers. A change returns
when a name server knows of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.admin.calls import Calls, GatheredReplies, addresses_to_read, succeeded
from orbitmq.admin.name_servers import NameServerOperations
from orbitmq.common.errors import (
    AlreadyExistsError,
    NotFoundError,
    RemoteTimeoutError,
    RemoteUnavailableError,
    RequestRefusedError,
)
from orbitmq.common.topic_names import AUTO_CREATE_TOPIC
from orbitmq.protocol.bodies.admin_groups import decode_group_names
from orbitmq.protocol.bodies.admin_topics import TopicOffset, decode_topic_stats
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import TopicConfig, TopicList, TopicRouteData
from orbitmq.protocol.bodies.topics import decode_topic_file
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.fastjson import loads
from orbitmq.protocol.headers.nameserver import (
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
)
from orbitmq.protocol.headers.topics import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStats:
    """The ends of a topic's queues, its write rate where reported, and the unreachable brokers."""

    queues: Mapping[MessageQueue, TopicOffset]
    put_per_s: float
    unreachable: Mapping[str, str]

    @property
    def message_count(self) -> int:
        """The number of messages its queues hold."""
        return sum(ends.max_offset - ends.min_offset for ends in self.queues.values())


class TopicOperations:
    """Manages topics and reports on their queues."""

    def __init__(self, calls: Calls, name_servers: NameServerOperations) -> None:
        self._calls = calls
        self._name_servers = name_servers

    # -- queries

    async def names(self, cluster: str | None = None) -> list[str]:
        """Return the topics of a cluster, or all, in order."""
        if cluster is None:
            response, switch = (
                await self._calls.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
                "enableAllTopicList",
            )
        else:
            header = GetTopicsByClusterRequestHeader(cluster=cluster)
            response, switch = (
                await self._calls.ask_name_server(RequestCode.GET_TOPICS_BY_CLUSTER, header),
                "enableTopicList",
            )
        if response.code == ResponseCode.SYSTEM_ERROR and response.remark == "disable":
            raise RequestRefusedError(
                response.code,
                f"the name server does not list topics: set {switch}=true in its configuration",
            )
        return sorted(TopicList.decode(succeeded(response).body or b"{}").topics)

    async def route(self, topic: str) -> TopicRouteData:
        """Return the brokers and queues of a topic; NotFoundError says why there are none."""
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        response = await self._calls.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            brokers = sorted((await self._calls.cluster_info()).brokers)
            if not brokers:
                raise NotFoundError(
                    f"no route to topic {topic}: no broker is registered; start one with"
                    " namesrvAddr set to this name server"
                )
            raise NotFoundError(
                f"no route to topic {topic}: none of the registered brokers ({', '.join(brokers)})"
                " has it; create it, or check its spelling with: orbitmq topic list"
            )
        return TopicRouteData.decode(succeeded(response).body or b"{}")

    async def readers(self, topic: str) -> dict[str, str]:
        """Return an address to query for each broker of a topic, by broker name."""
        return addresses_to_read((await self.route(topic)).broker_datas)

    async def configs(self, topic: str) -> dict[str, TopicConfig]:
        """Return a topic's configuration at each broker; raise NotFoundError if there is none."""
        found = await self._calls.gather(
            await self.readers(topic), lambda address: self._config(address, topic)
        )
        return {name: config for name, config in found.found.items() if config is not None}

    async def configs_at(self, address: str) -> dict[str, TopicConfig]:
        """Return all topics of one broker."""
        return decode_topic_file(
            (await self._calls.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)).body or b"{}"
        )[0]

    async def stats(self, topic: str) -> TopicStats:
        """Return the ends of each queue of a topic, and when its last message arrived."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        code = RequestCode.GET_TOPIC_STATS_INFO
        answers = await self._calls.gather(
            await self.readers(topic), lambda address: self._calls.ask(address, code, header)
        )
        stats = [decode_topic_stats(answer.body or b"{}") for answer in answers.found.values()]
        queues = {queue: ends for table, _ in stats for queue, ends in table.items()}
        return TopicStats(
            queues=dict(sorted(queues.items())),
            put_per_s=sum(tps for _, tps in stats),
            unreachable=answers.unreachable,
        )

    async def groups(self, topic: str) -> list[str]:
        """Return the groups that consume a topic: online, or with offsets in it."""
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        answers = await self._calls.gather(
            await self.readers(topic), lambda address: self._calls.ask(address, code, header)
        )
        return sorted(
            {
                group
                for answer in answers.found.values()
                for group in decode_group_names(answer.body or b"{}")
            }
        )

    # -- changes

    async def create(
        self, config: TopicConfig, *, cluster: str | None = None, broker: str | None = None
    ) -> list[str]:
        """Create a topic on every master of a cluster, or on one broker; return the names of those
        that have it.

        An identical topic stays as it is. Raises AlreadyExistsError without changing anything if it
        exists with other settings.
        """
        masters = await self._calls.masters(cluster, broker)
        known = await asyncio.gather(
            *(self._config(address, config.name) for address in masters.values())
        )
        for name, current in zip(masters, known, strict=True):
            if current is not None and current != config:
                raise AlreadyExistsError(
                    f"topic {config.name} already exists on {name} with other settings; change it"
                    " with: orbitmq topic update"
                )
        await self._put(
            dict.fromkeys(masters, config), masters, dict(zip(masters, known, strict=True))
        )
        return list(masters)

    async def update(
        self,
        topic: str,
        change: Callable[[TopicConfig], TopicConfig],
        *,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> dict[str, TopicConfig]:
        """Change a topic on each master that has it, based on its settings there; return the new
        settings by broker name.
        """
        masters = await self._calls.masters(cluster, broker)
        known = await asyncio.gather(
            *(self._config(address, topic) for address in masters.values())
        )
        before = {
            name: config for name, config in zip(masters, known, strict=True) if config is not None
        }
        if not before:
            raise NotFoundError(
                f"no topic {topic} at {', '.join(masters)}; create it, or check its spelling with:"
                " orbitmq topic list"
            )
        after = {name: change(config) for name, config in before.items()}
        await self._put(after, masters, before)
        return after

    async def delete(self, topic: str, *, cluster: str | None = None) -> list[str]:
        """Delete a topic, its messages and all offsets in it on every master of a cluster, then its
        route; return where it was.
        """
        masters = await self._calls.masters(cluster)
        known = await asyncio.gather(
            *(self._config(address, topic) for address in masters.values())
        )
        had = {
            name: address
            for (name, address), config in zip(masters.items(), known, strict=True)
            if config is not None
        }
        if not had:
            await self.route(topic)  # a name server may still have it; else raise the reason
        header = DeleteTopicRequestHeader(topic=topic)
        await self._calls.for_each_server(
            had.values(),
            lambda address: self._calls.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, header),
        )
        forget = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
        await self._calls.ask_every_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV, forget)
        await self._name_servers.kv_delete(ORDER_NAMESPACE, topic)
        self._calls.session.forget_route(topic)
        return list(had)

    # -- one broker

    async def _config(self, address: str, topic: str) -> TopicConfig | None:
        """Return the topic at one broker; brokers of 4.9 return only all topics at once."""
        also = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        response = await self._calls.ask(
            address,
            RequestCode.GET_TOPIC_CONFIG,
            GetTopicConfigRequestHeader(topic=topic),
            accept=also,
        )
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return (await self.configs_at(address)).get(topic)
        return (
            None
            if response.code == ResponseCode.TOPIC_NOT_EXIST
            else TopicConfig.from_json(loads(response.body or b"{}"), topic)
        )

    async def _put(
        self,
        wanted: Mapping[str, TopicConfig],
        masters: Mapping[str, str],
        before: Mapping[str, TopicConfig | None],
    ) -> None:
        (topic,) = {config.name for config in wanted.values()}
        if any(
            config is not None and config.order for config in (*wanted.values(), *before.values())
        ):
            await self._publish_order(topic, wanted)
        changed = {
            masters[name]: (before.get(name), config)
            for name, config in wanted.items()
            if before.get(name) != config
        }
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        await self._calls.for_each_server(
            changed, lambda address: self._calls.ask(address, code, _header(*changed[address]))
        )
        self._calls.session.forget_route(topic)
        if changed and not await self._calls.until(lambda: self._is_routed(wanted)):
            raise RemoteTimeoutError(
                f"topic {topic} is changed on {', '.join(wanted)}, but the name servers do not know"
                " it yet"
            )

    async def _publish_order(self, topic: str, wanted: Mapping[str, TopicConfig]) -> None:
        """Publish the fixed queues of an ordered topic at the name servers, so that producers use
        them whichever brokers are up.

        Must precede the change itself: a broker treats a topic as ordered as long as name servers
        list it.
        """
        try:
            others = await self._calls.gather(
                await self.readers(topic), lambda address: self._config(address, topic)
            )
        except NotFoundError:
            others = GatheredReplies({}, {})
        if others.unreachable:
            raise RemoteUnavailableError(
                f"nothing was changed, because not all queues of topic {topic} are known:"
                f" {'; '.join(others.unreachable.values())}"
            )
        configs = {
            name: config for name, config in others.found.items() if config is not None
        } | dict(wanted)
        if any(config.order for config in configs.values()):
            counts = ";".join(
                f"{name}:{config.write_queue_nums}" for name, config in sorted(configs.items())
            )
            await self._name_servers.kv_put(ORDER_NAMESPACE, topic, counts)
        else:
            await self._name_servers.kv_delete(ORDER_NAMESPACE, topic)

    async def _is_routed(self, wanted: Mapping[str, TopicConfig]) -> bool:
        (topic,) = {config.name for config in wanted.values()}
        try:
            routed = {each.broker_name: each for each in (await self.route(topic)).queue_datas}
        except NotFoundError:
            return False
        return all(
            name in routed
            and (routed[name].read_queue_nums, routed[name].write_queue_nums)
            == (config.read_queue_nums, config.write_queue_nums)
            for name, config in wanted.items()
        )


def attribute_changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return the changes from one set of attributes to another: `+name` with a value, `-name`
    without.
    """
    put = {f"+{name}": value for name, value in after.items() if before.get(name) != value}
    return put | {f"-{name}": "" for name in before if name not in after}


def _header(before: TopicConfig | None, config: TopicConfig) -> CreateTopicRequestHeader:
    changes = attribute_changes({} if before is None else before.attributes, config.attributes)
    return CreateTopicRequestHeader(
        topic=config.name,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.filter_type,
        topic_sys_flag=config.sys_flag,
        order=config.order,
        attributes=",".join(f"{name}={value}" if value else name for name, value in changes.items())
        or None,
    )
