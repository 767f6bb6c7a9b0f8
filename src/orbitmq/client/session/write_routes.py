"""Routes for sending: those of existing topics, and expected ones of topics that the first send
creates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from orbitmq.client.session.client_session import ClientSession, NoBrokerError
from orbitmq.client.session.routes import TopicRoute
from orbitmq.common.errors import NotFoundError, RemoteError, SendFailedError, SendRefusedError
from orbitmq.common.topic_names import AUTO_CREATE_TOPIC
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import ResponseCode


class WriteRoutes:
    """The routes a producer sends by."""

    def __init__(self, session: ClientSession, new_topic_queue_count: int) -> None:
        self._session = session
        self._queue_count = new_topic_queue_count
        self._expected: dict[str, TopicRoute] = {}  # of topics that name servers do not know yet

    @property
    def expected_topics(self) -> Iterable[str]:
        """The topics whose routes are polled until the name servers know them."""
        return tuple(self._expected)

    def routes_changed(self) -> None:
        """Drop expected routes that have become real."""
        self._expected = {
            topic: route
            for topic, route in self._expected.items()
            if self._session.known_route(topic) is None
        }

    def forget(self, topic: str) -> None:
        """Drop a stale route, so that its next use fetches it again."""
        self._session.forget_route(topic)
        self._expected.pop(topic, None)

    async def find(self, topic: str) -> TopicRoute:
        """Return the route of a topic, or for a new topic the one its template promises."""
        expected = self._expected.get(topic)
        if expected is not None:
            return expected
        try:
            return await self._session.route(topic)
        except NoBrokerError:
            raise
        except NotFoundError as missing:
            try:
                template = await self._session.route(AUTO_CREATE_TOPIC)
            except NotFoundError:
                raise NotFoundError(
                    f"{missing}; brokers create topics automatically only with"
                    " autoCreateTopicEnable=true"
                ) from missing
            expected = self._expected[topic] = template.as_template(topic, self._queue_count)
            return expected

    async def before_deadline(self, topic: str, deadline_ms: int, timeout_ms: int) -> TopicRoute:
        """Return the route like `find`, or raise SendFailedError when the deadline passes.

        `timeout_ms` is the timeout of the whole call, for the error text.
        """
        expected = self._expected.get(topic)
        if expected is not None:
            return expected
        try:
            async with asyncio.timeout((deadline_ms - self._session.clock.monotonic_ms()) / 1000):
                return await self.find(topic)
        except RemoteError:
            raise
        except TimeoutError:
            raise too_late(
                topic, timeout_ms, "the name servers did not return its route in time"
            ) from None

    async def refetch(self, topic: str, deadline_ms: int, timeout_ms: int) -> TopicRoute:
        """Fetch a route without writable queues again, since it may have some by now.

        NotFoundError explains why there is still none.
        """
        self.forget(topic)
        route = await self.before_deadline(topic, deadline_ms, timeout_ms)
        if not route.write_queues:
            raise NotFoundError(f"topic {topic} has no writable queue: {route.why_not_written()}")
        return route

    def address(self, route: TopicRoute, queue: MessageQueue) -> str:
        """Return the address to which the messages of a queue are sent."""
        address = route.master(queue.broker_name)
        if address is None:
            raise NotFoundError(
                f"the broker {queue.broker_name} of {queue} has no master at the moment: choose"
                " another queue, or wait until it is back"
            )
        return self._session.send_address(address)


def refused(topic: str, code: int, why: str) -> SendRefusedError:
    """Return the error for a message that brokers refused on every attempt."""
    remedy = ""
    if code == ResponseCode.NO_PERMISSION:
        remedy = (
            ". If access control is on, use the credentials of a user who may send to the topic"
        )
    return SendRefusedError(
        f"a message to topic {topic} was refused: {why.rstrip('.')}{remedy}", code
    )


def not_sent(topic: str, why: str) -> SendFailedError:
    """Return the error for a message that no broker accepted on any attempt."""
    return SendFailedError(f"a message to topic {topic} was not sent: {why}")


def too_late(topic: str, timeout_ms: int, why: str) -> SendFailedError:
    """Return the error for a message whose timeout has passed."""
    return SendFailedError(f"a message to topic {topic} was not sent within {timeout_ms} ms: {why}")
