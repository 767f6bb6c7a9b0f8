"""Where the messages of a producer can go: the routes of topics, and of those too that their first message makes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from orbitmq.client.routes import TopicRoute
from orbitmq.client.session import ClientSession, NoBroker
from orbitmq.common.errors import NotFound, SendFailed
from orbitmq.common.topic_names import AUTO_CREATE_TOPIC
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import ResponseCode


class WriteRoutes:
    """Of one producer."""

    def __init__(self, session: ClientSession, new_topic_queue_count: int) -> None:
        self._session = session
        self._queue_count = new_topic_queue_count
        self._made: dict[str, TopicRoute] = {}  # topics that name servers do not know yet

    @property
    def made(self) -> Iterable[str]:
        """The topics whose routes are to be asked for until the name servers know them."""
        return tuple(self._made)

    def routes_changed(self) -> None:
        """Drop the routes that were only expected: the real ones are there."""
        self._made = {topic: route for topic, route in self._made.items() if self._session.known_route(topic) is None}

    def forget(self, topic: str) -> None:
        """Ask for it again when it is needed next: it led nowhere."""
        self._session.forget_route(topic)
        self._made.pop(topic, None)

    async def of(self, topic: str) -> TopicRoute:
        """The route of a topic; of one that does not exist yet, that of the topic whose example brokers follow."""
        made = self._made.get(topic)
        if made is not None:
            return made
        try:
            return await self._session.route(topic)
        except NoBroker:
            raise
        except NotFound as missing:
            try:
                template = await self._session.route(AUTO_CREATE_TOPIC)
            except NotFound:
                raise NotFound(f"{missing}; brokers make topics by themselves only with autoCreateTopicEnable=true") from missing
            made = self._made[topic] = template.as_template(topic, self._queue_count)
            return made

    async def within(self, topic: str, deadline_ms: int, timeout_ms: int) -> TopicRoute:
        """The same before a deadline, that of a call which was given `timeout_ms` in all; else SendFailed."""
        made = self._made.get(topic)
        if made is not None:
            return made
        try:
            async with asyncio.timeout((deadline_ms - self._session.clock.monotonic_ms()) / 1000):
                return await self.of(topic)
        except TimeoutError:
            raise too_late(topic, timeout_ms, "the name servers did not say in time where it goes") from None

    async def once_more(self, topic: str, deadline_ms: int, timeout_ms: int) -> TopicRoute:
        """Ask again for a route that has no queue to write to: it may have one by now; NotFound says why it has none."""
        self.forget(topic)
        route = await self.within(topic, deadline_ms, timeout_ms)
        if not route.write_queues:
            raise NotFound(f"topic {topic} has no queue that may be written to: {route.why_not_written()}")
        return route

    def address(self, route: TopicRoute, queue: MessageQueue) -> str:
        """Where the broker of a queue takes messages."""
        address = route.master(queue.broker_name)
        if address is None:
            raise NotFound(f"the broker {queue.broker_name} of {queue} has no master now: choose another queue, or wait until it is back")
        return self._session.send_address(address)


def refused(topic: str, code: int, why: str) -> SendFailed:
    """The error of a message that brokers refused, as often as it was tried."""
    remedy = ""
    if code == ResponseCode.NO_PERMISSION:
        remedy = ". If access control is on, give the client the credentials of a user that may send to the topic"
    return SendFailed(f"a message to topic {topic} was refused: {why.rstrip('.')}{remedy}")


def not_sent(topic: str, why: str) -> SendFailed:
    """The error of a message that no broker took, as often as it was tried."""
    return SendFailed(f"a message to topic {topic} was not sent: {why}")


def too_late(topic: str, timeout_ms: int, why: str) -> SendFailed:
    """The error of a message whose time is over."""
    return SendFailed(f"a message to topic {topic} was not sent within {timeout_ms} ms: {why}")
