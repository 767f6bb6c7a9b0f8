"""The errors that cross layers: each message states what happened, why, and the remedy."""

import errno
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

from orbitmq.common.deprecation import renamed

_FILE_REMEDIES: Final = {
    errno.EACCES: "run this as a user that may use it, or name another place",
    errno.EPERM: "run this as a user that may use it, or name another place",
    errno.EROFS: "name a place that can be written to",
    errno.ENOENT: "check the spelling of its path",
    errno.EISDIR: "name a file",
    errno.ENOSPC: "free some space, or name another place",
    errno.EDQUOT: "free some space, or name another place",
}


class OrbitError(Exception):
    """Base class of every error that OrbitMQ raises deliberately."""


class ConfigurationError(OrbitError):
    """An invalid setting; the message names its source, its value and the allowed values."""


class UnusableConfigurationError(ConfigurationError):
    """Well-formed settings that a server cannot work with; each of `problems` is a key and a
    sentence about it.
    """

    def __init__(self, *problems: tuple[str, str]) -> None:
        super().__init__(listed_problems([text for _, text in problems]))
        self.problems = problems


class ProtocolError(OrbitError):
    """Bytes that violate the protocol; the connection they arrived on is closed."""


class CorruptFileError(OrbitError):
    """A corrupt file whose backup is corrupt too; nothing was guessed or deleted."""


class RequestRefusedError(OrbitError):
    """A request refused with `code`, a remark that names the remedy, and header `fields` where
    clients expect some.
    """

    def __init__(self, code: int, remark: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.fields = fields


class Refusal(Enum):
    """Why a service refuses what is asked of it, whatever protocol the request came by."""

    INVALID_MESSAGE = "invalid message"
    INVALID_PARAMETER = "invalid parameter"
    INVALID_SUBSCRIPTION = "invalid subscription"
    NO_PERMISSION = "no permission"
    NO_TOPIC = "no topic"
    NO_GROUP = "no group"
    NO_SUBSCRIPTION = "no subscription"
    OLD_SUBSCRIPTION = "old subscription"
    NO_FILTER = "no filter"
    OLD_FILTER = "old filter"
    NO_OFFSET = "no offset"
    NOT_NOW = "not now"  # it came too late, or too early
    BUSY = "busy"
    UNAVAILABLE = "unavailable"
    UNCONFIRMED = "unconfirmed"  # stored, but not durable in time
    REPLICA_UNCONFIRMED = "replica unconfirmed"  # stored, but not replicated in time
    NO_REPLICA = "no replica"  # stored, and there is no replica
    NOT_MASTER = "not master"
    TRANSACTION_FAILED = "transaction failed"
    FAILED = "failed"


class RefusedError(OrbitError):
    """A service refused what was asked of it; `remark` says why and what to do."""

    def __init__(self, refusal: Refusal, remark: str) -> None:
        super().__init__(remark)
        self.refusal = refusal
        self.remark = remark


class NotFoundError(OrbitError):
    """The requested object does not exist; the message says where it was looked for and why it is
    missing.
    """


class InvalidStateError(OrbitError):
    """A call that is invalid in the current state and changed nothing; the message says why, and
    what to call instead.
    """


class AlreadyExistsError(OrbitError):
    """The object to create exists already and differs; nothing was changed."""


class RemoteError(OrbitError):
    """A call to a peer that yielded no response."""

    retryable = True


class RemoteUnavailableError(RemoteError, ConnectionError):
    """The peer could not be reached, or the connection closed before it responded."""


class RemoteTimeoutError(RemoteError, TimeoutError):
    """The peer did not respond in time; it may still have processed the request."""


class TooManyRequestsError(RemoteError):
    """Too many requests are in flight already; nothing was sent."""


class SendFailedError(OrbitError):
    """A message that no broker accepted; the message lists the failure of each attempt. After a
    timeout it may still be stored.

    For a batch split into several requests, `sent` holds the results of those before the failed
    one.
    """

    def __init__(self, text: str, sent: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.sent = tuple(sent)


class SendRefusedError(SendFailedError, RequestRefusedError):
    """A message that brokers refused; `code` is that of the last refusal."""

    def __init__(self, text: str, code: int, sent: Sequence[Any] = ()) -> None:
        RequestRefusedError.__init__(self, code, text)
        self.sent = tuple(sent)


class RequestTimeoutError(OrbitError, TimeoutError):
    """A request message without a timely reply; `was_sent` says whether a broker stored it, so it
    may still be processed.
    """

    def __init__(self, text: str, *, was_sent: bool) -> None:
        super().__init__(text)
        self.was_sent = was_sent


class InvalidMessageError(OrbitError):
    """A message that cannot be stored as it is; the error states its size and the limit, or the
    violated rule.
    """


class InvalidExpressionError(OrbitError):
    """An invalid filter expression; the error says what was found where, and what was expected."""


class StoreError(OrbitError):
    """The store cannot perform an operation; the error names the file, the reason and
    the remedy.
    """


class StoreLockedError(StoreError):
    """Another process has the store open."""


class WriteFailedError(StoreError):
    """A failed write of which nothing is in the store; a later retry may succeed."""


class StoreReadOnlyError(StoreError):
    """The store accepts no writes until it is restarted: a flush failed, so the state of the disk
    is unknown.
    """


class StoreFullError(StoreError):
    """The store accepts no writes for now: the disk is too full, or failed to store data of earlier
    messages.
    """


class NotEnoughReplicasError(StoreError):
    """A message was refused because too few replicas are in sync; nothing was stored."""


class CorruptRecordError(StoreError):
    """Bytes that are not a complete message record; the error says where they are and what is
    wrong.
    """


def listed_problems(texts: Sequence[str]) -> str:
    """Return a single problem as it is, several as a list."""
    if len(texts) == 1:
        return texts[0]
    return "\n  ".join((f"{len(texts)} settings cannot be used:", *texts))


def reason_of(error: BaseException) -> str:
    """Return the reason of a failure, for users and peers; for system errors their text without
    number and file.
    """
    return (
        (error.strerror if isinstance(error, OSError) else None)
        or str(error)
        or "for no reason that is known"
    )


def file_cause(error: OSError) -> str:
    """Return why a file cannot be used, and the remedy."""
    if error.errno in (errno.ENOTDIR, errno.EEXIST):  # where a directory was to be made
        return "it, or a part of its path, is a file, not a directory; check the spelling"
    return (
        f"{reason_of(error)};"
        f" {_FILE_REMEDIES.get(error.errno or 0, 'check its path, and the disk that it is on')}"
    )


def os_error_text(error: OSError) -> str:
    """Return a system error as one sentence: which file, why, and the remedy."""
    return f"{error.filename or 'a file, or the output,'} cannot be used: {file_cause(error)}"


OLD_NAMES: Final = {
    "DamagedFile": "CorruptFileError",
    "RequestRefused": "RequestRefusedError",
    "NotFound": "NotFoundError",
    "WrongCall": "InvalidStateError",
    "AlreadyExists": "AlreadyExistsError",
    "RemoteUnavailable": "RemoteUnavailableError",
    "RemoteTimeout": "RemoteTimeoutError",
    "TooManyRequests": "TooManyRequestsError",
    "SendFailed": "SendFailedError",
    "RequestTimeout": "RequestTimeoutError",
    "MessageIllegal": "InvalidMessageError",
    "ExpressionIllegal": "InvalidExpressionError",
    "WriteFailed": "WriteFailedError",
    "StoreReadOnly": "StoreReadOnlyError",
    "StoreFull": "StoreFullError",
    "CorruptRecord": "CorruptRecordError",
}

__getattr__ = renamed(__name__, OLD_NAMES)
