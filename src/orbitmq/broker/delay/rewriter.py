"""Rewrites delayed messages for their holding topic: by delay level, or for a given time.

A pure rewrite: the message moves to a topic of the broker's own, and its properties hold its
destination and its due time. Knows nothing of delivery. Invariant: a message whose time has come,
or that has no time, stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.store_config import delay_levels_ms
from orbitmq.broker.produce.deferral import Deferred, Holding
from orbitmq.common.errors import Refusal, RefusedError
from orbitmq.common.topic_names import RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.message import flags, properties
from orbitmq.message.recall_handle import RecallHandle
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import MessageRecord

_TIMED: Final = (
    properties.TIMER_DELAY_SEC,
    properties.TIMER_DELAY_MS,
    properties.TIMER_DELIVER_MS,
)  # the first one present counts
_LONG_MAX: Final = (1 << 63) - 1
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()
_TIMER_TOPIC: Final = TIMER_TOPIC.encode()
_WAITING_TYPES: Final = (flags.TransactionType.NONE, flags.TransactionType.COMMIT)


class ScheduledDelivery(Protocol):
    """Delivers what is rewritten here."""

    def expect_level(self, due_ms: int) -> None:
        """Expect a message of a delay level, about to be stored, at its due time."""

    def expect_timed(self, due_ms: int) -> None:
        """Expect a timed message, about to be stored, at its due time."""

    def is_congested(self, slot_ms: int) -> bool:
        """Return whether a slot of the timer holds as many messages as allowed."""
        ...


class DelayRewriter:
    """Rewrites delayed messages."""

    def __init__(
        self, settings: BrokerConfig, now_ms: Callable[[], int], delivery: ScheduledDelivery
    ) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._levels_ms = delay_levels_ms(settings.message_delay_level)
        self._delivery = delivery

    def rewrite(self, message: MessageRecord, found: Mapping[str, str]) -> Deferred | None:
        """Return what is stored for a message with these properties; None if it is not delayed.
        Raises RefusedError if its time is invalid.
        """
        return self._rewritten(message, found, is_accepted=False)

    def rewrite_accepted(self, message: MessageRecord, found: Mapping[str, str]) -> Deferred | None:
        """Do the same for a message that was accepted earlier: check no limits, and do not delay it
        if there is no timer.
        """
        return self._rewritten(message, found, is_accepted=True)

    def _rewritten(
        self, message: MessageRecord, found: Mapping[str, str], *, is_accepted: bool
    ) -> Deferred | None:
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

    def _at_level(self, message: MessageRecord, level: int) -> Deferred:
        self._delivery.expect_level(self._now_ms() + self._levels_ms[level - 1])
        waiting = _moved(message, SCHEDULE_TOPIC, level - 1, {properties.DELAY: str(level)}, _TIMED)
        return Deferred(waiting)

    def _timed(
        self, message: MessageRecord, found: Mapping[str, str], name: str, *, is_accepted: bool
    ) -> Deferred | None:
        settings, now_ms = self._settings, self._now_ms()
        if not settings.timer_wheel_enable:
            raise RefusedError(
                Refusal.FAILED,
                f"accurate timer message is not enabled, timerWheelEnable is false: property {name}"
                " has no effect; set timerWheelEnable=true, or send with a delay level",
            )
        try:
            deliver_ms = _number(found, name) * (1000 if name == properties.TIMER_DELAY_SEC else 1)
        except RefusedError as refused:
            raise self._timer_illegal(refused.remark) from refused
        if name != properties.TIMER_DELIVER_MS:
            deliver_ms += now_ms
        if deliver_ms <= now_ms:
            if properties.TIMER_DEL_UNIQUE_KEY in found and not is_accepted:
                raise self._timer_illegal(
                    f"property {name}={found[name]}: the message to recall has been delivered"
                    " already"
                )
            return None
        if deliver_ms - now_ms > settings.timer_max_delay_sec * 1000 and not is_accepted:
            raise self._timer_illegal(
                f"property {name}={found[name]}: send it later, or raise timerMaxDelaySec"
            )
        if (
            properties.TIMER_DEL_UNIQUE_KEY in found
            and settings.timer_stop_enqueue
            and not is_accepted
        ):
            raise RefusedError(
                Refusal.UNAVAILABLE,
                "no message can be recalled while timerStopEnqueue=true: the timer would not learn"
                " of it in time; set timerStopEnqueue=false, then retry",
            )
        slot_ms = slot_of(deliver_ms, settings.timer_precision_ms)
        if not is_accepted and self._delivery.is_congested(slot_ms):
            raise RefusedError(
                Refusal.FAILED,
                f"timer message is under flow control: too many are due at {deliver_ms} already;"
                " choose another time, or raise timerCongestNumEachSlot",
            )
        self._delivery.expect_timed(deliver_ms)
        waiting = _moved(message, TIMER_TOPIC, 0, {properties.TIMER_OUT_MS: str(slot_ms)})
        return Deferred(waiting, self._recall_handle(message, slot_ms))

    # -- the same for kernels: the message has none of the properties that are written here, and no
    # other property about time

    def quick_level(
        self, topic: str, queue_id: int, _unique_key: str, level: int
    ) -> Holding | None:
        """Return where a message is held for its delay level."""
        level = min(level, len(self._levels_ms))
        self._delivery.expect_level(self._now_ms() + self._levels_ms[level - 1])
        return Holding(
            _SCHEDULE_TOPIC,
            level - 1,
            properties.encode({properties.DELAY: str(level), **_real(topic, queue_id)}),
        )

    def quick_timed(
        self, topic: str, queue_id: int, unique_key: str, deliver_ms: int
    ) -> Holding | None:
        """Return where a message is held for its time; None if it must take the general path."""
        settings, now_ms = self._settings, self._now_ms()
        if (
            not settings.timer_wheel_enable
            or not now_ms < deliver_ms <= now_ms + settings.timer_max_delay_sec * 1000
        ):
            return None
        slot_ms = slot_of(deliver_ms, settings.timer_precision_ms)
        if self._delivery.is_congested(slot_ms):
            return None
        self._delivery.expect_timed(deliver_ms)
        more = properties.encode({properties.TIMER_OUT_MS: str(slot_ms), **_real(topic, queue_id)})
        return Holding(
            _TIMER_TOPIC, 0, more, (self._handle(topic, unique_key, slot_ms) or "").encode()
        )

    def _timer_illegal(self, why: str) -> RefusedError:
        return _illegal(
            "timer message illegal, the delay time should not be bigger than the max delay"
            f" {self._settings.timer_max_delay_sec * 1000}ms; or if set del msg, the delay time"
            f" should be bigger than the current time: {why}"
        )

    def _recall_handle(self, message: MessageRecord, slot_ms: int) -> str | None:
        topic = bytes(message.topic).decode()
        unique_key = properties.parse(bytes(message.properties)).get(properties.UNIQUE_KEY)
        return self._handle(topic, unique_key, slot_ms)

    def handle_of(self, record: RecordCursor) -> str | None:
        """Return the handle with which a stored timed message may be recalled."""
        slot_ms, topic = (
            record.property(properties.TIMER_OUT_MS),
            record.property(properties.REAL_TOPIC),
        )
        if slot_ms is None or topic is None:
            return None
        return self._handle(topic, record.property(properties.UNIQUE_KEY), int(slot_ms))

    def _handle(self, topic: str, unique_key: str | None, slot_ms: int) -> str | None:
        if topic.startswith(RETRY_PREFIX) or unique_key is None:
            return None
        return RecallHandle(topic, self._settings.broker_name, slot_ms + 1, unique_key).text()


def slot_of(deliver_ms: int, precision_ms: int) -> int:
    """Return the slot of a time, as its first millisecond: it holds times after that, up to the
    first millisecond of the next slot.
    """
    return (deliver_ms - 1) // precision_ms * precision_ms


def _moved(
    message: MessageRecord,
    topic: str,
    queue_id: int,
    more: dict[str, str | None],
    without: tuple[str, ...] = (),
) -> MessageRecord:
    """Return the message as it is held in a queue of the broker's own."""
    real = _real(bytes(message.topic).decode(), message.queue_id)
    raw = bytes(message.properties)
    for name in (*without, *more, *real):
        raw = properties.without(raw, name)
    return MessageRecord(
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
    """Return the properties that hold the destination."""
    return {properties.REAL_TOPIC: topic, properties.REAL_QUEUE_ID: str(queue_id)}


def _number(found: Mapping[str, str], name: str) -> int:
    text = found[name]
    if re.fullmatch(r"[+-]?[0-9]{1,19}", text) and abs(int(text)) <= _LONG_MAX:
        return int(text)
    raise _illegal(f"property {name}={text}: a whole number is required")


def _illegal(remark: str) -> RefusedError:
    return RefusedError(Refusal.INVALID_MESSAGE, remark)
