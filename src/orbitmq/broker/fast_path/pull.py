# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: serves pulls that find messages at once, and holds those that do not (long polling).

`processors.pull` is the executable specification: a pull that is served here is answered exactly as
there. Left to it are pulls that may not read, to be refused; pulls with an expression; pulls whose
group or topic is not cached yet; and every reply other than messages. The store finds and copies
the messages. A held pull is kept as its frame, and parsed again when a message arrives.

Invariants: a declined pull has changed nothing that the general path will not change again. Cached
groups and topics stay valid until `refresh`; subscriptions are compared with the latest heartbeat
each time.
"""

from collections.abc import Callable
from typing import Any

import cython

from orbitmq.broker.consume.pending_pulls import PendingPull
from orbitmq.broker.consume.service import PullOutcome, PullService, status_of
from orbitmq.common.errors import RefusedError, StoreError
from orbitmq.protocol.bodies.nameserver import PERM_READ
from orbitmq.protocol.bodies.subscriptions import MessageModel, is_tag_type
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand, SerializeType
from orbitmq.protocol.headers.pull import (
    COMMITS_OFFSET,
    HAS_SUBSCRIPTION,
    SUSPENDS,
    PullMessageResponseHeader,
)
from orbitmq.store.reads import GetStatus, MessageFilter, TagsFilter
from orbitmq.store.types import QueueKey

if cython.compiled:
    from cython.cimports.orbitmq.broker.fast_path.replies import (
        ReplyBuffer,
        ReplyTemplate,
        begin,
        end,
        put_value,
    )
    from cython.cimports.orbitmq.common.mem import address, get32, same, text_bytes
    from cython.cimports.orbitmq.protocol.header_view import HeaderView, read_pull, scan

    from orbitmq.broker.fast_path.replies import marks
else:
    from orbitmq.broker.fast_path.replies import (
        ReplyBuffer,
        ReplyTemplate,
        begin,
        end,
        marks,
        put_value,
    )
    from orbitmq.common.mem import address, get32, same, text_bytes
    from orbitmq.protocol.header_view import HeaderView, read_pull, scan

COMMITS = cython.declare(cython.int, COMMITS_OFFSET)
MAY_WAIT = cython.declare(cython.int, SUSPENDS)
BRINGS_SUBSCRIPTION = cython.declare(cython.int, HAS_SUBSCRIPTION)
PULL_MESSAGE = cython.declare(object, RequestCode.PULL_MESSAGE)
SUCCESS = cython.declare(object, ResponseCode.SUCCESS)
STAR = cython.declare(cython.int, 42)
READERS_MAX = 100_000


class ReadTally:
    """Counts what a group read from a queue since the last report: replies, their summed latency,
    and the lag of the last one.
    """

    def __init__(self, group: str, topic: str, queue_id: int) -> None:
        self.group = group
        self.topic = topic
        self.queue_id = queue_id
        self.gets = self.took_ms = self.behind_bytes = self.behind_ms = 0


class FastReader:
    """A group that reads a topic: its cached subscription, and what it read since the last
    report.
    """

    group: str
    topic: str
    gets: int
    got: int
    size: int
    reads: list[ReadTally | None]
    config: Any
    is_readable: bool
    queues: list[QueueKey]
    topic_sys_flag: int
    subscription: Any
    wanted: MessageFilter | None
    asked: MessageFilter | None


class PullHandler:
    """Serves PULL_MESSAGE."""

    def __init__(self, service: PullService, resume_general: Callable[[PendingPull], Any]) -> None:
        self._service = service
        self._resume_general = resume_general
        self._settings = service.settings
        self._topics = service.topics
        self._groups = service.groups
        self._consumers = service.consumers
        self._offsets = service.offsets
        self._reads = service.reads
        self._pending = service.pending
        self._held_header = HeaderView()
        self._topics_version: Any = None
        self._groups_version: Any = None
        self._known: dict[tuple[bytes, bytes], FastReader] = {}
        self._answers = ReplyBuffer()
        self._json = _template(SerializeType.JSON)
        self._binary = _template(SerializeType.ROCKETMQ)
        self._is_open = False
        self._dirty: list[FastReader] = []
        self._dirty_reads: list[ReadTally] = []
        self._turn_times: dict[
            tuple[bool, int], int
        ] = {}  # number of replies, by one-way or not and latency
        self._held_times: dict[int, int] = {}  # number of replies to held pulls, by latency
        self._answered = self._oneways = self._found = self._got = self._took_ms_max = (
            self._begun_ms
        ) = self._now_ms = 0

    def refresh(self) -> None:
        """Reload everything that other code may have changed."""
        topics_version, groups_version = self._topics.data_version, self._groups.data_version
        if topics_version is not self._topics_version or groups_version is not self._groups_version:
            self._topics_version, self._groups_version = topics_version, groups_version
            self._known.clear()
        self._is_open = self._settings.broker_permission & PERM_READ != 0
        self._begun_ms = self._service.monotonic_ms()
        self._now_ms = self._service.now_ms()

    def pull(
        self,
        link: Any,
        p: cython.p_const_uchar,
        header: HeaderView,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        is_binary: cython.bint,
    ) -> cython.bint:
        """Answer the pull whose frame is p[start:stop], or hold it. Returns False if the request
        must take the general path.
        """
        if not self._is_open or not read_pull(header, p):
            return False
        reader: FastReader | None = _reader(self, p, header)
        if reader is None or self._offsets.has_reset(reader.group, reader.topic, header.queue_id):
            return False
        result = _read(self, reader, header)
        if result is None:
            return False
        is_found: cython.bint = result.status is GetStatus.FOUND
        waits: cython.bint = not is_found and header.sys_flag & MAY_WAIT != 0 and header.flag == 0
        if not is_found and not (
            waits and status_of(result, header.queue_offset) is PullOutcome.NOT_FOUND
        ):
            return False
        offsets = self._offsets
        if header.sys_flag & COMMITS:
            offsets.commit(
                reader.group,
                reader.topic,
                header.queue_id,
                header.commit_offset,
                client=link.channel.remote_address,
            )
        offsets.commit_pull(reader.group, reader.topic, header.queue_id, result.next_offset)
        if waits:
            held = PendingPull(
                connection=link.channel,
                request=text_bytes(p, start, stop - start),
                size=stop - start,
                offset=header.queue_offset,
                suspend_ms=header.suspend_ms,
                wanted=reader.asked,
                resume=self.resume,
            )
            return self._pending.hold(
                reader.queues[header.queue_id], held, self._service.monotonic_ms()
            )
        _reply(self, link, header, reader, result, is_binary)
        if header.flag:
            self._oneways += 1
        else:
            self._answered += 1
        return True

    def end_of_iteration(self) -> None:
        """Finish the iteration: its replies are about to leave."""
        took_ms: cython.longlong
        if self._answered or self._oneways:
            took_ms = self._service.monotonic_ms() - self._begun_ms
            for is_oneway, times in ((False, self._answered), (True, self._oneways)):
                if times:
                    self._turn_times[is_oneway, took_ms] = (
                        self._turn_times.get((is_oneway, took_ms), 0) + times
                    )
            self._answered = self._oneways = 0

    def collect(self) -> None:
        """Report everything counted since the last report to the listener."""
        reader: FastReader
        read: ReadTally
        listener = self._service.listener
        dirty, self._dirty = self._dirty, []
        for reader in dirty:
            listener.got(reader.group, reader.topic, reader.got, reader.size, reader.gets)
            reader.got = reader.size = reader.gets = 0
        dirty_reads, self._dirty_reads = self._dirty_reads, []
        for read in dirty_reads:
            behind_bytes, behind_ms = read.behind_bytes, read.behind_ms
            listener.got_from_queue(
                read.group,
                read.topic,
                read.queue_id,
                read.took_ms,
                behind_bytes,
                behind_ms,
                read.gets,
            )
            read.gets = read.took_ms = 0
        if self._found:
            listener.looked(self._found, 0, self._got, self._took_ms_max)
            self._found = self._got = self._took_ms_max = 0
        turn_times, self._turn_times = self._turn_times, {}
        for (is_oneway, took_ms), times in turn_times.items():
            listener.answered(PULL_MESSAGE, SUCCESS, took_ms, is_oneway, times)
        held_times, self._held_times = self._held_times, {}
        for took_ms, times in held_times.items():
            listener.answered(PULL_MESSAGE, SUCCESS, took_ms, False, times, is_long_polling=True)

    def resume(self, held: PendingPull) -> None:
        """Reply to a pull that was held, or leave it to the general path."""
        channel: Any = held.connection
        if channel.is_open and not _resumed(self, held):
            self._resume_general(held)


@cython.cfunc
def _resumed(pulls: PullHandler, held: Any) -> cython.bint:
    """Reply to a held pull with what the store has now. Returns False if it must take the general
    path; then nothing was done.
    """
    frame: bytes = held.request
    link = held.connection.link
    header: HeaderView = pulls._held_header
    if not link.reading:
        return False
    p: cython.p_const_uchar = address(frame)
    kind: cython.int = get32(p, 4) >> 24
    pulls.refresh()
    if (
        not pulls._is_open
        or not scan(header, p, 8, 8 + (get32(p, 4) & 0xFFFFFF), kind == 1)
        or not read_pull(header, p)
    ):
        return False
    reader: FastReader | None = _reader(pulls, p, header)
    if reader is None or pulls._offsets.has_reset(reader.group, reader.topic, header.queue_id):
        return False
    result = _read(pulls, reader, header)
    if result is None or result.status is not GetStatus.FOUND:
        return False
    pulls._offsets.commit_pull(reader.group, reader.topic, header.queue_id, result.next_offset)
    _reply(pulls, link, header, reader, result, kind == 1)
    waited_ms = pulls._begun_ms - held.held_ms
    pulls._held_times[waited_ms] = pulls._held_times.get(waited_ms, 0) + 1
    return True


@cython.cfunc
def _reader(pulls: PullHandler, p: cython.p_const_uchar, header: HeaderView) -> Any:
    """Return the group and topic of the pull, with the requested filter as `asked`; None if the
    request must take the general path.
    """
    group_raw: bytes = text_bytes(p, header.group_at, header.group_size)
    topic_raw: bytes = text_bytes(p, header.topic_at, header.topic_size)
    reader: FastReader | None = pulls._known.get((group_raw, topic_raw)) or _known_reader(
        pulls, group_raw, topic_raw
    )
    if reader is None or header.queue_id < 0 or header.queue_id >= len(reader.queues):
        return None
    if header.sys_flag & BRINGS_SUBSCRIPTION:
        if not _wants_all(p, header):
            return None
        reader.asked = None
    else:
        if not _follow(pulls, reader, header.sub_version):
            return None
        reader.asked = reader.wanted
    return reader


@cython.cfunc
def _read(pulls: PullHandler, reader: FastReader, header: HeaderView) -> Any:
    """Read the messages for the pull from the store; None if that fails."""
    try:
        return pulls._reads.get(
            reader.queues[header.queue_id],
            header.queue_offset,
            count_max=header.count_max,
            wanted=reader.asked,
        )
    except (StoreError, OSError):
        return None


@cython.cfunc
def _reply(
    pulls: PullHandler,
    link: Any,
    header: HeaderView,
    reader: FastReader,
    result: Any,
    is_binary: cython.bint,
) -> cython.int:
    """Count what was found, and reply."""
    records = result.records
    _count(pulls, reader, header.queue_id, result, len(records))
    if not header.flag:  # it is not one-way
        link.write(_answer(pulls, header, reader, result, len(records), is_binary) + records)
    return 0


@cython.cfunc
def _count(
    pulls: PullHandler,
    reader: FastReader,
    queue_id: cython.int,
    result: Any,
    size: cython.Py_ssize_t,
) -> cython.int:
    """Count what a pull found, its latency, and its lag."""
    took_ms: cython.longlong = pulls._service.monotonic_ms() - pulls._begun_ms
    messages: cython.longlong = result.message_count
    found = reader.reads[queue_id]
    if found is None:
        found = reader.reads[queue_id] = ReadTally(reader.group, reader.topic, queue_id)
    read: ReadTally = found
    if reader.gets == 0:
        pulls._dirty.append(reader)
    reader.gets += 1
    reader.got += messages
    reader.size += size
    if read.gets == 0:
        pulls._dirty_reads.append(read)
    read.gets += 1
    read.took_ms += took_ms
    read.behind_bytes = result.behind_bytes
    read.behind_ms = max(pulls._now_ms + took_ms - result.last_store_time_ms, 0)
    pulls._found += 1
    pulls._got += messages
    if took_ms > pulls._took_ms_max:
        pulls._took_ms_max = took_ms
    return 0


def _template(kind: SerializeType) -> ReplyTemplate:
    marked = marks(6)
    header = PullMessageResponseHeader(
        suggest_which_broker_id=marked[0],
        next_begin_offset=marked[1],
        min_offset=marked[2],
        max_offset=marked[3],
        topic_sys_flag=marked[4],
        group_sys_flag=marked[5],
    )
    sample = RemotingCommand(0, serialize_type=kind).reply(
        ResponseCode.SUCCESS, GetStatus.FOUND.name, header=header
    )
    return ReplyTemplate(sample, marked)


def _known_reader(pulls: PullHandler, group_raw: bytes, topic_raw: bytes) -> FastReader | None:
    """Look up a group and a topic, and cache them; None if the request must take the general
    path.
    """
    group, topic = group_raw.decode(), topic_raw.decode()
    config = pulls._groups.table.get(group)
    found = pulls._topics.find(topic)
    if config is None or found is None or not config.consume_enable or not found.perm & PERM_READ:
        return None
    reader: FastReader = FastReader.__new__(FastReader)
    reader.group = group
    reader.topic = topic
    reader.config = config
    reader.is_readable = pulls._groups.is_readable(group, topic)
    reader.queues = [QueueKey(topic, queue_id) for queue_id in range(found.read_queue_nums)]
    reader.topic_sys_flag = found.sys_flag
    reader.subscription = reader.wanted = reader.asked = None
    reader.gets = reader.got = reader.size = 0
    reader.reads = [None] * found.read_queue_nums
    if len(pulls._known) >= READERS_MAX:
        pulls._known.clear()
    pulls._known[group_raw, topic_raw] = reader
    return reader


@cython.cfunc
def _wants_all(p: cython.p_const_uchar, header: HeaderView) -> cython.bint:
    """Return whether the pull's own subscription matches all messages."""
    if header.type_size >= 0 and not (header.type_size == 3 and same(p, header.type_at, b"TAG", 3)):
        return False
    return header.subscription_size <= 0 or (
        header.subscription_size == 1 and p[header.subscription_at] == STAR
    )


@cython.cfunc
def _follow(pulls: PullHandler, reader: FastReader, version: cython.longlong) -> cython.bint:
    """Refresh the cached subscription from the group's latest heartbeat. Returns False if the pull
    must take the general path.
    """
    online = pulls._consumers.find(reader.group)
    if online is None or not reader.is_readable:
        return False
    if (
        online.message_model is MessageModel.BROADCASTING
        and not reader.config.consume_broadcast_enable
    ):
        return False
    subscription = online.subscriptions.get(reader.topic)
    if subscription is None or subscription.sub_version < version:
        return False
    if not is_tag_type(subscription.expression_type):
        try:
            reader.wanted = pulls._service.filters.resolve(
                reader.group, subscription, version, is_own=False
            )
        except RefusedError:  # the general path reports it
            return False
        reader.subscription = None
    elif subscription is not reader.subscription:
        codes = subscription.wanted_codes
        reader.wanted = None if codes is None else TagsFilter(codes)
        reader.subscription = subscription
    return True


@cython.cfunc
def _answer(
    pulls: PullHandler,
    header: HeaderView,
    reader: FastReader,
    result: Any,
    body_size: cython.Py_ssize_t,
    is_binary: cython.bint,
) -> bytes:
    """Return the frame of the reply up to its body."""
    suggested = 0
    if pulls._settings.slave_read_enable:
        config = reader.config
        suggested = (
            config.which_broker_when_consume_slowly if result.suggest_slave else config.broker_id
        )
    answers: ReplyBuffer = pulls._answers
    begin(answers, None, pulls._binary if is_binary else pulls._json, 0)
    put_value(answers, suggested)
    put_value(answers, result.next_offset)
    put_value(answers, result.min_offset)
    put_value(answers, result.max_offset)
    put_value(answers, reader.topic_sys_flag)
    put_value(answers, reader.config.sys_flag)
    end(answers, header.opaque, body_size)
    ((_, head),) = answers.take()
    return head
