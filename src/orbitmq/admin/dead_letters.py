"""Dead letters: which groups have some, what they say of themselves, and back with them to the topics they came from.

A dead letter says by its properties which topic it was in, under which id, and how often it was tried; RocketMQ keeps no reason. What can
be told is whether the group's attempts were used up, or a consumer gave up earlier. A letter stays in its topic whatever is done with it.
Letters are read as by a member of no group; those of one broker go back in their order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from orbitmq.admin.calls import Calls
from orbitmq.admin.groups import GroupOperations
from orbitmq.admin.messages import MessageOperations
from orbitmq.admin.topics import TopicOperations
from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.client.producer import Producer
from orbitmq.common.errors import ExpressionIllegal, MessageIllegal, NotFound, OrbitError, SendFailed
from orbitmq.common.topic_names import DEAD_LETTER_PREFIX
from orbitmq.message import properties
from orbitmq.message.sql.expression import compiled
from orbitmq.protocol.bodies.groups import GroupConfig

USED_UP: Final = "all attempts failed"
GIVEN_UP: Final = "a consumer gave it up"
_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
_FOREVER_MS: Final = (1 << 63) - 1
_BEAT_S: Final = 0.02  # so long is waited at least for the sake of a rate


def topic_of(group: str) -> str:
    """Where the dead letters of a group are."""
    return group if group.startswith(DEAD_LETTER_PREFIX) else DEAD_LETTER_PREFIX + group


def group_of(topic: str) -> str:
    """Whose dead letters a topic has."""
    return topic.removeprefix(DEAD_LETTER_PREFIX)


class Letter(NamedTuple):
    """A dead letter, and what it says of itself."""

    message: ReceivedMessage
    origin_topic: str | None
    origin_id: str | None
    attempts: int
    reason: str

    @classmethod
    def of(cls, message: ReceivedMessage, attempts_max: int) -> Letter:
        """`attempts_max` is that of its group, if the letter does not say another."""
        said = message.properties
        attempts = max(message.reconsume_times, _number(said.get(properties.RECONSUME_TIME), 0))
        limit = _number(said.get(properties.MAX_RECONSUME_TIMES), attempts_max)
        return cls(
            message,
            said.get(properties.DLQ_ORIGIN_TOPIC) or said.get(properties.RETRY_TOPIC),
            said.get(properties.DLQ_ORIGIN_MESSAGE_ID) or said.get(properties.ORIGIN_MESSAGE_ID),
            attempts,
            USED_UP if attempts >= limit else GIVEN_UP,
        )

    def renewed(self, topic: str) -> Message:
        """The message as it is sent again: with body, flag, keys, tags, sharding key and the application's properties, and no more."""
        message, said = self.message, self.message.properties
        return Message(
            topic,
            message.body,
            message.tags,
            message.keys,
            {name: value for name, value in said.items() if name not in properties.OWN and name != properties.SHARDING_KEY},
            sharding_key=said.get(properties.SHARDING_KEY),
            flag=message.stored.flag,
        )

    def _looked_up(self) -> Mapping[str, str]:
        """What an expression may name: the properties, and what the letter says by them."""
        found = {"originTopic": self.origin_topic, "originId": self.origin_id, "attempts": str(self.attempts), "reason": self.reason}
        return {**self.message.properties, **{name: text for name, text in found.items() if text is not None}}


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterChoice:
    """Which letters: those that died within the times, with one of the keys, and for which an SQL92 expression holds."""

    since_ms: int = 0
    until_ms: int = _FOREVER_MS
    keys: Sequence[str] = ()
    condition: str | None = None

    def check(self) -> None:
        """Refuse a condition that is none, before anything is read."""
        if self.condition is None:
            return
        try:
            unread = compiled(self.condition).unread
        except ExpressionIllegal as problem:
            raise ExpressionIllegal(f"the filter {self.condition!r} cannot be used: {problem}") from problem
        if unread is not None:
            raise ExpressionIllegal(f"the filter {self.condition!r} cannot be used: it goes on with {unread!r} where an expression ends")

    def takes(self, letter: Letter) -> bool:
        if self.keys and not set(self.keys) & set(letter.message.keys):
            return False
        return self.condition is None or compiled(self.condition).matches(letter._looked_up().get)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLetters:
    """How many dead letters a group has; `brokers` are those that have them."""

    group: str
    messages: int
    first_died_ms: int
    last_died_ms: int
    brokers: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Redriven:
    """What was sent back, or would be: how many letters to which topic."""

    group: str
    is_dry_run: bool
    looked_at: int = 0
    without_topic: int = 0  # those that do not say where they came from
    unreadable: int = 0  # those whose body cannot be read, so that it cannot be sent
    topics: Counter[str] = field(default_factory=Counter)
    last_died_ms: int = 0  # of those that were looked at

    @property
    def messages(self) -> int:
        return self.topics.total()


class DeadLetterOperations:
    """See above."""

    def __init__(self, calls: Calls, topics: TopicOperations, groups: GroupOperations, messages: MessageOperations) -> None:
        self._calls = calls
        self._topics = topics
        self._groups = groups
        self._messages = messages

    async def groups(self) -> list[GroupLetters]:
        """The groups that have dead letters, by name."""
        topics = [topic for topic in await self._topics.names() if topic.startswith(DEAD_LETTER_PREFIX)]
        found = await asyncio.gather(*map(self._group, topics))
        return [each for each in found if each is not None]

    async def _group(self, topic: str) -> GroupLetters | None:
        try:
            stats = (await self._topics.stats(topic)).queues
        except NotFound:
            return None  # deleted meanwhile
        full = {queue: ends for queue, ends in stats.items() if ends.max_offset > ends.min_offset}
        if not full:
            return None
        firsts = await asyncio.gather(*(self._messages.view(queue, ends.min_offset) for queue, ends in full.items()))
        return GroupLetters(
            group=group_of(topic),
            messages=sum(ends.max_offset - ends.min_offset for ends in full.values()),
            first_died_ms=min(message.stored_at_ms for message in firsts),
            last_died_ms=max(ends.last_update_timestamp for ends in full.values()),
            brokers=tuple(sorted({queue.broker_name for queue in full})),
        )

    async def letters(self, group: str, choice: LetterChoice) -> AsyncIterator[Letter]:
        """The dead letters of a group that are there now, the earliest first; NotFound when it never had any."""
        choice.check()
        attempts_max = await self._attempts_max(group_of(group))
        try:
            async for message in self._messages.between(topic_of(group), choice.since_ms, choice.until_ms):
                letter = Letter.of(message, attempts_max)
                if choice.takes(letter):
                    yield letter
        except NotFound as problem:
            topic, name = topic_of(group), group_of(group)
            why = f"no broker has the topic {topic}, which the first dead letter creates; see which groups have some: orbitmq dlq ls"
            raise NotFound(f"there are no dead letters of group {name}: {why}") from problem

    async def _attempts_max(self, group: str) -> int:
        try:
            configs = await self._groups.configs(group)
        except NotFound:
            return GroupConfig(group).retry_max_times
        return max(config.retry_max_times for config in configs.values())

    async def redrive(
        self, group: str, choice: LetterChoice, *, to: str | None = None, rate: int | None = None, is_dry_run: bool = False
    ) -> Redriven:
        """Send letters to the topics that they came from, or all of them to one, at most so many a second.

        When one cannot be sent, the error says how many were before it, and since when to go on.
        """
        done = Redriven(group=group_of(group), is_dry_run=is_dry_run)
        async with Producer(self._calls.session, group=_PRODUCER_GROUP) as producer:
            begin_ms = self._calls.session.clock.monotonic_ms()
            async for letter in self.letters(group, choice):
                topic = to or letter.origin_topic
                done.looked_at += 1
                done.last_died_ms = letter.message.stored_at_ms
                if topic is None:
                    done.without_topic += 1
                    continue
                if letter.message.problem is not None:
                    done.unreadable += 1
                    continue
                if not is_dry_run:
                    await self._pace(done.messages, rate, begin_ms)
                    await _send(producer, letter, topic, done)
                done.topics[topic] += 1
        return done

    async def _pace(self, sent: int, rate: int | None, begin_ms: int) -> None:
        """Wait until one more may be sent."""
        if rate is None:
            return
        wait_s = sent / rate - (self._calls.session.clock.monotonic_ms() - begin_ms) / 1000
        if wait_s >= _BEAT_S:
            await asyncio.sleep(wait_s)


async def _send(producer: Producer, letter: Letter, topic: str, done: Redriven) -> None:
    try:
        outgoing = producer.outbox.message(letter.renewed(topic))
        await producer.send_outgoing(outgoing._replace(topic=topic))  # which is the one that brokers know, whatever the session's namespace
    except OrbitError as problem:
        message = letter.message
        told = (
            f"the letter {message.msg_id} could not be sent to {topic}: {problem}. {done.messages} letters were sent before it; go on with "
            f"those that died since then: --since @{message.stored_at_ms}"
        )
        raise (MessageIllegal if isinstance(problem, MessageIllegal) else SendFailed)(told) from problem


def _number(text: str | None, default: int) -> int:
    try:
        return default if text is None else int(text)
    except ValueError:
        return default
