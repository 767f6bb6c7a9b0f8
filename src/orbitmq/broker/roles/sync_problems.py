"""What keeps a slave from taking over its master's tables: one cause per step, logged once.

Sans-IO. Invariant: a step has a problem from its first failure to its next success.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orbitmq.common.errors import OrbitError, RemoteError, RequestRefusedError, reason_of

log = logging.getLogger(__name__)


class SyncProblems:
    """The problems of all steps. `master` returns the address of the present master."""

    def __init__(self, master: Callable[[], str | None]) -> None:
        self._master = master
        self._problems: dict[str, str] = {}
        self._causes: dict[str, tuple[object, ...]] = {}

    @property
    def text(self) -> str | None:
        """Why metadata is not up to date, by step; None if it is."""
        return "; ".join(f"{step}: {why}" for step, why in self._problems.items()) or None

    def has(self, step: str) -> bool:
        """Return whether a step failed last."""
        return step in self._problems

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Note whether a step succeeds; its failure does not stop the steps after it."""
        try:
            yield
        except Exception as error:
            self._failed(name, error)
        else:
            self.settled(name)

    def settled(self, name: str) -> None:
        """Note that a step succeeded, or is not needed."""
        if self._problems.pop(name, None) is not None:
            log.info("slave_sync_goes_on step=%s master=%s", name, self._master())
        self._causes.pop(name, None)

    def clear(self) -> None:
        """Forget all problems: the master is another one."""
        self._problems.clear()
        self._causes.clear()

    def _failed(self, name: str, error: Exception) -> None:
        cause = _cause(error)
        self._problems[name] = reason_of(error)
        if self._causes.get(name) == cause:
            return
        self._causes[name] = cause
        log.warning(
            "slave_sync_failed step=%s master=%s why='%s': what was taken over before stays",
            name,
            self._master(),
            error,
            exc_info=not isinstance(error, OrbitError | OSError),
        )


def _cause(error: Exception) -> tuple[object, ...]:
    """Return what tells causes apart; texts of remote failures may have times in them."""
    if isinstance(error, RequestRefusedError):
        return type(error), error.code
    return (type(error),) if isinstance(error, RemoteError) else (type(error), str(error))
