"""Follows the delivery progress of a master: delay levels and the timer's check point.

Progress counts once this broker's log has the copies of what was delivered (`held_progress`), and
only while this broker delivers nothing itself. Thread rule: the loop thread.
"""

from __future__ import annotations

from orbitmq.broker.delay.service import DelayService
from orbitmq.broker.delay.timer.check import TimerCheck
from orbitmq.broker.roles.held_progress import HeldProgress
from orbitmq.common.errors import ProtocolError
from orbitmq.protocol.bodies.delay import DelayOffsets
from orbitmq.store.message_store import MessageStore

UNKNOWN_END = 0  # the log end of a master that does not send it


class DelayFollower:
    """Takes over delivery progress from a master."""

    def __init__(self, delay: DelayService, store: MessageStore) -> None:
        self._delay = delay
        self._store = store
        self._levels = HeldProgress[DelayOffsets]()
        self._timer = HeldProgress[TimerCheck]()
        self._last_check: TimerCheck | None = None

    def hold_levels(self, master: DelayOffsets, log_end: int) -> None:
        """Take over the levels' progress once the log has reached `log_end`."""
        self._levels.hold(master, log_end)

    def hold_check_point(self, content: bytes, log_end: int) -> None:
        """Take over the timer's check point once the log has reached `log_end`. Raises
        ProtocolError if it is malformed.
        """
        try:
            check = TimerCheck.decode(content)
        except ValueError as error:
            raise ProtocolError(
                f"the master's timer check point cannot be read: {error}"
            ) from error
        if check != self._last_check:
            self._last_check = check
            self._timer.hold(check, log_end)

    def release(self) -> None:
        """Take over what the log has the copies of."""
        if self._delay.is_delivering:
            self.clear()
            return
        log_end = self._store.log.end_offset
        if (levels := self._levels.release(log_end)) is not None:
            self._delay.levels.take_over(*levels)
        check = self._timer.release(log_end)
        if check is not None and self._delay.timed is not None:
            self._delay.timed.timer.take_over(*check)

    def clear(self) -> None:
        """Forget what is held: it is of another master."""
        self._levels.clear()
        self._timer.clear()
        self._last_check = None
