# cython: boundscheck=False, wraparound=False, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: serves all plaintext sockets in one epoll set whose own descriptor the event loop
watches.

An iteration reads every ready socket once and passes the bytes to `receive`; when all are read it
calls `end_of_iteration`, and then everything written is sent, one send per socket. Only bytes that
would take too much memory until then are sent earlier, after `before_send`. This module owns
sockets, buffers and iterations; it knows nothing of frames or requests.

A link that wrote more than `LINK_BYTES` in an iteration continues in a later one, after the others;
an iteration that wrote more than `ITERATION_BYTES`, or took longer than `ITERATION_NS`, ends after
the current request, so that timers and other peers of the loop are served. Invariants: a link is in
`links` from `add` until `close` or `detach`, once; `pending` holds only bytes that `receive` did
not consume; above `unsent_max` unsent bytes a link is not read, and none of its bytes are passed
on, until half of them are sent. The backlogs and pending bytes of all links are counted in
`budgets`, whose limits close the greediest links. Thread rule: everything here runs on the loop's
thread.
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
EVENTS_PER_ITERATION = 256
LINK_BYTES = cython.declare(cython.Py_ssize_t, 256 * 1024)
ITERATION_BYTES = cython.declare(cython.Py_ssize_t, 2 * 1024 * 1024)
ITERATION_NS = cython.declare(cython.longlong, 5_000_000)
CHUNKS_MAX = cython.declare(
    cython.Py_ssize_t, 16 * 1024 * 1024
)  # written to all links, before any attempt to send
IN = cython.declare(cython.int, select.EPOLLIN)
OUT = cython.declare(cython.int, select.EPOLLOUT)


@cython.cclass
class Link:
    """The buffers of one plaintext socket: received bytes not consumed yet, written bytes not sent
    yet.
    """

    peer: Any = cython.declare(object, visibility="readonly")
    fd: cython.int = cython.declare(cython.int, visibility="readonly")
    channel: Any = cython.declare(object, visibility="public")
    last_active_ms: cython.longlong = cython.declare(cython.longlong, visibility="readonly")
    _loop: Any
    _pending: bytearray
    _chunks: list[bytes]
    _chunks_size: cython.Py_ssize_t
    _backlog: bytearray
    _set_aside: cython.Py_ssize_t
    _reading: cython.bint
    _fresh: cython.bint
    _is_full: cython.bint
    _resumes: cython.bint

    def __init__(self, loop: Any, peer: socket.socket) -> None:
        self._loop = loop
        self.peer = peer
        self.fd = peer.fileno()
        self.channel = None
        self.last_active_ms = loop.now_ms
        self._pending = bytearray()
        self._chunks = []
        self._chunks_size = 0
        self._backlog = bytearray()
        self._set_aside = 0  # bytes of it that another component keeps
        self._reading = True
        self._fresh = True
        self._is_full = False  # it used up its share of this iteration
        self._resumes = False  # it is in the list of links to resume

    @property
    def unsent(self) -> int:
        """Return the number of written bytes that are not sent yet."""
        return self._chunks_size + len(self._backlog)

    @property
    def backlog(self) -> int:
        """Return the number of bytes that the socket did not accept; these count in the budget."""
        return len(self._backlog)

    @property
    def unfinished(self) -> int:
        """Return the number of received bytes that are not consumed."""
        return len(self._pending) + self._set_aside

    @property
    def reading(self) -> bool:
        """Return whether this peer is read: not while it does not read our bytes."""
        return self._reading

    @property
    def may_receive(self) -> bool:
        """Return whether the next request of this peer may be handled in this iteration."""
        return self._reading and not self._is_full

    def yield_if_late(self) -> None:
        """Let this link continue in a later iteration if this one took too long; called after each
        request that may be slow.
        """
        loop: SocketLoop = self._loop
        if loop._is_late():
            self._is_full = True

    def write(self, data: bytes) -> None:
        """Send `data` after earlier writes: at the end of the iteration, or earlier if too many
        bytes are pending.
        """
        loop: SocketLoop = self._loop
        if self.fd < 0:
            return
        if self._chunks_size == 0:
            loop._written.append(self)
            if not loop._in_iteration and not loop._flush_planned:
                loop._flush_planned = True
                loop._call_soon(loop.flush)
        self._chunks.append(data)
        self._chunks_size += len(data)
        loop._chunks_total += len(data)
        if self._chunks_size > LINK_BYTES:
            self._is_full = True
        if self._chunks_size > loop.unsent_max:
            loop._before_send()
            loop._flush_link(self)
        if loop._chunks_total > CHUNKS_MAX:
            loop._before_send()
            loop._flush_written()

    def close(self) -> None:
        """Close the socket at once, dropping unsent bytes; the owner is notified."""
        loop: SocketLoop = self._loop
        loop._close(self, None)

    def fail(self, problem: Exception) -> None:
        """Close the socket and free its bytes at once; the owner is notified of the reason at the
        end of the iteration.
        """
        loop: SocketLoop = self._loop
        loop._end(self, problem)


@cython.cclass
class SocketLoop:
    """The epoll set and its iterations.

    `receive(link, buffer, start, end)` returns the offset up to which it consumed the bytes; it may
    raise, which closes that link only. `first_bytes(link)` is called when the first bytes of a new
    peer are readable: it returns true for a plain peer, false if it took care of it. `closed(link,
    error)` is called for each link that ends. `end_of_iteration()` runs when all ready links are
    read, before written bytes are sent; `before_send()` runs before bytes are sent earlier,
    possibly within `end_of_iteration()`, and writes nothing to links.
    """

    unsent_max: cython.Py_ssize_t = cython.declare(cython.Py_ssize_t, visibility="readonly")
    now_ms: cython.longlong = cython.declare(cython.longlong, visibility="readonly")
    links: dict[int, Any] = cython.declare(dict, visibility="readonly")
    _receive: Any
    _first_bytes: Any
    _closed: Any
    _end_of_iteration: Any
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
    _in_iteration: cython.bint
    _flush_planned: cython.bint
    _iteration_planned: cython.bint
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
        end_of_iteration: Callable[[], None],
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
        self._end_of_iteration = end_of_iteration
        self._before_send = before_send
        self._call_soon = call_soon
        self._epoll = select.epoll()
        self._poll = self._epoll.poll
        self._acceptors = {}
        self._written = []
        self._left = []  # polled events that are not served yet
        self._resumed = []  # links to resume
        self._ended = []  # links whose owner is to be notified
        self._in_iteration = False
        self._flush_planned = False
        self._iteration_planned = False
        self._rests = False
        self._chunks_total = 0
        self._ends_ns = 0
        self._buffer = bytearray(READ_SIZE)
        self._pointer = address(self._buffer)

    def fileno(self) -> int:
        """Return the descriptor that the event loop watches."""
        return self._epoll.fileno()

    def listen(self, descriptor: int, acceptor: Callable[[], None]) -> None:
        """Call `acceptor` in each iteration that finds `descriptor` readable."""
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
        """Release the socket of `link` unclosed; it is not served here any more."""
        self._forget(link)
        return link.peer

    def set_aside(self, link: Link, count: int) -> None:
        """Count bytes of a fresh link that another component keeps until more arrive."""
        self._budgets.unfinished += count - link._set_aside
        link._set_aside = count
        self._check_pending(link)

    def rest(self) -> None:
        """Stop serving; written bytes are still sent."""
        self._rests = True

    def shut(self) -> None:
        """Close every link and the epoll set itself."""
        self._rests = True
        for link in list(self.links.values()):
            self._close(link, None)
        self._tell_ended()
        self._epoll.close()

    def idle_since(self, before_ms: int) -> list[Link]:
        """Return the links without activity since `before_ms`."""
        return [link for link in self.links.values() if link.last_active_ms < before_ms]

    def run_once(self) -> None:
        """Serve every ready socket, within the limits of an iteration."""
        fd: cython.int
        events: cython.int
        at: cython.Py_ssize_t
        self._iteration_planned = False
        if self._rests:
            return
        self._ends_ns = time.monotonic_ns()
        self.now_ms = self._ends_ns // 1_000_000
        self._ends_ns += ITERATION_NS
        self._in_iteration = True
        try:
            ready: list[tuple[int, int]] = self._left or self._poll(0, EVENTS_PER_ITERATION)
            self._left = []
            for at in range(len(ready)):
                fd, events = ready[at]
                link = self.links.get(fd)
                if link is not None:
                    self._serve(link, events)
                    if self._chunks_total > ITERATION_BYTES or (
                        at & 3 == 3 and self._is_late()
                    ):  # the check costs as much as a short request
                        # Errors are left to the next poll: the descriptor may be another link's by
                        # then.
                        self._left = [(fd, events & (IN | OUT)) for fd, events in ready[at + 1 :]]
                        break
                elif fd in self._acceptors:
                    self._acceptors[fd]()
            if not len(self._left):
                self._resume_links()
        finally:
            self._flush_all()
            if (len(self._left) or len(self._resumed)) and not self._iteration_planned:
                self._iteration_planned = True
                self._call_soon(self.run_once)

    def flush(self) -> None:
        """Send what was written outside an iteration, and notify the owners of links that ended
        there.
        """
        self.now_ms = time.monotonic_ns() // 1_000_000
        self._flush_planned = False
        self._in_iteration = True
        self._flush_all()

    @cython.cfunc
    def _is_late(self) -> cython.bint:
        return time.monotonic_ns() > self._ends_ns

    @cython.cfunc
    def _resume_links(self) -> object:
        """Pass on more pending bytes of the links that used up their share of an
        earlier iteration.
        """
        link: Link
        if not len(self._resumed):
            return None
        resumed, self._resumed = self._resumed, []
        for at, link in enumerate(resumed):
            if at and (
                self._chunks_total > ITERATION_BYTES or self._is_late()
            ):  # at least one continues in every iteration
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
        """End the iteration: call `end_of_iteration`, then send every written byte."""
        try:
            self._end_of_iteration()
        finally:
            self._flush_written()
            self._in_iteration = False
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
        """Notify the owners of links that ended while others were served."""
        while len(self._ended):
            link, error = self._ended.pop(0)
            self._tell_closed(link, error)
        return None

    @cython.cfunc
    def _serve(self, link: Link, events: cython.int) -> object:
        """Send and read one ready link; a failure ends this link only."""
        try:
            if events & OUT:
                self._send_backlog(link)
            if events & ~OUT and link.fd >= 0:
                if link._fresh:
                    if not self._first_bytes(link):
                        return None
                    link._fresh = False
                if link._resumes:  # earlier bytes are passed on first
                    return None
                link._is_full = False
                if link._reading:
                    self._read(link)
                elif events & ~(
                    IN | OUT
                ):  # an error or the peer's end; readable only from before reading stopped
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
        """Pass on the pending bytes; the buffer grows until they can be consumed."""
        consumed: cython.Py_ssize_t = self._receive(link, link._pending, 0, len(link._pending))
        if link.fd >= 0 and consumed:
            del link._pending[:consumed]
            self._budgets.unfinished -= consumed
        self._check_pending(link)
        return None

    @cython.cfunc
    def _check_pending(self, link: Link) -> object:
        """Schedule a link that used up its share to resume, and enforce the limit on the pending
        bytes of all links.
        """
        if link._is_full and link._reading and not link._resumes and len(link._pending):
            link._resumes = True
            self._resumed.append(link)
        if self._budgets.unfinished > self._budgets.unfinished_max:
            self._budgets.relieve()
        return None

    @cython.cfunc
    def _flush_link(self, link: Link) -> object:
        """Send what was written to `link`; bytes that the socket does not accept become its
        backlog.
        """
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
            count: cython.Py_ssize_t = socket_send(
                link.fd, address(link._backlog), 0, len(link._backlog)
            )
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
        """Register with epoll for what this link needs: writability while it has a backlog,
        readability while the backlog is not too long.
        """
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
        link._reading = False  # frames after the one whose handler closed it are not passed on
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
        """Close a link while another may be served: its owner, whose callback may do anything, is
        notified at the end of the iteration.
        """
        if link.fd < 0:
            return None
        self._forget(link)
        link.peer.close()
        self._ended.append((link, error))
        if not self._in_iteration and not self._flush_planned:
            self._flush_planned = True
            self._call_soon(self.flush)
        return None

    @cython.cfunc
    def _tell_closed(self, link: Link, error: BaseException | None) -> object:
        try:
            self._closed(link, error)
        except Exception:  # it must not prevent serving the other links of this iteration
            log.exception("connection close handler failed")
        return None
