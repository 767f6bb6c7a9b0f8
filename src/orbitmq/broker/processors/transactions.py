"""Requests about transactions: END_TRANSACTION, by which producers end them, and RESUME_CHECK_HALF_MESSAGE, by which operators go on.

Says whether a request is about a half message at all, and about the one that it names; what becomes of that is the service's. Invariant: a
request that is refused changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from orbitmq.broker.plugins.interfaces import TransactionService
from orbitmq.broker.processors.safe_answers import SafeAnswers
from orbitmq.broker.processors.send import Placed
from orbitmq.broker.settings.store import BrokerRole
from orbitmq.common.errors import MessageIllegal, RequestRefused, StoreError
from orbitmq.common.topic_names import HALF_TOPIC
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType
from orbitmq.message.half_messages import Half
from orbitmq.message.message_id import parse_offset_id
from orbitmq.message.record import decode
from orbitmq.message.record_write import Message
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.transaction import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.types import LogOffset

_ENDS: Final = (TransactionType.COMMIT, TransactionType.ROLLBACK)


class EndSettings(Protocol):
    """What of the configuration is looked at."""

    @property
    def broker_role(self) -> BrokerRole: ...
    @property
    def transaction_time_out(self) -> int: ...


class HalfPlacer:
    """Where sends ask for what is stored of a message of a transaction."""

    def __init__(self, service: TransactionService) -> None:
        self._service = service

    def place(self, message: Message, found: Mapping[str, str]) -> Placed | None:
        half = self._service.prepare(message, found)
        return None if half is None else Placed(half)


class TransactionProcessor:
    """37 and 323."""

    def __init__(
        self,
        settings: EndSettings,
        service: TransactionService,
        *,
        record_at: Callable[[LogOffset], bytes | None],
        answers: SafeAnswers,
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._service = service
        self._record_at = record_at
        self._answers = answers
        self._now_ms = now_ms

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.END_TRANSACTION: self.end, RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume}

    def end(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Commit or roll back; whoever does not know yet how his transaction ended gets no answer, as from the original."""
        if self._settings.broker_role is BrokerRole.SLAVE:
            raise RequestRefused(ResponseCode.SLAVE_NOT_AVAILABLE, "this broker is a slave: end transactions at its master")
        header = EndTransactionRequestHeader.from_fields(request.ext_fields)
        if header.commit_or_rollback == TransactionType.NONE:
            return None
        if header.commit_or_rollback not in _ENDS:
            raise _refused(
                f"commitOrRollback={header.commit_or_rollback} is no end of a transaction: 8 commits, 12 rolls back, 0 is neither"
            )
        half = self._message_at(header.commit_log_offset)
        if half is None or half.topic != HALF_TOPIC:
            raise _refused(f"Find prepared transaction message failed: at {header.commit_log_offset} of the log there is none")
        self._check_age(header, half)
        _check_identity(header, half)
        return self._stored(channel, request, lambda: self._service.end(half, TransactionType(header.commit_or_rollback)))

    def resume(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Have producers asked again about a half message that was given up."""
        if self._settings.broker_role is BrokerRole.SLAVE:
            raise RequestRefused(ResponseCode.SLAVE_NOT_AVAILABLE, "this broker is a slave: ask its master")
        header = ResumeCheckHalfMessageRequestHeader.from_fields(request.ext_fields)
        try:
            offset = parse_offset_id(header.msg_id or "").log_offset
        except MessageIllegal as error:
            raise _refused(f"msgId={header.msg_id} is no offset id: {error}") from error
        stored = self._message_at(offset)
        if stored is None:
            raise _refused(f"there is no message at {offset} of the log, which msgId={header.msg_id} names")
        return self._stored(channel, request, lambda: self._service.resume(stored))

    def is_undone(self, log_offset: LogOffset) -> bool:
        """Whether the message there is one that was rolled back."""
        half = self._message_at(log_offset)
        return half is not None and half.topic == HALF_TOPIC and self._service.is_undone(half)

    def _message_at(self, log_offset: int) -> StoredMessage | None:
        record = self._record_at(LogOffset(log_offset)) if log_offset >= 0 else None
        return None if record is None else decode(record)

    def _check_age(self, header: EndTransactionRequestHeader, half: StoredMessage) -> None:
        """A producer that says for how long it may be left alone must end it within that time, or wait to be asked."""
        known = Half.of(half)
        if header.from_transaction_check or known.immunity_s is None:
            return
        immunity_ms = max(known.immunity_s * 1000, self._settings.transaction_time_out)
        age_ms = self._now_ms() - known.since_ms
        if age_ms > immunity_ms:
            raise RequestRefused(
                ResponseCode.ILLEGAL_OPERATION,
                f"the half message is {age_ms} ms old, and wanted to be left alone for {immunity_ms} ms "
                f"({properties.CHECK_IMMUNITY_TIME_S}): its producer will be asked, and may say then how it ended",
            )

    def _stored(self, channel: Channel, request: RemotingCommand, act: Callable[[], LogOffset]) -> RemotingCommand | None:
        """Do it, and answer when the disk has it, if the broker waits for that."""
        try:
            end = act()
        except MessageIllegal as error:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        except StoreError as error:
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}") from error
        return self._answers.give(channel, request, request.answer(ResponseCode.SUCCESS), end, HALF_TOPIC, waits=True)


def _check_identity(header: EndTransactionRequestHeader, half: StoredMessage) -> None:
    """Whether the request is about this half message, and comes from the group that sent it.

    After a power cut another message may stand where one was that somebody still speaks of: its id tells.
    """
    found = half.properties()
    group, unique_key = found.get(properties.PRODUCER_GROUP), found.get(properties.UNIQUE_KEY)
    if group != header.producer_group:
        raise _refused(f"The producer group wrong: the half message was sent by {group}, not by {header.producer_group}")
    if half.queue_offset != header.tran_state_table_offset:
        raise _refused(f"The transaction state table offset wrong: it is {half.queue_offset}, not {header.tran_state_table_offset}")
    if header.transaction_id and header.transaction_id != unique_key:
        raise _refused(f"The transaction id wrong: the half message that is there is {unique_key}, not {header.transaction_id}")


def _refused(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
