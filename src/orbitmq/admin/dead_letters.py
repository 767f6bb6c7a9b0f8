"""Dead letters: list the groups that have some, inspect them, and redrive them to their original
topics.

A dead letter's properties name its original topic and id, and the number of attempts; RocketMQ
stores no reason. It is only known whether the group's attempts were used up, or a consumer gave
up earlier. A letter stays in its topic whatever is done with it. Letters are read without a group's
offsets; those of one broker are redriven in order.
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
from orbitmq.client.producer.producer import Producer
from orbitmq.common.errors import (
    InvalidExpressionError,
    InvalidMessageError,
    NotFoundError,
    OrbitError,
    SendFailedError,
)
from orbitmq.common.topic_names import DEAD_LETTER_PREFIX
from orbitmq.message import properties
from orbitmq.message.sql.expression import compiled
from orbitmq.protocol.bodies.groups import GroupConfig

USED_UP: Final = "all attempts failed"
GIVEN_UP: Final = "a consumer gave it up"
_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
_FOREVER_MS: Final = (1 << 63) - 1
_BEAT_S: Final = 0.02  # shortest sleep for rate limiting


def topic_of(group: str) -> str:
    """Return the dead-letter topic of a group."""
    return group if group.startswith(DEAD_LETTER_PREFIX) else DEAD_LETTER_PREFIX + group


def group_of(topic: str) -> str:
    """Return the group of a dead-letter topic."""
    return topic.removeprefix(DEAD_LETTER_PREFIX)


class DeadLetter(NamedTuple):
    """A dead letter, with its origin and history from its properties."""

    message: ReceivedMessage
    origin_topic: str | None
    origin_id: str | None
    attempts: int
    reason: str

    @classmethod
    def of(cls, message: ReceivedMessage, attempts_max: int) -> DeadLetter:
        """Parse a message; `attempts_max` is the group's limit, unless the letter has its own."""
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
        """Return the message to send again: body, flag, keys, tags, sharding key and the
        application's properties only.
        """
        message, said = self.message, self.message.properties
        return Message(
            topic,
            message.body,
            message.tags,
            message.keys,
            {
                name: value
                for name, value in said.items()
                if name not in properties.OWN and name != properties.SHARDING_KEY
            },
            sharding_key=said.get(properties.SHARDING_KEY),
            flag=message.stored.flag,
        )

    def _variables(self) -> Mapping[str, str]:
        """Return the variables of a filter expression: the properties, and the letter's fields."""
        found = {
            "originTopic": self.origin_topic,
            "originId": self.origin_id,
            "attempts": str(self.attempts),
            "reason": self.reason,
        }
        return {
            **self.message.properties,
            **{name: text for name, text in found.items() if text is not None},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Selects letters by time of death, by keys, and by an SQL92 expression."""

    since_ms: int = 0
    until_ms: int = _FOREVER_MS
    keys: Sequence[str] = ()
    condition: str | None = None

    def check(self) -> None:
        """Raise InvalidExpressionError for an invalid condition, before anything is read."""
        if self.condition is None:
            return
        try:
            unread = compiled(self.condition).unread
        except InvalidExpressionError as problem:
            raise InvalidExpressionError(
                f"the filter {self.condition!r} is invalid: {problem}"
            ) from problem
        if unread is not None:
            raise InvalidExpressionError(
                f"the filter {self.condition!r} is invalid: unexpected {unread!r} after the"
                " expression"
            )

    def matches(self, letter: DeadLetter) -> bool:
        """Return whether a letter is selected."""
        if self.keys and not set(self.keys) & set(letter.message.keys):
            return False
        return self.condition is None or compiled(self.condition).matches(letter._variables().get)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeadLetters:
    """The number of a group's dead letters, and the brokers that store them."""

    group: str
    messages: int
    first_died_ms: int
    last_died_ms: int
    brokers: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class RedriveResult:
    """How many letters were sent back, or would be, by topic."""

    group: str
    is_dry_run: bool
    looked_at: int = 0
    without_topic: int = 0  # letters without an original topic
    unreadable: int = 0  # letters whose body cannot be decoded, and thus not be sent
    topics: Counter[str] = field(default_factory=Counter)
    last_died_ms: int = 0  # of the letters looked at

    @property
    def messages(self) -> int:
        return self.topics.total()


class DeadLetterOperations:
    """Lists and redrives dead letters."""

    def __init__(
        self,
        calls: Calls,
        topics: TopicOperations,
        groups: GroupOperations,
        messages: MessageOperations,
    ) -> None:
        self._calls = calls
        self._topics = topics
        self._groups = groups
        self._messages = messages

    async def groups(self) -> list[GroupDeadLetters]:
        """Return the groups that have dead letters, by name."""
        topics = [
            topic for topic in await self._topics.names() if topic.startswith(DEAD_LETTER_PREFIX)
        ]
        found = await asyncio.gather(*map(self._group, topics))
        return [each for each in found if each is not None]

    async def _group(self, topic: str) -> GroupDeadLetters | None:
        try:
            stats = (await self._topics.stats(topic)).queues
        except NotFoundError:
            return None  # deleted meanwhile
        full = {queue: ends for queue, ends in stats.items() if ends.max_offset > ends.min_offset}
        if not full:
            return None
        firsts = await asyncio.gather(
            *(self._messages.view(queue, ends.min_offset) for queue, ends in full.items())
        )
        return GroupDeadLetters(
            group=group_of(topic),
            messages=sum(ends.max_offset - ends.min_offset for ends in full.values()),
            first_died_ms=min(message.stored_at_ms for message in firsts),
            last_died_ms=max(ends.last_update_timestamp for ends in full.values()),
            brokers=tuple(sorted({queue.broker_name for queue in full})),
        )

    async def letters(self, group: str, choice: LetterFilter) -> AsyncIterator[DeadLetter]:
        """Yield a group's present dead letters, oldest first; raise NotFoundError if it never had
        any.
        """
        choice.check()
        attempts_max = await self._attempts_max(group_of(group))
        try:
            async for message in self._messages.between(
                topic_of(group), choice.since_ms, choice.until_ms
            ):
                letter = DeadLetter.of(message, attempts_max)
                if choice.matches(letter):
                    yield letter
        except NotFoundError as problem:
            topic, name = topic_of(group), group_of(group)
            why = (
                f"no broker has the topic {topic}, which the first dead letter creates; list the"
                " groups that have some with: orbitmq dlq list"
            )
            raise NotFoundError(f"group {name} has no dead letters: {why}") from problem

    async def _attempts_max(self, group: str) -> int:
        try:
            configs = await self._groups.configs(group)
        except NotFoundError:
            return GroupConfig(group).retry_max_times
        return max(config.retry_max_times for config in configs.values())

    async def redrive(
        self,
        group: str,
        choice: LetterFilter,
        *,
        to: str | None = None,
        rate: int | None = None,
        is_dry_run: bool = False,
    ) -> RedriveResult:
        """Send letters to their original topics, or all to `to`, at most `rate` per second.

        If one cannot be sent, the error says how many were sent before it, and from when to
        continue.
        """
        done = RedriveResult(group=group_of(group), is_dry_run=is_dry_run)
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
        """Sleep until the rate permits one more."""
        if rate is None:
            return
        wait_s = sent / rate - (self._calls.session.clock.monotonic_ms() - begin_ms) / 1000
        if wait_s >= _BEAT_S:
            await asyncio.sleep(wait_s)


async def _send(producer: Producer, letter: DeadLetter, topic: str, done: RedriveResult) -> None:
    try:
        outgoing = producer.outbox.message(letter.renewed(topic))
        # The topic is the broker's name: the session's namespace does not apply.
        await producer.send_outgoing(outgoing._replace(topic=topic))
    except OrbitError as problem:
        message = letter.message
        text = (
            f"the letter {message.msg_id} could not be sent to {topic}: {problem}. {done.messages}"
            " letters were sent before it; continue with those that died since then: --since"
            f" @{message.stored_at_ms}"
        )
        raise (
            InvalidMessageError if isinstance(problem, InvalidMessageError) else SendFailedError
        )(text) from problem


def _number(text: str | None, default: int) -> int:
    try:
        return default if text is None else int(text)
    except ValueError:
        return default
