"""Returns a message that was not consumed to the broker, for redelivery or as a dead letter."""

from __future__ import annotations

import logging
from typing import Final

from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.client.producer.outbox import ProducerSettings
from orbitmq.client.producer.producer import Producer
from orbitmq.client.session.client_session import ClientSession
from orbitmq.common.errors import OrbitError, RequestRefusedError
from orbitmq.common.topic_names import RETRY_PREFIX
from orbitmq.message import properties
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader

INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
MAX_ATTEMPTS_DEFAULT: Final = 16
_TIMEOUT_MS: Final = 5_000
_SIZE_MAX: Final = 1 << 30  # no limit here: the broker stored it once, and enforces its own limit
_FIRST_DELAY_LEVEL: Final = 3
_DEAD_LEVEL: Final = -1  # do not redeliver
_NOT_COPIED: Final = frozenset({properties.UNIQUE_KEY, properties.WAIT, properties.DELAY})

log = logging.getLogger(__name__)


class RetrySender:
    """Sends back the messages of one group, by the broker's name of it."""

    def __init__(self, session: ClientSession, group: str, max_attempts: int) -> None:
        self._session = session
        self._group = group
        self._max_attempts = MAX_ATTEMPTS_DEFAULT if max_attempts < 0 else max_attempts
        self._producer = Producer(
            session, group=INNER_PRODUCER_GROUP, settings=ProducerSettings(size_max=_SIZE_MAX)
        )

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Have the broker redeliver a message after a delay level or its default; return whether
        one will.
        """
        try:
            await self._send_back(message, delay_level)
        except OrbitError as problem:
            log.info(
                "not_sent_back msg_id=%s why='%s'; trying the retry topic on another broker",
                message.msg_id,
                problem,
            )
            return await self.to_retry_topic(message)
        return True

    async def to_dead_letters(self, message: ReceivedMessage) -> bool:
        """Have the broker turn a message into a dead letter as stored; return whether it did.

        Raises RequestRefusedError if the broker refuses; an unreachable broker is logged.
        """
        try:
            await self._send_back(message, _DEAD_LEVEL)
        except RequestRefusedError:
            raise
        except OrbitError as problem:
            log.warning(
                "not_sent_to_dead_letters msg_id=%s group=%s why='%s'; will be retried",
                message.msg_id,
                self._group,
                problem,
            )
            return False
        return True

    async def _send_back(self, message: ReceivedMessage, delay_level: int) -> None:
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
        await self._session.ask(
            address,
            RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header),
            _TIMEOUT_MS,
        )

    async def to_retry_topic(self, message: ReceivedMessage) -> bool:
        """Send a copy to the group's retry topic on any broker; return whether one accepted it."""
        copied = {
            name: value for name, value in message.properties.items() if name not in _NOT_COPIED
        }
        added = {
            **copied,
            properties.RETRY_TOPIC: self._session.names.wire(message.topic),
            properties.ORIGIN_MESSAGE_ID: (
                copied.get(properties.ORIGIN_MESSAGE_ID) or message.msg_id
            ),
            properties.DELAY: str(_FIRST_DELAY_LEVEL + message.reconsume_times),
        }
        try:
            copy = self._producer.outbox.message(
                Message(RETRY_PREFIX + self._group, message.body, flag=message.stored.flag), added
            )
            await self._producer.send_outgoing(
                copy._replace(
                    reconsume_times=message.reconsume_times + 1,
                    max_reconsume_times=self._max_attempts,
                )
            )
        except OrbitError as problem:
            log.warning(
                "not_sent_to_retry_topic msg_id=%s group=%s why='%s'",
                message.msg_id,
                self._group,
                problem,
            )
            return False
        return True
