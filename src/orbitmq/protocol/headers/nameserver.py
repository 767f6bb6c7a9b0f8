"""Headers of the requests that a name server serves, of its answers, and of the one it sends."""

from dataclasses import dataclass
from typing import Annotated

from orbitmq.protocol.headers.base import Header, Int32, Int64, TopicRequestHeader, Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRequestHeader(Header):
    """103: a broker says where it is; its topics are in the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool | None = None
    body_crc32: Int32 | None = None
    zone_name: Annotated[str | None, Wire("__ZONE_NAME")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerResponseHeader(Header):
    """Answer to 103: where a slave finds its master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnRegisterBrokerRequestHeader(Header):
    """104: a broker leaves."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class GetRouteInfoRequestHeader(TopicRequestHeader):
    """105: where a topic's queues are."""

    topic: str
    accept_standard_json_only: bool | None = None
    zone_mode: Annotated[bool | None, Wire("__ZONE_MODE")] = None
    zone_name: Annotated[str | None, Wire("__ZONE_NAME")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDataVersionRequestHeader(Header):
    """322: whether the name server knows the broker's topics as of the version in the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDataVersionResponseHeader(Header):
    """Answer to 322."""

    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatRequestHeader(Header):
    """904: a broker is alive; a controller learns its position too."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerMemberGroupRequestHeader(Header):
    """901: the members of a broker's replica group."""

    cluster_name: str
    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutKVConfigRequestHeader(Header):
    """100: set one value; without a namespace or key it has an answer of its own, so none is required."""

    namespace: str | None = None
    key: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKVConfigRequestHeader(Header):
    """101: ask for one value."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKVConfigResponseHeader(Header):
    """Answer to 101."""

    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteKVConfigRequestHeader(Header):
    """102: forget one value."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKVListByNamespaceRequestHeader(Header):
    """219: all values of a namespace."""

    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicFromNamesrvRequestHeader(TopicRequestHeader):
    """216: forget a topic, or its queues on one cluster's brokers."""

    topic: str
    cluster_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTopicRequestHeader(TopicRequestHeader):
    """217: add the queues in the body to a topic."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicsByClusterRequestHeader(Header):
    """224: the topics of a cluster."""

    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WipeWritePermOfBrokerRequestHeader(Header):
    """205: take the write permission from a broker's queues."""

    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WipeWritePermOfBrokerResponseHeader(Header):
    """Answer to 205."""

    wipe_topic_count: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class AddWritePermOfBrokerRequestHeader(Header):
    """327: give the write permission back."""

    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddWritePermOfBrokerResponseHeader(Header):
    """Answer to 327."""

    add_topic_count: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyMinBrokerIdChangeRequestHeader(Header):
    """905, name server to broker: the lowest broker id of the group is another's now."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
