"""Metadata sync of a slave: keeps topics, groups, offsets, delivery progress and more like those of
its master.

An OrbitMQ master is asked every second for what changed (`own_master`); one that does not know that
request is asked for whole tables every ten seconds, and every three for its timer's check point
(`stock_master`). The first tick follows at once when the master is known: a message of an unknown
topic cannot be read.

Knows when to ask whom; not what a table is. Thread rule: the loop thread. Invariants: only a master
other than this broker is asked; a failure leaves what was taken over before, is logged once per
cause, and is `problem` until the step succeeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final

from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.delay.service import DelayService
from orbitmq.broker.metadata.metadata import BrokerMetadata
from orbitmq.broker.roles.delay_follower import DelayFollower
from orbitmq.broker.roles.followed_topics import FollowedTopics
from orbitmq.broker.roles.own_master import STEP, OwnMaster
from orbitmq.broker.roles.stock_master import TOPICS_STEP, StockMaster
from orbitmq.broker.roles.sync_problems import SyncProblems
from orbitmq.broker.roles.table_copies import table_copies
from orbitmq.common.clock import Clock
from orbitmq.remoting.client import RemotingClient
from orbitmq.store.message_store import MessageStore

PERIOD_MS: Final = 1_000
STOCK_PERIOD_MS: Final = 3_000
STOCK_TABLES_PERIOD_MS: Final = 10_000
STOCK_PROBE_MS: Final = 60_000  # how often a stock master is asked whether it is one of ours now

log = logging.getLogger(__name__)


class MasterKind(Enum):
    """What a slave knows of its master."""

    UNKNOWN = "unknown"
    ORBITMQ = "OrbitMQ"
    STOCK = "stock"


class SlaveSync:
    """Takes over a master's metadata: `run_once` is one tick, `start` to `stop` runs them.

    `master_address` returns None while no master is known; `topic_deleted` is called with each
    topic that is deleted because the master has it no more.
    """

    def __init__(
        self,
        *,
        client: RemotingClient,
        metadata: BrokerMetadata,
        delay: DelayService,
        locks: QueueLocks,
        store: MessageStore,
        clock: Clock,
        master_address: Callable[[], str | None],
        own_address: str,
        topic_deleted: Callable[[str], object],
    ) -> None:
        self._clock = clock
        self._master_address = master_address
        self._own_address = own_address
        self._problems = SyncProblems(master_address)
        self._progress = DelayFollower(delay, store)
        self._has_timer = delay.timed is not None
        topics = FollowedTopics(topics=metadata.topics, store=store, deleted=topic_deleted)
        self._own = OwnMaster(
            client=client,
            tables=partial(
                table_copies,
                metadata=metadata,
                topics=topics,
                delay=delay,
                progress=self._progress,
                locks=locks,
                monotonic_ms=clock.monotonic_ms,
            ),
            progress=self._progress,
            locks=locks,
            clock=clock,
            problems=self._problems,
        )
        self._stock = StockMaster(
            client=client,
            metadata=metadata,
            topics=topics,
            delay=delay,
            progress=self._progress,
            store=store,
            problems=self._problems,
        )
        self._address: str | None = None
        self.kind = self._last_kind = MasterKind.UNKNOWN
        self.synced_ms = 0  # wall-clock time of the last tick without a problem; 0: none yet
        self._probed_ms = 0
        self._tables_ms: int | None = None  # when a stock master's tables were taken over
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def problem(self) -> str | None:
        """Why the metadata is not that of the master, and what failed; None if it is."""
        return self._problems.text

    # -- life

    def start(self) -> None:
        """Run ticks from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Run no more ticks; one under way is abandoned."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def wake(self) -> None:
        """Run the next tick at once: the master's address has changed."""
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self.run_once()
            except Exception:
                log.exception("slave_sync_tick_failed master=%s", self._address)
            period_ms = STOCK_PERIOD_MS if self.kind is MasterKind.STOCK else PERIOD_MS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period_ms / 1000):
                    await self._wake.wait()

    # -- one tick

    async def run_once(self) -> None:
        """Take over what changed at the master, if there is one."""
        address = self._master_address()
        if address == self._own_address:
            address = None
        if address != self._address:
            self._begin(address)
        if address is None:
            return
        now_ms = self._clock.monotonic_ms()
        if self.kind is not MasterKind.STOCK or now_ms - self._probed_ms >= STOCK_PROBE_MS:
            await self._follow_own(address, now_ms)
        if self.kind is MasterKind.STOCK and self._is_current(address):
            await self._follow_stock(address, now_ms)
        if self._problems.text is None and self._is_current(address):
            self.synced_ms = self._clock.now_ms()

    def _begin(self, address: str | None) -> None:
        """Forget what was known of the last master."""
        log.info("slave_sync_master old=%s new=%s", self._address, address)
        self._address, self._tables_ms = address, None
        self.kind = self._last_kind = MasterKind.UNKNOWN
        self._own.forget()
        self._progress.clear()
        self._problems.clear()

    def _is_current(self, address: str) -> bool:
        return self._master_address() == address == self._address

    async def _follow_own(self, address: str, now_ms: int) -> None:
        with self._problems.step(STEP):
            is_ours = await self._own.follow(address, partial(self._is_current, address))
            kind = MasterKind.ORBITMQ if is_ours else MasterKind.STOCK
            if kind is not self._last_kind:
                log.info("slave_sync_kind master=%s kind=%s", address, kind.value)
                if self._last_kind is not MasterKind.UNKNOWN:
                    self._problems.clear()  # of other steps
            self.kind = self._last_kind = kind
            self._probed_ms = now_ms

    async def _follow_stock(self, address: str, now_ms: int) -> None:
        is_current = partial(self._is_current, address)
        if self._tables_ms is None or now_ms - self._tables_ms >= STOCK_TABLES_PERIOD_MS:
            await self._stock.follow_all(address, is_current)
            if self._problems.has(TOPICS_STEP):
                self.kind = MasterKind.UNKNOWN  # it may come back as another one
            else:
                self._tables_ms = now_ms
        if self._has_timer:
            await self._stock.follow_check_point(address, is_current)
