"""Sends transaction checks: asks any online producer of the sending group about a half message that
has not ended.

Knows which producers are online and what a check looks like, but not when one is due.
"""

from __future__ import annotations

import logging

from orbitmq.broker.clients.producers import Producers
from orbitmq.broker.produce.internal_writer import copy_of
from orbitmq.broker.transactions import records
from orbitmq.message import half_messages, properties
from orbitmq.message.record_write import MessageRecord, encode, record_size
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from orbitmq.remoting.channel import channel_of

log = logging.getLogger(__name__)


class CheckSender:
    """The built-in `TransactionChecks` of a broker."""

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
        log.info(
            "transaction_asked group=%s root=%d peer=%s",
            group,
            half_messages.root_of(half),
            channel.remote_address,
        )
        channel_of(channel).invoke_oneway(question(half, self._broker_name))

    def given_up(self, half: StoredMessage) -> MessageRecord | None:
        return records.given_up(half)


def question(half: StoredMessage, broker_name: str) -> RemotingCommand:
    """Return the CHECK_TRANSACTION_STATE request: the position of the half message, and its message
    as the body.
    """
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
    topic, queue_id = (
        found.get(properties.REAL_TOPIC, half.topic),
        half_messages.number(found.get(properties.REAL_QUEUE_ID)) or 0,
    )
    message = copy_of(
        half,
        topic,
        queue_id,
        {properties.WAIT: "false"},
        without=(properties.PREPARED_QUEUE_OFFSET,),
    )
    body = bytearray(record_size(message, half.store_host))
    encode(
        message, body, 0, half.queue_offset, half.log_offset, half.store_time_ms, half.store_host
    )
    return RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, header, bytes(body))
