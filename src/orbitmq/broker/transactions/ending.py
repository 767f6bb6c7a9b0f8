"""Ends transactions, and resumes the checks of half messages that were given up.

Decides whether a request names a half message at all, and the right one; the transaction service
decides what becomes of it. Invariant: a request that is refused changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.replication_keys import BrokerRole
from orbitmq.broker.plugins.interfaces import TransactionService
from orbitmq.broker.produce.deferral import Deferred
from orbitmq.broker.produce.durable_replies import Write
from orbitmq.common.errors import InvalidMessageError, Refusal, RefusedError, StoreError
from orbitmq.common.topic_names import HALF_TOPIC
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType
from orbitmq.message.half_messages import Half
from orbitmq.message.message_id import parse_offset_id
from orbitmq.message.record import decode
from orbitmq.message.record_write import MessageRecord
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.types import LogOffset

_ENDS: Final = (TransactionType.COMMIT, TransactionType.ROLLBACK)


class HalfMessageRewriter:
    """Rewrites messages of transactions into half messages."""

    def __init__(self, service: TransactionService) -> None:
        self._service = service

    def rewrite(self, message: MessageRecord, found: Mapping[str, str]) -> Deferred | None:
        half = self._service.prepare(message, found)
        return None if half is None else Deferred(half)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequest:
    """The end of a transaction as its producer reports it, free of wire types."""

    producer_group: str
    log_offset: int
    queue_offset: int
    kind: int  # a TransactionType
    is_checked: bool  # whether it replies to a check
    transaction_id: str | None


class TransactionEnding:
    """Commits and rolls back transactions."""

    def __init__(
        self,
        *,
        settings: BrokerConfig,
        service: TransactionService,
        record_at: Callable[[LogOffset], bytes | None],
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._service = service
        self._record_at = record_at
        self._now_ms = now_ms

    def check_role(self, remedy: str) -> None:
        """Raise RefusedError unless this broker is a master."""
        if self._settings.broker_role is BrokerRole.SLAVE:
            raise RefusedError(Refusal.NOT_MASTER, f"this broker is a slave: {remedy}")

    def end(self, request: EndRequest) -> Write | None:
        """Commit or roll back; None if the producer does not know the end yet."""
        if request.kind == TransactionType.NONE:
            return None
        if request.kind not in _ENDS:
            raise _refused(
                f"commitOrRollback={request.kind} is no end of a transaction: 8"
                " commits, 12 rolls back, 0 is neither"
            )
        half = self._message_at(request.log_offset)
        if half is None or half.topic != HALF_TOPIC:
            raise _refused(
                f"Find prepared transaction message failed: at {request.log_offset} of the"
                " log there is none"
            )
        self._check_age(request, half)
        _check_identity(request, half)
        return _written(lambda: self._service.end(half, TransactionType(request.kind)))

    def resume(self, msg_id: str) -> Write:
        """Have producers checked again for a half message that was given up."""
        try:
            offset = parse_offset_id(msg_id).log_offset
        except InvalidMessageError as error:
            raise _refused(f"msgId={msg_id} is no offset id: {error}") from error
        stored = self._message_at(offset)
        if stored is None:
            raise _refused(
                f"there is no message at {offset} of the log, which msgId={msg_id} names"
            )
        return _written(lambda: self._service.resume(stored))

    def is_undone(self, log_offset: LogOffset) -> bool:
        """Return whether the message at a log offset was rolled back."""
        half = self._message_at(log_offset)
        return half is not None and half.topic == HALF_TOPIC and self._service.is_undone(half)

    def _message_at(self, log_offset: int) -> StoredMessage | None:
        record = self._record_at(LogOffset(log_offset)) if log_offset >= 0 else None
        return None if record is None else decode(record)

    def _check_age(self, request: EndRequest, half: StoredMessage) -> None:
        """Refuse an end that comes after the immunity that the producer asked for, unless it
        replies to a check.
        """
        known = Half.of(half)
        if request.is_checked or known.immunity_s is None:
            return
        immunity_ms = max(known.immunity_s * 1000, self._settings.transaction_time_out)
        age_ms = self._now_ms() - known.since_ms
        if age_ms > immunity_ms:
            raise RefusedError(
                Refusal.NOT_NOW,
                f"the half message is {age_ms} ms old, and wanted to be left alone for"
                f" {immunity_ms} ms ({properties.CHECK_IMMUNITY_TIME_S}): its producer will be"
                " asked, and may say then how it ended",
            )


def _written(act: Callable[[], LogOffset]) -> Write:
    try:
        return Write(end=act(), topic=HALF_TOPIC)
    except InvalidMessageError as error:
        raise RefusedError(Refusal.INVALID_MESSAGE, str(error)) from error
    except StoreError as error:
        raise RefusedError(Refusal.UNAVAILABLE, f"service not available now: {error}") from error


def _check_identity(request: EndRequest, half: StoredMessage) -> None:
    """Refuse an end of another half message, or of another group.

    After a power cut another message may stand at the offset that a producer still refers to: its
    id differs.
    """
    found = half.properties()
    group, unique_key = found.get(properties.PRODUCER_GROUP), found.get(properties.UNIQUE_KEY)
    if group != request.producer_group:
        raise _refused(
            f"The producer group wrong: the half message was sent by {group}, not by"
            f" {request.producer_group}"
        )
    if half.queue_offset != request.queue_offset:
        raise _refused(
            f"The transaction state table offset wrong: it is {half.queue_offset}, not"
            f" {request.queue_offset}"
        )
    if request.transaction_id and request.transaction_id != unique_key:
        raise _refused(
            f"The transaction id wrong: the half message that is there is {unique_key}, not"
            f" {request.transaction_id}"
        )


def _refused(remark: str) -> RefusedError:
    return RefusedError(Refusal.FAILED, remark)
