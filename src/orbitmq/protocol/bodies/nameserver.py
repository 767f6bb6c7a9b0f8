"""Bodies that a name server sends and most that it reads: topics, queues, brokers, routes, lists,
versions, key-value tables.

Values and their JSON, member by member as RocketMQ 5.5.0 writes it; the body of a registration is
in `registration`. Reading is as lenient as the original (a missing member has its default), and a
malformed body raises ProtocolError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import SliceBudget, Slices, finish
from orbitmq.protocol import fastjson

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4
PERM_PRIORITY: Final = 8

TOPIC_UNIT: Final = 1
TOPIC_UNIT_SUB: Final = 2

MASTER_ID: Final = 0

GLOBAL_SCOPE: Final = "__global__"

ATTRIBUTES_MAX: Final = 1000  # per topic
LIST_ITEMS_MAX: Final = 20_000  # per list in a request
SMALL_BODY_BYTES_MAX: Final = 16 * 1024  # per body with one thing in it, read at once
MAPPED_QUEUES_MAX: Final = 10_000  # per static topic on one broker

T = TypeVar("T")
_FREED_PER_SLICE: Final = 10_000  # items of a list
_INT32: Final = 1 << 31
_INT64: Final = 1 << 63
_TRUE: Final = (1, "true", "1")
_FALSE: Final = (0, None, "false", "0", "")
_TOPIC_MEMBERS: Final = (
    "topicName",
    "readQueueNums",
    "writeQueueNums",
    "perm",
    "topicFilterType",
    "topicSysFlag",
    "order",
    "attributes",
)


@dataclass(frozen=True, slots=True)
class DataVersion:
    """The version of a broker's topics: equal if all three numbers are."""

    counter: int = 0
    timestamp: int = 0
    state_version: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "counter": self.counter,
            "stateVersion": self.state_version,
            "timestamp": self.timestamp,
        }

    @classmethod
    def from_json(cls, value: Any) -> DataVersion:
        members = as_object(value, "DataVersion")
        return cls(
            counter=integer(members, "counter", 0, _INT64),
            timestamp=integer(members, "timestamp", 0, _INT64),
            state_version=integer(members, "stateVersion", 0, _INT64),
        )


class TopicConfig(NamedTuple):
    """A broker's configuration of one topic; a tuple, since registrations bring tens
    of thousands.
    """

    name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = {}

    def to_json(self) -> dict[str, Any]:
        return {
            "attributes": dict(self.attributes),
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.filter_type,
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_json(cls, value: Any, name: str = "") -> TopicConfig:
        """Read the topic from its members; `name` is used if they do not contain it."""
        members = as_object(value, "TopicConfig")
        name_, read, write, perm, filter_type, flag, order, attributes = map(
            members.get, _TOPIC_MEMBERS
        )
        if (
            type(read) is type(write) is type(perm) is type(flag) is int
            and type(name_) is type(filter_type) is str
            and type(order) is bool
            and name_
            and filter_type
            and 0 <= read | write | perm | flag < _INT32
        ):  # as brokers write it, tens of thousands of times
            return cls(
                name_,
                read,
                write,
                perm,
                filter_type,
                flag,
                order,
                attribute_map(attributes) if attributes else {},
            )
        return cls(
            text(members, "topicName") or name,
            integer(members, "readQueueNums", 16),
            integer(members, "writeQueueNums", 16),
            integer(members, "perm", PERM_READ | PERM_WRITE),
            text(members, "topicFilterType") or "SINGLE_TAG",
            integer(members, "topicSysFlag", 0),
            boolean(members, "order"),
            attribute_map(members.get("attributes")),
        )


class QueueData(NamedTuple):
    """The queues of one topic on one broker; a tuple, since a name server may hold a million
    references to them.
    """

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int

    def to_json(self) -> dict[str, Any]:
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_json(cls, value: Any) -> QueueData:
        members = as_object(value, "QueueData")
        return cls(
            text(members, "brokerName") or "",
            integer(members, "readQueueNums", 0),
            integer(members, "writeQueueNums", 0),
            integer(members, "perm", 0),
            integer(members, "topicSysFlag", 0),
        )


@dataclass(frozen=True, slots=True)
class BrokerData:
    """A broker name and the addresses of its master (id 0) and slaves."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str]
    enable_acting_master: bool = False
    zone_name: str | None = None

    def to_json(self) -> dict[str, Any]:
        return fastjson.bean(
            brokerAddrs=dict(self.broker_addrs),
            brokerName=self.broker_name,
            cluster=self.cluster,
            enableActingMaster=self.enable_acting_master,
            zoneName=self.zone_name,
        )

    @classmethod
    def from_json(cls, value: Any) -> BrokerData:
        members = as_object(value, "BrokerData")
        return cls(
            cluster=text(members, "cluster") or "",
            broker_name=text(members, "brokerName") or "",
            broker_addrs=int_map(members.get("brokerAddrs"), str),
            enable_acting_master=boolean(members, "enableActingMaster"),
            zone_name=text(members, "zoneName"),
        )


@dataclass(frozen=True, slots=True)
class TopicQueueMappingInfo:
    """Which logical queues of a static topic one broker holds, and under which physical numbers."""

    topic: str
    broker_name: str
    total_queues: int = 0
    epoch: int = 0
    curr_id_map: Mapping[int, int] = field(default_factory=dict)
    scope: str = GLOBAL_SCOPE
    dirty: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "bname": self.broker_name,
            "currIdMap": dict(self.curr_id_map),
            "dirty": self.dirty,
            "epoch": self.epoch,
            "scope": self.scope,
            "topic": self.topic,
            "totalQueues": self.total_queues,
        }

    @classmethod
    def from_json(cls, value: Any) -> TopicQueueMappingInfo:
        members = as_object(value, "TopicQueueMappingInfo")
        queues = members.get("currIdMap")
        if isinstance(queues, dict) and len(queues) > MAPPED_QUEUES_MAX:
            raise ProtocolError(
                f"a static topic has at most {MAPPED_QUEUES_MAX} queues on a broker, found"
                f" {len(queues)}"
            )
        return cls(
            topic=text(members, "topic") or "",
            broker_name=text(members, "bname") or "",
            total_queues=integer(members, "totalQueues", 0),
            epoch=integer(members, "epoch", 0, _INT64),
            curr_id_map=int_map(queues, int),
            scope=text(members, "scope") or GLOBAL_SCOPE,
            dirty=boolean(members, "dirty"),
        )


@dataclass(frozen=True, slots=True)
class TopicRouteData:
    """The route of one topic: where its queues are."""

    broker_datas: list[BrokerData] = field(default_factory=list)
    queue_datas: list[QueueData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None

    def to_json(self) -> dict[str, Any]:
        mappings = self.topic_queue_mapping_by_broker
        return fastjson.bean(
            brokerDatas=[broker.to_json() for broker in self.broker_datas],
            filterServerTable=self.filter_server_table,
            orderTopicConf=self.order_topic_conf,
            queueDatas=[queues.to_json() for queues in self.queue_datas],
            topicQueueMappingByBroker=(
                None
                if mappings is None
                else {name: info.to_json() for name, info in mappings.items()}
            ),
        )

    @classmethod
    def from_json(cls, value: Any) -> TopicRouteData:
        members = as_object(value, "TopicRouteData")
        mappings = members.get("topicQueueMappingByBroker")
        return cls(
            broker_datas=items(members.get("brokerDatas"), BrokerData.from_json),
            queue_datas=items(members.get("queueDatas"), QueueData.from_json),
            filter_server_table={
                address: texts(servers)
                for address, servers in as_object(
                    members.get("filterServerTable") or {}, "filterServerTable"
                ).items()
            },
            order_topic_conf=text(members, "orderTopicConf"),
            topic_queue_mapping_by_broker=None if mappings is None else mapping_table(mappings),
        )

    def encode(self, *, standard_keys: bool) -> bytes:
        """Encode the body in the dialect that the client reads: standard JSON, or with bare numbers
        as keys.
        """
        return fastjson.dumps(self.to_json(), standard_keys=standard_keys)

    @classmethod
    def decode(cls, body: bytes) -> TopicRouteData:
        return cls.from_json(fastjson.loads(body))


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """All brokers and their clusters."""

    brokers: Mapping[str, BrokerData] = field(default_factory=dict)
    clusters: Mapping[str, Iterable[str]] = field(default_factory=dict)

    def encode(self) -> bytes:
        return finish(self.encode_in_slices())

    def encode_in_slices(self) -> Slices[bytes]:
        return fastjson.dumps_in_slices(
            {
                "brokerAddrTable": fastjson.Entries(
                    (name, broker.to_json()) for name, broker in self.brokers.items()
                ),
                "clusterAddrTable": {
                    cluster: list(names) for cluster, names in self.clusters.items()
                },
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> ClusterInfo:
        members = as_object(fastjson.loads(body), "ClusterInfo")
        brokers = as_object(members.get("brokerAddrTable") or {}, "brokerAddrTable")
        clusters = as_object(members.get("clusterAddrTable") or {}, "clusterAddrTable")
        return cls(
            brokers={name: BrokerData.from_json(broker) for name, broker in brokers.items()},
            clusters={cluster: texts(names) for cluster, names in clusters.items()},
        )


@dataclass(frozen=True, slots=True)
class BrokerMemberGroup:
    """The addresses of one broker name, as its members request them."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Encode the body of the response, which wraps the group."""
        group = fastjson.bean(
            brokerAddrs=dict(self.broker_addrs), brokerName=self.broker_name, cluster=self.cluster
        )
        return fastjson.dumps({"brokerMemberGroup": group})

    @classmethod
    def decode(cls, body: bytes) -> BrokerMemberGroup:
        group = as_object(
            as_object(fastjson.loads(body), "BrokerMemberGroup").get("brokerMemberGroup") or {},
            "brokerMemberGroup",
        )
        return cls(
            cluster=text(group, "cluster") or "",
            broker_name=text(group, "brokerName") or "",
            broker_addrs=int_map(group.get("brokerAddrs"), str),
        )


@dataclass(frozen=True, slots=True)
class TopicList:
    """Topic names; a system list also has one broker's address."""

    topics: Iterable[str] = ()
    broker_addr: str | None = None

    def encode(self) -> bytes:
        return finish(self.encode_in_slices())

    def encode_in_slices(self) -> Slices[bytes]:
        return fastjson.dumps_in_slices(
            fastjson.bean(brokerAddr=self.broker_addr, topicList=fastjson.Items(self.topics))
        )

    @classmethod
    def decode(cls, body: bytes) -> TopicList:
        members = as_object(fastjson.loads(body), "TopicList")
        return cls(topics=texts(members.get("topicList")), broker_addr=text(members, "brokerAddr"))


def encode_kv_table(table: Mapping[str, str]) -> bytes:
    """Encode a KVTable."""
    return finish(encode_kv_table_in_slices(table))


def encode_kv_table_in_slices(table: Mapping[str, str]) -> Slices[bytes]:
    return fastjson.dumps_in_slices({"table": dict(table)})


def decode_kv_table(body: bytes) -> dict[str, str]:
    return text_map(as_object(fastjson.loads(body), "KVTable").get("table"))


# --- reading members


def small_body(body: bytes, bytes_max: int = SMALL_BODY_BYTES_MAX) -> bytes:
    """The body as it is; ProtocolError when it is larger than one that is read."""
    if len(body) > bytes_max:
        raise ProtocolError(f"it has {len(body)} bytes; up to {bytes_max} are read")
    return body


def as_object(value: Any, what: str) -> Mapping[str, Any]:
    """Return the value as a map of members; raise ProtocolError if it is not one."""
    if isinstance(value, dict):
        return value
    raise ProtocolError(f"{what} must be a JSON object, found {fastjson.brief(value)}")


def integer(members: Mapping[str, Any], name: str, default: int, bound: int = _INT32) -> int:
    """Return the member as a whole number, which may also be sent as a text; raise ProtocolError
    beyond the bound.
    """
    value = members.get(name)
    if type(value) is not int:
        if value is None:
            return default
        try:
            value = int(value)
        except (TypeError, ValueError, OverflowError):
            raise ProtocolError(
                f"member {name} must be a number, found {fastjson.brief(value)}"
            ) from None
    if not -bound <= value < bound:
        raise ProtocolError(
            f"member {name} must fit {bound.bit_length()} bits, found {fastjson.brief(value)}"
        )
    return int(value)


def text(members: Mapping[str, Any], name: str) -> str | None:
    """Return the member as a text, None if it was not sent."""
    value = members.get(name)
    if value is None or isinstance(value, str):
        return value
    raise ProtocolError(f"member {name} must be a text, found {fastjson.brief(value)}")


def boolean(members: Mapping[str, Any], name: str) -> bool:
    """Return the member as a boolean, which may also be sent as a text or as 0 and 1; false if it
    was not sent.
    """
    value = members.get(name)
    if type(value) is bool:
        return value
    spelled = value.lower() if isinstance(value, str) else value
    if spelled in _TRUE:
        return True
    if spelled in _FALSE:
        return False
    raise ProtocolError(f"member {name} must be true or false, found {fastjson.brief(value)}")


def texts(value: Any) -> list[str]:
    """Return a list of texts; empty for null, and null items are omitted."""
    if value is None:
        return []
    if isinstance(value, list) and all(item is None or isinstance(item, str) for item in value):
        return [item for item in value if item is not None]
    raise ProtocolError(f"a list of texts is expected, found {fastjson.brief(value)}")


def text_map(value: Any) -> dict[str, str]:
    """Return a map of texts; empty for null."""
    members = as_object({} if value is None else value, "a map of texts")
    if any(isinstance(item, dict | list) for item in members.values()):
        raise ProtocolError("a map of texts is expected, found one that holds arrays or objects")
    return {str(key): str(item) for key, item in members.items() if item is not None}


def attribute_map(value: Any) -> dict[str, str]:
    """Return the attributes of a topic; empty for null. Raises ProtocolError
    above ATTRIBUTES_MAX.
    """
    if isinstance(value, dict) and len(value) > ATTRIBUTES_MAX:
        raise ProtocolError(f"a topic has at most {ATTRIBUTES_MAX} attributes, found {len(value)}")
    return text_map(value)


def int_map(value: Any, convert: Callable[[Any], T]) -> dict[int, T]:
    """Return a map with numbers as keys, in order; empty for null."""
    members = as_object({} if value is None else value, "a map with numbers as keys")
    try:
        numbers = sorted((int(key), key) for key in members)
        if (
            numbers and not -_INT64 <= numbers[0][0] <= numbers[-1][0] < _INT64
        ):  # larger ones can be crafted to collide in the hash
            raise ValueError
        return {number: convert(members[key]) for number, key in numbers}
    except (TypeError, ValueError, OverflowError):
        raise ProtocolError(
            f"a map with numbers as keys is expected, found {fastjson.brief(value)}"
        ) from None


def items(value: Any, read: Callable[[Any], T]) -> list[T]:
    """Return a list of beans; empty for null."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ProtocolError(f"a list is expected, found {fastjson.brief(value)}")
    return [read(item) for item in value]


def items_in_slices(
    value: Any,
    read: Callable[[Any], T],
    items_max: int = LIST_ITEMS_MAX,
    units: Callable[[T], int] = lambda _item: 1,
) -> Slices[list[T]]:
    """Do what `items` does, in slices, where an item costs as many `units` as it says; raise
    ProtocolError above `items_max` items.
    """
    if isinstance(value, list) and (count := len(value)) > items_max:
        while value:  # to free all of them at once takes a while too
            del value[-_FREED_PER_SLICE:]
            yield
        raise ProtocolError(
            f"a list of {count} items; up to {items_max} are taken at a time: send it in parts"
        )
    found: list[T] = []
    budget = SliceBudget()
    for item in value if isinstance(value, list) else items(value, lambda each: each):
        made = read(item)
        found.append(made)
        if budget.spend(units(made)):
            yield
    return found


def mapping_table(value: Any) -> dict[str, TopicQueueMappingInfo]:
    """Return a map of queue mappings; empty for null."""
    members = as_object({} if value is None else value, "a map of queue mappings")
    return {key: TopicQueueMappingInfo.from_json(info) for key, info in members.items()}
