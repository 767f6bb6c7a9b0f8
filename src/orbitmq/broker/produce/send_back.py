"""Sending back: stores a message that a consumer could not consume once more, for a retry or as a
dead letter.

The copy, with its retry count increased, is delayed and then delivered to the group's retry topic,
or goes to its dead-letter topic at once. The consumer may forget the message once it has the reply,
so the copy has to be as durable as a message that is sent; Apache RocketMQ does not wait for the
disk here. Invariant: what is refused stores nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple, Protocol

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.metadata.groups import Groups
from orbitmq.broker.metadata.topics import READ_WRITE, Topics
from orbitmq.broker.produce import retry_policy
from orbitmq.broker.produce.admission import Busy
from orbitmq.broker.produce.deferral import MessageRewriter
from orbitmq.broker.produce.durable_replies import Write
from orbitmq.broker.produce.internal_writer import InternalMessageWriter, copy_of
from orbitmq.common.errors import InvalidMessageError, Refusal, RefusedError, StoreError
from orbitmq.common.topic_names import RETRY_PREFIX
from orbitmq.message import properties, record
from orbitmq.message.record_write import MessageRecord
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import PERM_WRITE, TOPIC_UNIT_SUB
from orbitmq.store.types import LogOffset

_NO_DELAY: Final = "0"

log = logging.getLogger(__name__)


class SendBackListener(Protocol):
    """Counts messages that are sent back."""

    def sent_back(self, topic: str, group: str) -> None: ...

    def dead_letter(self, topic: str, group: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBackRequest:
    """A message that a consumer sends back, free of wire types."""

    group: str
    log_offset: int
    delay_level: int  # 0: the broker chooses; below 0: a dead letter at once
    max_reconsume_times: int | None  # None: as the group says
    unit_mode: bool


class RetryCopy(NamedTuple):
    """The copy that was stored of a message."""

    original: StoredMessage
    origin: str  # the topic to which it was sent first
    is_dead_letter: bool
    write: Write


class SendBackService:
    """Stores messages once more for their groups."""

    def __init__(
        self,
        *,
        settings: BrokerConfig,
        topics: Topics,
        groups: Groups,
        own: InternalMessageWriter,
        record_at: Callable[[LogOffset], bytes | None],
        delay: MessageRewriter,
        listener: SendBackListener,
        random: Random,
        busy: Callable[[], Busy | None],
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._own = own
        self._record_at = record_at
        self._delay = delay
        self._listener = listener
        self._random = random
        self._busy = busy

    def send_back(self, request: SendBackRequest) -> RetryCopy | None:
        """Store the message once more; None if its group has no retries. Raises RefusedError."""
        if (busy := self._busy()) is not None:
            raise RefusedError(Refusal.BUSY, busy.remark)
        group = retry_policy.group_of(self._groups, request.group)
        if not self._settings.broker_permission & PERM_WRITE:
            raise RefusedError(
                Refusal.NO_PERMISSION,
                f"the broker[{self._settings.broker_ip1}] sending message is forbidden"
                " (brokerPermission)",
            )
        if group.retry_queue_nums <= 0:
            return None
        self._check_writable(RETRY_PREFIX + request.group)
        stored = self._message_at(request.log_offset)
        is_dead = request.delay_level < 0 or stored.reconsume_times >= retry_policy.times_max(
            group, request.max_reconsume_times
        )
        origin = stored.properties().get(properties.RETRY_TOPIC, stored.topic)
        retry_topic = self._topics.for_send_back(
            RETRY_PREFIX + request.group,
            group.retry_queue_nums,
            READ_WRITE,
            sys_flag=TOPIC_UNIT_SUB if request.unit_mode else 0,
        )
        if is_dead:
            topic = retry_policy.dead_letter_topic(self._topics, request.group)
            copy = _copy(stored, topic.name, retry_policy.DEAD_LETTER_QUEUE, origin, _NO_DELAY)
        else:
            topic = retry_topic
            copy = self._retry(stored, topic.name, origin, group, request.delay_level)
        end = self._put(copy)
        self._listener.sent_back(origin, request.group)
        if is_dead:
            self._listener.dead_letter(origin, request.group)
            log.info(
                "dead_letter group=%s topic=%s msg_id=%s times=%d",
                request.group,
                origin,
                stored.msg_id,
                stored.reconsume_times,
            )
        return RetryCopy(stored, origin, is_dead, Write(end=end, topic=topic.name))

    def _check_writable(self, topic: str) -> None:
        found = self._topics.find(topic)
        if found is not None and not found.perm & PERM_WRITE:
            raise RefusedError(
                Refusal.NO_PERMISSION,
                f"the topic[{topic}] sending message is forbidden: give it the permission to be"
                " written",
            )

    def _message_at(self, offset: int) -> StoredMessage:
        content = self._record_at(LogOffset(offset))
        if content is None:
            raise RefusedError(
                Refusal.FAILED,
                f"look message by offset failed, {offset}: no message begins there; it was deleted,"
                " or is in the log of another broker",
            )
        return record.decode(content)

    def _retry(
        self, stored: StoredMessage, topic: str, origin: str, group: GroupConfig, wanted_level: int
    ) -> MessageRecord:
        """Return the copy for the retry topic, deferred by its delay level."""
        level = str(retry_policy.delay_level(wanted_level, stored.reconsume_times))
        copy = _copy(stored, topic, self._random.randrange(group.retry_queue_nums), origin, level)
        deferred = self._delay.rewrite(copy, properties.parse(copy.properties))
        return copy if deferred is None else deferred.message

    def _put(self, message: MessageRecord) -> LogOffset:
        try:
            (appended,) = self._own.put(message)
        except (InvalidMessageError, StoreError) as problem:
            raise RefusedError(
                Refusal.FAILED, f"the message was not stored again: {problem}"
            ) from problem
        return appended.end


def _copy(
    stored: StoredMessage, topic: str, queue_id: int, origin: str, level: str
) -> MessageRecord:
    more = {
        properties.RETRY_TOPIC: origin,
        properties.ORIGIN_MESSAGE_ID: (
            stored.properties().get(properties.ORIGIN_MESSAGE_ID) or stored.msg_id
        ),
        properties.WAIT: "false",
        properties.DELAY: level,
    }
    return copy_of(stored, topic, queue_id, more, reconsume_times=stored.reconsume_times + 1)
