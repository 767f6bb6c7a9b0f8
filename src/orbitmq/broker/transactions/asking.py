"""How producers are asked about half messages of which they said nothing: any that is online of the group that sent it.

Knows who is online and what a question looks like, nothing of when one is due.
"""

from __future__ import annotations

import logging

from orbitmq.broker.own_messages import copy_of
from orbitmq.broker.producers import Producers
from orbitmq.broker.transactions import records
from orbitmq.message import half_messages, properties
from orbitmq.message.record_write import Message, encode, record_size
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.transaction import CheckTransactionStateRequestHeader

log = logging.getLogger(__name__)


class ProducerChecks:
    """The `TransactionChecks` of a broker that has no others."""

    def __init__(self, producers: Producers, broker_name: str) -> None:
        self._producers = producers
        self._broker_name = broker_name

    def can_ask(self, group: str) -> bool:
        return any(channel.is_open for channel in self._producers.members(group))

    def ask(self, half: StoredMessage) -> None:
        group = half.properties().get(properties.PRODUCER_GROUP, "")
        channel = self._producers.any_channel(group)
        if channel is None:
            return
        log.info("transaction_asked group=%s root=%d peer=%s", group, half_messages.root_of(half), channel.remote_address)
        channel.invoke_oneway(question(half, self._broker_name))

    def given_up(self, half: StoredMessage) -> Message | None:
        return records.given_up(half)


def question(half: StoredMessage, broker_name: str) -> RemotingCommand:
    """CHECK_TRANSACTION_STATE: where the half message lies, and itself as the message that it will be."""
    found = half.properties()
    unique_key = found.get(properties.UNIQUE_KEY)
    header = CheckTransactionStateRequestHeader(
        topic=half.topic,
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=half.log_offset,
        msg_id=unique_key,
        transaction_id=unique_key,
        offset_msg_id=half.msg_id,
        target_broker=broker_name,
    )
    topic, queue_id = found.get(properties.REAL_TOPIC, half.topic), half_messages.number(found.get(properties.REAL_QUEUE_ID)) or 0
    message = copy_of(half, topic, queue_id, {properties.WAIT: "false"}, without=(properties.PREPARED_QUEUE_OFFSET,))
    body = bytearray(record_size(message, half.store_host))
    encode(message, body, 0, half.queue_offset, half.log_offset, half.store_time_ms, half.store_host)
    return RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, header, bytes(body))
