"""Headers of the requests that a name server serves, of its responses, and of the request
it sends.
"""

from dataclasses import dataclass
from typing import Annotated

from orbitmq.protocol.headers.base import Header, Int32, Int64, TopicRequestHeader, Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRequestHeader(Header):
    """Request header of REGISTER_BROKER: a broker registers its address; its topics are in the
    body.
    """

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
    """Response header of REGISTER_BROKER: the address of a slave's master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnRegisterBrokerRequestHeader(Header):
    """Request header of UNREGISTER_BROKER: a broker leaves."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class GetRouteInfoRequestHeader(TopicRequestHeader):
    """Request header of GET_ROUTEINFO_BY_TOPIC: return where a topic's queues are."""

    topic: str
    accept_standard_json_only: bool | None = None
    zone_mode: Annotated[bool | None, Wire("__ZONE_MODE")] = None
    zone_name: Annotated[str | None, Wire("__ZONE_NAME")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDataVersionRequestHeader(Header):
    """Request header of QUERY_DATA_VERSION: check whether the name server has the broker's topics
    in the version of the body.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDataVersionResponseHeader(Header):
    """Response header of QUERY_DATA_VERSION."""

    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatRequestHeader(Header):
    """Request header of BROKER_HEARTBEAT: a broker is alive; a controller also learns
    its position.
    """

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
    """Request header of GET_BROKER_MEMBER_GROUP: list the members of a broker's replica group."""

    cluster_name: str
    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutKVConfigRequestHeader(Header):
    """Request header of PUT_KV_CONFIG: set one value. No field is required, since a missing
    namespace or key has its own response.
    """

    namespace: str | None = None
    key: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKVConfigRequestHeader(Header):
    """Request header of GET_KV_CONFIG: return one value."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKVConfigResponseHeader(Header):
    """Response header of GET_KV_CONFIG."""

    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteKVConfigRequestHeader(Header):
    """Request header of DELETE_KV_CONFIG: delete one value."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKVListByNamespaceRequestHeader(Header):
    """Request header of GET_KVLIST_BY_NAMESPACE: list all values of a namespace."""

    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicFromNamesrvRequestHeader(TopicRequestHeader):
    """Request header of DELETE_TOPIC_IN_NAMESRV: delete a topic, or its queues on one cluster's
    brokers.
    """

    topic: str
    cluster_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTopicRequestHeader(TopicRequestHeader):
    """Request header of REGISTER_TOPIC_IN_NAMESRV: add the queues in the body to a topic."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicsByClusterRequestHeader(Header):
    """Request header of GET_TOPICS_BY_CLUSTER: list the topics of a cluster."""

    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WipeWritePermOfBrokerRequestHeader(Header):
    """Request header of WIPE_WRITE_PERM_OF_BROKER: remove the write permission of a broker's
    queues.
    """

    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WipeWritePermOfBrokerResponseHeader(Header):
    """Response header of WIPE_WRITE_PERM_OF_BROKER."""

    wipe_topic_count: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class AddWritePermOfBrokerRequestHeader(Header):
    """Request header of ADD_WRITE_PERM_OF_BROKER: restore the write permission."""

    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddWritePermOfBrokerResponseHeader(Header):
    """Response header of ADD_WRITE_PERM_OF_BROKER."""

    add_topic_count: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyMinBrokerIdChangeRequestHeader(Header):
    """Request header of NOTIFY_MIN_BROKER_ID_CHANGE, name server to broker: the group's lowest
    broker id changed.
    """

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
