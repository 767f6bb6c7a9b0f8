"""What a route means to a client: which queues to send to, which to read, and where their brokers are.

Pure: made from what a name server says. Logical queues of static topics stand on broker names of their own, as the original's do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import PERM_READ, PERM_WRITE, TopicRouteData

MASTER_ID: Final = 0


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The queues of a topic in order, and the addresses of brokers by name and id."""

    topic: str
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    addresses: Mapping[str, Mapping[int, str]]
    is_writable: bool = True  # by its permission on one broker at least
    is_ordered: bool = False  # the name servers say where its messages go, and that does not change when a broker is down

    @classmethod
    def of(cls, topic: str, data: TopicRouteData) -> TopicRoute:
        addresses = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
        found = sorted(data.queue_datas, key=lambda queues: queues.broker_name)
        read = [
            MessageQueue(topic, queues.broker_name, queue_id)
            for queues in found
            if queues.perm & PERM_READ
            for queue_id in range(queues.read_queue_nums)
        ]
        if data.order_topic_conf:
            write = _ordered(topic, data.order_topic_conf)
        else:
            write = [
                MessageQueue(topic, queues.broker_name, queue_id)
                for queues in found
                if queues.perm & PERM_WRITE and MASTER_ID in addresses.get(queues.broker_name, {})
                for queue_id in range(queues.write_queue_nums)
            ]
        is_writable = any(queues.perm & PERM_WRITE for queues in found)
        return cls(topic, tuple(write), tuple(read), addresses, is_writable, bool(data.order_topic_conf))

    def as_template(self, topic: str, queue_count_max: int) -> TopicRoute:
        """The route of a topic that brokers will make with its first message, by this topic's example."""
        kept = [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in self.write_queues if queue.queue_id < queue_count_max]
        return TopicRoute(topic, tuple(kept), tuple(kept), self.addresses)

    def master(self, broker_name: str) -> str | None:
        """Where the broker takes messages; None when its master is not there."""
        return self.addresses.get(broker_name, {}).get(MASTER_ID)

    def why_not_written(self) -> str:
        """Why no queue takes messages, and what to do."""
        brokers = ", ".join(sorted(self.addresses)) or "none"
        if not self.is_writable:
            return (
                f"its permission on its brokers ({brokers}) does not let anybody write; set one that does: "
                "orbitmq topic update, or orbitmq broker add-write-perm if the broker was drained"
            )
        if not any(MASTER_ID in addresses for addresses in self.addresses.values()):
            return f"its brokers ({brokers}) have no master now; start one, or wait until it is back"
        return f"none of its brokers that have a master ({brokers}) has a write queue of it; give it some"

    def reader(self, broker_name: str, broker_id: int) -> tuple[str, int] | None:
        """Where to read: the broker of that id; when it is not there the next replica, then any. With the id it has."""
        addresses = self.addresses.get(broker_name, {})
        for wanted in (broker_id, broker_id + 1) if broker_id != MASTER_ID else (MASTER_ID,):
            if wanted in addresses:
                return addresses[wanted], wanted
        return next(((address, found) for found, address in sorted(addresses.items())), None)


def _ordered(topic: str, conf: str) -> list[MessageQueue]:
    """`broker-a:4;broker-b:4`: so many queues of each, in this order."""
    counts = (entry.partition(":") for entry in conf.split(";") if entry)
    return [MessageQueue(topic, name, queue_id) for name, _, count in counts for queue_id in range(int(count))]


def broker_addresses(routes: Iterable[TopicRoute], *, masters_only: bool) -> dict[str, str]:
    """Every address of the brokers of these routes, each with the name of its broker."""
    return {
        address: name
        for route in routes
        for name, addresses in route.addresses.items()
        for broker_id, address in addresses.items()
        if broker_id == MASTER_ID or not masters_only
    }
