"""Headers of the requests that send, send back, reply and recall messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Self

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers.base import (
    Header,
    Int32,
    Int64,
    RpcRequestHeader,
    TopicRequestHeader,
    Wire,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessageRequestHeader(TopicRequestHeader):
    """Request header of SEND_MESSAGE and SEND_REPLY_MESSAGE; `batch` says that the body holds
    several messages.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessageRequestHeaderV2(SendMessageRequestHeader):
    """Request header of SEND_MESSAGE_V2, SEND_BATCH_MESSAGE and SEND_REPLY_MESSAGE_V2: the same
    fields with one-letter names, which keep the frame small.
    """

    producer_group: Annotated[str, Wire("a")]
    topic: Annotated[str, Wire("b")]
    default_topic: Annotated[str, Wire("c")]
    default_topic_queue_nums: Annotated[Int32, Wire("d")]
    queue_id: Annotated[Int32, Wire("e")]
    sys_flag: Annotated[Int32, Wire("f")]
    born_timestamp: Annotated[Int64, Wire("g")]
    flag: Annotated[Int32, Wire("h")]
    properties: Annotated[str | None, Wire("i")] = None
    reconsume_times: Annotated[Int32 | None, Wire("j")] = None
    unit_mode: Annotated[bool | None, Wire("k")] = None
    max_reconsume_times: Annotated[Int32 | None, Wire("l")] = None
    batch: Annotated[bool | None, Wire("m")] = None
    target_broker: Annotated[str | None, Wire("n")] = None


def send_header(code: int, fields: Mapping[str, str] | None) -> SendMessageRequestHeader:
    """Return the header of a send or a reply, in the spelling of that request code."""
    in_full = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
    kind = SendMessageRequestHeader if code in in_full else SendMessageRequestHeaderV2
    return kind.from_fields(fields)


def send_fields(
    group: str,
    topic: str,
    new_topic: tuple[str, str],
    queue_id: int,
    broker_name: str,
    sys_flag: int,
    born_ms: int,
    flag: int,
    texts: str,
) -> dict[str, str]:
    """Return the fields of a `SendMessageRequestHeaderV2` of a first send, without building the
    header.
    """
    return {
        "a": group,
        "b": topic,
        "c": new_topic[0],
        "d": new_topic[1],
        "e": str(queue_id),
        "f": str(sys_flag),
        "g": str(born_ms),
        "h": str(flag),
        "i": texts,
        "j": "0",
        "k": "false",
        "m": "false",
        "n": broker_name,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessageResponseHeader(Header):
    """Response header of every send; Java producers read `msg_region` and `trace_on` without
    checking that they are present.
    """

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: Annotated[str | None, Wire("MSG_REGION")] = None
    trace_on: Annotated[bool | None, Wire("TRACE_ON")] = None

    @classmethod
    def of_stored(cls, fields: Mapping[str, str] | None) -> Self | None:
        """Return the header in a response; None unless it reports a stored message."""
        return cls.from_fields(fields) if fields and "msgId" in fields else None


class SentTo(NamedTuple):
    """The part of a `SendMessageResponseHeader` that a producer reads."""

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None
    region: str | None
    recall_handle: str | None
    is_traced: bool


def sent_to(fields: Mapping[str, str] | None) -> SentTo:
    """Read the fields as `SendMessageResponseHeader` would, without building it; malformed fields
    are left to the header to refuse.
    """
    try:
        if fields is not None:
            return SentTo(
                fields["msgId"],
                int(fields["queueId"]),
                int(fields["queueOffset"]),
                fields.get("transactionId"),
                fields.get("MSG_REGION"),
                fields.get("recallHandle"),
                fields.get("TRACE_ON", "true") == "true",
            )
    except (KeyError, ValueError):
        pass
    header = SendMessageResponseHeader.from_fields(fields)
    return SentTo(
        header.msg_id,
        header.queue_id,
        header.queue_offset,
        header.transaction_id,
        header.msg_region,
        header.recall_handle,
        header.trace_on is not False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSendMsgBackRequestHeader(RpcRequestHeader):
    """Request header of CONSUMER_SEND_MSG_BACK: redeliver the message at commit log `offset` later,
    since its consumption failed.
    """

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyMessageRequestHeader(TopicRequestHeader):
    """Request header of PUSH_REPLY_MESSAGE_TO_CLIENT, broker to client: a reply to one of the
    client's requests.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallMessageRequestHeader(TopicRequestHeader):
    """Request header of RECALL_MESSAGE: withdraw a scheduled message before its delivery."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallMessageResponseHeader(Header):
    """Response header of RECALL_MESSAGE."""

    msg_id: str
    msg_region: Annotated[str | None, Wire("MSG_REGION")] = None
