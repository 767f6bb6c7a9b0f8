"""Request and reply: a message that its consumer answers with another one, which a broker delivers
directly to the requesting client.

A request carries a correlation id and the client that expects the reply. Its consumer sends the
reply to the cluster's reply topic, and the broker forwards it to that client, which it knows from
the heartbeats of its producers.

Invariant: a request is settled once and forgotten after its timeout. A late reply is acknowledged
and dropped: if it were refused, it would be sent again and again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.client.messages import Message, ReceivedMessage, SendResult
from orbitmq.client.unwrapping import unwrap
from orbitmq.common.errors import InvalidMessageError, RemoteError, RequestTimeoutError
from orbitmq.common.topic_names import REPLY_SUFFIX
from orbitmq.message import hosts
from orbitmq.message.properties import (
    ARRIVE_TIME,
    CLUSTER,
    CORRELATION_ID,
    MESSAGE_TYPE,
    REPLY_TO_CLIENT,
    TTL,
    encode,
    parse,
)
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.send import ReplyMessageRequestHeader

if TYPE_CHECKING:
    from orbitmq.client.producer.producer import Producer, QueueSelector
    from orbitmq.client.session.client_session import ClientSession

_REPLY_TYPE: Final = "reply"
_COPIED: Final = (CORRELATION_ID, REPLY_TO_CLIENT, TTL)
_NO_HOST: Final = hosts.pack("0.0.0.0", 0)  # noqa: S104 - not listened on

log = logging.getLogger(__name__)


# -- the requester


async def request(
    producer: Producer,
    message: Message,
    timeout_ms: int,
    queue: MessageQueue | None,
    selector: QueueSelector | None,
) -> ReceivedMessage:
    """Send a message and wait for its reply."""
    session = producer.session
    correlation_id = str(uuid.uuid4())
    added = {
        CORRELATION_ID: correlation_id,
        REPLY_TO_CLIENT: session.client_id,
        TTL: str(timeout_ms),
    }
    outgoing = producer.outbox.message(message, added)
    reply: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
    session.requests[correlation_id] = reply
    was_sent = False
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await producer.queues(message.topic)
            await session.announce()  # brokers forward replies only to clients that they know
            await producer.send_outgoing(outgoing, queue, selector, timeout_ms)
            was_sent = True
            return await reply
    except RemoteError:
        raise
    except TimeoutError:
        outcome = (
            "was sent, but no reply came"
            if was_sent
            else "was not sent, or its send was not confirmed,"
        )
        raise RequestTimeoutError(
            f"the request to topic {message.topic} {outcome} within {timeout_ms} ms",
            was_sent=was_sent,
        ) from None
    finally:
        session.requests.pop(correlation_id, None)


async def accept_reply(session: ClientSession, command: RemotingCommand) -> RemotingCommand:
    """Pass a reply forwarded by a broker to the request that awaits it."""
    header = ReplyMessageRequestHeader.from_fields(command.ext_fields)
    received = received_reply(header, command.body or b"", session.clock.now_ms())
    correlation_id = received.properties.get(CORRELATION_ID, "")
    pending = session.requests.get(correlation_id)
    if pending is None or pending.done():
        log.info(
            "reply_not_awaited correlation_id=%s topic=%s; its request has already ended",
            correlation_id,
            received.topic,
        )
    else:
        pending.set_result(received)
    return command.reply(ResponseCode.SUCCESS)


def received_reply(header: ReplyMessageRequestHeader, body: bytes, now_ms: int) -> ReceivedMessage:
    """Return the forwarded reply as a message; it has no position in a queue that this client could
    read.
    """
    texts = parse(header.properties or "")
    stored = StoredMessage(
        topic=header.topic,
        queue_id=header.queue_id,
        queue_offset=0,
        log_offset=0,
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_time_ms=header.born_timestamp,
        born_host=_host(header.born_host),
        store_time_ms=header.store_timestamp,
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        prepared_offset=0,
        body=body,
        body_crc=0,
        raw_properties=encode({**texts, ARRIVE_TIME: str(now_ms)}),
        size=0,
    )
    return unwrap(stored, header.target_broker or "")[0]


def _host(text: str) -> bytes:
    """Parse `address:port` into the form of records; brokers may prefix a slash."""
    address, _, port = text.rpartition("/")[2].rpartition(":")
    try:
        return hosts.pack(address.strip("[]"), int(port))
    except (ValueError, OverflowError):
        return _NO_HOST


# -- the replier


class Reply(NamedTuple):
    """A reply message and its reserved properties."""

    message: Message
    added: Mapping[str, str]


def reply_to(
    received: ReceivedMessage,
    body: bytes,
    *,
    tags: str | None = None,
    keys: str | Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Reply:
    """Return the reply to a request; raise InvalidMessageError if the message is not a request."""
    found = received.properties
    cluster = found.get(CLUSTER)
    missing = [name for name in (CORRELATION_ID, REPLY_TO_CLIENT) if not found.get(name)]
    if missing or not cluster:
        raise InvalidMessageError(
            f"message {received.msg_id} of topic {received.topic} cannot be replied to: it has no"
            f" property {(missing or [CLUSTER])[0]}; only messages sent with request() expect a"
            " reply"
        )
    added = {name: found[name] for name in _COPIED if name in found}
    message = Message(cluster + REPLY_SUFFIX, body, tags, keys, properties or {})
    return Reply(message, {**added, MESSAGE_TYPE: _REPLY_TYPE})


async def send_reply(
    producer: Producer, received: ReceivedMessage, reply: Reply, timeout_ms: int | None
) -> SendResult:
    """Send a reply through the broker of the request, which knows the requester, or else through
    others.
    """
    outgoing = producer.outbox.message(*reply)
    # The reply topic belongs to the cluster: the client's namespace does not apply.
    outgoing = outgoing._replace(topic=reply.message.topic, is_reply=True)
    return await producer.send_outgoing(
        outgoing, None, _PreferBroker(received.queue.broker_name), timeout_ms
    )


class _PreferBroker:
    """Selects a queue of one broker first, then of brokers not tried yet."""

    def __init__(self, broker_name: str) -> None:
        self._wanted = broker_name
        self._tried: set[str] = set()

    def __call__(self, queues: Sequence[MessageQueue], _: Message) -> MessageQueue:
        left = [queue for queue in queues if queue.broker_name not in self._tried] or list(queues)
        chosen = random.choice(
            [queue for queue in left if queue.broker_name == self._wanted] or left
        )
        self._tried.add(chosen.broker_name)
        return chosen
