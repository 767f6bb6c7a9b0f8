"""Keeps Python's garbage collector from stopping a server for long.

A full collection looks at every object there is: a tenth of a second for a million. What survived one is set aside (`gc.freeze`), so that
the next looks only at what is newer. Objects that are set aside are still freed when nothing refers to them; only cycles among them
have to wait for `look_at_all`, which a server calls rarely, and which happens by itself when what is set aside has doubled.
"""

from __future__ import annotations

import gc
from typing import Any, Final

LOOK_AT_ALL_S: Final = 3600.0
_OLDEST: Final = 2
_PYTHONS: Final = gc.get_threshold()
_THRESHOLD: Final = (700, 10, 2)  # a full collection after some 20,000 new objects: 5 ms
_GROWTH_MIN: Final = 500_000  # objects: what has less in its tables has no long collections, and cycles of less are no harm


class _SetAside:
    """How much is set aside."""

    def __init__(self) -> None:
        self.known = 0  # objects, when everything was looked at last
        self.survived = 0  # since they were counted last, which takes milliseconds for a million; most are freed soon
        self.looks_at_all = False

    def full_collection(self) -> None:
        """Set aside what survived a full collection."""
        self.survived += len(gc.get_objects(_OLDEST))
        gc.freeze()
        if self.looks_at_all:
            self.looked_at_all()
        elif self.survived > max(self.known, _GROWTH_MIN):
            self.survived = 0
            if gc.get_freeze_count() > self.known + max(self.known, _GROWTH_MIN):
                look_at_all()

    def looked_at_all(self) -> None:
        self.known, self.survived, self.looks_at_all = gc.get_freeze_count(), 0, False


_set_aside: Final = _SetAside()


def begin() -> None:
    """Collect what the start left behind, and set aside what survives this and every later full collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLD)
    gc.collect()  # Python collects when a quarter has come to what survived the last time: that is little now
    _set_aside.looked_at_all()
    if _collected not in gc.callbacks:
        gc.callbacks.append(_collected)


def look_at_all() -> None:
    """Let the next full collection look at everything once."""
    _set_aside.looks_at_all = True
    gc.unfreeze()


def end() -> None:
    """Collect as Python does by itself."""
    if _collected in gc.callbacks:
        gc.callbacks.remove(_collected)
    gc.set_threshold(*_PYTHONS)
    gc.unfreeze()


def _collected(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == _OLDEST:
        _set_aside.full_collection()
