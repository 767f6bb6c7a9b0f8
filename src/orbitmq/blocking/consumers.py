"""Blocking consumers."""

from __future__ import annotations

from typing import Self

from orbitmq.blocking.client import BlockingClient, OwnCluster, blocking_method, loop_method
from orbitmq.client.consumer import lite_pull_consumer as of_lite_pull
from orbitmq.client.consumer import pull_consumer as of_pull
from orbitmq.client.consumer import push_consumer as of_push
from orbitmq.client.consumer.lite_pull_consumer import LitePullSettings
from orbitmq.client.consumer.push_consumer import ConsumerSettings, Listener
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.observers import ConsumeObserver
from orbitmq.protocol.bodies.clients import MessageQueue


class PushConsumer(BlockingClient[of_push.PushConsumer]):
    """Consumes a group's messages with a listener.

    The listener is a plain function; it runs in threads of the consumer as soon as the `with` block
    begins.
    """

    def __init__(
        self,
        cluster: OwnCluster,
        group: str,
        listener: Listener,
        *,
        settings: ConsumerSettings | None = None,
    ) -> None:
        super().__init__(of_push.PushConsumer(cluster, group, listener, settings=settings))

    subscribe = loop_method(of_push.PushConsumer.subscribe)
    unsubscribe = loop_method(of_push.PushConsumer.unsubscribe)
    suspend = loop_method(of_push.PushConsumer.suspend)
    resume = loop_method(of_push.PushConsumer.resume)
    explain = blocking_method(of_push.PushConsumer.explain)
    reports = loop_method(of_push.PushConsumer.reports)

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """The queues assigned to this member now."""
        return self._run_plain(lambda: self._wrapped.queues)

    @property
    def observers(self) -> list[ConsumeObserver]:
        """Observers of every consumed message, such as a Trace; called on the loop's thread, so
        never block.
        """
        return self._wrapped.observers


class LitePullConsumer(BlockingClient[of_lite_pull.LitePullConsumer]):
    """Consumes a group's messages by polling.

    `with LitePullConsumer("127.0.0.1:9876", "group") as consumer`; then `poll`, which is faster, or
    `for message in consumer`.
    """

    def __init__(
        self, cluster: OwnCluster, group: str, *, settings: LitePullSettings | None = None
    ) -> None:
        super().__init__(of_lite_pull.LitePullConsumer(cluster, group, settings=settings))

    subscribe = loop_method(of_lite_pull.LitePullConsumer.subscribe)
    unsubscribe = loop_method(of_lite_pull.LitePullConsumer.unsubscribe)
    assign = blocking_method(of_lite_pull.LitePullConsumer.assign)
    queues = blocking_method(of_lite_pull.LitePullConsumer.queues)
    pause = loop_method(of_lite_pull.LitePullConsumer.pause)
    resume = loop_method(of_lite_pull.LitePullConsumer.resume)
    position = loop_method(of_lite_pull.LitePullConsumer.position)
    seek = blocking_method(of_lite_pull.LitePullConsumer.seek)
    seek_to_begin = blocking_method(of_lite_pull.LitePullConsumer.seek_to_begin)
    seek_to_end = blocking_method(of_lite_pull.LitePullConsumer.seek_to_end)
    seek_to_time = blocking_method(of_lite_pull.LitePullConsumer.seek_to_time)
    committed = blocking_method(of_lite_pull.LitePullConsumer.committed)
    commit = blocking_method(of_lite_pull.LitePullConsumer.commit)
    give_back = loop_method(of_lite_pull.LitePullConsumer.give_back)
    explain = blocking_method(of_lite_pull.LitePullConsumer.explain)
    reports = loop_method(of_lite_pull.LitePullConsumer.reports)

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues assigned to this consumer now."""
        return self._run_plain(lambda: self._wrapped.assignment)

    @property
    def observers(self) -> list[ConsumeObserver]:
        """Observers of every polled message, such as a Trace; called on the loop's thread, so never
        block.
        """
        return self._wrapped.observers

    def poll(self, timeout_ms: int = 5_000, count_max: int = 32) -> list[ReceivedMessage]:
        """Return messages as soon as there are some, or none after the timeout.

        Messages polled before count as consumed.
        """
        try:
            return self._run(self._wrapped.poll, timeout_ms, count_max)
        except KeyboardInterrupt:
            self.give_back()  # messages that may have been polled at that moment
            raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        """Return the next message once it arrives; the previous one counts as consumed. `close`
        ends it.
        """
        if self._closing is not None:
            raise StopIteration
        try:
            return self._run(self._wrapped.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
        except KeyboardInterrupt:
            self.give_back()
            raise


class PullConsumer(BlockingClient[of_pull.PullConsumer]):
    """Pulls messages of single queues on request.

    `with PullConsumer("127.0.0.1:9876", "group") as consumer: consumer.pull(queue, 0)`.
    """

    def __init__(self, cluster: OwnCluster, group: str) -> None:
        super().__init__(of_pull.PullConsumer(cluster, group))

    queues = blocking_method(of_pull.PullConsumer.queues)
    pull = blocking_method(of_pull.PullConsumer.pull)
    send_back = blocking_method(of_pull.PullConsumer.send_back)
    fetch_offset = blocking_method(of_pull.PullConsumer.fetch_offset)
    update_offset = blocking_method(of_pull.PullConsumer.update_offset)
    min_offset = blocking_method(of_pull.PullConsumer.min_offset)
    max_offset = blocking_method(of_pull.PullConsumer.max_offset)
    offset_at = blocking_method(of_pull.PullConsumer.offset_at)
