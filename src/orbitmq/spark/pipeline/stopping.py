"""Stops a pipeline on signals: the first lets it finish its batch, the second does not.

While a pipeline starts there is no batch to finish: then the first signal ends it at once, by an
exception.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StoppedEarly(BaseException):
    """Raised by a signal during start-up. Not an Exception, so that it is never handled as a Spark
    error.
    """


class StopRequest:
    """Counts requests to stop the pipeline."""

    def __init__(self) -> None:
        self.count = 0
        self._is_starting = False

    def request(self) -> None:
        """Request a stop; raises StoppedEarly during start-up."""
        self.count += 1
        if self._is_starting:
            self._is_starting = False
            raise StoppedEarly

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Mark the block as start-up, which a stop may abort at any point."""
        self._is_starting = True
        try:
            yield
        finally:
            self._is_starting = False
        self._listen()  # Spark has installed its own handler

    @contextmanager
    def by_signal(self) -> Iterator[None]:
        """Treat SIGTERM and SIGINT as stop requests in the block; only in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        self._listen()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _listen(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> Any:
        self.request()
