"""A slave without a server: the components of a broker that load their files and deliver nothing,
and the sync that follows a master; and what both must have in common.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from orbitmq.broker.config.broker_config import load_broker
from orbitmq.broker.roles.slave_sync import SlaveSync
from orbitmq.broker.wiring.components import BrokerComponents, build_components
from orbitmq.common.clock import Clock, SystemClock
from orbitmq.remoting.client import RemotingClient
from orbitmq.store.types import LogOffset
from support.broker.process import PATIENT, SMALL_FILES
from support.common.process_files import ProcessFiles


class Slave:
    """`master` is the address that the slave knows."""

    def __init__(
        self, components: BrokerComponents, client: RemotingClient, master: str | None
    ) -> None:
        self.components = components
        self.master = master
        self.deleted: list[str] = []
        self.sync = SlaveSync(
            client=client,
            metadata=components.metadata,
            delay=components.delay,
            locks=components.locks,
            store=components.store,
            clock=components.clock,
            master_address=lambda: self.master,
            own_address=components.identity.address,
            topic_deleted=self.deleted.append,
        )

    async def tick(self) -> None:
        """Run one tick that must succeed."""
        await self.sync.run_once()
        assert self.sync.problem is None

    def copy_log(self, master: BrokerComponents) -> None:
        """Receive what the master's log has more, as replication does."""
        log, own = master.store.log, self.components.store
        while own.log.end_offset < log.end_offset:
            begin = own.log.end_offset
            size = min(
                log.end_offset - begin, log.files.file_size - begin % log.files.file_size, 1 << 16
            )
            file = log.files.find(begin)
            assert file is not None
            data = bytes(file.view()[begin - file.start : begin - file.start + size])
            own.receive(LogOffset(begin), data)


def keys_of(folder: Path, **keys: str) -> dict[str, str]:
    """The configuration of a broker of the group `a`."""
    return (
        SMALL_FILES
        | PATIENT
        | {"storePathRootDir": str(folder), "brokerName": "a", "listenPort": "10911"}
        | keys
    )


@asynccontextmanager
async def loaded(
    folder: Path, clock: Clock | None = None, /, **keys: str
) -> AsyncIterator[BrokerComponents]:
    """The components of a broker that loaded its files, and saves them in the end."""
    config = load_broker(environment={}, flags=keys_of(folder, **keys)).settings
    components = build_components(
        config, clock or SystemClock(), ProcessFiles(), asyncio.get_running_loop()
    )
    components.store.open()
    try:
        components.load_metadata()
        components.delay.load()
        try:
            yield components
        finally:
            components.delay.stop()
            components.metadata.save()
    finally:
        components.close_store()
        await components.client.close()


@asynccontextmanager
async def slave(
    folder: Path, master: str | None, clock: Clock | None = None, /, **keys: str
) -> AsyncIterator[Slave]:
    """A slave of the group `a` that asks by its own connections."""
    async with loaded(folder, clock, **{"listenPort": "10921"} | keys) as components:
        yield Slave(components, components.client, master)


def tables(broker: BrokerComponents) -> dict[str, Any]:
    """All that a slave takes over, without times that pass by themselves."""
    metadata, now_ms = broker.metadata, broker.clock.monotonic_ms()
    topics, timed = metadata.topics, broker.delay.timed
    assert timed is not None
    return {
        "topics": dict(topics.table),
        "beginnings": topics.beginnings(),
        "topics version": topics.data_version,
        "groups": {name: metadata.groups.row(name) for name in metadata.groups.names},
        "groups version": metadata.groups.data_version,
        "offsets": {key: metadata.offsets.row(key) for key in metadata.offsets.keys},
        "offsets version": metadata.offsets.data_version,
        "modes": {key: metadata.modes.find(*key) for key in metadata.modes.keys},
        "filters": {each.data[:2]: each.data for each in metadata.filters},
        "locks": {
            row.key: row
            for key in broker.locks.keys
            if (row := broker.locks.row(key, now_ms)) is not None
        },
        "levels": broker.delay.levels.content(),
        "timer counts": dict(timed.files.metrics.counts),
        "timer counts version": timed.files.metrics.data_version,
    }


def check_point(broker: BrokerComponents) -> tuple[int, ...]:
    """What a slave takes over of its master's timer, which moves with the time."""
    assert broker.delay.timed is not None
    check = broker.delay.timed.files.check
    return (
        check.read_time_ms,
        check.master_queue_offset,
        check.version_time_ms,
        check.version_counter,
    )
