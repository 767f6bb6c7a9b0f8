"""The route of a topic for a client: the queues to send to, the queues to read, and broker
addresses.

Pure: built from a name server's reply. Logical queues of static topics have broker names of their
own, as in Apache RocketMQ.
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
    """The queues of a topic in order, and broker addresses by name and id."""

    topic: str
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    addresses: Mapping[str, Mapping[int, str]]
    is_writable: bool = True  # at least one broker permits writing
    # The name servers fix its write queues, which do not change when a broker is down.
    is_ordered: bool = False

    @classmethod
    def of(cls, topic: str, data: TopicRouteData) -> TopicRoute:
        """Build the route from a name server's reply."""
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
        return cls(
            topic, tuple(write), tuple(read), addresses, is_writable, bool(data.order_topic_conf)
        )

    def as_template(self, topic: str, queue_count_max: int) -> TopicRoute:
        """Return the expected route of a topic that brokers create from this template topic on
        first send.
        """
        kept = [
            MessageQueue(topic, queue.broker_name, queue.queue_id)
            for queue in self.write_queues
            if queue.queue_id < queue_count_max
        ]
        return TopicRoute(topic, tuple(kept), tuple(kept), self.addresses)

    def master(self, broker_name: str) -> str | None:
        """Return the address of the broker's master, or None if it has none."""
        return self.addresses.get(broker_name, {}).get(MASTER_ID)

    def why_not_written(self) -> str:
        """Explain why the topic has no writable queue, and what to do."""
        brokers = ", ".join(sorted(self.addresses)) or "none"
        if not self.is_writable:
            return (
                f"its permission on its brokers ({brokers}) forbids writing; grant it with: orbitmq"
                " topic update, or orbitmq broker add-write-perm if the broker was drained"
            )
        if not any(MASTER_ID in addresses for addresses in self.addresses.values()):
            return (
                f"its brokers ({brokers}) have no master at the moment; start one, or wait until it"
                " is back"
            )
        return (
            f"none of its brokers with a master ({brokers}) has a write queue for it; add write"
            " queues"
        )

    def reader(self, broker_name: str, broker_id: int) -> tuple[str, int] | None:
        """Return the address and id to read from: the broker with that id, else the next replica,
        else any.
        """
        addresses = self.addresses.get(broker_name, {})
        for wanted in (broker_id, broker_id + 1) if broker_id != MASTER_ID else (MASTER_ID,):
            if wanted in addresses:
                return addresses[wanted], wanted
        return next(((address, found) for found, address in sorted(addresses.items())), None)


def _ordered(topic: str, conf: str) -> list[MessageQueue]:
    """Return the queues of an order configuration like `broker-a:4;broker-b:4`, in its order."""
    counts = (entry.partition(":") for entry in conf.split(";") if entry)
    return [
        MessageQueue(topic, name, queue_id)
        for name, _, count in counts
        for queue_id in range(int(count))
    ]


def broker_addresses(routes: Iterable[TopicRoute], *, masters_only: bool) -> dict[str, str]:
    """Return every broker address of the routes, mapped to the broker's name."""
    return {
        address: name
        for route in routes
        for name, addresses in route.addresses.items()
        for broker_id, address in addresses.items()
        if broker_id == MASTER_ID or not masters_only
    }
