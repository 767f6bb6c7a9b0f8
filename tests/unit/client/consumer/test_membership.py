"""Explanations why a member has no queue of a topic, and the offset at which it starts."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from orbitmq.client.consumer.membership import GroupConsumer, GroupSettings, Membership
from orbitmq.client.consumer.offset_store import BrokerOffsets
from orbitmq.client.session.client_session import ClientSession
from orbitmq.common.errors import RequestRefusedError
from orbitmq.common.topic_names import RETRY_PREFIX
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.offsets import (
    GetMaxOffsetResponseHeader,
    QueryConsumerOffsetResponseHeader,
)
from support.client.groups import GROUP, TOPIC, Brokers, Consumer, Member, Session


@pytest.mark.parametrize(
    ("queue_count", "others", "why"),
    [
        (
            0,
            [],
            (
                "topic T is not readable: none of its queues has read permission; an operator can"
                " grant it (perm 6)"
            ),
        ),
        (1, ["a"], "topic T has 1 queues for 2 members, so some get none: add queues"),
        (4, [], None),
    ],
)
def test_it_says_why_it_has_no_queue(queue_count: int, others: list[str], why: str | None) -> None:
    async def scenario() -> None:
        brokers = Brokers(("broker-a",))
        brokers.queue_counts["broker-a"] = queue_count
        brokers.known["broker-a"].update(others)
        member = Member(brokers, "z")
        await member.membership.start()
        assert await member.membership.why_no_queue(TOPIC) == why
        await member.membership.stop()

    asyncio.run(scenario())


class BrokerOf55(Session):
    """Returns offsets of one queue like 5.5.0: none while it is empty, 0 while it is young. Each
    request is followed by `arrivals`.
    """

    def __init__(self, end: int, *arrivals: int, is_young: bool = True) -> None:
        super().__init__(Brokers(), "a")
        self._end = end
        self._arrivals = [*arrivals, *[0] * 10]
        self._is_young = is_young

    async def broker_of(self, queue: MessageQueue) -> str:
        return queue.broker_name

    async def ask(
        self, _address: str, request: RemotingCommand, _timeout_ms: int | None = None
    ) -> RemotingCommand:
        end, self._end = self._end, self._end + self._arrivals.pop(0)
        if request.code == RequestCode.GET_MAX_OFFSET:
            return request.reply(
                ResponseCode.SUCCESS, header=GetMaxOffsetResponseHeader(offset=end)
            )
        assert request.code == RequestCode.QUERY_CONSUMER_OFFSET
        if end == 0 or not self._is_young:
            raise RequestRefusedError(ResponseCode.QUERY_NOT_FOUND, "Not found")
        return request.reply(
            ResponseCode.SUCCESS, header=QueryConsumerOffsetResponseHeader(offset=0)
        )


@pytest.mark.parametrize(
    ("broker", "first"),
    [
        (BrokerOf55(0), 0),
        (BrokerOf55(0, 1), 0),
        (BrokerOf55(0, 0, 1), 0),
        (BrokerOf55(3), 0),
        (BrokerOf55(3, 1, is_young=False), 4),
    ],
)
def test_a_new_group_at_the_end_of_a_queue_misses_nothing_that_comes_while_it_asks(
    broker: BrokerOf55, first: int
) -> None:
    async def scenario() -> None:
        session = cast("ClientSession", broker)
        offsets, consumer = BrokerOffsets(session, GROUP), cast("GroupConsumer", Consumer())
        membership = Membership(
            session,
            GROUP,
            GroupSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
            offsets,
            consumer,
        )
        assert await membership.first_offset(MessageQueue(TOPIC, "broker-a", 0)) == first

    asyncio.run(scenario())


@pytest.mark.parametrize("where", list(ConsumeFromWhere))
def test_a_new_group_takes_all_that_comes_again_to_it(where: ConsumeFromWhere) -> None:
    async def scenario() -> None:
        session = cast("ClientSession", BrokerOf55(3, is_young=False))
        offsets, consumer = BrokerOffsets(session, GROUP), cast("GroupConsumer", Consumer())
        membership = Membership(
            session, GROUP, GroupSettings(consume_from=where), offsets, consumer
        )
        assert await membership.first_offset(MessageQueue(RETRY_PREFIX + GROUP, "broker-a", 0)) == 0

    asyncio.run(scenario())
