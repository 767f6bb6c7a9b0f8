"""Access control from end to end, in both styles: our client allowed and denied, on a broker and a
name server of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq import (
    ClientSettings,
    ConsumerSettings,
    Credentials,
    LitePullConsumer,
    LitePullSettings,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RequestRefusedError,
    SendFailedError,
    TransactionProducer,
    TransactionState,
)
from orbitmq.admin import Admin
from orbitmq.message.message_id import parse_offset_id
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.testing import LocalCluster
from support.access.people import ALICE, OPERATOR, PLAIN_ACL, USERS, add_alice, ask, run, settings
from support.client.pull_consumers import polled
from support.common.waiting import until

FROM_FIRST = ConsumerSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
STYLES = ("accounts", "users", "users everywhere")
WRONG = {
    "wrong secret": (Credentials(ALICE.access_key, "guessed-secret"), "[Cc]heck signature failed"),
    "unknown key": (
        Credentials("nobody-key", "guessed-secret"),
        "No acl config for nobody-key|User:nobody-key is not found",
    ),
    "no key": (None, "No accessKey is configured|username cannot be null"),
}
DENIED = r"permission to access Topic:Denied|No default permission for topic:Denied"


@pytest.fixture(scope="module", params=STYLES)
def mq(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """A cluster that alice may use, but for one of its topics."""
    folder = tmp_path_factory.mktemp("conf")
    (folder / "plain_acl.yml").write_text(PLAIN_ACL)
    broker = (
        {"aclEnable": "true", "aclFolder": str(folder)}
        if request.param == "accounts"
        else dict(USERS)
    )
    with LocalCluster(
        broker=broker, name_server_keys=USERS if "everywhere" in request.param else {}
    ) as mq:

        async def prepare() -> None:
            async with Admin(settings(mq.name_server, OPERATOR)) as admin:
                if request.param != "accounts":
                    await add_alice(admin, at_name_servers="everywhere" in request.param)
            async with Producer(settings(mq.name_server, OPERATOR)) as producer:
                for topic in ("Allowed", "Denied"):
                    await producer.send(Message(topic, b"first"))

        run(prepare)
        yield mq


def client(mq: LocalCluster, credentials: Credentials | None) -> ClientSettings:
    return settings(mq.name_server, credentials)


def test_whoever_signs_with_the_right_key_does_all_that_it_may(
    mq: LocalCluster, tmp_path: Path
) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(f"AccessKey={ALICE.access_key}\nSecretKey={ALICE.secret_key}\n")
    alice = client(mq, Credentials.from_file(key_file))
    found: list[ReceivedMessage] = []

    async def scenario() -> None:
        consumer = PushConsumer(alice, "alices", found.append, settings=FROM_FIRST)
        consumer.subscribe("Allowed")
        lite = LitePullConsumer(
            alice,
            "alices-lite",
            settings=LitePullSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
        )
        lite.subscribe("Allowed")
        async with Producer(alice) as producer, consumer, lite:
            await producer.send(
                Message("Allowed", "größer €".encode(), "tag", ["key"], {"größe": "€"})
            )
            await producer.send_batch([Message("Allowed", b"b1"), Message("Allowed", b"b2")])
            await producer.send_oneway(Message("Allowed", b"oneway"))
            await until(lambda: len(found) == 5)
            await polled(lite, 5)
            await lite.commit()
            async with PullConsumer(alice, "alices-pulls") as puller:
                for queue in await puller.queues("Allowed"):
                    await puller.pull(queue, 0)
                    await puller.update_offset(queue, 0)
                    assert await puller.fetch_offset(queue) == 0

    run(scenario)
    assert sorted(message.body for message in found) == sorted(
        [b"first", "größer €".encode(), b"b1", b"b2", b"oneway"]
    )


@pytest.mark.parametrize("who", WRONG)
def test_whoever_does_not_hears_why_nothing_is_taken_or_given(mq: LocalCluster, who: str) -> None:
    credentials, why = WRONG[who]

    async def scenario() -> None:
        async with Producer(client(mq, credentials)) as producer:
            with pytest.raises((SendFailedError, RequestRefusedError), match=why):
                await producer.send(Message("Allowed", b"x"))
        async with PullConsumer(client(mq, credentials), "strangers") as puller:
            with pytest.raises(RequestRefusedError, match=why):
                await puller.pull(MessageQueue("Allowed", "broker-a", 0), 0)

    run(scenario)


def test_what_somebody_may_not_do_is_refused_by_name(mq: LocalCluster) -> None:
    async def scenario() -> None:
        async with Producer(client(mq, ALICE)) as producer:
            with pytest.raises((SendFailedError, RequestRefusedError), match=DENIED):
                await producer.send(Message("Denied", b"x"))
            with pytest.raises((SendFailedError, RequestRefusedError), match=DENIED):
                await producer.send_batch([Message("Denied", b"x"), Message("Denied", b"y")])
        async with PullConsumer(client(mq, ALICE), "alices-pulls") as puller:
            with pytest.raises(RequestRefusedError, match=DENIED):
                await puller.pull(MessageQueue("Denied", "broker-a", 0), 0)
        async with Admin(client(mq, ALICE)) as admin:
            with pytest.raises(
                RequestRefusedError, match=r"[Nn]eed admin|no permission to access Cluster"
            ):
                await admin.cluster.update_config(mq.broker_address(), {"traceOn": "false"})

    run(scenario)


@pytest.mark.parametrize(
    "delay", [{}, {"delay_level": 18}, {"delay_ms": 3_600_000}], ids=["now", "level", "timed"]
)
def test_a_message_of_another_topic_is_not_to_be_had_by_its_place_in_the_log(
    mq: LocalCluster, delay: dict[str, int]
) -> None:
    """Whatever topic the request claims; nor by sending it back to a group of one's own."""

    async def place() -> str:
        async with Producer(client(mq, OPERATOR)) as producer:
            result = await producer.send(Message("Denied", b"secret", **delay))  # type: ignore[arg-type]
        return str(parse_offset_id(result.offset_msg_id).log_offset)

    fields = {"offset": run(place), "topic": "Allowed"}
    seen = ask(
        mq.broker_address(),
        RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields=fields),
        OPERATOR,
    )
    assert b"secret" in (seen.body or b"")
    fields["offset"] = f"+00{fields['offset']}"  # which is the same number
    back = {"offset": fields["offset"], "group": "alices", "delayLevel": "0"}
    for code, named in (
        (RequestCode.VIEW_MESSAGE_BY_ID, fields),
        (RequestCode.CONSUMER_SEND_MSG_BACK, back),
    ):
        answer = ask(mq.broker_address(), RemotingCommand(code, ext_fields=dict(named)), ALICE)
        assert re.search(f"{DENIED}|permission to access Topic:Allowed", answer.remark or ""), (
            answer
        )
        assert not answer.body


def test_nobody_ends_a_transaction_in_a_topic_of_others(mq: LocalCluster) -> None:
    async def half(who: Credentials, topic: str) -> dict[str, str]:
        def undecided(*_: object) -> TransactionState:
            return TransactionState.UNKNOWN

        async with TransactionProducer(
            client(mq, who), group="dealers", execute=undecided, check=undecided
        ) as producer:
            sent = (await producer.send_in_transaction(Message(topic, b"deal"))).sent
        place = parse_offset_id(sent.offset_msg_id).log_offset
        numbers = {
            "tranStateTableOffset": str(sent.queue_offset),
            "commitLogOffset": str(place),
            "commitOrRollback": "8",
        }
        return {"producerGroup": "dealers", **numbers, "msgId": sent.msg_id}

    def ended(fields: dict[str, str], **claimed: str) -> RemotingCommand:
        return ask(
            mq.broker_address(),
            RemotingCommand(RequestCode.END_TRANSACTION, ext_fields={**fields, **claimed}),
            ALICE,
        )

    others, own = (
        run(lambda who=who, topic=topic: half(who, topic))  # type: ignore[misc]
        for who, topic in ((OPERATOR, "Denied"), (ALICE, "Allowed"))
    )
    for refused in (ended(others), ended(others, topic="Allowed")):
        assert re.search(DENIED, refused.remark or ""), refused
    assert ended(own).code == ResponseCode.SUCCESS


def test_replies_go_without_a_right_to_the_reply_topic_of_the_cluster_only(
    mq: LocalCluster,
) -> None:
    def replied(topic: str) -> RemotingCommand:
        properties = "UNIQ_KEY\x01R\x02REPLY_TO_CLIENT\x01nobody\x02"
        fields = {
            "a": "alices",
            "b": topic,
            "c": "TBW102",
            "d": "4",
            "e": "0",
            "f": "0",
            "g": "1",
            "h": "0",
            "i": properties,
            "j": "0",
        }
        return ask(
            mq.broker_address(),
            RemotingCommand(RequestCode.SEND_REPLY_MESSAGE_V2, ext_fields=fields, body=b"x"),
            ALICE,
        )

    refused = replied("new_REPLY_TOPIC")
    assert re.search(DENIED.replace("Denied", "new_REPLY_TOPIC"), refused.remark or ""), refused
    taken = replied("DefaultCluster_REPLY_TOPIC")
    assert "permission" not in (taken.remark or ""), taken
    config = (
        ask(mq.broker_address(), RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG), OPERATOR).body
        or b""
    )
    assert (b"DefaultCluster_REPLY_TOPIC" in config, b"new_REPLY_TOPIC" in config) == (True, False)


def test_nothing_that_a_broker_serves_goes_unchecked(mq: LocalCluster) -> None:
    for code in RequestCode:
        answer = ask(mq.broker_address(), RemotingCommand.request(code))
        assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION), (
            code,
            answer,
        )
        assert re.search(WRONG["no key"][1], answer.remark or ""), (code, answer)
