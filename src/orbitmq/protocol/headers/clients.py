"""Headers of the requests about producers and consumers that are connected."""

from dataclasses import dataclass
from typing import Annotated

from orbitmq.protocol.headers.base import Header, Int32, RpcRequestHeader, TopicRequestHeader, Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponseHeader(Header):
    """Answer to 34: whether short heartbeats are understood, and whether a full one is wanted."""

    support_heartbeat_v2: Annotated[bool | None, Wire("IS_SUPPORT_HEART_BEAT_V2")] = None
    subscription_changed: Annotated[bool | None, Wire("IS_SUB_CHANGE")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterClientRequestHeader(RpcRequestHeader):
    """35: a client leaves a producer or consumer group."""

    client_id: Annotated[str, Wire("clientID")]
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerListByGroupRequestHeader(RpcRequestHeader):
    """38: the client ids of a consumer group."""

    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyConsumerIdsChangedRequestHeader(RpcRequestHeader):
    """40, broker to client: rebalance now."""

    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerConnectionListRequestHeader(RpcRequestHeader):
    """203: the connections of a consumer group."""

    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetProducerConnectionListRequestHeader(RpcRequestHeader):
    """204: the connections of a producer group."""

    producer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerRunningInfoRequestHeader(RpcRequestHeader):
    """307, also broker to client: what a consumer is doing."""

    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeMessageDirectlyResultRequestHeader(TopicRequestHeader):
    """309, also broker to client: let one consumer consume one message now."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
