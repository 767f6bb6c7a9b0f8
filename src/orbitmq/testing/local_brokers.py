"""The brokers of a `LocalCluster`, as they were asked for: in this process on a disk that forgets, or each in a process of its own; behind
relays that can be cut, or not. What outlives a broker that is started again is kept here: its disk, and the way to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import load_broker
from orbitmq.common.clock import Clock
from orbitmq.embedded.cluster import EmbeddedBroker
from orbitmq.embedded.ports import FAST
from orbitmq.testing.forgetful_disk import ForgetfulDisk
from orbitmq.testing.process_broker import ProcessBroker
from orbitmq.testing.relay import Relay, Way

# Where brokers listen that clients reach by relays: another address, for it is the port that clients are told.
BEHIND_RELAYS: Final = "127.0.0.2"


class LocalBroker:
    """A broker in this process; what it had not synced is gone when it is killed."""

    def __init__(self, keys: Mapping[str, str], clock: Clock, disk: ForgetfulDisk) -> None:
        self.broker = Broker(load_broker(flags=dict(keys)).settings, clock, disk)
        self._disk = disk
        self.start, self.stop = self.broker.start, self.broker.stop

    async def kill(self) -> None:
        await self.broker.kill()
        self._disk.forget()


class Relays:
    """What stands before the ports of one broker that clients use."""

    def __init__(self, host: str, port: int) -> None:
        self.way = Way.FREE
        self._relays: Sequence[Relay] = [Relay(host, BEHIND_RELAYS, each) for each in (port, port + FAST)]

    def open(self) -> None:
        for relay in self._relays:
            relay.open()

    async def close(self) -> None:
        await asyncio.gather(*(relay.close() for relay in self._relays))

    async def set_way(self, way: Way) -> None:
        self.way = way
        for relay in self._relays:
            await relay.set_way(way)


class RelayedBroker:
    """A broker and the relays before it."""

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
    """Makes them; what belongs to a broker and not into its store lies beside that."""

    def __init__(self, clock: Clock, *, processes: bool, partitions: bool) -> None:
        self._clock = clock
        self._processes, self._partitions = processes, partitions
        self._disks: dict[str, ForgetfulDisk] = {}
        self._local: dict[str, LocalBroker] = {}
        self.relays: dict[str, Relays] = {}

    def make(self, keys: Mapping[str, str]) -> EmbeddedBroker:
        """A broker with that configuration, to be started."""
        name = keys["brokerName"]
        if not self._partitions:
            return self._make(name, keys)
        if name not in self.relays:
            self.relays[name] = Relays(keys["brokerIP1"], int(keys["listenPort"]))
        return RelayedBroker(self._make(name, {**keys, "bindAddress": BEHIND_RELAYS}), self.relays[name])

    def clock_moved(self) -> None:
        """Tell brokers of this process that their clock was moved by hand; clients behind a cut cannot be heard."""
        for name, local in self._local.items():
            local.broker.clock_moved(hears_clients=name not in self.relays or self.relays[name].way is Way.FREE)

    def _make(self, name: str, keys: Mapping[str, str]) -> EmbeddedBroker:
        folder = Path(keys["storePathRootDir"]).parent
        if self._processes:
            return ProcessBroker(keys, folder / "broker.log")
        if name not in self._disks:
            self._disks[name] = ForgetfulDisk(self._clock, folder / "limbo")
        self._local[name] = local = LocalBroker(keys, self._clock, self._disks[name])
        return local
