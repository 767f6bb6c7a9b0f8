# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernel: takes sends, pulls and ends of transactions from the buffers of connections, turn by turn, before anything is decoded
(`remoting.endpoint.Taker`).

What is done with them is said by `hot_send`, `hot_pull` and `hot_end`; here is which frames are theirs, and when a turn's messages are
written. The general way, the processors, is the executable specification: it serves every other code, and every frame that is not taken
here. Not compiled, this is slower than the general way, and not to be installed.

Invariant: when general code may run that could touch the log, and at the end of the turn, nothing is pending.
"""

from collections.abc import Callable
from typing import Any

import cython

from orbitmq.broker.offsets import Offsets
from orbitmq.broker.processors.pull import PullProcessor
from orbitmq.broker.processors.send import BORN_HOST, SendProcessor, born_host_of
from orbitmq.broker.transactions.service import Transactions
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.frame import FrameLimits

if cython.compiled:
    from cython.cimports.orbitmq.broker.hot_end import HotEnds
    from cython.cimports.orbitmq.broker.hot_header import HotHeader, scan
    from cython.cimports.orbitmq.broker.hot_pull import HotPulls
    from cython.cimports.orbitmq.broker.hot_send import HotSends
    from cython.cimports.orbitmq.common.mem import address, get32
else:
    from orbitmq.broker.hot_end import HotEnds
    from orbitmq.broker.hot_header import HotHeader, scan
    from orbitmq.broker.hot_pull import HotPulls
    from orbitmq.broker.hot_send import HotSends
    from orbitmq.common.mem import address, get32

PULL = cython.declare(cython.int, RequestCode.PULL_MESSAGE)
SEND = cython.declare(cython.int, RequestCode.SEND_MESSAGE_V2)
SEND_BATCH = cython.declare(cython.int, RequestCode.SEND_BATCH_MESSAGE)
END_TRANSACTION = cython.declare(cython.int, RequestCode.END_TRANSACTION)
ONEWAY = cython.declare(cython.int, 2)


class HotPath:
    """The taker of a broker's servers; they may share it. `is_direct` says whether nothing stands between a code and its handler."""

    __slots__ = (
        "_ends",
        "_frame_max",
        "_header",
        "_header_max",
        "_is_direct",
        "_is_fresh",
        "_offsets",
        "_pulls",
        "_sends",
        "_takes_ends",
        "_takes_pulls",
        "_takes_sends",
    )

    def __init__(
        self,
        sends: SendProcessor,
        pulls: PullProcessor,
        offsets: Offsets,
        limits: FrameLimits,
        is_direct: Callable[[int], bool],
        transactions: Transactions | None = None,
    ) -> None:
        self._sends = HotSends(sends)
        self._ends = None if transactions is None else HotEnds(self._sends, transactions)
        self._pulls = HotPulls(pulls)
        pulls.serve_again = self._pulls.again
        sends.listener.collectors.append(self._sends.counts.collect)
        pulls.listener.collectors.append(self._pulls.collect)
        self._header = HotHeader()
        self._offsets = offsets
        self._is_direct = is_direct
        self._frame_max = limits.frame_length_max
        self._header_max = limits.header_length_max
        self._is_fresh = self._takes_sends = self._takes_pulls = self._takes_ends = False

    def take(self, link: Any, buffer: bytearray, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Serve the sends and pulls that buffer[start:end] begins with; the offset behind them."""
        p: cython.p_const_uchar = address(buffer)
        header: HotHeader = self._header
        length: cython.longlong
        header_length: cython.longlong
        kind: cython.int
        body_at: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        born_host: bytes | None = None
        channel = link.channel
        if channel.is_tls:  # its bytes come outside of turns
            return start
        while end - start >= 8:
            length = get32(p, start)
            if length > end - start - 4:  # it is not whole: nobody serves it now
                return start
            header_length = get32(p, start + 4)
            kind = header_length >> 24
            header_length &= 0xFFFFFF
            if kind > 1 or header_length > length - 4 or length + 4 > self._frame_max or header_length > self._header_max:
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
                if not self._takes_sends or not self._sends.send(link, p, header, born_host, body_at, stop, kind == 1):
                    break
            elif header.code == END_TRANSACTION:
                if not self._takes_ends or self._ends is None or not self._ends.end(link, p, header, kind == 1):
                    break
            elif header.code != PULL or not self._takes_pulls or not self._pulls.pull(link, p, header, start, stop, kind == 1):
                if header.code == PULL:  # which does not touch the log
                    self._is_fresh = False
                    return start
                break
            elif not link.may_receive:  # it does not take its answers, or had its share: the rest waits
                start = stop
                break
            start = stop
        else:  # nothing is left, or what is no frame yet
            return start
        self._sends.commit()
        self._is_fresh = False
        return start

    def end_turn(self) -> None:
        """Write what the turn brought, before any answer to it leaves."""
        try:
            self._sends.commit()
            self._pulls.end_turn()
        finally:
            self._offsets.flush()
            self._is_fresh = False

    def before_send(self) -> None:
        """Write the offsets that were committed: replies to sends are written after their messages, so nothing else is missing."""
        self._offsets.flush()


def _host_of(channel: Any) -> bytes | None:
    """The peer as records hold it; None when it has no address."""
    try:
        return born_host_of(channel)
    except ValueError:
        return None


@cython.cfunc
def _refresh(path: HotPath) -> cython.int:
    """Look again at everything that others may have changed."""
    path._sends.refresh()
    path._pulls.refresh()
    path._takes_sends = path._is_direct(SEND) and path._is_direct(SEND_BATCH)
    path._takes_pulls = path._is_direct(PULL)
    path._takes_ends = path._ends is not None and path._takes_sends and path._is_direct(END_TRANSACTION)
    path._is_fresh = True
    return 0
