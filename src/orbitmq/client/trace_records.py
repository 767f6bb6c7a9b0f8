"""The records of a trace, as all RocketMQ clients write and read them: what became of messages, for whoever looks for one.

A record is its type and its fields, one after the other, U+0001 between them and U+0002 at its end. What is not there is the text `null`.

```
Pub             time region group topic id tags keys host size cost kind offset-id success
SubBefore       time region group request-id id retries keys
SubAfter        request-id id cost success keys outcome time group
EndTransaction  time region group topic id tags keys host kind transaction-id state from-check
Recall          time region group topic id success
```
Times and costs are in ms, numbers are decimals, `kind` and `outcome` are numbers too. Pure; the fields of the classes below stand in the
order of the wire. A reader passes over types that it does not know, and over fields that come behind those it knows.
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
    """What a message was when it was sent."""

    NORMAL = 0
    HALF = 1
    TRANSACTION_END = 2
    DELAYED = 3
    ORDERED = 4


class Published(NamedTuple):
    """A message that a broker took; `is_success` when it is as safe there as was asked for."""

    time_ms: int
    region: str | None
    group: str | None
    topic: str | None
    msg_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    body_size: int  # as it travelled
    cost_ms: int
    kind: MessageKind
    offset_msg_id: str | None
    is_success: bool


class Consuming(NamedTuple):
    """A listener is about to get a message; `request_id` is that of the record that tells how it ended."""

    time_ms: int
    region: str | None
    group: str | None
    request_id: str | None
    msg_id: str
    retry_count: int
    keys: str | None


class Consumed(NamedTuple):
    """A listener came back."""

    request_id: str | None
    msg_id: str
    cost_ms: int
    is_success: bool
    keys: str | None
    outcome: int  # of a member of Outcome; other clients have more
    time_ms: int = 0  # old clients say neither when nor who
    group: str | None = None


class TransactionEnded(NamedTuple):
    """A broker was told how a transaction ended."""

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
    """A message that was to come later was taken back, or not."""

    time_ms: int
    region: str | None
    group: str | None
    topic: str | None
    msg_id: str
    is_success: bool


TraceRecord = Published | Consuming | Consumed | TransactionEnded | Recalled


def _text(text: str) -> str | None:
    return None if text == _NOTHING else text


def _flag(text: str) -> bool:
    return text == "true"


def _kind(text: str) -> MessageKind:
    return MessageKind(int(text))


class _Form(NamedTuple):
    """How the records of a class are written: the name of their type, and what reads each field."""

    name: str
    make: Callable[..., TraceRecord]
    readers: tuple[Callable[[str], Any], ...]
    required: int


_T, _S, _N, _B = _text, str, int, _flag
_FORMS: Final[dict[type[TraceRecord], _Form]] = {
    Published: _Form("Pub", Published, (_N, _T, _T, _T, _S, _T, _T, _T, _N, _N, _kind, _T, _B), 13),
    Consuming: _Form("SubBefore", Consuming, (_N, _T, _T, _T, _S, _N, _T), 7),
    Consumed: _Form("SubAfter", Consumed, (_T, _S, _N, _B, _T, _N, _N, _T), 6),
    TransactionEnded: _Form("EndTransaction", TransactionEnded, (_N, _T, _T, _T, _S, _T, _T, _T, _kind, _T, _STATES.__getitem__, _B), 12),
    Recalled: _Form("Recall", Recalled, (_N, _T, _T, _T, _S, _B), 6),
}
_BY_NAME: Final = {form.name: form for form in _FORMS.values()}


def encode(record: TraceRecord) -> str:
    """The text of a record, its end included; separators within a field become spaces."""
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
    """The records of a text, one after the other; ProtocolError at the first that cannot be read."""
    for written in text.split(RECORD_END):
        name, *fields = written.split(FIELD_END)
        form = _BY_NAME.get(name)
        if form is None:
            continue
        if len(fields) < form.required:
            raise ProtocolError(f"a trace record {name} has {len(fields)} fields, not {form.required}: {written!r}")
        try:
            yield form.make(*(read(field) for read, field in zip(form.readers, fields, strict=False)))
        except (ValueError, KeyError) as problem:
            raise ProtocolError(f"a trace record {name} cannot be read: {problem} in {written!r}") from problem


def index_keys(record: TraceRecord) -> Iterator[str]:
    """By what the record is found: the id of its message, and the message's own keys."""
    yield record.msg_id
    keys = None if isinstance(record, Recalled) else record.keys
    yield from (keys or "").split()
