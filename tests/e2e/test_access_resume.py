"""RESUME_CHECK_HALF_MESSAGE with users and their rights: who may not change a topic lets no
questions about its messages begin again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq import Credentials, Message, TransactionProducer, TransactionState
from orbitmq.admin import Admin
from orbitmq.admin.access import policy_entry
from orbitmq.common.topic_names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.testing import LocalCluster
from support.access.people import OPERATOR, USERS, ask, run, settings
from support.common.waiting import until

CLERK = Credentials("clerk", "clerk-secret")
TOPICS = ("Own", "Others")
INTERVAL_S = 31
DENIED = "no permission to access Topic:Others"


@pytest.fixture
def mq() -> Iterator[LocalCluster]:
    """A broker at which the clerk may change one topic, and what the broker itself has of
    transactions.
    """

    async def prepare() -> None:
        async with Admin(settings(started.name_server, OPERATOR)) as admin:
            await admin.access.create_user(CLERK.access_key, CLERK.secret_key)
            for topic in TOPICS:
                await admin.topics.create(TopicConfig(topic, 1, 1))
            own = [f"Topic:{name}" for name in ("Own", HALF_TOPIC, CHECK_MAX_TIME_TOPIC)]
            await admin.access.create_acl(CLERK.access_key, policy_entry(own, ["Update"], "Allow"))

    keys = {**USERS, "transactionCheckMax": "1"}
    with LocalCluster(virtual_clock=True, topics={}, broker=keys) as started:
        run(prepare)
        yield started


def resumed(mq: LocalCluster, msg_id: str, topic: str) -> RemotingCommand:
    """What the clerk hears who says that the message is of a topic."""
    fields = {"msgId": msg_id, "topic": topic}
    return ask(
        mq.broker_address(),
        RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, ext_fields=fields),
        CLERK,
    )


def test_nobody_resumes_a_half_message_of_a_topic_of_others_whatever_topic_he_says(
    mq: LocalCluster,
) -> None:
    asked: list[str] = []

    def check(message: object) -> TransactionState:
        asked.append(str(message))
        return TransactionState.UNKNOWN

    async def halves() -> dict[str, str]:
        producer = TransactionProducer(
            settings(mq.name_server, OPERATOR),
            group="dealers",
            execute=lambda *_: TransactionState.UNKNOWN,
            check=check,
        )
        async with producer:
            return {
                topic: (
                    (await producer.send_in_transaction(Message(topic, b"deal"))).sent.offset_msg_id
                )
                for topic in TOPICS
            }

    found = run(halves)
    for said in ("Own", HALF_TOPIC, CHECK_MAX_TIME_TOPIC):
        answer = resumed(mq, found["Others"], said)
        assert (answer.code, DENIED in (answer.remark or "")) == (
            ResponseCode.NO_PERMISSION,
            True,
        ), answer
    assert DENIED in str(resumed(mq, found["Own"], "Others").remark), "what he says counts too"
    assert resumed(mq, found["Own"], "Own").code == ResponseCode.SUCCESS
    assert resumed(mq, found["Own"], HALF_TOPIC).code == ResponseCode.SUCCESS


def test_nor_one_that_was_given_up(mq: LocalCluster) -> None:
    async def kept_aside() -> dict[str, str]:
        producer = TransactionProducer(
            settings(mq.name_server, OPERATOR),
            group="dealers",
            execute=lambda *_: TransactionState.UNKNOWN,
            check=lambda _: TransactionState.UNKNOWN,
        )
        async with producer, Admin(settings(mq.name_server, OPERATOR)) as admin:
            for topic in TOPICS:
                await producer.send_in_transaction(Message(topic, topic.encode()))

            async def kept() -> dict[str, str] | None:
                mq.advance(INTERVAL_S)
                given_up = (await admin.transactions.open(given_up=True)).found.values()
                found = {
                    half.half.topic: half.stored.msg_id for halves in given_up for half in halves
                }
                return found if len(found) == len(TOPICS) else None

            return await until(kept, "all are given up")

    found = run(kept_aside)
    answer = resumed(mq, found["Others"], CHECK_MAX_TIME_TOPIC)
    assert (answer.code, DENIED in (answer.remark or "")) == (
        ResponseCode.NO_PERMISSION,
        True,
    ), answer
    assert resumed(mq, found["Own"], CHECK_MAX_TIME_TOPIC).code == ResponseCode.SUCCESS
