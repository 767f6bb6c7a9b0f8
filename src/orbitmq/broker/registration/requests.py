"""Requests to name servers, built from the broker's identity and topics. Pure: the link sends
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.nameserver_keys import LinkSettings
from orbitmq.common.slices import Slices
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import (
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicRouteData,
    decode_kv_table,
)
from orbitmq.protocol.bodies.registration import RegisterBrokerBody, body_crc32
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import nameserver as headers


class TopicSource(Protocol):
    """The broker's topics; a live view."""

    @property
    def table(self) -> Mapping[str, TopicConfig]: ...
    @property
    def data_version(self) -> DataVersion: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    """The identity of a broker, and the addresses for clients and slaves."""

    cluster_name: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str  # where slaves connect
    zone: str | None = None

    @classmethod
    def of(cls, config: BrokerConfig, listen_port: int) -> BrokerIdentity:
        """Return the identity by configuration, with the port that the broker really listens on."""
        return cls(
            cluster_name=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=config.broker_id,
            address=_joined(config.broker_ip1, listen_port),
            ha_address=_joined(config.broker_ip2, config.ha_listen_port),
            zone=config.zone,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationAnswer:
    """A name server's reply to a registration; `order_topics` is None if it lists no ordered
    topics.
    """

    name_server: str
    ha_server_addr: str | None
    master_addr: str | None
    order_topics: Mapping[str, str] | None

    @classmethod
    def decode(cls, name_server: str, response: RemotingCommand) -> RegistrationAnswer:
        header = headers.RegisterBrokerResponseHeader.from_fields(response.ext_fields)
        return cls(
            name_server=name_server,
            ha_server_addr=header.ha_server_addr,
            master_addr=header.master_addr,
            order_topics=decode_kv_table(response.body) if response.body else None,
        )


def registrations(
    settings: LinkSettings,
    identity: BrokerIdentity,
    topics: TopicSource,
    names: Iterable[str] | None = None,
    *,
    filter_servers: Iterable[str] = (),
    compressed: bool = False,
) -> Iterator[Slices[RemotingCommand]]:
    """Yield the requests, mostly one, that register all topics, or the existing ones of `names`, as
    they are now; each made in slices.
    """
    version = topics.data_version
    shown = [_as_shown(settings, topic) for topic in _chosen(topics, names)]
    if names is not None and not shown:
        return
    size = (
        settings.split_registration_size if settings.enable_split_registration else len(shown) or 1
    )
    for at in range(0, len(shown) or 1, size):
        part = {topic.name: topic for topic in shown[at : at + size]}
        body = RegisterBrokerBody(
            data_version=version, topics=part, filter_servers=list(filter_servers)
        )
        yield _registration(identity, body, compressed=compressed)


def _registration(
    identity: BrokerIdentity, body: RegisterBrokerBody, *, compressed: bool
) -> Slices[RemotingCommand]:
    content = yield from body.encode_in_slices(compressed=compressed)
    header = headers.RegisterBrokerRequestHeader(
        broker_name=identity.broker_name,
        broker_addr=identity.address,
        cluster_name=identity.cluster_name,
        ha_server_addr=identity.ha_address,
        broker_id=identity.broker_id,
        enable_acting_master=False,
        compressed=compressed,
        body_crc32=body_crc32(content),
        zone_name=identity.zone,
    )
    return RemotingCommand.request(RequestCode.REGISTER_BROKER, header, content)


def topic_registrations(
    settings: LinkSettings, identity: BrokerIdentity, topics: TopicSource, names: Iterable[str]
) -> Iterator[RemotingCommand]:
    """Yield the requests, one per topic, that name servers of 5.x support."""
    for each in _chosen(topics, names):
        topic = _as_shown(settings, each)
        queues = QueueData(
            identity.broker_name,
            topic.read_queue_nums,
            topic.write_queue_nums,
            topic.perm,
            topic.sys_flag,
        )
        body = TopicRouteData(queue_datas=[queues]).encode(standard_keys=False)
        yield RemotingCommand.request(
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            headers.RegisterTopicRequestHeader(topic=topic.name),
            body,
        )


def version_question(identity: BrokerIdentity, version: DataVersion) -> RemotingCommand:
    """Return the query whether the name server has another version of the topics."""
    header = headers.QueryDataVersionRequestHeader(
        broker_name=identity.broker_name,
        broker_addr=identity.address,
        cluster_name=identity.cluster_name,
        broker_id=identity.broker_id,
    )
    return RemotingCommand.request(
        RequestCode.QUERY_DATA_VERSION, header, fastjson.dumps(version.to_json())
    )


def farewell(identity: BrokerIdentity) -> RemotingCommand:
    """Return the request that unregisters the broker."""
    header = headers.UnRegisterBrokerRequestHeader(
        broker_name=identity.broker_name,
        broker_addr=identity.address,
        cluster_name=identity.cluster_name,
        broker_id=identity.broker_id,
    )
    return RemotingCommand.request(RequestCode.UNREGISTER_BROKER, header)


def _chosen(topics: TopicSource, names: Iterable[str] | None) -> list[TopicConfig]:
    table = topics.table
    return (
        list(table.values()) if names is None else [table[name] for name in names if name in table]
    )


def _as_shown(settings: LinkSettings, topic: TopicConfig) -> TopicConfig:
    """Return the topic with its permissions, limited by the broker's."""
    both = PERM_READ | PERM_WRITE
    return (
        topic
        if settings.broker_permission & both == both
        else topic._replace(perm=topic.perm & settings.broker_permission)
    )


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
