# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Kernel: all plaintext sockets in one epoll set whose own descriptor the event loop watches, served in turns.

A turn reads every ready socket once and hands the bytes to the room that serves; when all are read it tells that room, and
then everything that was written leaves in one send per socket. This module owns sockets, buffers and turns; it knows nothing of
frames or requests.

Invariants: a link is in `links` from `add` until `close` or `detach`, once; `pending` holds only bytes that `receive` did
not consume; above `unsent_max` unsent bytes a link is not read, and no byte of it is handed on, until half of them have left.
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
else:
    from orbitmq.common.mem import address, socket_receive, socket_send

log = logging.getLogger(__name__)

READ_SIZE = cython.declare(cython.Py_ssize_t, 256 * 1024)
EVENTS_PER_TURN = 256
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
    _reading: cython.bint
    _fresh: cython.bint

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
        self._reading = True
        self._fresh = True

    @property
    def unsent(self) -> int:
        """How many written bytes have not left yet."""
        return self._chunks_size + len(self._backlog)

    @property
    def reading(self) -> bool:
        """Whether bytes of this peer are taken: no while it does not take ours."""
        return self._reading

    def write(self, data: bytes) -> None:
        """Send `data` at the end of the turn, after what was written before."""
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
        if self._chunks_size > turns.unsent_max:
            turns._flush_link(self)

    def close(self) -> None:
        """Close the socket at once, whatever is unsent; the owner is told."""
        turns: Turns = self._turns
        turns._close(self, None)


@cython.cclass
class Turns:
    """The epoll set and its turns.

    `receive(link, buffer, start, end)` takes bytes and returns up to where it consumed them; it may raise, which closes that link
    only. `first_bytes(link)` is asked when a new peer's first bytes are there: true = a plain peer, false = it took care of it.
    `closed(link, error)` is told of each link that ends. `end_turn()` runs when all ready links are read, before anything leaves.
    """

    unsent_max: cython.Py_ssize_t = cython.declare(cython.Py_ssize_t, visibility="readonly")
    pending_max: cython.Py_ssize_t = cython.declare(cython.Py_ssize_t, visibility="readonly")
    now_ms: cython.longlong = cython.declare(cython.longlong, visibility="readonly")
    links: dict[int, Any] = cython.declare(dict, visibility="readonly")
    _receive: Any
    _first_bytes: Any
    _closed: Any
    _end_turn: Any
    _call_soon: Any
    _epoll: Any
    _poll: Any
    _acceptors: dict[int, Any]
    _written: list[Any]
    _in_turn: cython.bint
    _flush_planned: cython.bint
    _pending_total: cython.Py_ssize_t
    _buffer: bytearray
    _pointer: cython.p_uchar

    def __init__(
        self,
        *,
        receive: Callable[["Link", bytearray, int, int], int],
        first_bytes: Callable[["Link"], bool],
        closed: Callable[["Link", BaseException | None], None],
        end_turn: Callable[[], None],
        call_soon: Callable[[Callable[[], None]], Any],
        unsent_max: int,
        pending_max: int,
    ) -> None:
        self.unsent_max = unsent_max
        self.pending_max = pending_max
        self.now_ms = time.monotonic_ns() // 1_000_000
        self.links = {}
        self._receive = receive
        self._first_bytes = first_bytes
        self._closed = closed
        self._end_turn = end_turn
        self._call_soon = call_soon
        self._epoll = select.epoll()
        self._poll = self._epoll.poll
        self._acceptors = {}
        self._written = []
        self._in_turn = False
        self._flush_planned = False
        self._pending_total = 0
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

    def shut(self) -> None:
        """Close every link and the epoll set itself."""
        for link in list(self.links.values()):
            self._close(link, None)
        self._epoll.close()

    def idle_since(self, before_ms: int) -> list[Link]:
        """The links on which nothing has moved since `before_ms`."""
        return [link for link in self.links.values() if link.last_active_ms < before_ms]

    def turn(self) -> None:
        """Serve every socket that is ready."""
        fd: cython.int
        events: cython.int
        self.now_ms = time.monotonic_ns() // 1_000_000
        self._in_turn = True
        try:
            for fd, events in self._poll(0, EVENTS_PER_TURN):
                link = self.links.get(fd)
                if link is not None:
                    self._serve(link, events)
                else:
                    acceptor = self._acceptors.get(fd)
                    if acceptor is not None:
                        acceptor()
        finally:
            self._flush_all()

    def flush(self) -> None:
        """Send what was written outside a turn."""
        self.now_ms = time.monotonic_ns() // 1_000_000
        self._flush_planned = False
        self._in_turn = True
        self._flush_all()

    @cython.cfunc
    def _flush_all(self) -> object:
        """End the turn: the serving room first, then every written byte on its way."""
        try:
            self._end_turn()
        finally:
            self._in_turn = False
            written = self._written
            self._written = []
            for link in written:
                try:
                    self._flush_link(link)
                except Exception as problem:
                    self._close(link, problem)
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
            self._pending_total += count
            self._consume_pending(link)
            return None
        consumed = self._receive(link, self._buffer, 0, count)
        if consumed < count and link.fd >= 0:
            link._pending += memoryview(self._buffer)[consumed:count]
            self._pending_total += count - consumed
            self._check_pending(link)
        return None

    @cython.cfunc
    def _consume_pending(self, link: Link) -> object:
        """Hand on what was kept; the serving room sees a growing buffer until it can consume."""
        consumed: cython.Py_ssize_t = self._receive(link, link._pending, 0, len(link._pending))
        if link.fd >= 0 and consumed:
            del link._pending[:consumed]
            self._pending_total -= consumed
        self._check_pending(link)
        return None

    @cython.cfunc
    def _check_pending(self, link: Link) -> object:
        """When all links together hold too much, close the one that holds most: no peer's hoard costs another its connection."""
        other: Link
        largest: Link = link
        if self._pending_total > self.pending_max:
            for other in self.links.values():
                if len(other._pending) > len(largest._pending):
                    largest = other
            problem = (
                f"{self._pending_total} bytes of unfinished frames are waiting, more than the {self.pending_max} that all "
                f"connections together may hold, and {len(largest._pending)} of them, the most, are of this one"
            )
            self._close(largest, MemoryError(problem))
        return None

    @cython.cfunc
    def _flush_link(self, link: Link) -> object:
        """Send what was written to `link`; what the socket does not take becomes its backlog."""
        count: cython.Py_ssize_t
        size: cython.Py_ssize_t = link._chunks_size
        if link.fd < 0 or size == 0:
            return None
        data = link._chunks[0] if len(link._chunks) == 1 else b"".join(link._chunks)
        link._chunks = []
        link._chunks_size = 0
        if len(link._backlog):
            link._backlog += data
            self._watch(link)
            return None
        count = socket_send(link.fd, address(data), 0, size)
        if count == size:
            link.last_active_ms = self.now_ms
            return None
        if count == -2:
            self._close(link, None)
            return None
        link._backlog += memoryview(data)[max(count, 0) :]
        self._watch(link)
        return None

    @cython.cfunc
    def _send_backlog(self, link: Link) -> object:
        count: cython.Py_ssize_t
        if len(link._backlog):
            count = socket_send(link.fd, address(link._backlog), 0, len(link._backlog))
            if count == -2:
                self._close(link, None)
                return None
            if count > 0:
                link.last_active_ms = self.now_ms
                del link._backlog[:count]
        was_reading = link._reading
        self._watch(link)
        if link._reading and not was_reading and len(link._pending):
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
        self._pending_total -= len(link._pending)
        link.fd = -1
        link._reading = False  # the frames behind the one whose handler closed it are not handed on
        link._pending = bytearray()
        link._chunks = []
        link._chunks_size = 0
        link._backlog = bytearray()
        return None

    @cython.cfunc
    def _close(self, link: Link, error: BaseException | None) -> object:
        if link.fd < 0:
            return None
        self._forget(link)
        link.peer.close()
        try:
            self._closed(link, error)
        except Exception:  # it must not keep the other links of this turn from being served
            log.exception("the end of a connection could not be told")
        return None
