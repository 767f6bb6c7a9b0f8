"""Dispatch of requests to handlers: lanes and their limits, refusals, hooks, deferred responses."""

from __future__ import annotations

import asyncio
import logging

import pytest

from orbitmq.common.clock import SystemClock
from orbitmq.common.errors import RequestRefusedError
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import RequestDispatcher
from orbitmq.remoting.lanes import LaneLimits
from orbitmq.testing.manual_clock import ManualClock
from support.common.waiting import until
from support.remoting.peers import (
    ECHO,
    Peer,
    connected,
    echo,
    fault_of_the_server,
    request,
    run,
    serving,
)

WORK = 2001


class Gate:
    """An asynchronous handler that a test releases one request at a time."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.started: list[int] = []
        self._open = asyncio.Semaphore(0)

    def let(self, count: int) -> None:
        for _ in range(count):
            self._open.release()

    async def __call__(self, _: Channel, question: RemotingCommand) -> RemotingCommand:
        self.started.append(question.opaque)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self._open.acquire()
        finally:
            self.running -= 1
        return question.reply(0, body=b"done")


def gated(
    gate: Gate, limits: LaneLimits, *, in_flight_max: int = 100_000, bytes_max: int = 1 << 28
) -> RequestDispatcher:
    async def handler(channel: Channel, question: RemotingCommand) -> RemotingCommand:
        return await gate(channel, question)

    dispatcher = RequestDispatcher(
        SystemClock(), requests_in_flight_max=in_flight_max, bytes_in_flight_max=bytes_max
    )
    dispatcher.register(WORK, handler, lane=dispatcher.add_lane(limits))
    dispatcher.register(ECHO, echo)
    return dispatcher


async def answers(peer: Peer, count: int) -> dict[int, RemotingCommand]:
    got = [await peer.receive() for _ in range(count)]
    assert len({answer.opaque for answer in got}) == count
    return {answer.opaque: answer for answer in got}


def test_a_lane_runs_so_many_at_once_and_the_others_wait_in_order() -> None:
    async def scenario() -> None:
        gate = Gate()
        dispatcher = gated(gate, LaneLimits(name="work", running_max=3, queue_max=100))
        async with serving(dispatcher=dispatcher) as server, connected(server) as peer:
            peer.write(b"".join(request(WORK, n) for n in range(10)))
            await until(lambda: len(gate.started) == 3)
            assert (await peer.ask(request(ECHO, 99))).opaque == 99, (
                "a full lane keeps others from being served"
            )
            assert (gate.started, dispatcher.in_flight) == ([0, 1, 2], 10)
            gate.let(10)
            assert {answer.body for answer in (await answers(peer, 10)).values()} == {b"done"}
            assert (gate.most, gate.started, dispatcher.in_flight) == (3, list(range(10)), 0)

    run(scenario)


def test_a_lane_tells_how_many_wait_and_for_how_long_the_first_does() -> None:
    async def scenario() -> None:
        gate = Gate()

        async def handler(channel: Channel, question: RemotingCommand) -> RemotingCommand:
            return await gate(channel, question)

        clock = ManualClock()
        dispatcher = RequestDispatcher(clock)
        lane = dispatcher.add_lane(LaneLimits(name="work", running_max=1, queue_max=100))
        dispatcher.register(WORK, handler, lane=lane)
        async with serving(dispatcher=dispatcher) as server, connected(server) as peer:
            peer.write(request(WORK, 0))
            await until(lambda: gate.started == [0])
            assert (lane.waiting, lane.waited_ms(clock.monotonic_ms())) == (0, 0)
            peer.write(request(WORK, 1))
            await until(lambda: lane.waiting == 1)
            clock.advance_ms(40)
            peer.write(request(WORK, 2))
            await until(lambda: lane.waiting == 2)
            assert lane.waited_ms(clock.monotonic_ms() + 2) == 42
            gate.let(3)
            await answers(peer, 3)
            assert (lane.waiting, lane.waited_ms(clock.monotonic_ms())) == (0, 0)

    run(scenario)


def test_a_full_queue_is_answered_system_busy_with_the_reason() -> None:
    async def scenario() -> None:
        gate = Gate()
        limits = LaneLimits(name="work", running_max=2, queue_max=3)
        async with serving(dispatcher=gated(gate, limits)) as server, connected(server) as peer:
            peer.write(b"".join(request(WORK, n) for n in range(8)))
            refused = await answers(peer, 3)
            assert sorted(refused) == [5, 6, 7]
            for answer in refused.values():
                assert answer.code == 2
                assert (
                    answer.remark == "[OVERLOAD]system busy, start flow control for a while: "
                    "the work queue is full: 3 requests wait, 2 run; retry in a moment"
                )
            gate.let(5)
            assert sorted(await answers(peer, 5)) == [0, 1, 2, 3, 4]

    run(scenario)


def test_a_request_that_waited_too_long_is_answered_system_busy_and_never_run() -> None:
    async def scenario() -> None:
        gate = Gate()
        limits = LaneLimits(name="work", running_max=1, queue_max=100, wait_ms_max=60)
        async with serving(dispatcher=gated(gate, limits)) as server, connected(server) as peer:
            peer.write(b"".join(request(WORK, n) for n in range(4)))
            late = await answers(peer, 3)
            assert sorted(late) == [1, 2, 3]
            for answer in late.values():
                assert answer.code == 2
                assert (answer.remark or "").startswith(
                    "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in"
                    " queue: "
                )
                assert int((answer.remark or "").partition("queue: ")[2].partition("ms")[0]) >= 60
            gate.let(2)
            assert sorted(await answers(peer, 1)) == [0]
            peer.write(request(WORK, 5))
            assert sorted(await answers(peer, 1)) == [5], "the lane does not go on"
            assert gate.started == [0, 5]

    run(scenario)


def test_all_lanes_together_keep_the_limit_of_requests_in_flight() -> None:
    async def scenario() -> None:
        gate = Gate()
        dispatcher = gated(
            gate, LaneLimits(name="work", running_max=2, queue_max=100), in_flight_max=5
        )
        async with serving(dispatcher=dispatcher) as server, connected(server) as peer:
            peer.write(b"".join(request(WORK, n) for n in range(7)))
            refused = await answers(peer, 2)
            assert sorted(refused) == [5, 6]
            assert "5 requests are in flight, the most this server takes (maxRequestsInFlight)" in (
                refused[5].remark or ""
            )
            assert (await peer.ask(request(ECHO, 9))).opaque == 9
            gate.let(5)
            await answers(peer, 5)

    run(scenario)


def test_requests_that_wait_have_so_many_bytes_together_and_a_further_one_is_told_the_key() -> None:
    async def scenario() -> None:
        gate = Gate()
        dispatcher = gated(
            gate, LaneLimits(name="work", running_max=1, queue_max=100), bytes_max=250_000
        )
        async with serving(dispatcher=dispatcher) as server, connected(server) as peer:
            peer.write(b"".join(request(WORK, n, body=bytes(100_000)) for n in range(3)))
            refused = await peer.receive()
            assert (refused.opaque, refused.code) == (2, 2)
            assert "(maxRequestBytesInFlight)" in (refused.remark or "")
            assert dispatcher.bytes_in_flight == 200_000
            gate.let(3)
            await answers(peer, 2)
            assert dispatcher.bytes_in_flight == 0
            assert (await peer.ask(request(WORK, 3, body=bytes(250_000)))).body == b"done"

    run(scenario)


def test_lanes_do_not_hinder_each_other() -> None:
    async def scenario() -> None:
        gate = Gate()

        async def slow(channel: Channel, question: RemotingCommand) -> RemotingCommand:
            return await gate(channel, question)

        async def quick(_: Channel, question: RemotingCommand) -> RemotingCommand:
            await asyncio.sleep(0)
            return question.reply(0)

        dispatcher = RequestDispatcher(SystemClock())
        dispatcher.register(
            1, slow, lane=dispatcher.add_lane(LaneLimits(name="slow", running_max=1, queue_max=1))
        )
        dispatcher.register(
            2,
            quick,
            lane=dispatcher.add_lane(LaneLimits(name="quick", running_max=1, queue_max=10)),
        )
        async with serving(dispatcher=dispatcher) as server, connected(server) as peer:
            peer.write(
                request(1, 1) + request(1, 2) + b"".join(request(2, n) for n in range(10, 15))
            )
            assert sorted(await answers(peer, 5)) == [10, 11, 12, 13, 14]
            gate.let(2)
            assert sorted(await answers(peer, 2)) == [1, 2]

    run(scenario)


def test_a_failing_or_refusing_coroutine_is_answered_and_its_place_is_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(_: Channel, question: RemotingCommand) -> RemotingCommand:
        await asyncio.sleep(0)
        if question.opaque % 2:
            raise ValueError("bad luck")
        raise RequestRefusedError(17, "topic T does not exist; create it")

    async def scenario() -> None:
        dispatcher = RequestDispatcher(SystemClock())
        dispatcher.register(
            WORK,
            handler,
            lane=dispatcher.add_lane(LaneLimits(name="work", running_max=1, queue_max=10)),
        )
        async with serving(dispatcher=dispatcher) as server, connected(server) as peer:
            peer.write(b"".join(request(WORK, n) for n in range(4)))
            got = await answers(peer, 4)
            assert [(got[n].code, got[n].remark) for n in (0, 2)] == [
                (17, "topic T does not exist; create it")
            ] * 2
            assert [(got[n].code, got[n].remark) for n in (1, 3)] == [
                (1, fault_of_the_server(WORK))
            ] * 2
            assert dispatcher.in_flight == 0

    with caplog.at_level(logging.CRITICAL):
        run(scenario)


def test_one_way_requests_of_a_lane_are_never_answered_whatever_becomes_of_them() -> None:
    async def scenario() -> None:
        gate = Gate()
        limits = LaneLimits(name="work", running_max=1, queue_max=1, wait_ms_max=20)
        async with serving(dispatcher=gated(gate, limits)) as server, connected(server) as peer:
            peer.write(b"".join(request(WORK, n, oneway=True) for n in range(4)))
            assert (await peer.ask(request(ECHO, 9))).opaque == 9
            assert await peer.is_silent(0.1)
            gate.let(4)

    run(scenario)


def test_a_connection_that_ends_takes_its_answers_with_it_and_frees_its_places() -> None:
    async def scenario() -> None:
        gate = Gate()
        dispatcher = gated(gate, LaneLimits(name="work", running_max=1, queue_max=10))
        async with serving(dispatcher=dispatcher) as server:
            async with connected(server) as gone:
                gone.write(request(WORK, 1) + request(WORK, 2))
                await until(lambda: dispatcher.in_flight == 2)
            async with connected(server) as peer:
                peer.write(request(WORK, 3))
                await until(lambda: dispatcher.in_flight == 3)
                gate.let(3)
                assert sorted(await answers(peer, 1)) == [3]
                assert dispatcher.in_flight == 0

    run(scenario)


def test_a_refusal_is_asked_before_the_handler() -> None:
    async def scenario() -> None:
        reasons: list[str | None] = ["the disk is full", None]
        dispatcher = RequestDispatcher(SystemClock())
        dispatcher.register(ECHO, echo, refusal=lambda: reasons[0])
        async with serving(dispatcher=dispatcher) as server, connected(server) as peer:
            answer = await peer.ask(request(ECHO, 1))
            assert (answer.code, answer.remark) == (
                2,
                "[REJECTREQUEST]system busy, start flow control for a while: the disk is full",
            )
            reasons.pop(0)
            assert (await peer.ask(request(ECHO, 2))).code == 0

    run(scenario)


def test_while_draining_new_peers_are_sent_away_and_old_ones_are_served() -> None:
    async def scenario() -> None:
        dispatcher = RequestDispatcher(SystemClock())
        dispatcher.register(ECHO, echo)
        async with serving(dispatcher=dispatcher) as server, connected(server) as peer:
            assert (await peer.ask(request(ECHO, 1, version=513))).code == 0
            dispatcher.drain()
            for version, code in ((0, 0), (409, 0), (475, 0), (476, 1500), (513, 1500)):
                answer = await peer.ask(request(ECHO, 2, version=version))
                assert (version, answer.code) == (version, code)
            assert answer.remark == "please go away"
            peer.write(request(ECHO, 3, version=513, oneway=True))
            assert (await peer.ask(request(ECHO, 4))).opaque == 4

    run(scenario)


def test_a_default_handler_serves_the_codes_that_have_none() -> None:
    async def scenario() -> None:
        dispatcher = RequestDispatcher(SystemClock())
        dispatcher.register(1, lambda _, question: question.reply(0, "own"))
        dispatcher.register_default(lambda _, question: question.reply(0, "default"))
        async with serving(dispatcher=dispatcher) as server, connected(server) as peer:
            assert [(await peer.ask(request(code, 1))).remark for code in (1, 2, -5)] == [
                "own",
                "default",
                "default",
            ]

    run(scenario)


def test_a_handler_may_answer_later_or_never() -> None:
    async def scenario() -> None:
        held: list[tuple[Channel, RemotingCommand]] = []
        async with serving(
            handlers={1: lambda channel, question: held.append((channel, question)), ECHO: echo}
        ) as server:
            async with connected(server) as peer:
                peer.write(request(1, 1) + request(1, 2))
                assert (await peer.ask(request(ECHO, 3))).opaque == 3
                for channel, question in reversed(held):
                    channel.send(question.reply(0, body=b"late"))
                assert [(await peer.receive()).opaque for _ in range(2)] == [2, 1]
            await until(lambda: server.connections == 0)
            channel, question = held[0]
            channel.send(question.reply(0))  # the peer is gone: nothing happens

    run(scenario)


# ---------------------------------------------------------------- hooks


class Recorder:
    def __init__(self, name: str, log: list[str], refuse: Exception | None = None) -> None:
        self.name, self.log, self.refuse = name, log, refuse

    def before(self, remote_address: str, question: RemotingCommand) -> None:
        self.log.append(f"{self.name} before {question.code} of {remote_address.partition(':')[0]}")
        if self.refuse is not None:
            raise self.refuse

    def after(
        self, remote_address: str, question: RemotingCommand, response: RemotingCommand | None
    ) -> None:
        self.log.append(f"{self.name} after {None if response is None else response.code}")


@pytest.mark.parametrize("in_lane", [False, True])
def test_hooks_see_each_request_before_and_each_answer_after_in_order(in_lane: bool) -> None:
    async def scenario() -> None:
        log: list[str] = []

        def now(_: Channel, question: RemotingCommand) -> RemotingCommand:
            log.append("handled")
            return question.reply(5)

        async def in_turn(channel: Channel, question: RemotingCommand) -> RemotingCommand:
            await asyncio.sleep(0)
            return now(channel, question)

        dispatcher = RequestDispatcher(SystemClock(), (Recorder("one", log), Recorder("two", log)))
        if in_lane:
            dispatcher.register(
                1,
                in_turn,
                lane=dispatcher.add_lane(LaneLimits(name="lane", running_max=1, queue_max=1)),
            )
        else:
            dispatcher.register(1, now)
        async with serving(dispatcher=dispatcher) as server, connected(server) as peer:
            assert (await peer.ask(request(1, 1))).code == 5
        assert log == [
            "one before 1 of 127.0.0.1",
            "two before 1 of 127.0.0.1",
            "handled",
            "one after 5",
            "two after 5",
        ]

    run(scenario)


@pytest.mark.parametrize("in_lane", [False, True])
def test_a_hook_that_refuses_keeps_the_handler_from_running(in_lane: bool) -> None:
    async def scenario() -> None:
        log: list[str] = []

        def never(_: Channel, question: RemotingCommand) -> RemotingCommand:
            log.append("handled")
            return question.reply(0)

        async def never_later(channel: Channel, question: RemotingCommand) -> RemotingCommand:
            return never(channel, question)

        refusing = Recorder("one", log, RequestRefusedError(16, "no permission; ask the operator"))
        dispatcher = RequestDispatcher(SystemClock(), (refusing, Recorder("two", log)))
        if in_lane:
            dispatcher.register(
                1,
                never_later,
                lane=dispatcher.add_lane(LaneLimits(name="lane", running_max=1, queue_max=1)),
            )
        else:
            dispatcher.register(1, never)
        async with serving(dispatcher=dispatcher) as server, connected(server) as peer:
            answer = await peer.ask(request(1, 1))
            assert (answer.code, answer.remark) == (16, "no permission; ask the operator")
            peer.write(request(1, 2, oneway=True))
            assert await peer.is_silent()
        assert "handled" not in log
        assert "two before 1 of 127.0.0.1" not in log

    run(scenario)


def test_a_hook_that_fails_is_answered_as_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Recorder):
        def after(
            self, remote_address: str, question: RemotingCommand, response: RemotingCommand | None
        ) -> None:
            raise ValueError("hook is broken")

    async def scenario() -> None:
        for hook in (Broken("after", []), Recorder("before", [], ValueError("hook is broken"))):
            dispatcher = RequestDispatcher(SystemClock(), (hook,))
            dispatcher.register(ECHO, echo)
            async with serving(dispatcher=dispatcher) as server, connected(server) as peer:
                answer = await peer.ask(request(ECHO, 1))
                assert (answer.code, answer.remark) == (1, fault_of_the_server(ECHO))

    with caplog.at_level(logging.CRITICAL):
        run(scenario)


def test_what_cannot_be_registered_is_told_at_once() -> None:
    async def coroutine(_: Channel, question: RemotingCommand) -> None: ...

    dispatcher = RequestDispatcher(SystemClock())
    lane = dispatcher.add_lane(LaneLimits(name="lane", running_max=1, queue_max=1))
    dispatcher.register(1, echo)
    for code, handler, its_lane in ((1, echo, None), (2, coroutine, None), (3, echo, lane)):
        with pytest.raises(AssertionError):
            dispatcher.register(code, handler, lane=its_lane)


def test_lanes_that_are_closed_leave_no_task_and_drop_who_waits() -> None:
    async def scenario() -> None:
        gate = Gate()
        dispatcher = gated(gate, LaneLimits(name="work", running_max=2, queue_max=10))
        async with serving(dispatcher=dispatcher) as server, connected(server) as peer:
            peer.write(b"".join(request(WORK, n) for n in range(5)))
            await until(lambda: dispatcher.in_flight == 5)
            await server.stop()
            await dispatcher.close()
            assert dispatcher.in_flight == 0
            assert gate.running == 0

    run(scenario)
