"""Bodies of the requests about connected producers and consumers: heartbeats, queue locks, lists of
members and connections.

Values and their JSON, member by member as RocketMQ 5.5.0 writes it. Reading takes what clients of
all ages and languages send: what is not there has its default, null sets are empty, names that are
not known are passed over. A body that cannot be read, or that does not say who or which group it is
about, raises ProtocolError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import SLICE_UNITS, Slices, finish
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import (
    as_object,
    boolean,
    integer,
    items,
    items_in_slices,
    small_body,
    text,
    texts,
)
from orbitmq.protocol.bodies.subscriptions import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
    enum_member,
    enum_name,
)

CLIENT_BODY_BYTES_MAX: Final = 1024 * 1024  # of a heartbeat, or of queues to lock
CHECK_BODY_BYTES_MAX: Final = 256 * 1024  # of a subscription that is checked


class MessageQueue(NamedTuple):
    """One queue of one topic on one broker, as clients name it."""

    topic: str
    broker_name: str
    queue_id: int

    def to_json(self) -> dict[str, Any]:
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    @classmethod
    def from_json(cls, value: Any) -> MessageQueue:
        members = as_object(value, "MessageQueue")
        return cls(
            text(members, "topic") or "",
            text(members, "brokerName") or "",
            integer(members, "queueId", 0),
        )


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """One consumer group of a client, as its heartbeat tells of it."""

    group: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscriptions: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False

    def to_json(self) -> dict[str, Any]:
        return fastjson.bean(
            consumeFromWhere=enum_name(self.consume_from_where),
            consumeType=enum_name(self.consume_type),
            groupName=self.group,
            messageModel=enum_name(self.message_model),
            subscriptionDataSet=[subscription.to_json() for subscription in self.subscriptions],
            unitMode=self.unit_mode,
        )

    @classmethod
    def from_json(cls, value: Any) -> Slices[ConsumerData]:
        members = as_object(value, "ConsumerData")
        subscriptions = tuple(
            (
                yield from items_in_slices(
                    members.get("subscriptionDataSet"),
                    SubscriptionData.from_json,
                    units=lambda each: each.units,
                )
            )
        )
        if not all(subscription.topic for subscription in subscriptions):
            raise ProtocolError("a subscription of consumerDataSet names no topic; each must")
        return cls(
            group=_required(members, "groupName", "consumerDataSet"),
            consume_type=enum_member(members, "consumeType", ConsumeType),
            message_model=enum_member(members, "messageModel", MessageModel),
            consume_from_where=enum_member(members, "consumeFromWhere", ConsumeFromWhere),
            subscriptions=subscriptions,
            unit_mode=boolean(members, "unitMode"),
        )


@dataclass(frozen=True, slots=True)
class HeartbeatData:
    """34: a client and all its groups. `fingerprint` is not 0 in the second form, which may leave
    subscriptions out that are known.
    """

    client_id: str
    producer_groups: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()
    fingerprint: int = 0
    without_sub: bool = False

    def encode(self) -> bytes:
        return fastjson.dumps(
            {
                "clientID": self.client_id,
                "consumerDataSet": [consumer.to_json() for consumer in self.consumers],
                "heartbeatFingerprint": self.fingerprint,
                "producerDataSet": [{"groupName": group} for group in self.producer_groups],
                "withoutSub": self.without_sub,
            }
        )

    @classmethod
    def decode(cls, body: bytes | None) -> HeartbeatData:
        return finish(cls.decode_in_slices(body))

    @classmethod
    def decode_in_slices(cls, body: bytes | None) -> Slices[HeartbeatData]:
        members = yield from _members_in_slices(_of_client(body), "HeartbeatData")
        producers = yield from items_in_slices(members.get("producerDataSet"), _producer_group)
        consumers: list[ConsumerData] = []
        units = 0
        for value in items(members.get("consumerDataSet"), lambda each: each):
            consumer = yield from ConsumerData.from_json(value)
            consumers.append(consumer)
            units += 1 + len(consumer.subscriptions)
            if units >= SLICE_UNITS:
                units = 0
                yield
        return cls(
            client_id=_required(members, "clientID", "a heartbeat"),
            producer_groups=tuple(producers),
            consumers=tuple(consumers),
            fingerprint=integer(members, "heartbeatFingerprint", 0),
            without_sub=boolean(members, "withoutSub"),
        )


def _producer_group(value: Any) -> str:
    return _required(as_object(value, "ProducerData"), "groupName", "producerDataSet")


@dataclass(frozen=True, slots=True)
class CheckClientRequestBody:
    """46: a subscription that a client is about to use."""

    client_id: str | None = None
    group: str | None = None
    subscription: SubscriptionData | None = None
    namespace: str | None = None

    def encode(self) -> bytes:
        members = {
            "clientId": self.client_id,
            "group": self.group,
            "namespace": self.namespace,
            "subscriptionData": None if self.subscription is None else self.subscription.to_json(),
        }
        return fastjson.dumps({name: value for name, value in members.items() if value is not None})

    @classmethod
    def decode(cls, body: bytes | None) -> CheckClientRequestBody:
        return finish(cls.decode_in_slices(body))

    @classmethod
    def decode_in_slices(cls, body: bytes | None) -> Slices[CheckClientRequestBody]:
        if not body:
            return cls()
        members = yield from _members_in_slices(
            small_body(body, CHECK_BODY_BYTES_MAX), "CheckClientRequestBody"
        )
        subscription = members.get("subscriptionData")
        return cls(
            client_id=text(members, "clientId"),
            group=text(members, "group"),
            subscription=None if subscription is None else SubscriptionData.from_json(subscription),
            namespace=text(members, "namespace"),
        )


@dataclass(frozen=True, slots=True)
class LockBatchBody:
    """41 and 42: a client of a group locks or unlocks queues, `only_this_broker` when its replicas
    are not to be asked.
    """

    consumer_group: str
    client_id: str
    queues: tuple[MessageQueue, ...] = ()
    only_this_broker: bool = False

    def encode(self) -> bytes:
        return fastjson.dumps(
            {
                "clientId": self.client_id,
                "consumerGroup": self.consumer_group,
                "mqSet": [queue.to_json() for queue in self.queues],
                "onlyThisBroker": self.only_this_broker,
            }
        )

    @classmethod
    def decode(cls, body: bytes | None) -> LockBatchBody:
        return finish(cls.decode_in_slices(body))

    @classmethod
    def decode_in_slices(cls, body: bytes | None) -> Slices[LockBatchBody]:
        members = yield from _members_in_slices(_of_client(body), "LockBatchRequestBody")
        queues = yield from items_in_slices(members.get("mqSet"), MessageQueue.from_json)
        return cls(
            consumer_group=_required(members, "consumerGroup", "a lock request"),
            client_id=_required(members, "clientId", "a lock request"),
            queues=tuple(dict.fromkeys(queues)),
            only_this_broker=boolean(members, "onlyThisBroker"),
        )


def encode_locked_queues(queues: Iterable[MessageQueue]) -> Slices[bytes]:
    """The answer to 41: which of the queues that were asked for the client holds now."""
    return fastjson.dumps_in_slices(
        {"lockOKMQSet": fastjson.Items(queue.to_json() for queue in queues)}
    )


def decode_locked_queues(body: bytes) -> list[MessageQueue]:
    return items(_members(body, "LockBatchResponseBody").get("lockOKMQSet"), MessageQueue.from_json)


def encode_consumer_ids(client_ids: Iterable[str]) -> Slices[bytes]:
    """The answer to 38."""
    return fastjson.dumps_in_slices({"consumerIdList": fastjson.Items(client_ids)})


def decode_consumer_ids(body: bytes) -> list[str]:
    return texts(_members(body, "GetConsumerListByGroupResponseBody").get("consumerIdList"))


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """A client of a group as 203 and 204 list it; `language` is the name of its code."""

    client_id: str
    client_addr: str
    language: str
    version: int

    def to_json(self) -> dict[str, Any]:
        return {
            "clientAddr": self.client_addr,
            "clientId": self.client_id,
            "language": self.language,
            "version": self.version,
        }

    @classmethod
    def from_json(cls, value: Any) -> ClientConnection:
        members = as_object(value, "Connection")
        return cls(
            client_id=text(members, "clientId") or "",
            client_addr=text(members, "clientAddr") or "",
            language=text(members, "language") or "",
            version=integer(members, "version", 0),
        )


@dataclass(frozen=True, slots=True)
class ConsumerConnection:
    """The answer to 203: who consumes for a group, how, and what."""

    connections: Iterable[ClientConnection] = ()
    subscriptions: Mapping[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    conflicts: Sequence[
        str
    ] = ()  # in what members subscribe differently; ours alone tells it, and only when they do

    def encode(self) -> Slices[bytes]:
        return fastjson.dumps_in_slices(
            fastjson.bean(
                connectionSet=fastjson.Items(
                    connection.to_json() for connection in self.connections
                ),
                consumeFromWhere=enum_name(self.consume_from_where),
                consumeType=enum_name(self.consume_type),
                messageModel=enum_name(self.message_model),
                subscriptionConflicts=list(self.conflicts) or None,
                subscriptionTable=fastjson.Entries(
                    (topic, each.to_json()) for topic, each in self.subscriptions.items()
                ),
            )
        )

    @classmethod
    def decode(cls, body: bytes) -> ConsumerConnection:
        members = _members(body, "ConsumerConnection")
        subscriptions = as_object(members.get("subscriptionTable") or {}, "subscriptionTable")
        return cls(
            connections=items(members.get("connectionSet"), ClientConnection.from_json),
            subscriptions={
                topic: SubscriptionData.from_json(subscription)
                for topic, subscription in subscriptions.items()
            },
            consume_type=enum_member(members, "consumeType", ConsumeType),
            message_model=enum_member(members, "messageModel", MessageModel),
            consume_from_where=enum_member(members, "consumeFromWhere", ConsumeFromWhere),
            conflicts=tuple(texts(members.get("subscriptionConflicts"))),
        )


def encode_producer_connection(connections: Iterable[ClientConnection]) -> Slices[bytes]:
    """The answer to 204."""
    return fastjson.dumps_in_slices(
        {"connectionSet": fastjson.Items(connection.to_json() for connection in connections)}
    )


def decode_producer_connection(body: bytes) -> list[ClientConnection]:
    return items(
        _members(body, "ProducerConnection").get("connectionSet"), ClientConnection.from_json
    )


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    """A producer as 328 lists it; `remote_ip` has the slash in front that Java writes before an
    address without a name.
    """

    client_id: str
    remote_ip: str
    language: str
    version: int
    last_update_timestamp: int

    def to_json(self) -> dict[str, Any]:
        return {
            "clientId": self.client_id,
            "language": self.language,
            "lastUpdateTimestamp": self.last_update_timestamp,
            "remoteIP": self.remote_ip,
            "version": self.version,
        }


def encode_producer_table(producers: Iterable[tuple[str, Iterable[ProducerInfo]]]) -> Slices[bytes]:
    """The answer to 328: the producers of every group."""
    tables = (
        (group, fastjson.Items(producer.to_json() for producer in members))
        for group, members in producers
    )
    return fastjson.dumps_in_slices({"data": fastjson.Entries(tables)})


# --- reading members


def _of_client(body: bytes | None) -> bytes | None:
    """The body as it is; ProtocolError when it is larger than those of clients may be."""
    if len(body or b"") > CLIENT_BODY_BYTES_MAX:
        raise ProtocolError(
            f"it has {len(body or b'')} bytes, and {CLIENT_BODY_BYTES_MAX} are read; use several"
            " clients"
        )
    return body


def _members(body: bytes | None, what: str) -> Mapping[str, Any]:
    return finish(_members_in_slices(body, what))


def _members_in_slices(body: bytes | None, what: str) -> Slices[Mapping[str, Any]]:
    if not body:
        raise ProtocolError(f"the request has no body; send {what} as JSON")
    return as_object((yield from fastjson.loads_in_slices(body)), what)


def _required(members: Mapping[str, Any], name: str, where: str) -> str:
    value = text(members, name)
    if not value:
        raise ProtocolError(f"{where} has no {name}; it must say it")
    return value
