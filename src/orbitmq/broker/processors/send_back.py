"""CONSUMER_SEND_MSG_BACK: a consumer could not consume a message; it comes again later or, once it came too often, is a dead letter.

A copy of the message, one retry older, goes to the group's retry topic, by way of a delay, or to its dead letters. The consumer may
forget the message as soon as it has its answer, so that comes when the copy is as safe as a message that is sent; the original does not
wait for the disk. Invariant: what is refused stores nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from orbitmq.broker import retries
from orbitmq.broker.admission import Busy
from orbitmq.broker.groups import Groups
from orbitmq.broker.own_messages import OwnMessages, copy_of
from orbitmq.broker.plugins.interfaces import SentBack
from orbitmq.broker.processors.safe_answers import SafeAnswers
from orbitmq.broker.processors.send import Placer
from orbitmq.broker.topics import READ_WRITE, Topics
from orbitmq.common.errors import MessageIllegal, RequestRefused, StoreError
from orbitmq.common.topic_names import RETRY_PREFIX
from orbitmq.message import properties, record
from orbitmq.message.record_write import Message
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import PERM_WRITE, TOPIC_UNIT_SUB
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.types import LogOffset

_NO_DELAY: Final = "0"

log = logging.getLogger(__name__)


class SendBackSettings(Protocol):
    """What of the configuration is looked at."""

    @property
    def broker_ip1(self) -> str: ...
    @property
    def broker_permission(self) -> int: ...


class SendBackListener(Protocol):
    """Hears what consumers could not consume."""

    def sent_back(self, topic: str, group: str) -> None: ...

    def dead_letter(self, topic: str, group: str) -> None: ...


class SendBackProcessor:
    """36. `delay` knows where messages wait; `told` hears of each message that is stored again."""

    def __init__(
        self,
        settings: SendBackSettings,
        *,
        topics: Topics,
        groups: Groups,
        own: OwnMessages,
        answers: SafeAnswers,
        record_at: Callable[[LogOffset], bytes | None],
        delay: Placer,
        listener: SendBackListener,
        random: Random,
        busy: Callable[[], Busy | None],
        told: Callable[[SentBack], None] | None = None,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._own = own
        self._answers = answers
        self._record_at = record_at
        self._delay = delay
        self._listener = listener
        self._random = random
        self._busy = busy
        self._told = told

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Store the message once more."""
        if (busy := self._busy()) is not None:
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, busy.remark)
        header = ConsumerSendMsgBackRequestHeader.from_fields(request.ext_fields)
        group = retries.group_of(self._groups, header.group)
        done = request.answer(ResponseCode.SUCCESS)
        if not self._settings.broker_permission & PERM_WRITE:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the broker[{self._settings.broker_ip1}] sending message is forbidden (brokerPermission)"
            )
        if group.retry_queue_nums <= 0:  # then nothing comes again
            return done
        self._check_writable(RETRY_PREFIX + header.group)
        stored = self._message_at(header.offset)
        is_dead = header.delay_level < 0 or stored.reconsume_times >= retries.times_max(group, header.max_reconsume_times, request.version)
        origin = stored.properties().get(properties.RETRY_TOPIC, stored.topic)
        retry_topic = self._topics.for_send_back(
            RETRY_PREFIX + header.group, group.retry_queue_nums, READ_WRITE, sys_flag=TOPIC_UNIT_SUB if header.unit_mode else 0
        )
        if is_dead:
            topic = retries.dead_letter_topic(self._topics, header.group)
            copy = _copy(stored, topic.name, retries.DEAD_LETTER_QUEUE, origin, _NO_DELAY)
        else:
            topic = retry_topic
            copy = self._retry(stored, topic.name, origin, group, header.delay_level)
        end = self._put(copy)
        self._listener.sent_back(origin, header.group)
        if is_dead:
            self._listener.dead_letter(origin, header.group)
            log.info("dead_letter group=%s topic=%s msg_id=%s times=%d", header.group, origin, stored.msg_id, stored.reconsume_times)
        if self._told is not None:
            self._told(
                SentBack(
                    consumer_group=header.group,
                    topic=origin,
                    message_id=stored.msg_id,
                    reconsume_times=stored.reconsume_times,
                    is_dead_letter=is_dead,
                    client_address=channel.remote_address,
                )
            )
        return self._answers.give(channel, request, done, end, topic.name)

    def _check_writable(self, topic: str) -> None:
        found = self._topics.find(topic)
        if found is not None and not found.perm & PERM_WRITE:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden: give it the permission to be written"
            )

    def _message_at(self, offset: int) -> StoredMessage:
        content = self._record_at(LogOffset(offset))
        if content is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"look message by offset failed, {offset}: no message begins there; it was deleted, or is in the log of another broker",
            )
        return record.decode(content)

    def _retry(self, stored: StoredMessage, topic: str, origin: str, group: GroupConfig, wanted_level: int) -> Message:
        """The copy that comes again, as it waits for that."""
        level = str(retries.delay_level(wanted_level, stored.reconsume_times))
        copy = _copy(stored, topic, self._random.randrange(group.retry_queue_nums), origin, level)
        placed = self._delay.place(copy, properties.parse(copy.properties))
        return copy if placed is None else placed.message

    def _put(self, message: Message) -> LogOffset:
        try:
            (appended,) = self._own.put(message)
        except (MessageIllegal, StoreError) as problem:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the message was not stored again: {problem}") from problem
        return appended.end


def _copy(stored: StoredMessage, topic: str, queue_id: int, origin: str, level: str) -> Message:
    more = {
        properties.RETRY_TOPIC: origin,
        properties.ORIGIN_MESSAGE_ID: stored.properties().get(properties.ORIGIN_MESSAGE_ID) or stored.msg_id,
        properties.WAIT: "false",
        properties.DELAY: level,
    }
    return copy_of(stored, topic, queue_id, more, reconsume_times=stored.reconsume_times + 1)
