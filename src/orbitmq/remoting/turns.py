# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Kernel: all plaintext sockets in one epoll set whose own descriptor the event loop watches, served in turns.

A turn reads every ready socket once and hands the bytes to the room that serves; when all are read it tells that room, and
then everything that was written leaves in one send per socket. Only what would take too much memory until then leaves earlier, and that
room is told before. This module owns sockets, buffers and turns; it knows nothing of frames or requests.

A link that wrote more than `LINK_BYTES` in a turn goes on in a later one, after the others; a turn that wrote more than `TURN_BYTES`,
or took longer than `TURN_NS`, ends after the request that it is at, so that timers and other peers of the loop have their turn.
Invariants: a link is in `links` from `add` until `close` or `detach`, once; `pending` holds only bytes that `receive` did
not consume; above `unsent_max` unsent bytes a link is not read, and no byte of it is handed on, until half of them have left. What stays
behind of all links, backlogs and pending bytes, is in the sums of `budgets`, whose limits close the greediest links.
Thread rule: everything here runs on the loop's thread.
"""

import logging
import select
import socket
import time
from collections.abc import Callable
from typing import Any

import cython

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, socket_receive, socket_send
    from cython.cimports.orbitmq.remoting.budgets import Budgets
else:
    from orbitmq.common.mem import address, socket_receive, socket_send
    from orbitmq.remoting.budgets import Budgets

log = logging.getLogger(__name__)

READ_SIZE = cython.declare(cython.Py_ssize_t, 256 * 1024)
EVENTS_PER_TURN = 256
LINK_BYTES = cython.declare(cython.Py_ssize_t, 256 * 1024)
TURN_BYTES = cython.declare(cython.Py_ssize_t, 2 * 1024 * 1024)
TURN_NS = cython.declare(cython.longlong, 5_000_000)
CHUNKS_MAX = cython.declare(cython.Py_ssize_t, 16 * 1024 * 1024)  # written to all links and not tried to send yet
IN = cython.declare(cython.int, select.EPOLLIN)
OUT = cython.declare(cython.int, select.EPOLLOUT)


@cython.cclass
class Link:
    """The bytes of one plaintext socket: what came and is not consumed, what is written and has not left."""

    peer: Any = cython.declare(object, visibility="readonly")
    fd: cython.int = cython.declare(cython.int, visibility="readonly")
    channel: Any = cython.declare(object, visibility="public")
    last_active_ms: cython.longlong = cython.declare(cython.longlong, visibility="readonly")
    _turns: Any
    _pending: bytearray
    _chunks: list[bytes]
    _chunks_size: cython.Py_ssize_t
    _backlog: bytearray
    _set_aside: cython.Py_ssize_t
    _reading: cython.bint
    _fresh: cython.bint
    _is_full: cython.bint
    _resumes: cython.bint

    def __init__(self, turns: Any, peer: socket.socket) -> None:
        self._turns = turns
        self.peer = peer
        self.fd = peer.fileno()
        self.channel = None
        self.last_active_ms = turns.now_ms
        self._pending = bytearray()
        self._chunks = []
        self._chunks_size = 0
        self._backlog = bytearray()
        self._set_aside = 0  # bytes of it that somebody else keeps
        self._reading = True
        self._fresh = True
        self._is_full = False  # it had its share of this turn
        self._resumes = False  # it is in the list of those that go on

    @property
    def unsent(self) -> int:
        """How many written bytes have not left yet."""
        return self._chunks_size + len(self._backlog)

    @property
    def backlog(self) -> int:
        """How many of them the socket did not take; these count in the budget."""
        return len(self._backlog)

    @property
    def unfinished(self) -> int:
        """How many bytes came and are not consumed."""
        return len(self._pending) + self._set_aside

    @property
    def reading(self) -> bool:
        """Whether bytes of this peer are taken: no while it does not take ours."""
        return self._reading

    @property
    def may_receive(self) -> bool:
        """Whether the next request of this peer may be handled in this turn."""
        return self._reading and not self._is_full

    def yield_if_late(self) -> None:
        """Let this link go on in a later turn if this one has lasted too long; asked after each request that may be slow."""
        turns: Turns = self._turns
        if turns._is_late():
            self._is_full = True

    def write(self, data: bytes) -> None:
        """Send `data` after what was written before: at the end of the turn, or earlier when too many bytes wait for that."""
        turns: Turns = self._turns
        if self.fd < 0:
            return
        if self._chunks_size == 0:
            turns._written.append(self)
            if not turns._in_turn and not turns._flush_planned:
                turns._flush_planned = True
                turns._call_soon(turns.flush)
        self._chunks.append(data)
        self._chunks_size += len(data)
        turns._chunks_total += len(data)
        if self._chunks_size > LINK_BYTES:
            self._is_full = True
        if self._chunks_size > turns.unsent_max:
            turns._before_send()
            turns._flush_link(self)
        if turns._chunks_total > CHUNKS_MAX:
            turns._before_send()
            turns._flush_written()

    def close(self) -> None:
        """Close the socket at once, whatever is unsent; the owner is told."""
        turns: Turns = self._turns
        turns._close(self, None)

    def fail(self, problem: Exception) -> None:
        """Close the socket and free its bytes at once; the owner is told why at the end of the turn."""
        turns: Turns = self._turns
        turns._end(self, problem)


@cython.cclass
class Turns:
    """The epoll set and its turns.

    `receive(link, buffer, start, end)` takes bytes and returns up to where it consumed them; it may raise, which closes that link
    only. `first_bytes(link)` is asked when a new peer's first bytes are there: true = a plain peer, false = it took care of it.
    `closed(link, error)` is told of each link that ends. `end_turn()` runs when all ready links are read, before what was written leaves;
    `before_send()` runs before bytes leave earlier, maybe within `end_turn()`, and writes nothing to links.
    """

    unsent_max: cython.Py_ssize_t = cython.declare(cython.Py_ssize_t, visibility="readonly")
    now_ms: cython.longlong = cython.declare(cython.longlong, visibility="readonly")
    links: dict[int, Any] = cython.declare(dict, visibility="readonly")
    _receive: Any
    _first_bytes: Any
    _closed: Any
    _end_turn: Any
    _before_send: Any
    _call_soon: Any
    _epoll: Any
    _poll: Any
    _acceptors: dict[int, Any]
    _written: list[Any]
    _left: list[tuple[int, int]]
    _resumed: list[Any]
    _ended: list[Any]
    _budgets: Budgets
    _in_turn: cython.bint
    _flush_planned: cython.bint
    _turn_planned: cython.bint
    _rests: cython.bint
    _chunks_total: cython.Py_ssize_t
    _ends_ns: cython.longlong
    _buffer: bytearray
    _pointer: cython.p_uchar

    def __init__(
        self,
        *,
        receive: Callable[["Link", bytearray, int, int], int],
        first_bytes: Callable[["Link"], bool],
        closed: Callable[["Link", BaseException | None], None],
        end_turn: Callable[[], None],
        before_send: Callable[[], None],
        call_soon: Callable[[Callable[[], None]], Any],
        unsent_max: int,
        budgets: Budgets,
    ) -> None:
        self.unsent_max = unsent_max
        self._budgets = budgets
        self.now_ms = time.monotonic_ns() // 1_000_000
        self.links = {}
        self._receive = receive
        self._first_bytes = first_bytes
        self._closed = closed
        self._end_turn = end_turn
        self._before_send = before_send
        self._call_soon = call_soon
        self._epoll = select.epoll()
        self._poll = self._epoll.poll
        self._acceptors = {}
        self._written = []
        self._left = []  # events that were found and not served
        self._resumed = []  # links that go on
        self._ended = []  # links whose owner is to be told
        self._in_turn = False
        self._flush_planned = False
        self._turn_planned = False
        self._rests = False
        self._chunks_total = 0
        self._ends_ns = 0
        self._buffer = bytearray(READ_SIZE)
        self._pointer = address(self._buffer)

    def fileno(self) -> int:
        """The descriptor that the event loop watches."""
        return self._epoll.fileno()

    def listen(self, descriptor: int, acceptor: Callable[[], None]) -> None:
        """Call `acceptor` in each turn that finds `descriptor` readable."""
        self._acceptors[descriptor] = acceptor
        self._epoll.register(descriptor, select.EPOLLIN)

    def unlisten(self, descriptor: int) -> None:
        """Stop watching a listening descriptor."""
        if self._acceptors.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def add(self, peer: socket.socket) -> Link:
        """Serve a connected, non-blocking socket from now on."""
        link = Link(self, peer)
        self._epoll.register(link.fd, select.EPOLLIN)
        self.links[link.fd] = link
        return link

    def detach(self, link: Link) -> socket.socket:
        """Give the socket of `link` away unclosed: nothing of it is served here any more."""
        self._forget(link)
        return link.peer

    def set_aside(self, link: Link, count: int) -> None:
        """Count bytes of a fresh link that somebody else keeps until more of them come."""
        self._budgets.unfinished += count - link._set_aside
        link._set_aside = count
        self._check_pending(link)

    def rest(self) -> None:
        """Serve nobody any more; what is written still leaves."""
        self._rests = True

    def shut(self) -> None:
        """Close every link and the epoll set itself."""
        self._rests = True
        for link in list(self.links.values()):
            self._close(link, None)
        self._tell_ended()
        self._epoll.close()

    def idle_since(self, before_ms: int) -> list[Link]:
        """The links on which nothing has moved since `before_ms`."""
        return [link for link in self.links.values() if link.last_active_ms < before_ms]

    def turn(self) -> None:
        """Serve every socket that is ready, as far as the turn goes."""
        fd: cython.int
        events: cython.int
        at: cython.Py_ssize_t
        self._turn_planned = False
        if self._rests:
            return
        self._ends_ns = time.monotonic_ns()
        self.now_ms = self._ends_ns // 1_000_000
        self._ends_ns += TURN_NS
        self._in_turn = True
        try:
            ready: list[tuple[int, int]] = self._left or self._poll(0, EVENTS_PER_TURN)
            self._left = []
            for at in range(len(ready)):
                fd, events = ready[at]
                link = self.links.get(fd)
                if link is not None:
                    self._serve(link, events)
                    if self._chunks_total > TURN_BYTES or (at & 3 == 3 and self._is_late()):  # which costs as much as a short request
                        # Errors are left to the next poll: the number may be another link's by then.
                        self._left = [(fd, events & (IN | OUT)) for fd, events in ready[at + 1 :]]
                        break
                elif fd in self._acceptors:
                    self._acceptors[fd]()
            if not len(self._left):
                self._resume_links()
        finally:
            self._flush_all()
            if (len(self._left) or len(self._resumed)) and not self._turn_planned:
                self._turn_planned = True
                self._call_soon(self.turn)

    def flush(self) -> None:
        """Send what was written outside a turn, and tell of links that ended there."""
        self.now_ms = time.monotonic_ns() // 1_000_000
        self._flush_planned = False
        self._in_turn = True
        self._flush_all()

    @cython.cfunc
    def _is_late(self) -> cython.bint:
        return time.monotonic_ns() > self._ends_ns

    @cython.cfunc
    def _resume_links(self) -> object:
        """Hand on more of what the links hold that had their share of an earlier turn."""
        link: Link
        if not len(self._resumed):
            return None
        resumed, self._resumed = self._resumed, []
        for at, link in enumerate(resumed):
            if at and (self._chunks_total > TURN_BYTES or self._is_late()):  # one goes on in every turn
                self._resumed = resumed[at:] + self._resumed
                break
            link._resumes = False
            if link._reading:
                link._is_full = False
                try:
                    self._consume_pending(link)
                except Exception as problem:
                    self._close(link, problem)
        return None

    @cython.cfunc
    def _flush_all(self) -> object:
        """End the turn: the serving room first, then every written byte on its way."""
        try:
            self._end_turn()
        finally:
            self._flush_written()
            self._in_turn = False
            self._tell_ended()
        return None

    @cython.cfunc
    def _flush_written(self) -> object:
        written, self._written = self._written, []
        for link in written:
            try:
                self._flush_link(link)
            except Exception as problem:
                self._end(link, problem)
        return None

    @cython.cfunc
    def _tell_ended(self) -> object:
        """Tell of the links that ended while others were served."""
        while len(self._ended):
            link, error = self._ended.pop(0)
            self._tell_closed(link, error)
        return None

    @cython.cfunc
    def _serve(self, link: Link, events: cython.int) -> object:
        """Send and read one ready link; whatever goes wrong ends this link and no other."""
        try:
            if events & OUT:
                self._send_backlog(link)
            if events & ~OUT and link.fd >= 0:
                if link._fresh:
                    if not self._first_bytes(link):
                        return None
                    link._fresh = False
                if link._resumes:  # what came before is handed on first
                    return None
                link._is_full = False
                if link._reading:
                    self._read(link)
                elif events & ~(IN | OUT):  # an error or the peer's end; readable was it only before it stopped being read
                    self._close(link, None)
        except Exception as problem:
            self._close(link, problem)
        return None

    @cython.cfunc
    def _read(self, link: Link) -> object:
        count: cython.Py_ssize_t = socket_receive(link.fd, self._pointer, 0, READ_SIZE)
        consumed: cython.Py_ssize_t
        if count == -1:
            return None
        if count <= 0:
            self._close(link, None)
            return None
        link.last_active_ms = self.now_ms
        if len(link._pending):
            link._pending += memoryview(self._buffer)[:count]
            self._budgets.unfinished += count
            self._consume_pending(link)
            return None
        consumed = self._receive(link, self._buffer, 0, count)
        if consumed < count and link.fd >= 0:
            link._pending += memoryview(self._buffer)[consumed:count]
            self._budgets.unfinished += count - consumed
            self._check_pending(link)
        return None

    @cython.cfunc
    def _consume_pending(self, link: Link) -> object:
        """Hand on what was kept; the buffer grows until it can be consumed."""
        consumed: cython.Py_ssize_t = self._receive(link, link._pending, 0, len(link._pending))
        if link.fd >= 0 and consumed:
            del link._pending[:consumed]
            self._budgets.unfinished -= consumed
        self._check_pending(link)
        return None

    @cython.cfunc
    def _check_pending(self, link: Link) -> object:
        """See that a link that had its share goes on later, and that all links together do not hold too much."""
        if link._is_full and link._reading and not link._resumes and len(link._pending):
            link._resumes = True
            self._resumed.append(link)
        if self._budgets.unfinished > self._budgets.unfinished_max:
            self._budgets.relieve()
        return None

    @cython.cfunc
    def _flush_link(self, link: Link) -> object:
        """Send what was written to `link`; what the socket does not take becomes its backlog."""
        count: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t = link._chunks_size
        if link.fd < 0 or size == 0:
            return None
        data = link._chunks[0] if len(link._chunks) == 1 else b"".join(link._chunks)
        link._chunks = []
        link._chunks_size = 0
        self._chunks_total -= size
        if not len(link._backlog):
            count = socket_send(link.fd, address(data), 0, size)
            if count == size:
                link.last_active_ms = self.now_ms
                return None
            if count == -2:
                self._end(link, None)
                return None
        count = max(count, 0)
        link._backlog += memoryview(data)[count:]
        self._watch(link)
        self._budgets.unsent += size - count
        if self._budgets.unsent > self._budgets.unsent_max:
            self._budgets.relieve()
        return None

    @cython.cfunc
    def _send_backlog(self, link: Link) -> object:
        if len(link._backlog):
            count: cython.Py_ssize_t = socket_send(link.fd, address(link._backlog), 0, len(link._backlog))
            if count == -2:
                self._close(link, None)
                return None
            if count > 0:
                link.last_active_ms = self.now_ms
                del link._backlog[:count]
                self._budgets.unsent -= count
        was_reading = link._reading
        self._watch(link)
        if link._reading and not was_reading and not link._resumes and len(link._pending):
            link._is_full = False
            self._consume_pending(link)
        return None

    @cython.cfunc
    def _watch(self, link: Link) -> object:
        """Ask epoll for what this link waits for: room to send while there is a backlog, bytes while it is not too long."""
        size: cython.Py_ssize_t = len(link._backlog)
        if size > self.unsent_max:
            link._reading = False
        elif size <= self.unsent_max // 2:
            link._reading = True
        self._epoll.modify(link.fd, (OUT if size else 0) | (IN if link._reading else 0))
        return None

    @cython.cfunc
    def _forget(self, link: Link) -> object:
        self._epoll.unregister(link.fd)
        del self.links[link.fd]
        self._budgets.unfinished -= len(link._pending) + link._set_aside
        self._budgets.unsent -= len(link._backlog)
        self._chunks_total -= link._chunks_size
        link.fd = -1
        link._reading = False  # the frames behind the one whose handler closed it are not handed on
        link._pending = bytearray()
        link._set_aside = 0
        link._chunks = []
        link._chunks_size = 0
        link._backlog = bytearray()
        return None

    @cython.cfunc
    def _close(self, link: Link, error: BaseException | None) -> object:
        if link.fd >= 0:
            self._forget(link)
            link.peer.close()
            self._tell_closed(link, error)
        return None

    @cython.cfunc
    def _end(self, link: Link, error: BaseException | None) -> object:
        """Close a link while another may be served: its owner, who may do anything, is told at the end of the turn."""
        if link.fd < 0:
            return None
        self._forget(link)
        link.peer.close()
        self._ended.append((link, error))
        if not self._in_turn and not self._flush_planned:
            self._flush_planned = True
            self._call_soon(self.flush)
        return None

    @cython.cfunc
    def _tell_closed(self, link: Link, error: BaseException | None) -> object:
        try:
            self._closed(link, error)
        except Exception:  # it must not keep the other links of this turn from being served
            log.exception("the end of a connection could not be told")
        return None
