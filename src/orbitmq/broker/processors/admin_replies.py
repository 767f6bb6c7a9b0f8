"""Shared by admin requests: request bodies, replies sent once a change is saved, paged tables.

Knows no rules of topics or groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.metadata.persistent_file import SavedCallback
from orbitmq.broker.produce.send_listener import ReplyListener
from orbitmq.common.errors import ProtocolError, RequestRefusedError, reason_of
from orbitmq.common.slices import Slices
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import DataVersion, small_body
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel

T = TypeVar("T")
WhenSaved = Callable[[SavedCallback], None]  # the method of a ConfigFile

QUEUES_MAX: Final = 1 << 16  # per topic; our own limit: each reply that lists queues grows with it
QUEUES_PER_SLICE: Final = 100  # queues looked up per slice
# RocketMQ forgets to clear its default remark when some requests succeed
REMARK_LEFT: Final = "not set any response code"


class Page(NamedTuple):
    """A range of a table."""

    begin: int
    size: int


def read_body(decode: Callable[[bytes], T], request: RemotingCommand) -> T:
    """Return the decoded body. Refuses the request if the body is missing or unreadable; the
    connection stays open.
    """
    if not request.body:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"request {request.code} has no body; nothing was changed",
        )
    try:
        return decode(request.body)
    except ProtocolError as problem:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"the body of request {request.code} cannot be read: {problem}; nothing was changed",
        ) from problem


def read_body_in_slices(
    decode: Callable[[bytes], Slices[T]], request: RemotingCommand
) -> Slices[T]:
    """Decode the body as `read_body` does, in slices."""
    if not request.body:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"request {request.code} has no body; nothing was changed",
        )
    try:
        return (yield from decode(request.body))
    except ProtocolError as problem:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"the body of request {request.code} cannot be read: {problem}; nothing was changed",
        ) from problem


def small(decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Limit a decoder to bodies of up to SMALL_BODY_BYTES_MAX, which are decoded at once."""
    return lambda body: decode(small_body(body))


def reply_when_saved(
    when_saved: WhenSaved,
    channel: Channel,
    request: RemotingCommand,
    reply: RemotingCommand,
    listener: ReplyListener,
    settled: Callable[[int, bool], object] = lambda _took_ms, _is_done: None,
) -> None:
    """Send the reply once all changes so far are on disk, or an error reply if they cannot be
    saved. `settled` gets the duration and whether the save succeeded.
    """
    begun_ms = listener.monotonic_ms()

    def finish(failure: Exception | None) -> None:
        took_ms = listener.monotonic_ms() - begun_ms
        settled(took_ms, failure is None)
        if request.is_oneway:
            return
        sent = (
            reply
            if failure is None
            else request.reply(ResponseCode.SYSTEM_ERROR, _not_saved(failure))
        )
        listener.answered(request.code, sent.code, took_ms)
        channel.send(sent)

    when_saved(finish)


def _not_saved(failure: Exception) -> str:
    why = reason_of(failure)
    return (
        f"the change is in effect but could not be saved: {why}; the broker retries, and the"
        " change is lost if it stops first"
    )


def wanted_page(
    settings: BrokerConfig,
    seq: int | None,
    count: int | None,
    version: str | None,
    current: DataVersion,
) -> Page | None:
    """Return the requested page of a table, or None if all of it is requested. A page of an
    outdated version restarts at the first entry.
    """
    if seq is None and count is None and version is None:
        return None
    if seq is None:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            "a page needs its first index (topicSeq, groupSeq)",
        )
    if count is not None and count <= 0:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"a page cannot hold {count} entries; ask for at least 1 (maxTopicNum, maxGroupNum)",
        )
    begin = seq if _is_version(version, current) else 0
    if begin < 0:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR, f"no page begins at {begin}; the first begins at 0"
        )
    return Page(
        begin,
        settings.split_metadata_size if count is None else min(count, settings.split_metadata_size),
    )


def _is_version(text: str | None, current: DataVersion) -> bool:
    try:
        return bool(text) and DataVersion.from_json(fastjson.loads(text or "")) == current
    except ProtocolError:
        return False
