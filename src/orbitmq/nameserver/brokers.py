"""The registered brokers: their addresses, their clusters, and their liveness.

Knows nothing of topics. A broker is a name with one address per id; liveness belongs to an address
of a cluster, on the connection that it registered on.

Invariants: every address of a broker has a live entry that names the broker; a connection is known
here while a live entry is on it; a broker is in the sets of all clusters it registered under.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from orbitmq.protocol.bodies.nameserver import MASTER_ID, BrokerData, DataVersion


class BrokerAddress(NamedTuple):
    """The key of a live entry."""

    cluster: str
    address: str


@dataclass(slots=True, eq=False)
class RegisteredBroker:
    """One broker name. `revision` changes to a never-used number with each change."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    clusters: set[str] = field(default_factory=set)
    enable_acting_master: bool = False
    zone_name: str | None = None
    revision: int = 0

    @property
    def lowest_id(self) -> int | None:
        return min(self.addresses, default=None)

    @property
    def has_master(self) -> bool:
        return MASTER_ID in self.addresses

    def data(self) -> BrokerData:
        """Return a copy for peers, ids in order."""
        return BrokerData(
            self.cluster,
            self.name,
            dict(sorted(self.addresses.items())),
            self.enable_acting_master,
            self.zone_name,
        )


@dataclass(slots=True, eq=False)
class LiveBroker:
    """The last registration or heartbeat of an address, and its timeout."""

    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    connection: Hashable
    ha_server_address: str
    names: frozenset[str]  # one, unless brokers share an address by mistake
    # The registration's fingerprint; revisions of broker and topics after it.
    renewal: tuple[Hashable, int, int] | None
    applying: frozenset[str] = frozenset()  # names whose registration is not fully applied yet


class MinBrokerIdChange(NamedTuple):
    """A new lowest id of a broker, and the addresses to notify (905)."""

    notify: tuple[str, ...]
    min_broker_id: int
    min_broker_address: str
    offline_address: str | None = None
    ha_address: str | None = None


class Registered(NamedTuple):
    """The result of a registration: for a slave, its live master; and the change of the
    lowest id.
    """

    master_address: str | None = None
    ha_server_address: str | None = None
    change: MinBrokerIdChange | None = None


class Departure(NamedTuple):
    """A broker that leaves."""

    cluster: str
    broker_name: str
    address: str


class Brokers:
    """name -> broker, cluster -> names, address -> live entry, connection -> addresses."""

    def __init__(self) -> None:
        self._revisions = count(1)
        self._brokers: dict[str, RegisteredBroker] = {}
        self._clusters: dict[str, dict[str, None]] = {}  # an ordered set of names
        self._live: dict[BrokerAddress, LiveBroker] = {}
        self._on_connection: dict[Hashable, set[BrokerAddress]] = {}
        self._filter_servers: dict[BrokerAddress, list[str]] = {}

    def __iter__(self) -> Iterator[RegisteredBroker]:
        return iter(self._brokers.values())

    def get(self, name: str) -> RegisteredBroker | None:
        return self._brokers.get(name)

    @property
    def clusters(self) -> Mapping[str, Collection[str]]:
        return self._clusters

    def names_in(self, cluster: str) -> Collection[str]:
        """Return the brokers that registered under the cluster."""
        return self._clusters.get(cluster, {})

    def add(self, cluster: str, name: str) -> RegisteredBroker:
        """Return the broker of that name, new if there is none, as a member of the cluster."""
        broker = self._brokers.get(name)
        if broker is None:
            broker = self._brokers[name] = RegisteredBroker(
                cluster, name, revision=next(self._revisions)
            )
        broker.clusters.add(cluster)
        self._clusters.setdefault(cluster, {})[name] = None
        return broker

    def touch(self, broker: RegisteredBroker) -> None:
        """Give the broker a new revision."""
        broker.revision = next(self._revisions)

    def remove(self, broker: RegisteredBroker) -> None:
        """Remove the broker, and clusters without brokers."""
        del self._brokers[broker.name]
        for cluster in broker.clusters:
            names = self._clusters[cluster]
            del names[broker.name]
            if not names:
                del self._clusters[cluster]

    def live(self, key: BrokerAddress) -> LiveBroker | None:
        return self._live.get(key)

    def set_live(self, key: BrokerAddress, entry: LiveBroker) -> None:
        """Replace the live entry of an address."""
        self._drop_live(key)
        self._live[key] = entry
        self._on_connection.setdefault(entry.connection, set()).add(key)

    def refresh(self, key: BrokerAddress, connection: Hashable, now_ms: int) -> None:
        """Note a sign of life of the address, maybe on another connection."""
        entry = self._live[key]
        self._drop_live(key)
        entry.last_update_ms = now_ms
        entry.connection = connection
        self.set_live(key, entry)

    def forget_live(self, key: BrokerAddress, name: str) -> None:
        """Note that the broker of that name is no longer alive at the address."""
        entry = self._live.get(key)
        if entry is None:
            return
        entry.names -= {name}
        if not entry.names:
            self._drop_live(key)

    def on_connection(self, connection: Hashable) -> Collection[BrokerAddress]:
        """Return the addresses that last registered on the connection."""
        return self._on_connection.get(connection, ())

    def silent(self, now_ms: int) -> list[BrokerAddress]:
        """Return the addresses that were silent for longer than their timeout."""
        return [
            key
            for key, entry in self._live.items()
            if entry.last_update_ms + entry.timeout_ms < now_ms
        ]

    def filter_servers(self, key: BrokerAddress) -> list[str] | None:
        return self._filter_servers.get(key)

    def set_filter_servers(self, key: BrokerAddress, servers: list[str]) -> bool:
        """Set the filter servers of an address; return whether that changed anything."""
        if servers == self._filter_servers.get(key, []):
            return False
        if servers:
            self._filter_servers[key] = servers
        else:
            del self._filter_servers[key]
        return True

    def _drop_live(self, key: BrokerAddress) -> None:
        entry = self._live.pop(key, None)
        if entry is None:
            return
        keys = self._on_connection[entry.connection]
        keys.remove(key)
        if not keys:
            del self._on_connection[entry.connection]
