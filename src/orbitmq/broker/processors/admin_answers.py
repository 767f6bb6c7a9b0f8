"""What requests of operators share: bodies that may be unreadable, answers that wait for the disk, tables given out in pages.

Knows no rule of topics or groups.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

from orbitmq.broker.config_file import SavedCallback
from orbitmq.broker.processors.safe_answers import AnswerListener
from orbitmq.common import atomic_file
from orbitmq.common.errors import DamagedFile, ProtocolError, RequestRefused, reason_of
from orbitmq.common.slices import Slices
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel
from orbitmq.store.queues import Queues

T = TypeVar("T")
WhenSaved = Callable[[SavedCallback], None]  # that of a ConfigFile

SMALL_BODY_MAX: Final = 16 * 1024  # of a body with one thing in it
QUEUES_MAX: Final = 1 << 16  # of a topic; ours: every queue costs each answer that lists them
QUEUES_PER_SLICE: Final = 100  # whose ends and times are looked up
REMARK_LEFT: Final = "not set any response code"  # the original forgets to clear its default remark when some requests succeed


class PageSettings(Protocol):
    """What of the configuration pages look at."""

    @property
    def split_metadata_size(self) -> int: ...


class Page(NamedTuple):
    """Which part of a table is wanted."""

    begin: int
    size: int


def read_body(decode: Callable[[bytes], T], request: RemotingCommand) -> T:
    """The request's body; one that is missing or cannot be read is refused, and the connection lives on."""
    if not request.body:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"request {request.code} needs a body, and came without; nothing was changed")
    try:
        return decode(request.body)
    except ProtocolError as problem:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"the body of request {request.code} cannot be read: {problem}; nothing was changed"
        ) from problem


def read_body_in_slices(decode: Callable[[bytes], Slices[T]], request: RemotingCommand) -> Slices[T]:
    """Do what `read_body` does, in slices."""
    if not request.body:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"request {request.code} needs a body, and came without; nothing was changed")
    try:
        return (yield from decode(request.body))
    except ProtocolError as problem:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"the body of request {request.code} cannot be read: {problem}; nothing was changed"
        ) from problem


def small(decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """The decoder of one thing: of bodies up to SMALL_BODY_MAX, which take no time to speak of."""

    def decoded(body: bytes) -> T:
        if len(body) > SMALL_BODY_MAX:
            raise ProtocolError(f"it has {len(body)} bytes; up to {SMALL_BODY_MAX} are read")
        return decode(body)

    return decoded


def answer_when_saved(
    when_saved: WhenSaved,
    channel: Channel,
    request: RemotingCommand,
    answer: RemotingCommand,
    listener: AnswerListener,
    settled: Callable[[int, bool], object] = lambda _took_ms, _is_done: None,
) -> None:
    """Send the answer when all changes so far are on disk; say so when they could not be saved. `settled` hears how long it took."""
    begun_ms = listener.monotonic_ms()

    def tell(failure: Exception | None) -> None:
        took_ms = listener.monotonic_ms() - begun_ms
        settled(took_ms, failure is None)
        if request.is_oneway:
            return
        told = answer if failure is None else request.answer(ResponseCode.SYSTEM_ERROR, _not_saved(failure))
        listener.answered(request.code, told.code, took_ms)
        channel.send(told)

    when_saved(tell)


def _not_saved(failure: Exception) -> str:
    why = reason_of(failure)
    return f"the change is in effect, and could not be saved: {why}; it is tried again, and lost if the broker stops before"


def wanted_page(settings: PageSettings, seq: int | None, count: int | None, version: str | None, current: DataVersion) -> Page | None:
    """The part of a table that is asked for: from its beginning when it is not what it was; None when all of it is."""
    if seq is None and count is None and version is None:
        return None
    if seq is None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "a page needs the number that it begins with (topicSeq, groupSeq)")
    if count is not None and count <= 0:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"a page of {count} is none; ask for one at least (maxTopicNum, maxGroupNum)")
    begin = seq if _is_version(version, current) else 0
    if begin < 0:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"no page begins with {begin}; the first begins with 0")
    return Page(begin, settings.split_metadata_size if count is None else min(count, settings.split_metadata_size))


def kept_json(path: Path) -> bytes | None:
    """The JSON that a small file, or its backup, holds, as it is; None when there is no such file."""
    try:
        return atomic_file.read_or_backup(path, _json)
    except (OSError, DamagedFile) as problem:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{path.name} cannot be read: {reason_of(problem)}") from problem


def check_queue(topic: TopicConfig, queue_id: int, queues: Queues) -> None:
    """RequestRefused unless the topic has that queue, or had it: what clients name and nobody has would be kept for ever."""
    count = max(topic.read_queue_nums, topic.write_queue_nums)
    if queue_id >= count and queues.plain.find(topic.name, queue_id) is None and queues.batch.find(topic.name, queue_id) is None:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{queue_id}] is illegal, topic {topic.name} has {count} queues: name one of 0 to {count - 1}",
        )


def _json(data: bytes) -> bytes:
    fastjson.loads(data)
    return data


def _is_version(text: str | None, current: DataVersion) -> bool:
    try:
        return bool(text) and DataVersion.from_json(fastjson.loads(text or "")) == current
    except ProtocolError:
        return False
