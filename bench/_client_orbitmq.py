"""`python _client_orbitmq.py NAMESRV`: our client library, sending from asyncio tasks, as a client
to measure. See `_client_player.py`.

With `--blocking` threads send through `orbitmq.blocking`; with `--coroutine` the listener is a
coroutine function.
"""

from __future__ import annotations

import argparse
import asyncio
import threading

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
from orbitmq.blocking import Producer as BlockingProducer
from orbitmq.client.consumer.push_consumer import ConsumerSettings, Listener, PushConsumer
from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.client.producer.outbox import ProducerSettings
from orbitmq.client.producer.producer import Producer
from orbitmq.common.errors import OrbitError
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere

_SENDING = ProducerSettings(timeout_ms=SEND_TIMEOUT_MS)
_CONSUMING = ConsumerSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)


async def send(name_server: str, order: Order) -> Report:
    """Send from tasks that share one producer."""
    work = Work(order.callers)
    async with (
        Producer(name_server, group="bench", settings=_SENDING) as producer,
        asyncio.TaskGroup() as tasks,
    ):

        async def call() -> None:
            if order.batch == 1:
                await producer.send(Message(order.topic, BODY))
            else:
                await producer.send_batch([Message(order.topic, BODY) for _ in range(order.batch)])

        async def caller(number: int) -> None:
            while not work.is_over:
                try:
                    await call()
                    work.counts[number] += order.batch
                except OrbitError:
                    work.failed[number] += 1

        await call()
        for number in range(order.callers):
            tasks.create_task(caller(number))
        await asyncio.sleep(order.settle_s)
        begin = work.look()
        await asyncio.sleep(order.seconds)
        end = work.look()
        work.is_over = True
    return begin.until(end)


def send_blocking(name_server: str, order: Order) -> Report:
    """Send from threads that share one producer."""
    with BlockingProducer(name_server, group="bench", settings=_SENDING) as producer:
        if order.batch == 1:
            return send_by_threads(order, lambda: producer.send(Message(order.topic, BODY)))
        return send_by_threads(
            order,
            lambda: producer.send_batch([Message(order.topic, BODY) for _ in range(order.batch)]),
        )


async def consume(name_server: str, order: Order, *, is_coroutine: bool) -> Report:
    """Consume with a listener that only counts."""
    work, counting = Work(), threading.Lock()

    def count(_: ReceivedMessage) -> None:
        with counting:
            work.counts[0] += 1

    async def count_in_loop(_: ReceivedMessage) -> None:
        work.counts[0] += 1

    listener: Listener = count_in_loop if is_coroutine else count
    consumer = PushConsumer(name_server, order.group, listener, settings=_CONSUMING)
    consumer.subscribe(order.topic)
    async with consumer:
        return await asyncio.to_thread(watch_consumption, order, work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name_server")
    parser.add_argument("--blocking", action="store_true")
    parser.add_argument("--coroutine", action="store_true")
    options = parser.parse_args()

    def obey(order: Order) -> Report:
        if order.group:
            return asyncio.run(consume(options.name_server, order, is_coroutine=options.coroutine))
        return (
            send_blocking(options.name_server, order)
            if options.blocking
            else asyncio.run(send(options.name_server, order))
        )

    obey_orders(obey)


if __name__ == "__main__":
    main()
