"""One pull: what a broker is asked for the messages of a queue, and what its answer means. Used by every kind of consumer."""

from __future__ import annotations

import logging
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.session import ClientSession
from orbitmq.client.unwrapping import Unwrapped, unwrapped
from orbitmq.common.errors import MessageIllegal, NotFound, RequestRefused
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
    """What a pull found."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MESSAGE = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MESSAGE = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


_STATUSES: Final[dict[int, PullStatus]] = {status.value: status for status in PullStatus}


class RawPull(NamedTuple):
    """The records of a queue as the broker sent them, and where to go on; `broker_id` is the replica that should be asked next."""

    status: PullStatus
    body: bytes
    next_offset: int
    min_offset: int
    max_offset: int
    broker_id: int


class PullResult(NamedTuple):
    """Messages of a queue in order, and where to go on; `broker_id` is the replica that should be asked next."""

    status: PullStatus
    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    broker_id: int


def subscription(topic: str, expression: str | None, kind: str = TAG, version: int = 0) -> SubscriptionData:
    """What a consumer wants of a topic: all, some tags, or what an expression of another kind says."""
    if not is_tag_type(kind):
        if not expression:
            raise MessageIllegal(f"a subscription of topic {topic} by {kind} needs an expression")
        return SubscriptionData(topic, expression, version, expression_type=kind)
    tags = tags_of(expression)
    if tags is None:
        return SubscriptionData(topic, SUBSCRIBE_ALL, version)
    return SubscriptionData(topic, expression, version, tags, tuple(dict.fromkeys(map(java_hash, tags))))


async def check_expression(session: ClientSession, address: str, group: str, wanted: SubscriptionData) -> None:
    """See that a broker understands an expression; RequestRefused when not: pulled with it, the broker would hand out everything."""
    kind, expression = wanted.expression_type, wanted.sub_string
    if kind is None or expression is None or is_tag_type(kind) or (address, kind, expression) in session.understood:
        return
    body = CheckClientRequestBody(session.client_id, group, wanted).encode()
    try:
        await session.ask(address, RemotingCommand.request(RequestCode.CHECK_CLIENT_CONFIG, body=body))
    except RequestRefused as refused:
        problem = f"the broker at {address} refuses the {kind} expression {expression!r} of topic {wanted.topic}: {refused}"
        raise RequestRefused(refused.code, problem) from refused
    session.understood.add((address, kind, expression))


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
    """Records of a queue from `offset` on; with `suspend_ms` the broker waits that long for the first one."""
    route = await session.route(queue.topic)
    found = route.reader(queue.broker_name, broker_id)
    if found is None:
        raise NotFound(f"the broker {queue.broker_name} of {queue} is not registered now; it is asked again when it is back")
    address, asked_id = found
    commits = commit_offset is not None and asked_id == 0  # a replica keeps no offsets
    sys_flag = (COMMITS if commits else 0) | (SUSPENDS if suspend_ms else 0) | (IS_LITE if is_lite else 0) | BRINGS_SUBSCRIPTION
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
        raise RequestRefused(response.code, response.remark or f"{address} answered a pull of {queue} with code {response.code}")
    told = PullMessageResponseHeader.from_fields(response.ext_fields)
    body = (response.body or b"") if status is PullStatus.FOUND else b""
    return RawPull(status, body, told.next_begin_offset, told.min_offset, told.max_offset, told.suggest_which_broker_id)


async def _ask(
    session: ClientSession, address: str, header: PullMessageRequestHeader, timeout_ms: int, *, is_lite: bool
) -> RemotingCommand:
    """A broker's answer to a pull; for lite pulls those of 5.0 and later have a code of its own."""
    if is_lite and address not in session.brokers_without_lite_pull:
        response = await session.client.invoke(address, RemotingCommand.request(RequestCode.LITE_PULL_MESSAGE, header), timeout_ms)
        if response.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return response
        session.brokers_without_lite_pull.add(address)
    return await session.client.invoke(address, RemotingCommand.request(RequestCode.PULL_MESSAGE, header), timeout_ms)


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
    """The same with the messages of the records; those whose bodies cannot be read have a `problem`.

    Of a reply that is damaged the messages before the damage are given. What is behind is asked for again, once from where the damage was
    the first, and then passed over, which is logged.
    """

    async def ask(count_max: int) -> tuple[RawPull, Unwrapped]:
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
        return raw, unwrapped(raw.body, queue, offset)

    raw, read = await ask(count_max)
    if read.rest_at is not None and not read.messages:
        raw, read = await ask(1)
    next_offset = raw.next_offset
    if read.rest_at is not None:
        next_offset = min(next_offset, read.rest_at) if read.messages else offset + 1
        if not read.messages:
            place = (queue.topic, queue.broker_name, queue.queue_id, offset)
            log.warning("message_lost topic=%s broker=%s queue=%d offset=%d why='the broker gave no record: %s'", *place, read.why)
    messages = _wanted_of(session, read.messages, offset, wanted)
    return PullResult(raw.status, messages, next_offset, *raw[3:])


def _wanted_of(session: ClientSession, found: list[ReceivedMessage], offset: int, wanted: SubscriptionData) -> list[ReceivedMessage]:
    """Those of the messages of a reply that were asked for; two tags may have one code, so the tags themselves are compared."""
    if found and found[0].stored.queue_offset < offset:  # a batch is stored whole, whatever was read of it before
        found = [message for message in found if message.queue_offset >= offset]
    if wanted.tags and is_tag_type(wanted.expression_type):
        tags = frozenset(wanted.tags)
        found = [message for message in found if message.tags in tags]
    if session.names.name:
        for message in found:
            message.topic = session.names.own(message.topic)
    return found
