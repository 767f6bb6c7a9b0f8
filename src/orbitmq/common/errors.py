"""The errors that cross a floor: each says what happened, why, and what to do."""

import errno
from collections.abc import Mapping, Sequence
from typing import Any, Final

_FILE_REMEDIES: Final = {
    errno.EACCES: "run this as a user that may use it, or name another place",
    errno.EPERM: "run this as a user that may use it, or name another place",
    errno.EROFS: "name a place that can be written to",
    errno.ENOENT: "check the spelling of its path",
    errno.ENOTDIR: "a part of its path is a file, check the spelling",
    errno.EEXIST: "a part of its path is a file, check the spelling",  # where a folder was to be made
    errno.EISDIR: "name a file",
    errno.ENOSPC: "free some space, or name another place",
    errno.EDQUOT: "free some space, or name another place",
}


class OrbitError(Exception):
    """Base of every error that OrbitMQ raises on purpose."""


class ConfigurationError(OrbitError):
    """A setting that cannot be used; the message names where it stands, its value and what is allowed."""


class UnusableConfigurationError(ConfigurationError):
    """Settings of which each can be used, and which a server cannot work with."""


class ProtocolError(OrbitError):
    """Bytes that are not the protocol: the connection they came on is closed."""


class DamagedFile(OrbitError):
    """A file whose content is not whole, and whose backup is not either; nothing was guessed or deleted."""


class RequestRefused(OrbitError):
    """A request that is answered with `code`, a remark that says what to do, and header `fields` where clients look for some."""

    def __init__(self, code: int, remark: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.fields = fields


class NotFound(OrbitError):
    """What was asked for does not exist; the message says where it was looked for, and why it is not there."""


class WrongCall(OrbitError):
    """A call that cannot be made as things are, and changed nothing; the error says why not, and what can be called."""


class AlreadyExists(OrbitError):
    """What was to be made is there already, and is something else; nothing was changed."""


class RemoteError(OrbitError):
    """A call to a peer that brought no answer."""

    retryable = True


class RemoteUnavailable(RemoteError):
    """The peer could not be reached, or its connection died before it answered."""


class RemoteTimeout(RemoteError):
    """The peer did not answer in time; it may still have acted on the request."""


class TooManyRequests(RemoteError):
    """Too many calls are in flight already; nothing was sent."""


class SendFailed(OrbitError):
    """A message that no broker took; the error says what each that was tried said. It may be stored all the same after a timeout.

    Of a batch that takes several requests, `sent` has the results of those before the one that failed.
    """

    def __init__(self, text: str, sent: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.sent = tuple(sent)


class RequestTimeout(OrbitError):
    """A request that no reply came to in time; `was_sent` says whether a broker took it, so that somebody may still act on it."""

    def __init__(self, text: str, *, was_sent: bool) -> None:
        super().__init__(text)
        self.was_sent = was_sent


class MessageIllegal(OrbitError):
    """A message that cannot be stored as it is; the error has its size and the limit, or the rule it breaks."""


class ExpressionIllegal(OrbitError):
    """A filter's expression that means nothing; the error says what stands where, and what was expected there."""


class StoreError(OrbitError):
    """The store cannot do what was asked; the error names the file, the reason and the remedy."""


class StoreLockedError(StoreError):
    """Somebody else has the store open."""


class WriteFailed(StoreError):
    """The disk did not take what was to be written; nothing of it is in the store, and trying again later may succeed."""


class StoreReadOnly(StoreError):
    """The store takes nothing more until it is started again: a flush failed, and nobody knows what the disk has of it."""


class StoreFull(StoreError):
    """The store takes nothing more for now: the disk is too full, or did not take what belongs to earlier messages."""


class CorruptRecord(StoreError):
    """Bytes that are no whole message; the error says where they stand and what is wrong with them."""


def reason_of(error: BaseException) -> str:
    """Why it failed, for people and peers: of the system's errors what it calls them, without their number and file."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or "for no reason that is known"


def file_cause(error: OSError) -> str:
    """Why a file cannot be used, and the remedy."""
    return f"{reason_of(error)}; {_FILE_REMEDIES.get(error.errno or 0, 'check its path, and the disk that it is on')}"


def os_error_text(error: OSError) -> str:
    """An error of the system in one sentence: which file, why, and the remedy."""
    return f"{error.filename or 'a file, or the output,'} cannot be used: {file_cause(error)}"
