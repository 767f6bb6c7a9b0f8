"""One pull: the request to a broker for messages of a queue, and its reply. Used by every kind of
consumer.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.session.client_session import ClientSession
from orbitmq.client.unwrapping import UnwrappedReply, unwrap_reply
from orbitmq.common.errors import InvalidMessageError, NotFoundError, RequestRefusedError
from orbitmq.message.tag_expression import tags_of
from orbitmq.message.tags import java_hash
from orbitmq.protocol.bodies.clients import CheckClientRequestBody, MessageQueue
from orbitmq.protocol.bodies.subscriptions import SUBSCRIBE_ALL, TAG, SubscriptionData, is_tag_type
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

COMMITS: Final = 1
SUSPENDS: Final = 2
BRINGS_SUBSCRIPTION: Final = 4
IS_LITE: Final = 16

log = logging.getLogger(__name__)


class PullStatus(Enum):
    """The result of a pull."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MESSAGE = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MESSAGE = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


_STATUSES: Final[dict[int, PullStatus]] = {status.value: status for status in PullStatus}


class RawPull(NamedTuple):
    """Records of a queue as the broker sent them; `broker_id` is the replica to pull from next."""

    status: PullStatus
    body: bytes
    next_offset: int
    min_offset: int
    max_offset: int
    broker_id: int


class PullResult(NamedTuple):
    """Messages of a queue in order; `broker_id` is the replica to pull from next."""

    status: PullStatus
    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    broker_id: int


def subscription(
    topic: str, expression: str | None, kind: str = TAG, version: int = 0
) -> SubscriptionData:
    """Return a subscription to all messages, some tags, or an expression of another kind."""
    if not is_tag_type(kind):
        if not expression:
            raise InvalidMessageError(f"a {kind} subscription to topic {topic} needs an expression")
        return SubscriptionData(topic, expression, version, expression_type=kind)
    tags = tags_of(expression)
    if tags is None:
        return SubscriptionData(topic, SUBSCRIBE_ALL, version)
    return SubscriptionData(
        topic, expression, version, tags, tuple(dict.fromkeys(map(java_hash, tags)))
    )


async def check_expression(
    session: ClientSession, address: str, group: str, wanted: SubscriptionData
) -> None:
    """Check that a broker supports an expression; raise RequestRefusedError if not.

    A pull with an unsupported expression would return every message.
    """
    kind, expression = wanted.expression_type, wanted.sub_string
    if (
        kind is None
        or expression is None
        or is_tag_type(kind)
        or (address, kind, expression) in session.accepted_expressions
    ):
        return
    body = CheckClientRequestBody(session.client_id, group, wanted).encode()
    try:
        await session.ask(
            address, RemotingCommand.request(RequestCode.CHECK_CLIENT_CONFIG, body=body)
        )
    except RequestRefusedError as refused:
        problem = (
            f"the broker at {address} refused the {kind} expression {expression!r} for topic"
            f" {wanted.topic}: {refused}"
        )
        raise RequestRefusedError(refused.code, problem) from refused
    session.accepted_expressions.add((address, kind, expression))


async def pull_raw(
    session: ClientSession,
    group: str,
    queue: MessageQueue,
    offset: int,
    wanted: SubscriptionData,
    *,
    count_max: int = 32,
    commit_offset: int | None = None,
    suspend_ms: int = 0,
    timeout_ms: int = 30_000,
    broker_id: int = 0,
    is_lite: bool = False,
) -> RawPull:
    """Pull records of a queue from `offset`; the broker waits up to `suspend_ms` for the first."""
    route = await session.route(queue.topic)
    found = route.reader(queue.broker_name, broker_id)
    if found is None:
        raise NotFoundError(
            f"the broker {queue.broker_name} of {queue} is not registered at the moment; it is"
            " retried when it is back"
        )
    address, asked_id = found
    commits = commit_offset is not None and asked_id == 0  # a replica stores no offsets
    sys_flag = (
        (COMMITS if commits else 0)
        | (SUSPENDS if suspend_ms else 0)
        | (IS_LITE if is_lite else 0)
        | BRINGS_SUBSCRIPTION
    )
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count_max,
        sys_flag=sys_flag,
        commit_offset=commit_offset or 0,
        suspend_timeout_millis=suspend_ms,
        sub_version=wanted.sub_version,
        subscription=wanted.sub_string,
        expression_type=wanted.expression_type,
    )
    await check_expression(session, address, group, wanted)
    response = await _ask(session, address, header, timeout_ms, is_lite=is_lite)
    status = _STATUSES.get(response.code)
    if status is None:
        raise RequestRefusedError(
            response.code,
            response.remark or f"{address} replied to a pull of {queue} with code {response.code}",
        )
    reply = PullMessageResponseHeader.from_fields(response.ext_fields)
    body = (response.body or b"") if status is PullStatus.FOUND else b""
    return RawPull(
        status,
        body,
        reply.next_begin_offset,
        reply.min_offset,
        reply.max_offset,
        reply.suggest_which_broker_id,
    )


async def _ask(
    session: ClientSession,
    address: str,
    header: PullMessageRequestHeader,
    timeout_ms: int,
    *,
    is_lite: bool,
) -> RemotingCommand:
    """Send a pull; brokers of 5.0 and later have a separate request code for lite pulls."""
    if is_lite and address not in session.brokers_without_lite_pull:
        response = await session.client.invoke(
            address, RemotingCommand.request(RequestCode.LITE_PULL_MESSAGE, header), timeout_ms
        )
        if response.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return response
        session.brokers_without_lite_pull.add(address)
    return await session.client.invoke(
        address, RemotingCommand.request(RequestCode.PULL_MESSAGE, header), timeout_ms
    )


async def pull(
    session: ClientSession,
    group: str,
    queue: MessageQueue,
    offset: int,
    wanted: SubscriptionData,
    *,
    count_max: int = 32,
    commit_offset: int | None = None,
    suspend_ms: int = 0,
    timeout_ms: int = 30_000,
    broker_id: int = 0,
    is_lite: bool = False,
) -> PullResult:
    """Pull messages like `pull_raw`; messages that cannot be decoded have a `problem`.

    Of a corrupt reply, the messages before the corruption are returned and the rest is pulled
    again. If the first record is corrupt, it is pulled once more on its own and then skipped, which
    is logged.
    """

    async def ask(count_max: int) -> tuple[RawPull, UnwrappedReply]:
        raw = await pull_raw(
            session,
            group,
            queue,
            offset,
            wanted,
            count_max=count_max,
            commit_offset=commit_offset,
            suspend_ms=suspend_ms,
            timeout_ms=timeout_ms,
            broker_id=broker_id,
            is_lite=is_lite,
        )
        return raw, unwrap_reply(raw.body, queue, offset)

    raw, read = await ask(count_max)
    if read.resume_offset is not None and not read.messages:
        raw, read = await ask(1)
    next_offset = raw.next_offset
    if read.resume_offset is not None:
        next_offset = min(next_offset, read.resume_offset) if read.messages else offset + 1
        if not read.messages:
            place = (queue.topic, queue.broker_name, queue.queue_id, offset)
            log.warning(
                "message_lost topic=%s broker=%s queue=%d offset=%d why='the broker returned no"
                " valid record: %s'",
                *place,
                read.why,
            )
    messages = _wanted_of(session, read.messages, offset, wanted)
    return PullResult(raw.status, messages, next_offset, *raw[3:])


def _wanted_of(
    session: ClientSession, found: list[ReceivedMessage], offset: int, wanted: SubscriptionData
) -> list[ReceivedMessage]:
    """Return the messages that match the subscription; tags are compared as text, since hashes may
    collide.
    """
    # A batch is returned whole, even if part of it was read before.
    if found and found[0].stored.queue_offset < offset:
        found = [message for message in found if message.queue_offset >= offset]
    if wanted.tags and is_tag_type(wanted.expression_type):
        tags = frozenset(wanted.tags)
        found = [message for message in found if message.tags in tags]
    if session.names.name:
        for message in found:
            message.topic = session.names.own(message.topic)
    return found
