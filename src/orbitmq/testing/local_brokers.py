"""The brokers of a `LocalCluster`: in this process on a forgetful disk, or each in its own process;
optionally behind relays that can be cut. Holds what outlives a restart of a broker: its disk and
its relays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from orbitmq.broker.broker import Broker
from orbitmq.broker.config.broker_config import load_broker
from orbitmq.common.clock import Clock
from orbitmq.embedded.cluster import EmbeddedBroker
from orbitmq.embedded.ports import FAST
from orbitmq.testing.forgetful_disk import ForgetfulDisk
from orbitmq.testing.process_broker import ProcessBroker
from orbitmq.testing.relay import LinkState, Relay

# Brokers behind relays listen on another address, since relays occupy the advertised ports.
BEHIND_RELAYS: Final = "127.0.0.2"


class LocalBroker:
    """A broker in this process; killing it loses everything unsynced."""

    def __init__(self, keys: Mapping[str, str], clock: Clock, disk: ForgetfulDisk) -> None:
        self.broker = Broker(load_broker(flags=dict(keys)).settings, clock, disk)
        self._disk = disk
        self.start, self.stop = self.broker.start, self.broker.stop

    async def kill(self) -> None:
        """Kill the broker and undo its unsynced writes."""
        await self.broker.kill()
        self._disk.forget()


class Relays:
    """The relays in front of one broker's client ports."""

    def __init__(self, host: str, port: int) -> None:
        self.state = LinkState.FREE
        self._relays: Sequence[Relay] = [
            Relay(host, BEHIND_RELAYS, each) for each in (port, port + FAST)
        ]

    def open(self) -> None:
        for relay in self._relays:
            relay.open()

    async def close(self) -> None:
        await asyncio.gather(*(relay.close() for relay in self._relays))

    async def set_state(self, state: LinkState) -> None:
        self.state = state
        for relay in self._relays:
            await relay.set_state(state)


class RelayedBroker:
    """A broker behind relays."""

    def __init__(self, broker: EmbeddedBroker, relays: Relays) -> None:
        self._broker = broker
        self._relays = relays

    async def start(self) -> None:
        try:
            self._relays.open()
            await self._broker.start()
        except BaseException:
            await self._relays.close()
            raise

    async def stop(self) -> None:
        await self._broker.stop()
        await self._relays.close()

    async def kill(self) -> None:
        await self._broker.kill()
        await self._relays.close()


class LocalBrokers:
    """Creates brokers; files that do not belong in a broker's store are beside it."""

    def __init__(self, clock: Clock, *, processes: bool, partitions: bool) -> None:
        self._clock = clock
        self._processes, self._partitions = processes, partitions
        self._disks: dict[str, ForgetfulDisk] = {}
        self._local: dict[str, LocalBroker] = {}
        self.relays: dict[str, Relays] = {}

    def make(self, keys: Mapping[str, str]) -> EmbeddedBroker:
        """Return a broker with that configuration, ready to start."""
        name = keys["brokerName"]
        if not self._partitions:
            return self._make(name, keys)
        if name not in self.relays:
            self.relays[name] = Relays(keys["brokerIP1"], int(keys["listenPort"]))
        return RelayedBroker(
            self._make(name, {**keys, "bindAddress": BEHIND_RELAYS}), self.relays[name]
        )

    def clock_moved(self) -> None:
        """Notify brokers of this process that their clock was advanced; partitioned clients are
        unreachable.
        """
        for name, local in self._local.items():
            local.broker.clock_moved(
                hears_clients=name not in self.relays or self.relays[name].state is LinkState.FREE
            )

    def _make(self, name: str, keys: Mapping[str, str]) -> EmbeddedBroker:
        folder = Path(keys["storePathRootDir"]).parent
        if self._processes:
            return ProcessBroker(keys, folder / "broker.log")
        if name not in self._disks:
            self._disks[name] = ForgetfulDisk(self._clock, folder / "limbo")
        self._local[name] = local = LocalBroker(keys, self._clock, self._disks[name])
        return local
