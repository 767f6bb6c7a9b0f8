"""`python _client_cpp.py NAMESRV`: Apache's C++ client, from its wheel, as a client to measure. See
`_client_player.py`.

It supports no batches: every broker stores this library's batches as one message, so there is
nothing to compare.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer

from _client_player import (
    BODY,
    SEND_TIMEOUT_MS,
    Order,
    Report,
    Work,
    obey_orders,
    send_by_threads,
    watch_consumption,
)


def send(name_server: str, order: Order) -> Report:
    """Send from threads that share one producer."""
    if order.batch != 1:
        raise ValueError("the C++ client's batches are stored as one message each")
    producer = Producer("bench", timeout=SEND_TIMEOUT_MS)
    producer.set_namesrv_addr(name_server)
    producer.start()

    def call() -> None:
        message = Message(order.topic)
        message.set_body(BODY)
        producer.send_sync(message)

    try:
        return send_by_threads(order, call)
    finally:
        producer.shutdown()


def consume(name_server: str, order: Order) -> Report:
    """Consume with a listener that only counts."""
    work, counting = Work(), threading.Lock()

    def count(_: Any) -> None:
        with counting:
            work.counts[0] += 1

    consumer = PushConsumer(order.group)
    consumer.set_namesrv_addr(name_server)
    consumer.set_instance_name(
        order.group
    )  # consumers that share an instance may wait ten seconds for their queues
    consumer.subscribe(order.topic, count)
    consumer.start()
    try:
        return watch_consumption(order, work)
    finally:
        consumer.shutdown()


if __name__ == "__main__":
    obey_orders(lambda order: (consume if order.group else send)(sys.argv[1], order))
