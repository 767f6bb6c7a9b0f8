"""Signals that ask a pipeline to stop: the first lets it finish its batch, the second does not.

While a pipeline starts there is no batch to finish: then the first signal ends it at once, by an exception.
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
    """A signal that came before anything ran; no error, so that nobody takes it for one of Spark's."""


class StopRequest:
    """How often somebody said that the pipeline is to stop."""

    def __init__(self) -> None:
        self.count = 0
        self._is_starting = False

    def request(self) -> None:
        self.count += 1
        if self._is_starting:
            self._is_starting = False
            raise StoppedEarly

    @contextmanager
    def starting(self) -> Iterator[None]:
        """What is done in here may be left at any point."""
        self._is_starting = True
        try:
            yield
        finally:
            self._is_starting = False
        self._listen()  # Spark has put a handler of its own in place

    @contextmanager
    def by_signal(self) -> Iterator[None]:
        """SIGTERM and SIGINT ask, in the thread that may hear them."""
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
