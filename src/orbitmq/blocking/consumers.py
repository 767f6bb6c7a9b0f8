"""Consumers without coroutines."""

from __future__ import annotations

from typing import Self

from orbitmq.blocking.client import BlockingClient, OwnCluster, acts, waits
from orbitmq.client import lite_pull_consumer as of_lite_pull
from orbitmq.client import pull_consumer as of_pull
from orbitmq.client import push_consumer as of_push
from orbitmq.client.lite_pull_consumer import LitePullSettings
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.observers import ConsumeObserver
from orbitmq.client.push_consumer import ConsumerSettings, Listener
from orbitmq.protocol.bodies.clients import MessageQueue


class PushConsumer(BlockingClient[of_push.PushConsumer]):
    """The listener is a plain function; it runs in threads of the consumer as soon as the block of `with` begins."""

    def __init__(self, cluster: OwnCluster, group: str, listener: Listener, *, settings: ConsumerSettings | None = None) -> None:
        super().__init__(of_push.PushConsumer(cluster, group, listener, settings=settings))

    subscribe = acts(of_push.PushConsumer.subscribe)
    unsubscribe = acts(of_push.PushConsumer.unsubscribe)
    suspend = acts(of_push.PushConsumer.suspend)
    resume = acts(of_push.PushConsumer.resume)
    explain = waits(of_push.PushConsumer.explain)
    reports = acts(of_push.PushConsumer.reports)

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """Those that it consumes now."""
        return self._act(lambda: self._behind.queues)

    @property
    def observers(self) -> list[ConsumeObserver]:
        """Who is told of every message that is consumed, on the loop's thread: they must not block. A Trace is one."""
        return self._behind.observers


class LitePullConsumer(BlockingClient[of_lite_pull.LitePullConsumer]):
    """`with LitePullConsumer("127.0.0.1:9876", "group") as consumer`; then `poll`, which is the quicker, or `for message in consumer`."""

    def __init__(self, cluster: OwnCluster, group: str, *, settings: LitePullSettings | None = None) -> None:
        super().__init__(of_lite_pull.LitePullConsumer(cluster, group, settings=settings))

    subscribe = acts(of_lite_pull.LitePullConsumer.subscribe)
    unsubscribe = acts(of_lite_pull.LitePullConsumer.unsubscribe)
    assign = waits(of_lite_pull.LitePullConsumer.assign)
    queues = waits(of_lite_pull.LitePullConsumer.queues)
    pause = acts(of_lite_pull.LitePullConsumer.pause)
    resume = acts(of_lite_pull.LitePullConsumer.resume)
    position = acts(of_lite_pull.LitePullConsumer.position)
    seek = waits(of_lite_pull.LitePullConsumer.seek)
    seek_to_begin = waits(of_lite_pull.LitePullConsumer.seek_to_begin)
    seek_to_end = waits(of_lite_pull.LitePullConsumer.seek_to_end)
    seek_to_time = waits(of_lite_pull.LitePullConsumer.seek_to_time)
    committed = waits(of_lite_pull.LitePullConsumer.committed)
    commit = waits(of_lite_pull.LitePullConsumer.commit)
    give_back = acts(of_lite_pull.LitePullConsumer.give_back)
    explain = waits(of_lite_pull.LitePullConsumer.explain)
    reports = acts(of_lite_pull.LitePullConsumer.reports)

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that it reads now."""
        return self._act(lambda: self._behind.assignment)

    @property
    def observers(self) -> list[ConsumeObserver]:
        """Who is told of every message that is handed out, on the loop's thread: they must not block. A Trace is one."""
        return self._behind.observers

    def poll(self, timeout_ms: int = 5_000, count_max: int = 32) -> list[ReceivedMessage]:
        """Messages, as soon as there are some, or none when none came in time; what was handed out before counts as consumed."""
        try:
            return self._wait(self._behind.poll, timeout_ms, count_max)
        except KeyboardInterrupt:
            self.give_back()  # what may have come at that moment
            raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        """The next message, whenever it comes; the one before counts as consumed. The end comes with `close`."""
        if self._closing is not None:
            raise StopIteration
        try:
            return self._wait(self._behind.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
        except KeyboardInterrupt:
            self.give_back()
            raise


class PullConsumer(BlockingClient[of_pull.PullConsumer]):
    """`with PullConsumer("127.0.0.1:9876", "group") as consumer: consumer.pull(queue, 0)`."""

    def __init__(self, cluster: OwnCluster, group: str) -> None:
        super().__init__(of_pull.PullConsumer(cluster, group))

    queues = waits(of_pull.PullConsumer.queues)
    pull = waits(of_pull.PullConsumer.pull)
    send_back = waits(of_pull.PullConsumer.send_back)
    fetch_offset = waits(of_pull.PullConsumer.fetch_offset)
    update_offset = waits(of_pull.PullConsumer.update_offset)
    min_offset = waits(of_pull.PullConsumer.min_offset)
    max_offset = waits(of_pull.PullConsumer.max_offset)
    offset_at = waits(of_pull.PullConsumer.offset_at)
