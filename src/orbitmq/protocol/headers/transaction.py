"""Headers of transactional messages."""

from dataclasses import dataclass

from orbitmq.protocol.headers.base import Header, Int32, Int64, RpcRequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRequestHeader(RpcRequestHeader):
    """37: commit (8), roll back (12) or leave open (0) a half message."""

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
    """39, broker to client: how did the transaction of this half message end?"""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeCheckHalfMessageRequestHeader(Header):
    """323: start asking again about a half message that was given up."""

    topic: str | None = None
    msg_id: str | None = None
