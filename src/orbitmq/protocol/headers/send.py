"""Headers of sending, sending back, replying and recalling."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Self

from orbitmq.protocol.headers.base import Header, Int32, Int64, RpcRequestHeader, TopicRequestHeader, Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessageRequestHeader(TopicRequestHeader):
    """10, 324: send a message, or a reply; `batch` says that the body holds several."""

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
    """310, 320, 325: the same in one-letter names, which keep the frame small."""

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


def send_fields(
    group: str, topic: str, new_topic: tuple[str, str], queue_id: int, broker_name: str, sys_flag: int, born_ms: int, flag: int, texts: str
) -> dict[str, str]:
    """The fields of a `SendMessageRequestHeaderV2` for a message that is sent for the first time, without the way over its members."""
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
    """Answer to every send; Java producers read `msg_region` and `trace_on` without asking whether they are there."""

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
        """What an answer says of a message; None when it says of none that it is stored."""
        return cls.from_fields(fields) if fields and "msgId" in fields else None


class SentTo(NamedTuple):
    """What a producer reads of a `SendMessageResponseHeader`."""

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None
    region: str | None
    recall_handle: str | None
    is_traced: bool


def sent_to(fields: Mapping[str, str] | None) -> SentTo:
    """The same as by that header, without the way over its members; whatever is wrong with the fields, the header says."""
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
    """36: a consumer could not consume the message at commit-log `offset`; deliver it again later."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyMessageRequestHeader(TopicRequestHeader):
    """326, broker to client: a reply to one of the client's requests."""

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
    """370: withdraw a timed message before its time."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallMessageResponseHeader(Header):
    """Answer to 370."""

    msg_id: str
    msg_region: Annotated[str | None, Wire("MSG_REGION")] = None
