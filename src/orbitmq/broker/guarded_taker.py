"""A kernel behind guards: it takes, one by one, those requests that the guards let pass.

Each frame is decoded once more for that, which costs less than the general way. Relies on what the kernel promises, that a header which it
takes says the same to the decoders: what was checked is what is done. Every other frame goes the general way, where the guards refuse it
or its handler serves it. Invariant: when that way is taken, nothing that the kernel took is pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orbitmq.access.guards import Guard
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.frame import FrameLimits, decode, frame_end
from orbitmq.remoting.channel import ByteLink
from orbitmq.remoting.endpoint import Taker

_CODES: Final = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.PULL_MESSAGE})  # what kernels know


class GuardedTaker:
    """See above."""

    def __init__(self, taker: Taker, guards: Sequence[Guard], limits: FrameLimits) -> None:
        self._taker = taker
        self._guards = guards
        self._limits = limits

    def take(self, link: ByteLink, buffer: bytearray, start: int, end: int) -> int:
        """Serve the sends and pulls that buffer[start:end] begins with and that are allowed; the offset behind them."""
        if link.channel.is_tls:  # whose requests kernels leave alone
            return start
        peer = link.channel.remote_address
        while link.reading:
            stop = frame_end(buffer, start, end, self._limits)
            if stop == 0:
                return start
            request = decode(buffer, start, stop)
            if request.code not in _CODES or not all(guard.lets_pass(peer, request) for guard in self._guards):
                break
            taken = self._taker.take(link, buffer, start, stop)
            if taken == start:
                break
            start = taken
        self._taker.end_turn()
        return start

    def end_turn(self) -> None:
        self._taker.end_turn()
