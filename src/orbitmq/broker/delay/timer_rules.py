"""Rules of timed messages: which slot a message of the timer topic goes to, when exactly it is due, and whether it was taken back.

Pure. The original delivers a message when its slot is over, up to a slot too late; here its slot says only when it is looked at, and it is
delivered at its millisecond.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from orbitmq.broker.delay.timer_log import DEFAULT, DELETE, ROLL
from orbitmq.message import properties
from orbitmq.message.stored_message import StoredMessage


class Wheel(NamedTuple):
    """How long a slot is, and how many slots away a message may be before it is rolled."""

    precision_ms: int
    roll_window_slots: int


class Timing(NamedTuple):
    """When a message is due: in the slot that begins at `slot_ms`, at `deliver_ms` unless it is only rolled then."""

    slot_ms: int
    deliver_ms: int
    magic: int


def timing_of(stored: StoredMessage, found: Mapping[str, str], wheel: Wheel) -> Timing | None:
    """The timing of a message of the timer topic; None when it does not say when it is due.

    It follows from the record alone, so that whoever reads it again comes to the same.
    """
    out_text = found.get(properties.TIMER_OUT_MS, "")
    if not _is_number(out_text):
        return None
    out_ms, precision_ms, window = int(out_text), wheel.precision_ms, wheel.roll_window_slots
    stored_ms = stored.store_time_ms // precision_ms * precision_ms
    magic = DEFAULT | (DELETE if properties.TIMER_DEL_UNIQUE_KEY in found else 0)
    deliver_ms = exact_time(stored, found, out_ms, precision_ms)
    beyond_ms = out_ms - stored_ms - window * precision_ms
    if beyond_ms < 0:
        return Timing(out_ms, deliver_ms, magic)
    roll_slots = window // 2 if beyond_ms < window // 3 * precision_ms else window  # what is left for the last turn is not too little
    return Timing(stored_ms + roll_slots * precision_ms, deliver_ms, magic | ROLL)


def exact_time(stored: StoredMessage, found: Mapping[str, str], out_ms: int, precision_ms: int) -> int:
    """When a message is due, to the millisecond: what its producer said, as far as its slot agrees; else when the slot is over."""
    said = []
    if properties.TIMER_ROLL_TIMES not in found:  # then it was stored anew since, and a delay says nothing
        said += [(properties.TIMER_DELAY_SEC, 1000, stored.store_time_ms), (properties.TIMER_DELAY_MS, 1, stored.store_time_ms)]
    for name, unit_ms, base_ms in (*said, (properties.TIMER_DELIVER_MS, 1, 0)):
        if _is_number(found.get(name, "")):
            deliver_ms = base_ms + int(found[name]) * unit_ms
            if out_ms < deliver_ms <= out_ms + precision_ms:
                return deliver_ms
    return out_ms + precision_ms


def is_taken_back(found: Mapping[str, str], keys: Collection[str]) -> bool:
    """Whether one of the keys, of which newer brokers write the id alone and older ones `topic+id`, is that of the message."""
    unique_key = found.get(properties.UNIQUE_KEY)
    return unique_key is not None and (unique_key in keys or f"{found.get(properties.REAL_TOPIC)}+{unique_key}" in keys)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
