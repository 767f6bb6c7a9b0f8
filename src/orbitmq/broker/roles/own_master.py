"""Follows the tables of an OrbitMQ master by GET_METADATA_CHANGES: only what changed is sent.

Every table is applied on its own: one that fails does not keep the others back, and is asked for
again. Thread rule: the loop thread; no response is applied after the master has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.roles.delay_follower import DelayFollower
from orbitmq.broker.roles.followed_tables import FollowedTable
from orbitmq.broker.roles.sync_problems import SyncProblems
from orbitmq.common.clock import Clock
from orbitmq.common.errors import RequestRefusedError
from orbitmq.protocol.bodies.metadata_changes import decode_changes, write_position
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.metadata_changes import (
    POSITION_FIELDS,
    GetMetadataChangesRequestHeader,
    GetMetadataChangesResponseHeader,
)
from orbitmq.remoting.client import RemotingClient
from orbitmq.remoting.slices import finish_between

STEP: Final = "metadata changes"
TIMEOUT_MS: Final = 5_000
_PAGES_MAX: Final = 1_000  # per tick; the next one continues


class OwnMaster:
    """The copies of an OrbitMQ master's tables, which `tables` builds from a function that returns
    the end of the master's log.
    """

    def __init__(
        self,
        *,
        client: RemotingClient,
        tables: Callable[[Callable[[], int]], Sequence[FollowedTable]],
        progress: DelayFollower,
        locks: QueueLocks,
        clock: Clock,
        problems: SyncProblems,
    ) -> None:
        self._client = client
        self._progress = progress
        self._locks = locks
        self._clock = clock
        self._problems = problems
        self._source: str | None = None
        self._log_end = 0
        self._tables = tables(lambda: self._log_end)

    async def follow(self, address: str, is_current: Callable[[], bool]) -> bool:
        """Ask for changes until there are no more, and apply them; False if the master does not
        know the request. `is_current`: it is still the master.
        """
        for _ in range(_PAGES_MAX):
            response = await self._client.invoke(address, self._request(), TIMEOUT_MS)
            if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return False
            if response.code != ResponseCode.SUCCESS:
                raise RequestRefusedError(
                    response.code,
                    f"{address} refused with code {response.code}: {response.remark}",
                )
            if not is_current():
                return True
            header = GetMetadataChangesResponseHeader.from_fields(response.ext_fields)
            self._is_from(header.source)
            self._log_end = header.log_end
            changes = await finish_between(decode_changes(response.body or b""))
            is_done = await self._apply(changes)
            if not (header.has_more and is_done and is_current()):
                break
        self._locks.confirm(self._clock.monotonic_ms())
        return True

    def forget(self) -> None:
        """Ask for whole tables next: the master is another one."""
        self._source = None
        for table in self._tables:
            table.forget()

    def _request(self) -> RemotingCommand:
        positions = {
            POSITION_FIELDS[table.name]: write_position(table.position()) for table in self._tables
        }
        return RemotingCommand.request(
            RequestCode.GET_METADATA_CHANGES,
            GetMetadataChangesRequestHeader(source=self._source, **positions),
        )

    def _is_from(self, source: str) -> None:
        if source != self._source:
            self.forget()
            self._progress.clear()
            self._source = source

    async def _apply(self, changes: Mapping[str, Any]) -> bool:
        """Apply the changes of each table; return whether all could be applied."""
        for table in self._tables:
            if table.name in changes:  # else there was no room, or the master's timer is off
                with self._problems.step(table.name):
                    await finish_between(table.apply(changes[table.name]))
        self._progress.release()
        return not any(self._problems.has(table.name) for table in self._tables)
