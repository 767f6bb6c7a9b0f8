"""Headers of the requests about connected producers, consumers and filter servers."""

from dataclasses import dataclass
from typing import Annotated

from orbitmq.protocol.headers.base import (
    Header,
    Int32,
    Int64,
    RpcRequestHeader,
    TopicRequestHeader,
    Wire,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponseHeader(Header):
    """Response header of HEART_BEAT: whether short heartbeats are supported, and whether a full one
    is needed.
    """

    support_heartbeat_v2: Annotated[bool | None, Wire("IS_SUPPORT_HEART_BEAT_V2")] = None
    subscription_changed: Annotated[bool | None, Wire("IS_SUB_CHANGE")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterClientRequestHeader(RpcRequestHeader):
    """Request header of UNREGISTER_CLIENT: a client leaves a producer or consumer group."""

    client_id: Annotated[str, Wire("clientID")]
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerListByGroupRequestHeader(RpcRequestHeader):
    """Request header of GET_CONSUMER_LIST_BY_GROUP: list the client ids of a consumer group."""

    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyConsumerIdsChangedRequestHeader(RpcRequestHeader):
    """Request header of NOTIFY_CONSUMER_IDS_CHANGED, broker to client: rebalance now."""

    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerConnectionListRequestHeader(RpcRequestHeader):
    """Request header of GET_CONSUMER_CONNECTION_LIST: list the connections of a consumer group."""

    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetProducerConnectionListRequestHeader(RpcRequestHeader):
    """Request header of GET_PRODUCER_CONNECTION_LIST: list the connections of a producer group."""

    producer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerRunningInfoRequestHeader(RpcRequestHeader):
    """Request header of GET_CONSUMER_RUNNING_INFO, also broker to client: report what a consumer is
    doing.
    """

    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeMessageDirectlyResultRequestHeader(TopicRequestHeader):
    """Request header of CONSUME_MESSAGE_DIRECTLY, also broker to client: let one consumer consume
    one message now.
    """

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterFilterServerRequestHeader(Header):
    """Request header of REGISTER_FILTER_SERVER (4.9): a filter server registers, or renews its
    registration.
    """

    filter_server_addr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterFilterServerResponseHeader(Header):
    """Response header of REGISTER_FILTER_SERVER."""

    broker_name: str
    broker_id: Int64
