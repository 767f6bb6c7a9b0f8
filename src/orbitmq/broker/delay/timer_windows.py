"""How far away a message may be before it is rolled, by when it came: `config/timerwindows.json`.

    {"windows": [[0, 172800], [5120, 1800]]}    from offset 5120 of the timer topic on messages are rolled that are 1800 slots away or more

The window may be another one after a restart; a message keeps that of the time when it came. Else, read again to make a wheel anew, it
would be taken for one that was rolled and was not, and lost, or for one that was not and was, and come twice (`timer`).

Crash rule: replaced as a whole, durably, before a message is taken in that it speaks of. Thread rule: the loop thread, before others run.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.broker.delay.timer_rules import Wheel
from orbitmq.common import atomic_file
from orbitmq.common.errors import DamagedFile, StoreError

_WINDOWS: Final = "windows"

log = logging.getLogger(__name__)


class _Window(NamedTuple):
    """From a queue offset on: so many slots."""

    offset: int
    slots: int


class RollWindows:
    """`slots` for messages that come from now on; `slots_before` for those of a store that knows nothing of windows."""

    def __init__(self, path: Path, precision_ms: int, slots: int, slots_before: int) -> None:
        self._path = path
        self.precision_ms = precision_ms
        self._slots = slots
        self._slots_before = slots_before
        self._windows = [_Window(0, slots)]
        self._last = Wheel(precision_ms, slots)

    def load(self, queue_begin: int, queue_end: int) -> None:
        """Learn with which windows the messages came that the timer topic holds; StoreError when this one cannot be noted."""
        noted = self._noted()
        windows = [_Window(min(offset, queue_end), slots) for offset, slots in noted or [_Window(0, self._slots_before)]]
        if windows[-1].slots != self._slots:
            windows.append(_Window(queue_end, self._slots))
        pairs = zip(windows, [*windows[1:], None], strict=True)
        self._windows = [each for each, after in pairs if after is None or max(each.offset, queue_begin) < after.offset]
        self._windows[0] = self._windows[0]._replace(offset=0)
        if self._windows != noted:
            self._note()

    def of(self, queue_offset: int) -> Wheel:
        """The rules for a message of the timer topic."""
        for offset, slots in reversed(self._windows):
            if queue_offset >= offset:
                return self._last if slots == self._slots else Wheel(self.precision_ms, slots)
        raise AssertionError("the first window begins at 0")

    def _noted(self) -> list[_Window]:
        try:
            return atomic_file.read_or_backup(self._path, _decoded) or []
        except DamagedFile as error:
            log.error(
                "timer_windows_unusable reason=%s: messages are taken to have come with a window of %d slots", error, self._slots_before
            )
            return []

    def _note(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            atomic_file.write(self._path, json.dumps({_WINDOWS: self._windows}).encode())
        except OSError as error:
            raise StoreError(f"{self._path} cannot be written: {error}; free or mend its disk, then start again") from error
        log.info("timer_windows windows=%s", [tuple(each) for each in self._windows])


def _decoded(data: bytes) -> list[_Window]:
    try:
        windows = [_Window(int(offset), int(slots)) for offset, slots in json.loads(data)[_WINDOWS]]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"no list of offsets and slots: {error}") from error
    if not windows or windows[0].offset != 0 or min(slots for _, slots in windows) < 1:
        raise ValueError(f"a list of windows that do not begin at 0, or hold nothing: {windows}")
    return windows
