"""Where a message waits that is to come later: by its delay level, or at a time of its own.

A pure rewrite: the message goes to the broker's own topic, its properties say where it belongs and when it is due. Knows nothing of how it
is delivered. Invariant: a message whose time has come, or that says nothing of a time, is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from orbitmq.broker.processors.send import Placed, Waiting
from orbitmq.broker.store_settings import delay_levels_ms
from orbitmq.common.errors import RequestRefused
from orbitmq.common.topic_names import RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.message import flags, properties
from orbitmq.message.recall_handle import RecallHandle
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import Message
from orbitmq.protocol.codes import ResponseCode

_TIMED: Final = (properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS, properties.TIMER_DELIVER_MS)  # the first that is there counts
_LONG_MAX: Final = (1 << 63) - 1
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()
_TIMER_TOPIC: Final = TIMER_TOPIC.encode()
_WAITING_TYPES: Final = (flags.TransactionType.NONE, flags.TransactionType.COMMIT)


class DelaySettings(Protocol):
    """What of the configuration is looked at."""

    @property
    def broker_name(self) -> str: ...
    @property
    def message_delay_level(self) -> str: ...
    @property
    def timer_wheel_enable(self) -> bool: ...
    @property
    def timer_precision_ms(self) -> int: ...
    @property
    def timer_max_delay_sec(self) -> int: ...
    @property
    def timer_stop_enqueue(self) -> bool: ...


class DelayPlacer:
    """See above. `level_expected` and `timed_expected` hear when a message that was placed is due.

    `is_congested` says whether a slot of the timer takes no more.
    """

    def __init__(self, settings: DelaySettings, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._levels_ms = delay_levels_ms(settings.message_delay_level)
        self.level_expected: Callable[[int], None] = lambda due_ms: None
        self.timed_expected: Callable[[int], None] = lambda due_ms: None
        self.is_congested: Callable[[int], bool] = lambda slot_ms: False

    def place(self, message: Message, found: Mapping[str, str]) -> Placed | None:
        """What is stored of a message with these properties; None when it does not wait, RequestRefused when its time cannot be used."""
        return self._placed(message, found, is_accepted=False)

    def place_accepted(self, message: Message, found: Mapping[str, str]) -> Placed | None:
        """The same of one whose producer was told before that it may wait: no limit is looked at, and without a timer it does not wait."""
        return self._placed(message, found, is_accepted=True)

    def _placed(self, message: Message, found: Mapping[str, str], *, is_accepted: bool) -> Placed | None:
        if flags.transaction_type(message.sys_flag) not in _WAITING_TYPES:
            return None
        level = _number(found, properties.DELAY) if properties.DELAY in found else 0
        if level > 0:
            return self._at_level(message, min(level, len(self._levels_ms)))
        if bytes(message.topic) == TIMER_TOPIC.encode() or properties.TIMER_OUT_MS in found:
            return None
        name = next((name for name in _TIMED if name in found), None)
        if name is None or (is_accepted and not self._settings.timer_wheel_enable):
            return None
        return self._timed(message, found, name, is_accepted=is_accepted)

    def _at_level(self, message: Message, level: int) -> Placed:
        self.level_expected(self._now_ms() + self._levels_ms[level - 1])
        waiting = _moved(message, SCHEDULE_TOPIC, level - 1, {properties.DELAY: str(level)}, _TIMED)
        return Placed(waiting)

    def _timed(self, message: Message, found: Mapping[str, str], name: str, *, is_accepted: bool) -> Placed | None:
        settings, now_ms = self._settings, self._now_ms()
        if not settings.timer_wheel_enable:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"accurate timer message is not enabled, timerWheelEnable is false: property {name} has no effect; "
                "set timerWheelEnable=true, or send with a delay level",
            )
        try:
            deliver_ms = _number(found, name) * (1000 if name == properties.TIMER_DELAY_SEC else 1)
        except RequestRefused as refused:
            raise self._timer_illegal(refused.remark) from refused
        if name != properties.TIMER_DELIVER_MS:
            deliver_ms += now_ms
        if deliver_ms <= now_ms:
            if properties.TIMER_DEL_UNIQUE_KEY in found and not is_accepted:
                raise self._timer_illegal(f"property {name}={found[name]}: the message that is to be taken back has come already")
            return None
        if deliver_ms - now_ms > settings.timer_max_delay_sec * 1000 and not is_accepted:
            raise self._timer_illegal(f"property {name}={found[name]}: send it later, or raise timerMaxDelaySec")
        if properties.TIMER_DEL_UNIQUE_KEY in found and settings.timer_stop_enqueue and not is_accepted:
            raise RequestRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "nothing can be taken back while timerStopEnqueue=true: the timer would not hear of it in time; "
                "set timerStopEnqueue=false, then try again",
            )
        slot_ms = slot_of(deliver_ms, settings.timer_precision_ms)
        if not is_accepted and self.is_congested(slot_ms):
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"timer message is under flow control: too many are due at {deliver_ms} already; choose another time, "
                "or raise timerCongestNumEachSlot",
            )
        self.timed_expected(deliver_ms)
        waiting = _moved(message, TIMER_TOPIC, 0, {properties.TIMER_OUT_MS: str(slot_ms)})
        return Placed(waiting, self._recall_handle(message, slot_ms))

    # -- the same for kernels: the message has none of the properties that are written here, and no other that is about time

    def quick_level(self, topic: str, queue_id: int, _unique_key: str, level: int) -> Waiting | None:
        """Where a message waits by its delay level."""
        level = min(level, len(self._levels_ms))
        self.level_expected(self._now_ms() + self._levels_ms[level - 1])
        return Waiting(_SCHEDULE_TOPIC, level - 1, properties.encode({properties.DELAY: str(level), **_real(topic, queue_id)}))

    def quick_timed(self, topic: str, queue_id: int, unique_key: str, deliver_ms: int) -> Waiting | None:
        """Where a message waits for its time; None when it does not, or may not."""
        settings, now_ms = self._settings, self._now_ms()
        if not settings.timer_wheel_enable or not now_ms < deliver_ms <= now_ms + settings.timer_max_delay_sec * 1000:
            return None
        slot_ms = slot_of(deliver_ms, settings.timer_precision_ms)
        if self.is_congested(slot_ms):
            return None
        self.timed_expected(deliver_ms)
        more = properties.encode({properties.TIMER_OUT_MS: str(slot_ms), **_real(topic, queue_id)})
        return Waiting(_TIMER_TOPIC, 0, more, (self._handle(topic, unique_key, slot_ms) or "").encode())

    def _timer_illegal(self, why: str) -> RequestRefused:
        return _illegal(
            f"timer message illegal, the delay time should not be bigger than the max delay {self._settings.timer_max_delay_sec * 1000}ms; "
            f"or if set del msg, the delay time should be bigger than the current time: {why}"
        )

    def _recall_handle(self, message: Message, slot_ms: int) -> str | None:
        topic = bytes(message.topic).decode()
        unique_key = properties.parse(bytes(message.properties)).get(properties.UNIQUE_KEY)
        return self._handle(topic, unique_key, slot_ms)

    def handle_of(self, record: RecordCursor) -> str | None:
        """By which a message that waits, and is stored so, may be taken back."""
        slot_ms, topic = record.property(properties.TIMER_OUT_MS), record.property(properties.REAL_TOPIC)
        if slot_ms is None or topic is None:
            return None
        return self._handle(topic, record.property(properties.UNIQUE_KEY), int(slot_ms))

    def _handle(self, topic: str, unique_key: str | None, slot_ms: int) -> str | None:
        if topic.startswith(RETRY_PREFIX) or unique_key is None:
            return None
        return RecallHandle(topic, self._settings.broker_name, slot_ms + 1, unique_key).text()


def slot_of(deliver_ms: int, precision_ms: int) -> int:
    """The slot of a time, by its first millisecond: it holds what is due behind that, up to the first millisecond of the next."""
    return (deliver_ms - 1) // precision_ms * precision_ms


def _moved(message: Message, topic: str, queue_id: int, more: dict[str, str | None], without: tuple[str, ...] = ()) -> Message:
    """The message as it waits in a queue of the broker's own."""
    real = _real(bytes(message.topic).decode(), message.queue_id)
    raw = bytes(message.properties)
    for name in (*without, *more, *real):
        raw = properties.without(raw, name)
    return Message(
        topic.encode(),
        message.body,
        born_host=message.born_host,
        born_time_ms=message.born_time_ms,
        queue_id=queue_id,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
        prepared_offset=message.prepared_offset,
        properties=properties.extended(raw, {**more, **real}),
    )


def _real(topic: str, queue_id: int) -> dict[str, str | None]:
    """Where it belongs, as its properties say."""
    return {properties.REAL_TOPIC: topic, properties.REAL_QUEUE_ID: str(queue_id)}


def _number(found: Mapping[str, str], name: str) -> int:
    text = found[name]
    if re.fullmatch(r"[+-]?[0-9]{1,19}", text) and abs(int(text)) <= _LONG_MAX:
        return int(text)
    raise _illegal(f"property {name}={text}: it takes a whole number")


def _illegal(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
