"""Clusters and their brokers: addresses, runtime state, and configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orbitmq.admin.calls import BrokerInstance, Calls, GatheredReplies, config_lines
from orbitmq.common import properties
from orbitmq.protocol.bodies.nameserver import ClusterInfo, decode_kv_table
from orbitmq.protocol.codes import RequestCode


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRuntime:
    """The runtime state a broker reports; rates are per second over the last ten. None if not
    reported.
    """

    version: str | None
    boot_ms: int | None
    put_per_s: float | None
    get_per_s: float | None
    put_today: int | None
    got_today: int | None
    log_first_offset: int | None
    log_end_offset: int | None
    first_message_ms: int | None
    disk_ratio: float | None  # used fraction of the commit log's disk
    dispatch_behind_bytes: int | None
    send_queue_size: int | None
    pull_queue_size: int | None
    entries: Mapping[str, str] = field(repr=False)  # everything it reports, by its own names

    @classmethod
    def of(cls, entries: Mapping[str, str]) -> BrokerRuntime:
        """Parse the runtime entries of a broker."""

        def whole(name: str) -> int | None:
            found = number(name)
            return None if found is None else int(found)

        def number(name: str) -> float | None:
            """Return the first number of an entry; some have three, for increasing periods."""
            try:
                return float(entries.get(name, "").split()[0])
            except (IndexError, ValueError):
                return None

        def today(what: str) -> int | None:
            morning, now = whole(f"msg{what}TotalTodayMorning"), whole(f"msg{what}TotalTodayNow")
            return None if morning is None or now is None else now - morning

        return cls(
            version=entries.get("brokerVersionDesc"),
            boot_ms=whole("bootTimestamp"),
            put_per_s=number("putTps"),
            get_per_s=(
                number("getTransferredTps")
                if "getTransferredTps" in entries
                else number("getTransferedTps")
            ),  # the spelling of 4.9
            put_today=today("Put"),
            got_today=today("Get"),
            log_first_offset=whole("commitLogMinOffset"),
            log_end_offset=whole("commitLogMaxOffset"),
            first_message_ms=whole("earliestMessageTimeStamp"),
            disk_ratio=number("commitLogDiskRatio"),
            dispatch_behind_bytes=whole("dispatchBehindBytes"),
            send_queue_size=whole("sendThreadPoolQueueSize"),
            pull_queue_size=whole("pullThreadPoolQueueSize"),
            entries=entries,
        )


class ClusterOperations:
    """Finds brokers, and reads and changes their configuration."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def info(self) -> ClusterInfo:
        """Return every registered broker, by cluster."""
        return await self._calls.cluster_info()

    async def brokers(self, cluster: str | None = None) -> list[BrokerInstance]:
        """Return every registered broker process, in order."""
        info = await self._calls.cluster_info()
        return [
            BrokerInstance(name_of_cluster, name, broker_id, address)
            for name_of_cluster, names in sorted(info.clusters.items())
            if cluster in (None, name_of_cluster)
            for name in sorted(names)
            if name in info.brokers
            for broker_id, address in sorted(info.brokers[name].broker_addrs.items())
        ]

    async def address(self, broker: str) -> str:
        """Return the address of a broker given by name (its master) or by address."""
        return (
            next(iter((await self._calls.masters(broker=broker)).values()))
            if ":" not in broker
            else broker
        )

    async def runtime(self, address: str) -> BrokerRuntime:
        """Return the runtime state of one broker."""
        response = await self._calls.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return BrokerRuntime.of(decode_kv_table(response.body or b"{}"))

    async def runtimes(self, cluster: str | None = None) -> GatheredReplies[BrokerRuntime]:
        """Return the runtime state of every broker, by address."""
        addresses = [place.address for place in await self.brokers(cluster)]
        return await self._calls.gather(dict(zip(addresses, addresses, strict=True)), self.runtime)

    async def config(self, address: str) -> dict[str, str]:
        """Return the configuration of a broker."""
        return config_lines((await self._calls.ask(address, RequestCode.GET_BROKER_CONFIG)).body)

    async def update_config(self, address: str, values: Mapping[str, str]) -> None:
        """Change the configuration of a running broker."""
        await self._calls.ask(
            address, RequestCode.UPDATE_BROKER_CONFIG, body=properties.write(values).encode()
        )
