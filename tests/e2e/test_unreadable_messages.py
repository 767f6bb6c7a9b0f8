"""Messages whose bodies nobody can read: they keep no other message from its consumer, and nobody
loses them silently.
"""

from __future__ import annotations

import asyncio
import json
import logging
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orbitmq import (
    Admin,
    ConsumerSettings,
    CorruptRecordError,
    Message,
    MessageModel,
    MessageQueue,
    OrbitError,
    Producer,
    PullConsumer,
    PullStatus,
    PushConsumer,
    ReceivedMessage,
    RequestRefusedError,
    TransactionProducer,
    TransactionState,
)
from orbitmq.admin.dead_letters import LetterFilter
from orbitmq.admin.positions import QueueEdge
from orbitmq.client import unwrapping
from orbitmq.client.consumer import consume_services
from orbitmq.message.flags import COMPRESSED
from orbitmq.testing import LocalCluster
from support.cli.commands import Shell
from support.client.library import FROM_FIRST
from support.client.pull_consumers import FROM_FIRST as POLLS_FROM_FIRST
from support.client.pull_consumers import polled, subscribed
from support.common.waiting import until

BROKER = "broker-a"
NO_ZLIB = b"this is no zlib data"
UNKNOWN_TYPE = COMPRESSED | 0x700
BAD = {
    "no zlib": (NO_ZLIB, COMPRESSED),
    "cut": (zlib.compress(b"x" * 100)[:-5], COMPRESSED),
    "unknown type": (b"x", UNKNOWN_TYPE),
}
WAYS = {
    "side by side": FROM_FIRST,
    "in order": replace(FROM_FIRST, in_order=True, retry_pause_ms=10),
    "broadcast": replace(FROM_FIRST, message_model=MessageModel.BROADCASTING),
}


def run(scenario: Callable[[LocalCluster], Awaitable[None]]) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(90),
            LocalCluster(topics={"T": 1}, broker={"transactionCheckInterval": "500"}) as mq,
        ):
            await scenario(mq)

    asyncio.run(main())


async def send(
    mq: LocalCluster, *bodies: bytes | tuple[bytes, int], topic: str = "T", tags: str = "a"
) -> list[str]:
    """Send messages, those with a flag as they are; their ids."""
    ids = []
    async with Producer(mq.name_server) as producer:
        for body in bodies:
            plain, flag = body if isinstance(body, tuple) else (body, 0)
            made = producer.outbox.message(Message(topic, b"x", tags=tags, keys="k"))
            ids.append(
                (await producer.send_outgoing(made._replace(body=plain, sys_flag=flag))).msg_id
            )
    return ids


def warnings(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and record.getMessage().startswith(event)
    ]


async def letters(mq: LocalCluster, count: int) -> list[ReceivedMessage]:
    async with Admin(mq.name_server) as admin:

        async def found() -> list[ReceivedMessage] | None:
            try:
                letters = [
                    letter.message
                    async for letter in admin.dead_letters.letters("g", LetterFilter())
                ]
            except OrbitError:  # the topic comes with its first letter
                return None
            return letters if len(letters) >= count else None

        return await until(found, f"{count} dead letters")


@pytest.mark.parametrize("way", WAYS)
def test_a_push_consumer_gets_its_neighbours_and_the_dead_letters_get_it(
    way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(WAYS[way], offsets_folder=tmp_path)

    async def scenario(mq: LocalCluster) -> None:
        ids = await send(
            mq, b"first", BAD["no zlib"], b"second", BAD["cut"], BAD["unknown type"], b"third"
        )
        got: list[bytes] = []
        consumer = PushConsumer(
            mq.name_server, "g", lambda message: got.append(message.body), settings=settings
        )
        consumer.subscribe("T", "a")
        async with consumer:
            await until(lambda: len(got) == 3)
            assert sorted(got) == [b"first", b"second", b"third"]
            if way == "in order":
                assert got == [b"first", b"second", b"third"]
            line, *others = warnings(caplog, "message_unreadable")
            assert len(others) == 2, "each is logged once"
            assert line.startswith(
                f"message_unreadable topic=T broker={BROKER} queue=0 offset=1 msg_id={ids[1]}"
                " why='a body of 20"
            )
            if way == "broadcast":
                return
            dead = await letters(mq, 3)
            assert [message.stored.body for message in dead] == [NO_ZLIB, BAD["cut"][0], b"x"]
            await until(
                lambda: all(offset == 6 for offset in consumer.committed_offsets("T").values())
            )

    run(scenario)


def test_a_message_whose_dead_letter_is_refused_is_tried_again_and_then_given_up_where_it_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_services, "_RETRY_HERE_S", 0.01)

    async def scenario(mq: LocalCluster) -> None:
        await send(mq, BAD["no zlib"], b"good")
        got: list[bytes] = []
        refused = 0
        consumer = PushConsumer(
            mq.name_server, "g", lambda message: got.append(message.body), settings=FROM_FIRST
        )

        async def give(*_: object) -> None:
            nonlocal refused
            refused += 1
            raise RequestRefusedError(1, "it is full")

        monkeypatch.setattr(consumer._service._send_back, "_send_back", give)  # type: ignore[attr-defined]
        consumer.subscribe("T")
        async with consumer:
            await until(
                lambda: (
                    all(offset == 2 for offset in consumer.committed_offsets("T").values())
                    and len(got) == 1
                )
            )
        assert (got, refused) == ([b"good"], 12)
        assert any("message_given_up group=g" in record.getMessage() for record in caplog.records)

    run(scenario)


def test_a_lite_pull_consumer_and_a_pull_consumer_get_it_with_its_problem(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, b"first", BAD["no zlib"], b"second")
        async with subscribed(mq, POLLS_FROM_FIRST) as consumer:
            first, bad, second = await polled(consumer, 3)
            assert (first.body, second.body, bad.stored.body) == (b"first", b"second", NO_ZLIB)
            assert bad.problem is not None
            assert (bad.tags, bad.keys) == ("a", ("k",))
            with pytest.raises(
                CorruptRecordError,
                match=(
                    f"the body of message {bad.msg_id} of topic T cannot be decoded: .* is not ZLIB"
                    " data"
                ),
            ):
                _ = bad.body
            assert NO_ZLIB.decode() in repr(bad), "it can be shown"
            assert len(warnings(caplog, "message_unreadable")) == 1
        async with PullConsumer(mq.name_server, "h") as puller:
            queue = MessageQueue("T", BROKER, 0)
            found = await puller.pull(queue, 0)
            assert (found.status, found.next_offset) == (PullStatus.FOUND, 3)
            assert [message.problem is None for message in found.messages] == [True, False, True]

    run(scenario)


def test_a_bomb_is_not_inflated_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwrapping, "BODY_SIZE_MAX", 1_000_000)

    async def scenario(mq: LocalCluster) -> None:
        await send(mq, b"first", (zlib.compress(bytes(10_000_000)), COMPRESSED), b"second")
        async with subscribed(mq, POLLS_FROM_FIRST) as consumer:
            first, bad, second = await polled(consumer, 3)
            assert (first.body, second.body) == (b"first", b"second")
            assert "inflates to more than 1000000 bytes" in str(bad.problem)

    run(scenario)


def test_bodies_that_inflate_to_too_much_together_come_by_several_pulls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unwrapping, "REPLY_SIZE_MAX", 1_000_000)

    async def scenario(mq: LocalCluster) -> None:
        await send(
            mq, *[(zlib.compress(b"%d" % number * 400_000), COMPRESSED) for number in range(7)]
        )
        async with PullConsumer(mq.name_server, "h") as puller:
            queue, offset, got = MessageQueue("T", BROKER, 0), 0, []
            while offset < 7:
                found = await puller.pull(queue, offset)
                assert 1 <= len(found.messages) <= 2
                got += [message.body[:1] for message in found.messages]
                offset = found.next_offset
            assert got == [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]

    run(scenario)


def test_tools_show_it_and_its_neighbours() -> None:
    async def scenario(mq: LocalCluster) -> None:
        ids = await send(mq, b"first", BAD["no zlib"], b"second")
        async with Admin(mq.name_server) as admin:
            by_key = await admin.messages.by_key("T", "k")
            assert [message.problem is None for message in by_key] == [True, False, True]
            assert (await admin.messages.get(ids[1])).message.problem is not None
            found = [message async for message in admin.messages.between("T", 0, 1 << 60)]
            assert [message.msg_id for message in found] == ids
            async with admin.messages.follow("T", QueueEdge.FIRST) as follower:
                followed = [await anext(follower) for _ in range(3)]
            assert [message.msg_id for message in followed] == ids
        tailed = await asyncio.to_thread(
            Shell(mq.name_server).run,
            "message",
            "tail",
            "T",
            "--from",
            "first",
            "-c",
            "3",
            "-o",
            "json",
        )
        rows = [json.loads(line) for line in tailed.stdout.splitlines()]
        assert [row["body"] for row in rows] == ["first", None, "second"]
        assert "not ZLIB data" in rows[1]["problem"]

    run(scenario)


def test_a_redrive_passes_over_letters_that_cannot_be_read() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, BAD["no zlib"])
        got: list[bytes] = []

        def listen(message: ReceivedMessage) -> None:
            got.append(message.body)
            raise ValueError("no")

        settings: ConsumerSettings = replace(FROM_FIRST, max_attempts=0)
        consumer = PushConsumer(mq.name_server, "g", listen, settings=settings)
        consumer.subscribe("T")
        async with consumer:
            await letters(mq, 1)
            await send(mq, b"good")
            await letters(mq, 2)
        async with Admin(mq.name_server) as admin:
            done = await admin.dead_letters.redrive("g", LetterFilter(), to="T")
            assert (done.looked_at, done.unreadable, done.messages) == (2, 1, 1)

    run(scenario)


def test_a_request_is_settled_by_a_reply_that_cannot_be_read() -> None:
    async def scenario(mq: LocalCluster) -> None:
        async with (
            Producer(mq.name_server) as asker,
            Producer(mq.name_server, group="replies") as replier,
        ):
            made = replier.outbox.message

            async def listen(message: ReceivedMessage) -> None:
                replier.outbox.message = lambda *arguments: made(*arguments)._replace(  # type: ignore[method-assign]
                    sys_flag=COMPRESSED
                )
                await replier.reply(message, NO_ZLIB)

            consumer = PushConsumer(mq.name_server, "g", listen, settings=FROM_FIRST)
            consumer.subscribe("T")
            async with consumer:
                reply = await asker.request(Message("T", b"question"), timeout_ms=30_000)
                assert reply.stored.body == NO_ZLIB
                with pytest.raises(CorruptRecordError, match="not ZLIB data"):
                    _ = reply.body

    run(scenario)


def test_a_transaction_whose_body_cannot_be_read_is_checked_all_the_same() -> None:
    async def scenario(mq: LocalCluster) -> None:
        checked: list[ReceivedMessage] = []

        def check(message: ReceivedMessage) -> TransactionState:
            checked.append(message)
            return TransactionState.COMMIT

        async with TransactionProducer(
            mq.name_server, group="p", execute=lambda *_: TransactionState.UNKNOWN, check=check
        ) as producer:
            made = producer.outbox.message

            def half(*arguments: object) -> object:
                outgoing = made(*arguments)  # type: ignore[arg-type]
                return outgoing._replace(sys_flag=outgoing.sys_flag | COMPRESSED)

            producer.outbox.message = half  # type: ignore[method-assign,assignment]
            await producer.send_in_transaction(Message("T", NO_ZLIB, keys="k"))
            await until(lambda: bool(checked))
            assert (checked[0].keys, checked[0].problem is None) == (("k",), False)

    run(scenario)
