"""Headers of the pop family: consuming without owning a queue."""

from dataclasses import dataclass

from orbitmq.protocol.headers.base import Header, Int32, Int64, TopicRequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class PopMessageRequestHeader(TopicRequestHeader):
    """200050: take messages, hidden from others for `invisible_time` ms; queue -1 is any."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PopMessageResponseHeader(Header):
    """Answer to 200050 and 200052."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AckMessageRequestHeader(TopicRequestHeader):
    """200051: a popped message is consumed."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    lite_topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeInvisibleTimeRequestHeader(TopicRequestHeader):
    """200053: hide a popped message for another while."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    lite_topic: str | None = None
    suspend: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeInvisibleTimeResponseHeader(Header):
    """Answer to 200053."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekMessageRequestHeader(TopicRequestHeader):
    """200052: look at messages without taking them."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationRequestHeader(TopicRequestHeader):
    """200054: tell when there is something to pop."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool | None = None
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationResponseHeader(Header):
    """Answer to 200054."""

    has_msg: bool
    polling_full: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingInfoRequestHeader(TopicRequestHeader):
    """200055: how many pops are waiting."""

    consumer_group: str
    topic: str
    queue_id: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingInfoResponseHeader(Header):
    """Answer to 200055."""

    polling_num: Int32
