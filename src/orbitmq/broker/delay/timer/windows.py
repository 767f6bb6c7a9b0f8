"""Roll windows: how far away a message may be before it is rolled, by when it arrived:
`config/timerwindows.json`.

    {"windows": [[0, 172800], [5120, 1800]],    from offset 5120 of the timer topic on, messages
                                                1800 slots away or more are rolled
     "leads": [[6000, 40000], [6100, 0]]}       from 6000 to 6100, store times were 40 s ahead of
                                                the clock

The window may change with a restart; a message keeps the window of its arrival. Otherwise, when the
wheel is rebuilt, a message could be taken for a rolled one and be lost, or for one that was not
rolled and be delivered twice (`timer`).

Store times never go back, but the wall clock may: then they are ahead of it until it has caught up,
and a message is further away than its store time says. The lead is noted to a quarter of the
window: so a message is rolled in time, and not before half of the window is over.

Crash rule: the file is replaced as a whole, durably, before a message that it describes is taken
in. Thread rule: the loop thread, before others run.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from orbitmq.broker.delay.timer.rules import Wheel
from orbitmq.common import atomic_file
from orbitmq.common.errors import CorruptFileError, StoreError

_WINDOWS: Final = "windows"
_LEADS: Final = "leads"

log = logging.getLogger(__name__)


class _Window(NamedTuple):
    """A window of this many slots, from a queue offset on."""

    offset: int
    slots: int


class _Lead(NamedTuple):
    """How far store times are ahead of the clock, from a queue offset on."""

    offset: int
    lead_ms: int


N = TypeVar("N", _Window, _Lead)


class _Notes(NamedTuple):
    """The content of the file."""

    windows: list[_Window]
    leads: list[_Lead]


class RollWindows:
    """Knows the roll window of each message: `slots` for new messages; `slots_before` for those of
    a store without a windows file.
    """

    def __init__(self, path: Path, precision_ms: int, slots: int, slots_before: int) -> None:
        self._path = path
        self.precision_ms = precision_ms
        self._slots = slots
        self._slots_before = slots_before
        self._windows = [_Window(0, slots)]
        self._leads: list[_Lead] = []
        self._last_from = 0
        self._last = Wheel(precision_ms, slots)

    @property
    def longest_ms(self) -> int:
        """Return how far away the slot of a message may be, by any of the windows."""
        return max(each.slots for each in self._windows) * self.precision_ms

    def load(self, queue_begin: int, queue_end: int) -> None:
        """Load the windows of the messages in the timer topic. Raises StoreError if the current
        window cannot be noted.
        """
        noted = self._noted()
        windows = [
            _Window(min(offset, queue_end), slots)
            for offset, slots in noted.windows or [_Window(0, self._slots_before)]
        ]
        if windows[-1].slots != self._slots:
            windows.append(_Window(queue_end, self._slots))
        self._windows = _of_queue(windows, queue_begin)
        self._windows[0] = self._windows[0]._replace(offset=0)
        self._leads = _of_queue(
            [_Lead(min(offset, queue_end), lead_ms) for offset, lead_ms in noted.leads], queue_begin
        )
        if len(self._leads) == 1 and self._leads[0].lead_ms == 0:
            self._leads = []
        self._follow()
        if _Notes(self._windows, self._leads) != noted:
            self._note()

    def see_lead(self, queue_offset: int, lead_ms: int) -> None:
        """Note how far the store time of the next message is ahead of the clock. Raises StoreError
        if that cannot be noted.
        """
        if abs(lead_ms - self._last.lead_ms) <= self._slots * self.precision_ms // 4 and (
            lead_ms or not self._last.lead_ms
        ):
            return
        self._leads = [each for each in self._leads if each.offset < queue_offset] + [
            _Lead(queue_offset, lead_ms)
        ]
        self._follow()
        self._note()

    def of(self, queue_offset: int) -> Wheel:
        """Return the rules for a message of the timer topic."""
        if queue_offset >= self._last_from:
            return self._last
        slots = next(
            each.slots for each in reversed(self._windows) if queue_offset >= each.offset
        )  # the first begins at 0
        lead_ms = next(
            (each.lead_ms for each in reversed(self._leads) if queue_offset >= each.offset), 0
        )
        return Wheel(self.precision_ms, slots, lead_ms)

    def _follow(self) -> None:
        """Cache the window and the lead of the newest messages."""
        window, lead = self._windows[-1], self._leads[-1] if self._leads else _Lead(0, 0)
        self._last_from = max(window.offset, lead.offset)
        self._last = Wheel(self.precision_ms, window.slots, lead.lead_ms)

    def _noted(self) -> _Notes:
        try:
            return atomic_file.read_or_backup(self._path, _decoded) or _Notes([], [])
        except CorruptFileError as error:
            log.error(
                "timer_windows_unusable reason=%s: messages are assumed to have a window of"
                " %d slots",
                error,
                self._slots_before,
            )
            return _Notes([], [])

    def _note(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            notes = {_WINDOWS: self._windows} | ({_LEADS: self._leads} if self._leads else {})
            atomic_file.write(self._path, json.dumps(notes).encode())
        except OSError as error:
            raise StoreError(
                f"{self._path} cannot be written: {error}; free or repair its disk, then restart"
            ) from error
        log.info(
            "timer_windows windows=%s leads=%s",
            [tuple(each) for each in self._windows],
            [tuple(each) for each in self._leads],
        )


def _of_queue(noted: list[N], queue_begin: int) -> list[N]:
    """Return the notes that apply to any present or future message of the queue."""
    ends = [each.offset for each in noted[1:]]
    return [
        each for each, end in zip(noted, ends, strict=False) if max(each.offset, queue_begin) < end
    ] + noted[-1:]


def _decoded(data: bytes) -> _Notes:
    try:
        content = json.loads(data)
        windows = [_Window(int(offset), int(slots)) for offset, slots in content[_WINDOWS]]
        leads = [_Lead(int(offset), int(lead_ms)) for offset, lead_ms in content.get(_LEADS, [])]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"no lists of offsets and slots: {error}") from error
    if not windows or windows[0].offset != 0 or min(slots for _, slots in windows) < 1:
        raise ValueError(f"a list of windows that do not begin at 0, or hold nothing: {windows}")
    return _Notes(windows, leads)
