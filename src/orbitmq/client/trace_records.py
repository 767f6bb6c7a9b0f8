"""Trace records in the format shared by all RocketMQ clients.

A record is its type followed by its fields, separated by U+0001 and terminated by U+0002. A missing
value is the text `null`.

```
Pub             time region group topic id tags keys host size cost kind offset-id success
SubBefore       time region group request-id id retries keys
SubAfter        request-id id cost success keys outcome time group
EndTransaction  time region group topic id tags keys host kind transaction-id state from-check
Recall          time region group topic id success
```
Times and costs are in ms; numbers are decimal, and so are `kind` and `outcome`. The fields of the
classes below are in wire order. Readers skip unknown types and trailing fields. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, Final, NamedTuple

from orbitmq.client.messages import TransactionState
from orbitmq.common.errors import ProtocolError

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"
_NOTHING: Final = "null"
_SEPARATORS: Final = str.maketrans({FIELD_END: " ", RECORD_END: " "})
_STATE_NAMES: Final = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}
_STATES: Final = {name: state for state, name in _STATE_NAMES.items()}


class MessageKind(IntEnum):
    """The kind of a message when it was sent."""

    NORMAL = 0
    HALF = 1
    TRANSACTION_END = 2
    DELAYED = 3
    ORDERED = 4


class Published(NamedTuple):
    """A broker stored a message; `is_success` if it is as durable as requested."""

    time_ms: int
    region: str | None
    group: str | None
    topic: str | None
    msg_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    body_size: int  # on the wire, after compression
    cost_ms: int
    kind: MessageKind
    offset_msg_id: str | None
    is_success: bool


class ConsumeStarted(NamedTuple):
    """A listener is about to receive a message; `request_id` links the record of the outcome."""

    time_ms: int
    region: str | None
    group: str | None
    request_id: str | None
    msg_id: str
    retry_count: int
    keys: str | None


class Consumed(NamedTuple):
    """A listener call ended."""

    request_id: str | None
    msg_id: str
    cost_ms: int
    is_success: bool
    keys: str | None
    outcome: int  # a ConsumeOutcome value; other clients have more
    time_ms: int = 0  # old clients write neither time nor group
    group: str | None = None


class TransactionEnded(NamedTuple):
    """A producer sent the outcome of a transaction to a broker."""

    time_ms: int
    region: str | None
    group: str | None
    topic: str | None
    msg_id: str
    tags: str | None
    keys: str | None
    broker_address: str | None
    kind: MessageKind
    transaction_id: str | None
    state: TransactionState
    from_check: bool


class Recalled(NamedTuple):
    """A producer tried to recall a scheduled message."""

    time_ms: int
    region: str | None
    group: str | None
    topic: str | None
    msg_id: str
    is_success: bool


TraceRecord = Published | ConsumeStarted | Consumed | TransactionEnded | Recalled


def _text(text: str) -> str | None:
    return None if text == _NOTHING else text


def _flag(text: str) -> bool:
    return text == "true"


def _kind(text: str) -> MessageKind:
    return MessageKind(int(text))


class _Form(NamedTuple):
    """The encoding of a record class: its type name and a reader for each field."""

    name: str
    make: Callable[..., TraceRecord]
    readers: tuple[Callable[[str], Any], ...]
    required: int


_T, _S, _N, _B = _text, str, int, _flag
_FORMS: Final[dict[type[TraceRecord], _Form]] = {
    Published: _Form("Pub", Published, (_N, _T, _T, _T, _S, _T, _T, _T, _N, _N, _kind, _T, _B), 13),
    ConsumeStarted: _Form("SubBefore", ConsumeStarted, (_N, _T, _T, _T, _S, _N, _T), 7),
    Consumed: _Form("SubAfter", Consumed, (_T, _S, _N, _B, _T, _N, _N, _T), 6),
    TransactionEnded: _Form(
        "EndTransaction",
        TransactionEnded,
        (_N, _T, _T, _T, _S, _T, _T, _T, _kind, _T, _STATES.__getitem__, _B),
        12,
    ),
    Recalled: _Form("Recall", Recalled, (_N, _T, _T, _T, _S, _B), 6),
}
_BY_NAME: Final = {form.name: form for form in _FORMS.values()}


def encode(record: TraceRecord) -> str:
    """Return a record as text with its terminator; separators within fields become spaces."""
    return FIELD_END.join([_FORMS[type(record)].name, *map(_written, record)]) + RECORD_END


def _written(value: str | int | None) -> str:
    if value is None:
        return _NOTHING
    if isinstance(value, str):
        return value.translate(_SEPARATORS)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, TransactionState):
        return _STATE_NAMES[value]
    return str(int(value))


def decode(text: str) -> Iterator[TraceRecord]:
    """Yield the records of a text; raise ProtocolError at the first malformed one."""
    for written in text.split(RECORD_END):
        name, *fields = written.split(FIELD_END)
        form = _BY_NAME.get(name)
        if form is None:
            continue
        if len(fields) < form.required:
            raise ProtocolError(
                f"a trace record {name} has {len(fields)} fields instead of {form.required}:"
                f" {written!r}"
            )
        try:
            yield form.make(
                *(read(field) for read, field in zip(form.readers, fields, strict=False))
            )
        except (ValueError, KeyError) as problem:
            raise ProtocolError(
                f"a trace record {name} is malformed: {problem} in {written!r}"
            ) from problem


def index_keys(record: TraceRecord) -> Iterator[str]:
    """Yield the lookup keys of a record: the id of its message and the message's own keys."""
    yield record.msg_id
    keys = None if isinstance(record, Recalled) else record.keys
    yield from (keys or "").split()
