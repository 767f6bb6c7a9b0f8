# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernel: pulls that find messages at once, or wait for them.

`processors.pull` is the executable specification: a pull that is served here is answered as it would be there. One that may not
read goes there, to be refused; so does one that brings an expression, one whose group or topic is not known yet, and whatever else is
told than messages. Finding and copying the messages is the store's. One that waits is kept as its frame, and read again when its message
is there.

Invariants: a pull that is not taken changed nothing that the general way will not change again. What was looked up of groups and topics
stays good until `refresh`; subscriptions are compared with what consumers said last each time.
"""

from typing import Any

import cython

from orbitmq.broker.long_polling import HeldPull
from orbitmq.broker.processors.pull import COMMITS_OFFSET, HAS_SUBSCRIPTION, SUSPENDS, PullProcessor, answer_code
from orbitmq.common.errors import RequestRefused, StoreError
from orbitmq.protocol.bodies.nameserver import PERM_READ
from orbitmq.protocol.bodies.subscriptions import MessageModel, is_tag_type
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand, SerializeType
from orbitmq.protocol.headers.pull import PullMessageResponseHeader
from orbitmq.store.reads import GetStatus, MessageFilter, TagsFilter
from orbitmq.store.types import QueueKey

if cython.compiled:
    from cython.cimports.orbitmq.broker.hot_answers import Answers, AnswerTemplate, begin, end, put_value
    from cython.cimports.orbitmq.broker.hot_header import HotHeader, read_pull, scan
    from cython.cimports.orbitmq.common.mem import address, get32, same, text_bytes

    from orbitmq.broker.hot_answers import marks
else:
    from orbitmq.broker.hot_answers import Answers, AnswerTemplate, begin, end, marks, put_value
    from orbitmq.broker.hot_header import HotHeader, read_pull, scan
    from orbitmq.common.mem import address, get32, same, text_bytes

COMMITS = cython.declare(cython.int, COMMITS_OFFSET)
MAY_WAIT = cython.declare(cython.int, SUSPENDS)
BRINGS_SUBSCRIPTION = cython.declare(cython.int, HAS_SUBSCRIPTION)
PULL_MESSAGE = cython.declare(object, RequestCode.PULL_MESSAGE)
SUCCESS = cython.declare(object, ResponseCode.SUCCESS)
STAR = cython.declare(cython.int, 42)
READERS_MAX = 100_000


class HotRead:
    """What a group got of a queue since that was told last: in how many answers, how long they took, and how far behind the last was."""

    __slots__ = ("behind_bytes", "behind_ms", "gets", "group", "queue_id", "took_ms", "topic")

    def __init__(self, group: str, topic: str, queue_id: int) -> None:
        self.group = group
        self.topic = topic
        self.queue_id = queue_id
        self.gets = self.took_ms = self.behind_bytes = self.behind_ms = 0


class HotReader:
    """A group that reads a topic, what of it by its last subscription, and how much it got since that was told last."""

    __slots__ = (
        *("asked", "config", "gets", "got", "group", "is_readable", "queues", "reads", "size", "subscription", "topic", "topic_sys_flag"),
        "wanted",
    )

    group: str
    topic: str
    gets: int
    got: int
    size: int
    reads: list[HotRead | None]
    config: Any
    is_readable: bool
    queues: list[QueueKey]
    topic_sys_flag: int
    subscription: Any
    wanted: MessageFilter | None
    asked: MessageFilter | None


class HotPulls:
    """11."""

    __slots__ = (
        "_answered",
        "_answers",
        "_begun_ms",
        "_binary",
        "_consumers",
        "_dirty",
        "_dirty_reads",
        "_found",
        "_general",
        "_got",
        "_groups",
        "_groups_version",
        "_held_header",
        "_held_times",
        "_hold",
        "_is_open",
        "_json",
        "_known",
        "_now_ms",
        "_offsets",
        "_oneways",
        "_reads",
        "_settings",
        "_took_ms_max",
        "_topics",
        "_topics_version",
        "_turn_times",
    )

    def __init__(self, general: PullProcessor) -> None:
        self._general = general
        self._settings = general.settings
        self._topics = general.topics
        self._groups = general.groups
        self._consumers = general.consumers
        self._offsets = general.offsets
        self._reads = general.reads
        self._hold = general.hold
        self._held_header = HotHeader()
        self._topics_version: Any = None
        self._groups_version: Any = None
        self._known: dict[tuple[bytes, bytes], HotReader] = {}
        self._answers = Answers()
        self._json = _template(SerializeType.JSON)
        self._binary = _template(SerializeType.ROCKETMQ)
        self._is_open = False
        self._dirty: list[HotReader] = []
        self._dirty_reads: list[HotRead] = []
        self._turn_times: dict[tuple[bool, int], int] = {}  # answers by whether they were one-way, and how long they took
        self._held_times: dict[int, int] = {}  # those to pulls that waited, by how long
        self._answered = self._oneways = self._found = self._got = self._took_ms_max = self._begun_ms = self._now_ms = 0

    def refresh(self) -> None:
        """Look again at everything that others may have changed."""
        topics_version, groups_version = self._topics.data_version, self._groups.data_version
        if topics_version is not self._topics_version or groups_version is not self._groups_version:
            self._topics_version, self._groups_version = topics_version, groups_version
            self._known.clear()
        self._is_open = self._settings.broker_permission & PERM_READ != 0
        self._begun_ms = self._general.monotonic_ms()
        self._now_ms = self._general.now_ms()

    def pull(
        self,
        link: Any,
        p: cython.p_const_uchar,
        header: HotHeader,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        is_binary: cython.bint,
    ) -> cython.bint:
        """Answer the pull whose frame is p[start:stop], or let it wait; no: it is for the general way."""
        if not self._is_open or not read_pull(header, p):
            return False
        reader: HotReader | None = _reader(self, p, header)
        if reader is None or self._offsets.has_reset(reader.group, reader.topic, header.queue_id):
            return False
        result = _read(self, reader, header)
        if result is None:
            return False
        is_found: cython.bint = result.status is GetStatus.FOUND
        waits: cython.bint = not is_found and header.sys_flag & MAY_WAIT != 0 and header.flag == 0
        if not is_found and not (waits and answer_code(result, header.queue_offset) is ResponseCode.PULL_NOT_FOUND):
            return False
        offsets = self._offsets
        if header.sys_flag & COMMITS:
            offsets.commit(reader.group, reader.topic, header.queue_id, header.commit_offset, client=link.channel.remote_address)
        offsets.commit_pull(reader.group, reader.topic, header.queue_id, result.next_offset)
        if waits:
            held = HeldPull(link.channel, text_bytes(p, start, stop - start), header.queue_offset, header.suspend_ms, reader.asked)
            return self._hold.hold(reader.queues[header.queue_id], held, self._general.monotonic_ms())
        _tell(self, link, header, reader, result, is_binary)
        if header.flag:
            self._oneways += 1
        else:
            self._answered += 1
        return True

    def end_turn(self) -> None:
        """The answers of the turn are about to leave."""
        took_ms: cython.longlong
        if self._answered or self._oneways:
            took_ms = self._general.monotonic_ms() - self._begun_ms
            for is_oneway, times in ((False, self._answered), (True, self._oneways)):
                if times:
                    self._turn_times[is_oneway, took_ms] = self._turn_times.get((is_oneway, took_ms), 0) + times
            self._answered = self._oneways = 0

    def collect(self) -> None:
        """Tell the listener what was counted since it was told last."""
        reader: HotReader
        read: HotRead
        listener = self._general.listener
        dirty, self._dirty = self._dirty, []
        for reader in dirty:
            listener.got(reader.group, reader.topic, reader.got, reader.size, reader.gets)
            reader.got = reader.size = reader.gets = 0
        dirty_reads, self._dirty_reads = self._dirty_reads, []
        for read in dirty_reads:
            behind_bytes, behind_ms = read.behind_bytes, read.behind_ms
            listener.got_from_queue(read.group, read.topic, read.queue_id, read.took_ms, behind_bytes, behind_ms, read.gets)
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

    def again(self, held: HeldPull) -> bool:
        """Answer a pull that waited with what there is now; no: it is for the general way, and nothing was done."""
        frame: bytes | None = held.frame
        link = held.channel.link
        header: HotHeader = self._held_header
        if frame is None or not link.reading:
            return False
        p: cython.p_const_uchar = address(frame)
        kind: cython.int = get32(p, 4) >> 24
        self.refresh()
        if not self._is_open or not scan(header, p, 8, 8 + (get32(p, 4) & 0xFFFFFF), kind == 1) or not read_pull(header, p):
            return False
        reader: HotReader | None = _reader(self, p, header)
        if reader is None or self._offsets.has_reset(reader.group, reader.topic, header.queue_id):
            return False
        result = _read(self, reader, header)
        if result is None or result.status is not GetStatus.FOUND:
            return False
        self._offsets.commit_pull(reader.group, reader.topic, header.queue_id, result.next_offset)
        _tell(self, link, header, reader, result, kind == 1)
        waited_ms = self._begun_ms - held.held_ms
        self._held_times[waited_ms] = self._held_times.get(waited_ms, 0) + 1
        return True


@cython.cfunc
def _reader(pulls: HotPulls, p: cython.p_const_uchar, header: HotHeader) -> Any:
    """Who pulls what, with the filter that it asks for as `asked`; None when the general way has to look at it."""
    group_raw: bytes = text_bytes(p, header.group_at, header.group_size)
    topic_raw: bytes = text_bytes(p, header.topic_at, header.topic_size)
    reader: HotReader | None = pulls._known.get((group_raw, topic_raw)) or _known_reader(pulls, group_raw, topic_raw)
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
def _read(pulls: HotPulls, reader: HotReader, header: HotHeader) -> Any:
    """What the store has for the pull; None when it fails."""
    try:
        return pulls._reads.get(reader.queues[header.queue_id], header.queue_offset, count_max=header.count_max, wanted=reader.asked)
    except (StoreError, OSError):
        return None


@cython.cfunc
def _tell(pulls: HotPulls, link: Any, header: HotHeader, reader: HotReader, result: Any, is_binary: cython.bint) -> cython.int:
    """Count what was found, and answer."""
    records = result.records
    _count(pulls, reader, header.queue_id, result, len(records))
    if not header.flag:  # it is no one-way
        link.write(_answer(pulls, header, reader, result, len(records), is_binary) + records)
    return 0


@cython.cfunc
def _count(pulls: HotPulls, reader: HotReader, queue_id: cython.int, result: Any, size: cython.Py_ssize_t) -> cython.int:
    """Note what a pull found, how long that took, and how far behind it was."""
    took_ms: cython.longlong = pulls._general.monotonic_ms() - pulls._begun_ms
    messages: cython.longlong = result.message_count
    found = reader.reads[queue_id]
    if found is None:
        found = reader.reads[queue_id] = HotRead(reader.group, reader.topic, queue_id)
    read: HotRead = found
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


def _template(kind: SerializeType) -> AnswerTemplate:
    marked = marks(6)
    header = PullMessageResponseHeader(
        suggest_which_broker_id=marked[0],
        next_begin_offset=marked[1],
        min_offset=marked[2],
        max_offset=marked[3],
        topic_sys_flag=marked[4],
        group_sys_flag=marked[5],
    )
    sample = RemotingCommand(0, serialize_type=kind).answer(ResponseCode.SUCCESS, GetStatus.FOUND.name, header=header)
    return AnswerTemplate(sample, marked)


def _known_reader(pulls: HotPulls, group_raw: bytes, topic_raw: bytes) -> HotReader | None:
    """Look a group and a topic up, and keep them; None for those that the general way has to look at."""
    group, topic = group_raw.decode(), topic_raw.decode()
    config = pulls._groups.table.get(group)
    found = pulls._topics.find(topic)
    if config is None or found is None or not config.consume_enable or not found.perm & PERM_READ:
        return None
    reader: HotReader = HotReader.__new__(HotReader)
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
def _wants_all(p: cython.p_const_uchar, header: HotHeader) -> cython.bint:
    """Whether the subscription that the pull brings is one to everything."""
    if header.type_size >= 0 and not (header.type_size == 3 and same(p, header.type_at, b"TAG", 3)):
        return False
    return header.subscription_size <= 0 or (header.subscription_size == 1 and p[header.subscription_at] == STAR)


@cython.cfunc
def _follow(pulls: HotPulls, reader: HotReader, version: cython.longlong) -> cython.bint:
    """Follow what the group's consumers said last; no: nothing that the pull may be served by."""
    online = pulls._consumers.find(reader.group)
    if online is None or not reader.is_readable:
        return False
    if online.message_model is MessageModel.BROADCASTING and not reader.config.consume_broadcast_enable:
        return False
    subscription = online.subscriptions.get(reader.topic)
    if subscription is None or subscription.sub_version < version:
        return False
    if not is_tag_type(subscription.expression_type):
        try:
            reader.wanted = pulls._general.filters.of_pull(reader.group, subscription, version, is_own=False)
        except RequestRefused:  # which is the general way's to tell
            return False
        reader.subscription = None
    elif subscription is not reader.subscription:
        codes = subscription.wanted_codes
        reader.wanted = None if codes is None else TagsFilter(codes)
        reader.subscription = subscription
    return True


@cython.cfunc
def _answer(
    pulls: HotPulls, header: HotHeader, reader: HotReader, result: Any, body_size: cython.Py_ssize_t, is_binary: cython.bint
) -> bytes:
    """The frame of the answer up to its body."""
    suggested = 0
    if pulls._settings.slave_read_enable:
        config = reader.config
        suggested = config.which_broker_when_consume_slowly if result.suggest_slave else config.broker_id
    answers: Answers = pulls._answers
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
