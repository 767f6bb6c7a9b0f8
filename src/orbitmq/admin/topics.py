"""Topics: created, changed, deleted, and where and how full their queues are.

A topic is what its brokers say, each for itself; name servers follow them. A change returns when a name server knows of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.admin.calls import Calls, Gathered, addresses_to_read, succeeded
from orbitmq.admin.name_servers import NameServerOperations
from orbitmq.common.errors import AlreadyExists, NotFound, RemoteTimeout, RemoteUnavailable, RequestRefused
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
    """The ends of a topic's queues, and how many messages it gets a second where brokers say that; and whom nobody could ask."""

    queues: Mapping[MessageQueue, TopicOffset]
    put_per_s: float
    unreachable: Mapping[str, str]

    @property
    def message_count(self) -> int:
        """How many messages its queues hold."""
        return sum(ends.max_offset - ends.min_offset for ends in self.queues.values())


class TopicOperations:
    """See above."""

    def __init__(self, calls: Calls, name_servers: NameServerOperations) -> None:
        self._calls = calls
        self._name_servers = name_servers

    # -- what there is

    async def names(self, cluster: str | None = None) -> list[str]:
        """The topics of `cluster`, or all, in order."""
        if cluster is None:
            response, switch = await self._calls.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), "enableAllTopicList"
        else:
            header = GetTopicsByClusterRequestHeader(cluster=cluster)
            response, switch = await self._calls.ask_name_server(RequestCode.GET_TOPICS_BY_CLUSTER, header), "enableTopicList"
        if response.code == ResponseCode.SYSTEM_ERROR and response.remark == "disable":
            raise RequestRefused(response.code, f"the name server gives out no such list: its configuration says {switch}=false")
        return sorted(TopicList.decode(succeeded(response).body or b"{}").topics)

    async def route(self, topic: str) -> TopicRouteData:
        """Which brokers hold the queues of `topic`; NotFound says why none does."""
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        response = await self._calls.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            brokers = sorted((await self._calls.cluster_info()).brokers)
            if not brokers:
                raise NotFound(f"no route to topic {topic}: no broker is registered; start one with namesrvAddr set to this name server")
            raise NotFound(
                f"no route to topic {topic}: none of the registered brokers ({', '.join(brokers)}) has it; "
                "create it, or check its spelling with: orbitmq topic list"
            )
        return TopicRouteData.decode(succeeded(response).body or b"{}")

    async def readers(self, topic: str) -> dict[str, str]:
        """Where the queues of a topic can be asked for, by the names of its brokers."""
        return addresses_to_read((await self.route(topic)).broker_datas)

    async def configs(self, topic: str) -> dict[str, TopicConfig]:
        """How a topic is set up at each broker that has it; NotFound when it is nowhere."""
        found = await self._calls.gather(await self.readers(topic), lambda address: self._config(address, topic))
        return {name: config for name, config in found.found.items() if config is not None}

    async def configs_at(self, address: str) -> dict[str, TopicConfig]:
        """All topics of one broker."""
        return decode_topic_file((await self._calls.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)).body or b"{}")[0]

    async def stats(self, topic: str) -> TopicStats:
        """Where each queue of a topic begins and ends, and when its last message came."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        code = RequestCode.GET_TOPIC_STATS_INFO
        answers = await self._calls.gather(await self.readers(topic), lambda address: self._calls.ask(address, code, header))
        told = [decode_topic_stats(answer.body or b"{}") for answer in answers.found.values()]
        queues = {queue: ends for table, _ in told for queue, ends in table.items()}
        return TopicStats(queues=dict(sorted(queues.items())), put_per_s=sum(tps for _, tps in told), unreachable=answers.unreachable)

    async def groups(self, topic: str) -> list[str]:
        """The groups that consume a topic: online, or with offsets in it."""
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        answers = await self._calls.gather(await self.readers(topic), lambda address: self._calls.ask(address, code, header))
        return sorted({group for answer in answers.found.values() for group in decode_group_names(answer.body or b"{}")})

    # -- changes

    async def create(self, config: TopicConfig, *, cluster: str | None = None, broker: str | None = None) -> list[str]:
        """Make a topic on every master of a cluster, or on one broker; the names of those that have it.

        One that is there already and the same stays; AlreadyExists, and nothing is changed, when it is set up otherwise.
        """
        masters = await self._calls.masters(cluster, broker)
        known = await asyncio.gather(*(self._config(address, config.name) for address in masters.values()))
        for name, current in zip(masters, known, strict=True):
            if current is not None and current != config:
                raise AlreadyExists(
                    f"topic {config.name} exists on {name} already, and is set up otherwise; change it with: orbitmq topic update"
                )
        await self._put(dict.fromkeys(masters, config), masters, dict(zip(masters, known, strict=True)))
        return list(masters)

    async def update(
        self, topic: str, change: Callable[[TopicConfig], TopicConfig], *, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, TopicConfig]:
        """Change a topic on the masters that have it, each from what it is there; what it is now, by the name of the broker."""
        masters = await self._calls.masters(cluster, broker)
        known = await asyncio.gather(*(self._config(address, topic) for address in masters.values()))
        before = {name: config for name, config in zip(masters, known, strict=True) if config is not None}
        if not before:
            raise NotFound(f"no topic {topic} at {', '.join(masters)}; create it, or check its spelling with: orbitmq topic list")
        after = {name: change(config) for name, config in before.items()}
        await self._put(after, masters, before)
        return after

    async def delete(self, topic: str, *, cluster: str | None = None) -> list[str]:
        """Delete a topic, its messages and all offsets in it on every master of a cluster, then its route; where it was."""
        masters = await self._calls.masters(cluster)
        known = await asyncio.gather(*(self._config(address, topic) for address in masters.values()))
        had = {name: address for (name, address), config in zip(masters.items(), known, strict=True) if config is not None}
        if not had:
            await self.route(topic)  # a name server may still know it; else it says why there is none
        header = DeleteTopicRequestHeader(topic=topic)
        await self._calls.change(had.values(), lambda address: self._calls.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, header))
        forget = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
        await self._calls.tell_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, forget)
        await self._name_servers.kv_delete(ORDER_NAMESPACE, topic)
        self._calls.session.forget_route(topic)
        return list(had)

    # -- one broker

    async def _config(self, address: str, topic: str) -> TopicConfig | None:
        """The topic at one broker; 4.9 tells all of them or none."""
        also = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        response = await self._calls.ask(address, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=topic), also=also)
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return (await self.configs_at(address)).get(topic)
        return None if response.code == ResponseCode.TOPIC_NOT_EXIST else TopicConfig.from_json(loads(response.body or b"{}"), topic)

    async def _put(self, wanted: Mapping[str, TopicConfig], masters: Mapping[str, str], before: Mapping[str, TopicConfig | None]) -> None:
        (topic,) = {config.name for config in wanted.values()}
        if any(config is not None and config.order for config in (*wanted.values(), *before.values())):
            await self._tell_order(topic, wanted)
        changed = {masters[name]: (before.get(name), config) for name, config in wanted.items() if before.get(name) != config}
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        await self._calls.change(changed, lambda address: self._calls.ask(address, code, _header(*changed[address])))
        self._calls.session.forget_route(topic)
        if changed and not await self._calls.until(lambda: self._is_routed(wanted)):
            raise RemoteTimeout(f"topic {topic} is changed on {', '.join(wanted)}, and name servers have not heard of it yet")

    async def _tell_order(self, topic: str, wanted: Mapping[str, TopicConfig]) -> None:
        """Have name servers tell producers which queues an ordered topic will have, whichever of its brokers are up.

        Comes before the change itself: a broker takes a topic for ordered as long as name servers list it.
        """
        try:
            others = await self._calls.gather(await self.readers(topic), lambda address: self._config(address, topic))
        except NotFound:
            others = Gathered({}, {})
        if others.unreachable:
            raise RemoteUnavailable(
                f"nothing was changed, since not all queues of topic {topic} are known: {'; '.join(others.unreachable.values())}"
            )
        configs = {name: config for name, config in others.found.items() if config is not None} | dict(wanted)
        if any(config.order for config in configs.values()):
            counts = ";".join(f"{name}:{config.write_queue_nums}" for name, config in sorted(configs.items()))
            await self._name_servers.kv_put(ORDER_NAMESPACE, topic, counts)
        else:
            await self._name_servers.kv_delete(ORDER_NAMESPACE, topic)

    async def _is_routed(self, wanted: Mapping[str, TopicConfig]) -> bool:
        (topic,) = {config.name for config in wanted.values()}
        try:
            told = {queues.broker_name: queues for queues in (await self.route(topic)).queue_datas}
        except NotFound:
            return False
        return all(
            name in told and (told[name].read_queue_nums, told[name].write_queue_nums) == (config.read_queue_nums, config.write_queue_nums)
            for name, config in wanted.items()
        )


def attribute_changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The signed names that make one set of attributes of another: `+name` with its value, `-name` with nothing."""
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
        attributes=",".join(f"{name}={value}" if value else name for name, value in changes.items()) or None,
    )
