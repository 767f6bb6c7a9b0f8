"""The way of a message that a listener did not take: back to the broker, which delivers it again later, or to the dead letters."""

from __future__ import annotations

import logging
from typing import Final

from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.client.outbox import ProducerSettings
from orbitmq.client.producer import Producer
from orbitmq.client.session import ClientSession
from orbitmq.common.errors import OrbitError, RequestRefused
from orbitmq.common.topic_names import RETRY_PREFIX
from orbitmq.message import properties
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader

INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
MAX_ATTEMPTS_DEFAULT: Final = 16
_TIMEOUT_MS: Final = 5_000
_SIZE_MAX: Final = 1 << 30  # what a broker took once is not too long here; it says so itself when it is
_FIRST_DELAY_LEVEL: Final = 3
_DEAD_LEVEL: Final = -1  # which says that it is not to come again
_NOT_COPIED: Final = frozenset({properties.UNIQUE_KEY, properties.WAIT, properties.DELAY})

log = logging.getLogger(__name__)


class SendBack:
    """For one group, by the name that brokers know."""

    def __init__(self, session: ClientSession, group: str, max_attempts: int) -> None:
        self._session = session
        self._group = group
        self._max_attempts = MAX_ATTEMPTS_DEFAULT if max_attempts < 0 else max_attempts
        self._producer = Producer(session, group=INNER_PRODUCER_GROUP, settings=ProducerSettings(size_max=_SIZE_MAX))

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Let the broker deliver a message again, after the delay of a level or of its own rule; whether it will."""
        try:
            await self._give(message, delay_level)
        except OrbitError as problem:
            log.info("not_sent_back msg_id=%s why='%s'; another broker may keep it", message.msg_id, problem)
            return await self.to_retry_topic(message)
        return True

    async def to_dead_letters(self, message: ReceivedMessage) -> bool:
        """Have the broker put a message that nobody can read among the dead letters of the group, as it is stored; whether it did.

        RequestRefused when it does not want to; when it cannot be asked, that is logged.
        """
        try:
            await self._give(message, _DEAD_LEVEL)
        except RequestRefused:
            raise
        except OrbitError as problem:
            log.warning("not_sent_to_dead_letters msg_id=%s group=%s why='%s'; tried again", message.msg_id, self._group, problem)
            return False
        return True

    async def _give(self, message: ReceivedMessage, delay_level: int) -> None:
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.stored.log_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=self._session.names.wire(message.topic),
            unit_mode=False,
            max_reconsume_times=self._max_attempts,
            target_broker=message.queue.broker_name,
        )
        address = await self._session.broker_of(message.queue)
        await self._session.ask(address, RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header), _TIMEOUT_MS)

    async def to_retry_topic(self, message: ReceivedMessage) -> bool:
        """Send a copy to the retry topic of the group, on whichever broker; whether it was taken."""
        copied = {name: value for name, value in message.properties.items() if name not in _NOT_COPIED}
        added = {
            **copied,
            properties.RETRY_TOPIC: self._session.names.wire(message.topic),
            properties.ORIGIN_MESSAGE_ID: copied.get(properties.ORIGIN_MESSAGE_ID) or message.msg_id,
            properties.DELAY: str(_FIRST_DELAY_LEVEL + message.reconsume_times),
        }
        try:
            copy = self._producer.outbox.message(Message(RETRY_PREFIX + self._group, message.body, flag=message.stored.flag), added)
            await self._producer.send_outgoing(
                copy._replace(reconsume_times=message.reconsume_times + 1, max_reconsume_times=self._max_attempts)
            )
        except OrbitError as problem:
            log.warning("not_sent_to_retry_topic msg_id=%s group=%s why='%s'", message.msg_id, self._group, problem)
            return False
        return True
