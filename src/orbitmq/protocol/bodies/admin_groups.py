"""Bodies about group subscriptions, and the offsets that brokers and clients exchange at
a reset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orbitmq.common.slices import Slices, finish
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.admin_topics import (
    queue_entries,
    queue_table,
    read_offset,
    read_queue_table,
)
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import as_object, texts
from orbitmq.protocol.bodies.subscriptions import SubscriptionData

QueueOffsets = Mapping[MessageQueue, int]


def encode_group_list(groups: Iterable[str]) -> Slices[bytes]:
    """Encode the response to QUERY_TOPIC_CONSUME_BY_WHO."""
    return fastjson.dumps_in_slices({"groupList": fastjson.Items(groups)})


def decode_group_names(body: bytes) -> list[str]:
    """Decode the groups in the response to QUERY_TOPIC_CONSUME_BY_WHO."""
    return texts(as_object(fastjson.loads(body), "GroupList").get("groupList"))


def encode_group_subscription(
    group: str, topic: str | None, subscription: SubscriptionData | None
) -> bytes:
    """Encode the response to QUERY_SUBSCRIPTION_BY_CONSUMER."""
    data = None if subscription is None else subscription.to_json()
    return fastjson.dumps(fastjson.bean(group=group, subscriptionData=data, topic=topic))


def encode_reset_offsets(offsets: QueueOffsets) -> bytes:
    """Encode the response to INVOKE_BROKER_TO_RESET_OFFSET, which is also the body of
    RESET_CONSUMER_CLIENT_OFFSET.
    """
    return finish(encode_reset_offsets_in_slices(offsets))


def encode_reset_offsets_in_slices(offsets: QueueOffsets) -> Slices[bytes]:
    return fastjson.dumps_in_slices({"offsetTable": queue_entries(offsets)})


def decode_reset_offsets(body: bytes | None) -> dict[MessageQueue, int]:
    """Decode either form: a map, or the list that C++ clients receive; empty if there are no
    offsets.
    """
    table = as_object(fastjson.loads(body or b"{}"), "ResetOffsetBody").get("offsetTable")
    if isinstance(table, list):
        return {
            MessageQueue.from_json(each): read_offset(as_object(each, "offsetTable").get("offset"))
            for each in table
        }
    return read_queue_table(table, read_offset)


def encode_reset_offsets_for_cpp(offsets: QueueOffsets) -> Slices[bytes]:
    """Encode the offsets for C++ clients, which cannot read maps with objects as keys."""
    items = (fastjson.bean(**queue.to_json(), offset=offset) for queue, offset in offsets.items())
    return fastjson.dumps_in_slices({"offsetTable": fastjson.Items(items)})


def encode_client_offsets(offsets: QueueOffsets) -> bytes:
    """Encode a client's response to GET_CONSUMER_STATUS_FROM_CLIENT."""
    return fastjson.dumps({"messageQueueTable": queue_table(offsets)})


def decode_client_offsets(body: bytes | None) -> dict[MessageQueue, int]:
    """Decode a client's response to GET_CONSUMER_STATUS_FROM_CLIENT; empty if it has no offsets."""
    members = as_object(fastjson.loads(body or b"{}"), "GetConsumerStatusBody")
    return read_queue_table(members.get("messageQueueTable"), read_offset)


def encode_consumer_status(offsets_by_client: Mapping[str, QueueOffsets]) -> Slices[bytes]:
    """Encode the response to INVOKE_BROKER_TO_GET_CONSUMER_STATUS."""
    clients = fastjson.Entries(
        (client_id, queue_entries(offsets)) for client_id, offsets in offsets_by_client.items()
    )
    return fastjson.dumps_in_slices({"consumerTable": clients, "messageQueueTable": {}})
