"""Rules of timed messages: which slot a message of the timer topic goes to, when exactly it is due, and whether it was taken back.

Pure. The original delivers a message when its slot is over, up to a slot too late; here its slot says only when it is looked at, and it is
delivered at its millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeAlias

from orbitmq.broker.delay.timer_log import DEFAULT, DELETE, ROLL
from orbitmq.message import properties

WINDOW_MS_MIN: Final = 60_000
PropertyOf: TypeAlias = Callable[[str], str | None]  # what a message says under a name


class Wheel(NamedTuple):
    """How long a slot is, how many slots away a message may be before it is rolled, and how far store times were ahead of the clock."""

    precision_ms: int
    roll_window_slots: int
    lead_ms: int = 0


class Timing(NamedTuple):
    """When a message is due: in the slot that begins at `slot_ms`, at `deliver_ms` unless it is only rolled then."""

    slot_ms: int
    deliver_ms: int
    magic: int


class Taker(NamedTuple):
    """A message that takes another back: the topic that both belong to, and the key by which the other is named."""

    topic: str
    key: str


def safe_window(window_slots: int, reserved_ms: int, precision_ms: int) -> int:
    """The roll window that is configured, or half of the time for which files are kept if that is shorter.

    So a message is at the end of the log anew long before its file goes. It is a minute at least: rolling costs a write each time.
    """
    return min(window_slots, max(reserved_ms // 2, WINDOW_MS_MIN) // precision_ms)


def timing_of(store_time_ms: int, property_of: PropertyOf, wheel: Wheel) -> Timing | None:
    """The timing of a message of the timer topic, stored at that time; None when it does not say when it is due.

    It follows from the record and the window that it came with (`timer_windows`), so that whoever reads it again comes to the same.
    """
    out_ms, precision_ms, window = _number(property_of(properties.TIMER_OUT_MS)), wheel.precision_ms, wheel.roll_window_slots
    if out_ms is None:
        return None
    stored_ms = (store_time_ms - wheel.lead_ms) // precision_ms * precision_ms
    magic = DEFAULT if property_of(properties.TIMER_DEL_UNIQUE_KEY) is None else DEFAULT | DELETE
    deliver_ms = exact_time(store_time_ms, property_of, out_ms, precision_ms)
    beyond_ms = out_ms - stored_ms - window * precision_ms
    if beyond_ms < 0:
        return Timing(out_ms, deliver_ms, magic)
    roll_slots = window // 2 if beyond_ms < window // 3 * precision_ms else window  # what is left for the last turn is not too little
    return Timing(stored_ms + roll_slots * precision_ms, deliver_ms, magic | ROLL)


def exact_time(store_time_ms: int, property_of: PropertyOf, out_ms: int, precision_ms: int) -> int:
    """When a message is due, to the millisecond: what its producer said, as far as its slot agrees; else when the slot is over."""
    if property_of(properties.TIMER_ROLL_TIMES) is None:  # else it was stored anew since, and a delay says nothing
        for name, unit_ms in ((properties.TIMER_DELAY_SEC, 1000), (properties.TIMER_DELAY_MS, 1)):
            delay = _number(property_of(name))
            if delay is not None and out_ms < store_time_ms + delay * unit_ms <= out_ms + precision_ms:
                return store_time_ms + delay * unit_ms
    deliver_ms = _number(property_of(properties.TIMER_DELIVER_MS))
    return deliver_ms if deliver_ms is not None and out_ms < deliver_ms <= out_ms + precision_ms else out_ms + precision_ms


def taker_of(property_of: PropertyOf) -> Taker:
    """Whom a message takes back that has TIMER_DEL_UNIQKEY: only messages to the topic that it was sent to itself.

    Whoever sent it had the right to send there, and to no other topic for all that is known.
    """
    return Taker(property_of(properties.REAL_TOPIC) or "", property_of(properties.TIMER_DEL_UNIQUE_KEY) or "")


def is_taken_back(found: Mapping[str, str], takers: Collection[Taker]) -> bool:
    """Whether one of those of its slot takes a message back; newer brokers write the id alone as the key, older ones `topic+id`."""
    topic, unique_key = found.get(properties.REAL_TOPIC), found.get(properties.UNIQUE_KEY)
    if topic is None or unique_key is None:
        return False
    return Taker(topic, unique_key) in takers or Taker(topic, f"{topic}+{unique_key}") in takers


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 19 else None
