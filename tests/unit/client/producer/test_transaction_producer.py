"""The transaction producer: the outcomes it sends, and its replies to transaction checks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orbitmq.client.messages import Message, ReceivedMessage, SendStatus, TransactionState
from orbitmq.client.producer import checkable_producer
from orbitmq.client.producer.checkable_producer import Check
from orbitmq.client.producer.transaction_producer import Execute, TransactionProducer
from orbitmq.client.session.client_session import ClientSession
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import InvalidMessageError, RequestRefusedError
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType, transaction_type
from orbitmq.message.properties import TRANSACTION_ID
from orbitmq.protocol.codes import ResponseCode
from support.client.scripted_broker import ScriptedBroker, scripted_broker
from support.common.waiting import until
from support.remoting.peers import run

COMMIT, ROLLBACK, UNKNOWN = (
    TransactionState.COMMIT,
    TransactionState.ROLLBACK,
    TransactionState.UNKNOWN,
)


def never(*_: object) -> TransactionState:
    raise AssertionError("this must not be called")


@asynccontextmanager
async def producing(
    execute: Execute, check: Check
) -> AsyncIterator[tuple[ScriptedBroker, TransactionProducer]]:
    async with (
        scripted_broker() as broker,
        TransactionProducer(broker.address, group="g", execute=execute, check=check) as producer,
    ):
        yield broker, producer


async def ended(broker: ScriptedBroker, count: int = 1) -> list[tuple[int, bool | None]]:
    """Return the transaction outcomes the broker received, and whether it had asked for them."""
    await until(lambda: len(broker.ends) >= count)
    return [
        (end.header.commit_or_rollback, end.header.from_transaction_check) for end in broker.ends
    ]


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK, UNKNOWN])
def test_the_broker_is_told_how_the_local_transaction_ended(state: TransactionState) -> None:
    async def scenario() -> None:
        calls: list[tuple[Message, object]] = []

        def execute(message: Message, argument: object) -> TransactionState:
            calls.append((message, argument))
            return state

        async with scripted_broker() as broker:
            async with TransactionProducer(
                broker.address, group="g", execute=execute, check=never
            ) as producer:
                result = await producer.send_in_transaction(Message("T", b"body", keys="k"), 42)
                assert await ended(broker) == [(state, False)]
            (half,), (end,) = broker.sent, broker.ends
            assert transaction_type(half.header.sys_flag) is TransactionType.PREPARED
            assert (half.properties["TRAN_MSG"], half.properties["PGROUP"]) == ("true", "g")
            assert (result.state, result.problem, result.sent.status) == (
                state,
                None,
                SendStatus.SEND_OK,
            )
            ((message, argument),) = calls
            assert (message.body, message.properties[TRANSACTION_ID], argument) == (
                b"body",
                result.sent.msg_id,
                42,
            )
            header = end.header
            assert (header.msg_id, header.producer_group, header.topic) == (
                half.properties["UNIQ_KEY"],
                "g",
                "T",
            )
            assert (header.tran_state_table_offset, header.commit_log_offset, end.remark) == (
                0,
                0,
                None,
            )

    run(scenario)


def fails(_: Message, __: object) -> TransactionState:
    raise OSError("no database")


def forgets(_: Message, __: object) -> Any:
    """Return no outcome."""


@pytest.mark.parametrize(
    ("execute", "words"),
    [(fails, "no database"), (forgets, "returned None, which is not a TransactionState")],
)
def test_a_local_transaction_that_fails_leaves_the_message_to_a_check(
    execute: Any, words: str
) -> None:
    async def scenario() -> None:
        async with scripted_broker() as broker:
            async with TransactionProducer(
                broker.address, group="g", execute=execute, check=never
            ) as producer:
                result = await producer.send_in_transaction(Message("T", b"body"))
                assert await ended(broker) == [(UNKNOWN, False)]
            assert result.state is UNKNOWN
            assert words in str(result.problem)
            assert words in (broker.ends[0].remark or "")

    run(scenario)


def test_a_message_that_is_not_stored_as_safely_as_asked_for_is_rolled_back() -> None:
    async def scenario() -> None:
        async with scripted_broker() as broker:
            broker.answer_code = ResponseCode.FLUSH_DISK_TIMEOUT
            async with TransactionProducer(
                broker.address, group="g", execute=never, check=never
            ) as producer:
                result = await producer.send_in_transaction(Message("T", b"body"))
                assert await ended(broker) == [(ROLLBACK, False)]
            assert (result.state, result.sent.status) == (ROLLBACK, SendStatus.FLUSH_DISK_TIMEOUT)

    run(scenario)


def test_nothing_runs_when_the_broker_does_not_take_the_message() -> None:
    async def scenario() -> None:
        async with scripted_broker() as broker:
            broker.answer_code = ResponseCode.MESSAGE_ILLEGAL
            async with TransactionProducer(
                broker.address, group="g", execute=never, check=never
            ) as producer:
                with pytest.raises(RequestRefusedError, match="scripted"):
                    await producer.send_in_transaction(Message("T", b"body"))
            assert broker.ends == []

    run(scenario)


def test_a_transaction_that_ended_is_told_as_such_although_its_broker_cannot_be_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async def execute(_: Message, session: ClientSession) -> TransactionState:
            broker.has_route = False
            session.forget_route("T")
            return COMMIT

        async with producing(execute, never) as (broker, producer):
            result = await producer.send_in_transaction(Message("T", b"body"), producer.session)
            assert (result.state, result.problem) == (COMMIT, None)
            assert broker.ends == []
        assert "transaction_not_ended" in caplog.text
        assert "the broker will check it" in caplog.text

    run(scenario)


@pytest.mark.parametrize("later", [{"delay_level": 3}, {"delay_ms": 1000}, {"deliver_at_ms": 1}])
def test_a_message_of_a_transaction_cannot_come_later(later: dict[str, int]) -> None:
    async def scenario() -> None:
        async with scripted_broker() as broker:
            async with TransactionProducer(
                broker.address, group="g", execute=never, check=never
            ) as producer:
                with pytest.raises(InvalidMessageError, match="cannot be delayed"):
                    await producer.send_in_transaction(Message("T", b"body", **later))  # type: ignore[arg-type]
            assert broker.sent == []

    run(scenario)


def test_plain_functions_run_in_threads_and_coroutine_functions_on_the_loop() -> None:
    async def scenario() -> None:
        loop_thread = threading.get_ident()
        threads: list[bool] = []

        def plain(*_: object) -> TransactionState:
            threads.append(threading.get_ident() == loop_thread)
            return UNKNOWN

        class Callable:
            async def __call__(self, *_: object) -> TransactionState:
                threads.append(threading.get_ident() == loop_thread)
                return COMMIT

        async with producing(plain, Callable()) as (broker, producer):
            await producer.send_in_transaction(Message("T", b"body"))
            broker.check(broker.sent[0])
            assert await ended(broker, 2) == [(UNKNOWN, False), (COMMIT, True)]
        assert threads == [False, True]

    run(scenario)


def test_the_broker_knows_the_producer_before_it_has_a_message_to_ask_about() -> None:
    async def scenario() -> None:
        async with scripted_broker() as broker:
            async with TransactionProducer(
                broker.address, group="g", execute=lambda *_: COMMIT, check=never
            ) as producer:
                assert broker.heartbeats_at == []
                for _ in range(3):
                    await producer.send_in_transaction(Message("T", b"body"))
            assert broker.heartbeats_at == [0]
            async with TransactionProducer(
                broker.address, group="h", execute=never, check=never, topics=["T"]
            ):
                assert (
                    "h" in broker.groups
                )  # the broker may check messages of other group members with it

    run(scenario)


def test_checks_are_answered_by_the_producer_of_the_group_they_are_about() -> None:
    async def scenario() -> None:
        async with scripted_broker() as broker:
            session = ClientSession(ClientSettings(name_servers=broker.address, namespace="shop"))
            asked: list[tuple[str, str, str, bytes]] = []

            def producer(group: str, state: TransactionState) -> TransactionProducer:
                def check(message: ReceivedMessage) -> TransactionState:
                    asked.append((group, message.topic, message.msg_id, message.body))
                    return state

                return TransactionProducer(
                    session, group=group, execute=lambda *_: UNKNOWN, check=check
                )

            async with producer("a", COMMIT) as a, producer("b", ROLLBACK) as b:
                bodies = {"a": b"short", "b": b"large enough to be compressed" * 1000}
                sent = [
                    (await each.send_in_transaction(Message("T", bodies[each.group]))).sent
                    for each in (a, b)
                ]
                await ended(broker, 2)
                for half in broker.sent:
                    broker.check(half)
                assert sorted((await ended(broker, 4))[2:]) == [(COMMIT, True), (ROLLBACK, True)]
            await session.close()
            assert sorted(asked) == [
                ("a", "T", sent[0].msg_id, bodies["a"]),
                ("b", "T", sent[1].msg_id, bodies["b"]),
            ]
            headers = {end.header.producer_group: end.header for end in broker.ends[2:]}
            assert set(headers) == {"shop%a", "shop%b"}
            assert {header.topic for header in headers.values()} == {"shop%T"}
            assert [headers[name].commit_log_offset for name in sorted(headers)] == [
                half.offset for half in broker.sent
            ]
            assert {header.transaction_id for header in headers.values()} == {"tx"}

    run(scenario)


def test_a_check_that_fails_says_that_nobody_knows() -> None:
    async def scenario() -> None:
        async def check(_: ReceivedMessage) -> TransactionState:
            raise OSError("no database")

        async with scripted_broker() as broker:
            async with TransactionProducer(
                broker.address, group="g", execute=lambda *_: UNKNOWN, check=check
            ) as producer:
                await producer.send_in_transaction(Message("T", b"body"))
                broker.check(broker.sent[0])
                assert (await ended(broker, 2))[1] == (UNKNOWN, True)
            assert "no database" in (broker.ends[1].remark or "")

    run(scenario)


def test_checks_that_are_too_many_are_left_to_be_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checkable_producer, "CHECKS_MAX", 1)

    async def scenario() -> None:
        may_end = asyncio.Event()

        async def check(_: ReceivedMessage) -> TransactionState:
            await may_end.wait()
            return COMMIT

        async with producing(lambda *_: UNKNOWN, check) as (broker, producer):
            await producer.send_in_transaction(Message("T", b"body"))
            for _ in range(2):
                broker.check(broker.sent[0])
            await until(lambda: "transaction_check_put_off" in caplog.text)
            may_end.set()
            assert await ended(broker, 2) == [(UNKNOWN, False), (COMMIT, True)]
            broker.check(broker.sent[0])
            assert (await ended(broker, 3))[2] == (COMMIT, True)

    run(scenario)


def test_the_properties_of_a_half_message_are_those_of_the_message_and_two_more() -> None:
    async def scenario() -> None:
        async with scripted_broker() as broker:
            async with TransactionProducer(
                broker.address, group="g", execute=lambda *_: COMMIT, check=never
            ) as producer:
                await producer.send_in_transaction(
                    Message("T", b"body", tags="a", keys=["k", "l"], properties={"colour": "blau"})
                )
            own = {properties.UNIQUE_KEY, properties.WAIT}
            found = {
                name: value for name, value in broker.sent[0].properties.items() if name not in own
            }
            assert found == {
                "TAGS": "a",
                "KEYS": "k l",
                "colour": "blau",
                "TRAN_MSG": "true",
                "PGROUP": "g",
            }

    run(scenario)


def test_the_route_of_a_topic_that_a_transaction_made_is_learned_beside_those_that_it_was_told_of() -> (
    None
):
    async def scenario() -> None:
        async with scripted_broker() as broker:
            broker.topics_unknown = {"T"}
            async with TransactionProducer(
                broker.address, group="g", execute=lambda *_: COMMIT, check=never, topics=["U"]
            ) as producer:
                await producer.send_in_transaction(Message("T", b"body"))
                assert sorted(producer.topics()) == ["T", "U"]
                broker.topics_unknown = set()
                await producer.session.refresh_routes()
                assert list(producer.topics()) == ["U"]
                assert producer.session.known_route("T") is not None

    run(scenario)


def test_a_check_that_blocks_does_not_keep_its_process_alive() -> None:
    threads: list[threading.Thread] = []

    def execute(_: Message, __: object) -> TransactionState:
        threads.append(threading.current_thread())
        return COMMIT

    async def scenario() -> None:
        async with producing(execute, never) as (_, producer):
            await producer.send_in_transaction(Message("T", b"body"))

    run(scenario)
    assert [thread.daemon for thread in threads] == [True]
