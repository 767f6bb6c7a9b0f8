"""Headers of transactional messages."""

from dataclasses import dataclass

from orbitmq.protocol.headers.base import Header, Int32, Int64, RpcRequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRequestHeader(RpcRequestHeader):
    """Request header of END_TRANSACTION: commit (8), roll back (12) or leave open (0) a half
    message.
    """

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool | None = None
    transaction_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTransactionStateRequestHeader(RpcRequestHeader):
    """Request header of CHECK_TRANSACTION_STATE, broker to client: report the outcome of a half
    message's transaction.
    """

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeCheckHalfMessageRequestHeader(Header):
    """Request header of RESUME_CHECK_HALF_MESSAGE: resume checks of a half message that was given
    up.
    """

    topic: str | None = None
    msg_id: str | None = None
