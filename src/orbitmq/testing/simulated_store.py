"""A message store as the program of a simulated host: its files, its syncs and its periodic work
are events there.

The store uses the host's disk and clock; its flushers take virtual time, work on whole files runs
within the event that submits it. Crash rule: when the process dies, the store's files are closed as
they are, and its folder can be opened again by the next process. Thread rule: no threads.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from orbitmq.message import hosts
from orbitmq.store.config import StoreConfig
from orbitmq.store.message_store import MessageStore
from orbitmq.testing.simulated_host import SimulatedHost
from orbitmq.testing.simulation import ScheduledCall

STORE_PORT: Final = 10911  # in message ids
T = TypeVar("T")


class SimulatedStore:
    """An open store below `host.disk.root`, ticking until it is closed or the process dies.

    `options` are further keyword arguments of `MessageStore`.
    """

    def __init__(self, host: SimulatedHost, config: StoreConfig, **options: Any) -> None:
        if not config.root.is_relative_to(host.disk.root):
            raise ValueError(
                f"the store {config.root} is not on the disk of {host.name}: choose a root below"
                f" {host.disk.root}"
            )
        self._host = host
        self._is_open = False
        self._next_tick: ScheduledCall | None = None
        self.store = MessageStore(
            host.disk.layer,
            host.clock,
            config,
            hosts.pack(host.address, STORE_PORT),
            self._tick_soon,
            make_flusher=host.flushers,
            **options,
        )
        run_files_work_inline(self.store)
        self.store.open()
        self._is_open = True
        host.on_death(self._die)
        self._tick()

    def close(self) -> None:
        """Close the store cleanly, within this event."""
        if self._is_open:
            self._is_open = False
            with self._host.flushers.prompt():
                self.store.close()

    def _die(self) -> None:
        if self._is_open:
            self._is_open = False
            self.store.abandon()

    def _tick_soon(self) -> None:
        if self._is_open:
            self._tick_at_ms(self._host.clock.monotonic_ms())

    def _tick(self) -> None:
        if self._is_open:
            self.store.tick()
            # Work that is due at once continues after a millisecond, or time would stand still.
            now_ms = self._host.clock.monotonic_ms()
            self._tick_at_ms(max(self.store.next_tick_ms, now_ms + 1))

    def _tick_at_ms(self, time_ms: int) -> None:
        if self._next_tick is not None:
            self._next_tick.cancel()
        self._next_tick = self._host.call_at_ms(time_ms, self._tick, "store ticks")


def run_files_work_inline(store: MessageStore) -> None:
    """Run a store's work on whole files on the caller's thread; call it before the store is opened.

    With a thread, the order of events would depend on the machine.
    """
    store.flushing._worker._executor = _InlineExecutor()


class _InlineExecutor(ThreadPoolExecutor):
    """Runs what is submitted at once, on the caller's thread."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
