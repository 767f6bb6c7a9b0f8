# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: serves sends, pulls and ends of transactions straight from the connections' receive
buffers, one loop iteration at a time, before anything is decoded (`remoting.endpoint.FastPath`).

`send`, `pull` and `end_transaction` say what is done with a request; this module decides which
frames are theirs and when an iteration's messages are written. The general path, the processors,
is the executable specification: it serves every other request code and every frame that is
declined here. Interpreted, this is slower than the general path and must not be installed.

Invariant: nothing is pending when general code that could touch the log may run, nor at the end
of the iteration.
"""

from collections.abc import Callable
from typing import Any

import cython

from orbitmq.broker.consume.pending_pulls import PendingPull
from orbitmq.broker.consume.service import PullService
from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.produce.service import SendService
from orbitmq.broker.transactions.service import Transactions
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.frame import FrameLimits
from orbitmq.remoting.born_host import BORN_HOST, born_host_of

if cython.compiled:
    from cython.cimports.orbitmq.broker.fast_path.end_transaction import EndTransactionHandler
    from cython.cimports.orbitmq.broker.fast_path.pull import PullHandler
    from cython.cimports.orbitmq.broker.fast_path.send import SendHandler
    from cython.cimports.orbitmq.common.mem import address, get32
    from cython.cimports.orbitmq.protocol.header_view import HeaderView, scan
else:
    from orbitmq.broker.fast_path.end_transaction import EndTransactionHandler
    from orbitmq.broker.fast_path.pull import PullHandler
    from orbitmq.broker.fast_path.send import SendHandler
    from orbitmq.common.mem import address, get32
    from orbitmq.protocol.header_view import HeaderView, scan

PULL = cython.declare(cython.int, RequestCode.PULL_MESSAGE)
SEND = cython.declare(cython.int, RequestCode.SEND_MESSAGE_V2)
SEND_BATCH = cython.declare(cython.int, RequestCode.SEND_BATCH_MESSAGE)
END_TRANSACTION = cython.declare(cython.int, RequestCode.END_TRANSACTION)
ONEWAY = cython.declare(cython.int, 2)


class BrokerFastPath:
    """The fast path of a broker's servers, which may share it. `is_direct` tells whether a request
    code reaches its handler without hooks or filters in between.
    """

    def __init__(
        self,
        sends: SendService,
        pulls: PullService,
        resume_pull: Callable[[PendingPull], object],
        offsets: Offsets,
        limits: FrameLimits,
        is_direct: Callable[[int], bool],
        transactions: Transactions | None = None,
    ) -> None:
        self._sends = SendHandler(sends)
        self._ends = (
            None if transactions is None else EndTransactionHandler(self._sends, transactions)
        )
        self._pulls = PullHandler(pulls, resume_pull)
        sends.listener.collectors.append(self._sends.counts.collect)
        pulls.listener.collectors.append(self._pulls.collect)
        self._header = HeaderView()
        self._offsets = offsets
        self._is_direct = is_direct
        self._frame_max = limits.frame_length_max
        self._header_max = limits.header_length_max
        self._is_fresh = self._takes_sends = self._takes_pulls = self._takes_ends = False

    def try_handle(
        self, link: Any, buffer: bytearray, start: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Serve the sends and pulls at the start of buffer[start:end]; return the offset after
        them.
        """
        p: cython.p_const_uchar = address(buffer)
        header: HeaderView = self._header
        length: cython.longlong
        header_length: cython.longlong
        kind: cython.int
        body_at: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        born_host: bytes | None = None
        channel = link.channel
        if channel.is_tls:  # TLS bytes arrive outside of iterations
            return start
        while end - start >= 8:
            length = get32(p, start)
            if length > end - start - 4:  # incomplete: neither path can serve it yet
                return start
            header_length = get32(p, start + 4)
            kind = header_length >> 24
            header_length &= 0xFFFFFF
            if (
                kind > 1
                or header_length > length - 4
                or length + 4 > self._frame_max
                or header_length > self._header_max
            ):
                break
            if not self._is_fresh:
                _refresh(self)
            body_at = start + 8 + header_length
            stop = start + 4 + length
            header.code = 0
            if not scan(header, p, start + 8, body_at, kind == 1) or header.flag & ~ONEWAY:
                break
            if header.code == SEND or header.code == SEND_BATCH:
                if born_host is None:
                    born_host = channel.attributes.get(BORN_HOST) or _host_of(channel)
                    if born_host is None:
                        break
                if not self._takes_sends or not self._sends.send(
                    link, p, header, born_host, body_at, stop, kind == 1
                ):
                    break
            elif header.code == END_TRANSACTION:
                if (
                    not self._takes_ends
                    or self._ends is None
                    or not self._ends.end(link, p, header, kind == 1)
                ):
                    break
            elif (
                header.code != PULL
                or not self._takes_pulls
                or not self._pulls.pull(link, p, header, start, stop, kind == 1)
            ):
                if header.code == PULL:  # a pull does not touch the log
                    self._is_fresh = False
                    return start
                break
            elif (
                not link.may_receive
            ):  # the peer does not read its replies, or used up its share: the rest is deferred
                start = stop
                break
            start = stop
        else:  # nothing is left, or only an incomplete frame
            return start
        self._sends.commit()
        self._is_fresh = False
        return start

    def end_of_iteration(self) -> None:
        """Write the messages of this iteration before any reply to them leaves."""
        try:
            self._sends.commit()
            self._pulls.end_of_iteration()
        finally:
            self._offsets.flush()
            self._is_fresh = False

    def before_send(self) -> None:
        """Write the committed offsets to their journal. Nothing else is missing: replies to sends
        are written after their messages.
        """
        self._offsets.flush()


def _host_of(channel: Any) -> bytes | None:
    """Return the peer's address as records store it, or None if it has no address."""
    try:
        return born_host_of(channel)
    except ValueError:
        return None


@cython.cfunc
def _refresh(path: BrokerFastPath) -> cython.int:
    """Reload everything that other code may have changed."""
    path._sends.refresh()
    path._pulls.refresh()
    path._takes_sends = path._is_direct(SEND) and path._is_direct(SEND_BATCH)
    path._takes_pulls = path._is_direct(PULL)
    path._takes_ends = (
        path._ends is not None and path._takes_sends and path._is_direct(END_TRANSACTION)
    )
    path._is_fresh = True
    return 0
