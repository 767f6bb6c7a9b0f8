"""Rules of timed messages: the slot of a message of the timer topic, its exact due time, and
whether it was recalled.

Pure. Apache RocketMQ delivers a message when its slot is over, up to a slot too late; here the slot
only says when the message is looked at, and it is delivered at its millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeAlias

from orbitmq.broker.delay.timer.log import DEFAULT, DELETE, ROLL
from orbitmq.message import properties

WINDOW_MS_MIN: Final = 60_000
PropertyOf: TypeAlias = Callable[[str], str | None]  # returns a property of a message by name


class Wheel(NamedTuple):
    """The length of a slot, how many slots away a message may be before it is rolled, and how far
    store times were ahead of the clock.
    """

    precision_ms: int
    roll_window_slots: int
    lead_ms: int = 0


class Timing(NamedTuple):
    """When a message is due: in the slot that begins at `slot_ms`, at `deliver_ms` unless it is
    only rolled then.
    """

    slot_ms: int
    deliver_ms: int
    magic: int


class RecallKey(NamedTuple):
    """The recall key of a message: the destination topic, and the key of the recalled message."""

    topic: str
    key: str


def safe_window(window_slots: int, reserved_ms: int, precision_ms: int) -> int:
    """Return the configured roll window, or half of the file retention time if that is shorter.

    So a message is copied to the end of the log long before its file is deleted. The window is at
    least a minute, since rolling costs a write each time.
    """
    return min(window_slots, max(reserved_ms // 2, WINDOW_MS_MIN) // precision_ms)


def timing_of(store_time_ms: int, property_of: PropertyOf, wheel: Wheel) -> Timing | None:
    """Return the timing of a message of the timer topic, stored at that time; None if it has no due
    time.

    It depends only on the record and the window of its arrival (`windows`), so reading the record
    again gives the same result.
    """
    out_ms, precision_ms, window = (
        _number(property_of(properties.TIMER_OUT_MS)),
        wheel.precision_ms,
        wheel.roll_window_slots,
    )
    if out_ms is None:
        return None
    stored_ms = (store_time_ms - wheel.lead_ms) // precision_ms * precision_ms
    magic = DEFAULT if property_of(properties.TIMER_DEL_UNIQUE_KEY) is None else DEFAULT | DELETE
    deliver_ms = exact_time(store_time_ms, property_of, out_ms, precision_ms)
    beyond_ms = out_ms - stored_ms - window * precision_ms
    if beyond_ms < 0:
        return Timing(out_ms, deliver_ms, magic)
    roll_slots = (
        window // 2 if beyond_ms < window // 3 * precision_ms else window
    )  # the remainder for the last round is not too short
    return Timing(stored_ms + roll_slots * precision_ms, deliver_ms, magic | ROLL)


def exact_time(store_time_ms: int, property_of: PropertyOf, out_ms: int, precision_ms: int) -> int:
    """Return when a message is due, to the millisecond: the producer's time, as far as its slot
    agrees; else the end of the slot.
    """
    if (
        property_of(properties.TIMER_ROLL_TIMES) is None
    ):  # otherwise it was stored again since, and a relative delay means nothing
        for name, unit_ms in ((properties.TIMER_DELAY_SEC, 1000), (properties.TIMER_DELAY_MS, 1)):
            delay = _number(property_of(name))
            if (
                delay is not None
                and out_ms < store_time_ms + delay * unit_ms <= out_ms + precision_ms
            ):
                return store_time_ms + delay * unit_ms
    deliver_ms = _number(property_of(properties.TIMER_DELIVER_MS))
    return (
        deliver_ms
        if deliver_ms is not None and out_ms < deliver_ms <= out_ms + precision_ms
        else out_ms + precision_ms
    )


def recall_key_of(property_of: PropertyOf) -> RecallKey:
    """Return which message a message with TIMER_DEL_UNIQKEY recalls: only one of the topic that it
    was itself sent to.

    Its sender was authorized to send to that topic, and to no other as far as is known.
    """
    return RecallKey(
        property_of(properties.REAL_TOPIC) or "", property_of(properties.TIMER_DEL_UNIQUE_KEY) or ""
    )


def is_recalled(found: Mapping[str, str], recall_keys: Collection[RecallKey]) -> bool:
    """Return whether one of the recall keys of its slot recalls a message; newer brokers write the
    id alone as the key, older ones `topic+id`.
    """
    topic, unique_key = found.get(properties.REAL_TOPIC), found.get(properties.UNIQUE_KEY)
    if topic is None or unique_key is None:
        return False
    return (
        RecallKey(topic, unique_key) in recall_keys
        or RecallKey(topic, f"{topic}+{unique_key}") in recall_keys
    )


def _number(text: str | None) -> int | None:
    return (
        int(text)
        if text is not None and text.isascii() and text.isdigit() and len(text) < 19
        else None
    )
