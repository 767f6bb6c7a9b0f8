"""END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE: from headers to `TransactionEnding` and back."""

from __future__ import annotations

from orbitmq.broker.processors.write_replies import WriteReplies
from orbitmq.broker.transactions.ending import EndRequest, TransactionEnding
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.transaction import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler


class TransactionProcessor:
    """Serves END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE."""

    def __init__(self, ending: TransactionEnding, replies: WriteReplies) -> None:
        self._ending = ending
        self._replies = replies

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
        }

    def end(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Commit or roll back. As in Apache RocketMQ, a producer that does not know the end yet
        gets no reply.
        """
        self._ending.check_role("end transactions at its master")
        header = EndTransactionRequestHeader.from_fields(request.ext_fields)
        write = self._ending.end(
            EndRequest(
                producer_group=header.producer_group,
                log_offset=header.commit_log_offset,
                queue_offset=header.tran_state_table_offset,
                kind=header.commit_or_rollback,
                is_checked=bool(header.from_transaction_check),
                transaction_id=header.transaction_id,
            )
        )
        if write is None:
            return None
        return self._replies.reply(channel, request, request.reply(ResponseCode.SUCCESS), write)

    def resume(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Have producers checked again for a half message that was given up."""
        self._ending.check_role("ask its master")
        header = ResumeCheckHalfMessageRequestHeader.from_fields(request.ext_fields)
        write = self._ending.resume(header.msg_id or "")
        return self._replies.reply(channel, request, request.reply(ResponseCode.SUCCESS), write)
