"""No request holds a broker's loop: of every code, at the largest size that is accepted, the work between two yields is bounded.

The broker has 10,000 topics and 2,000 groups with offsets. `bench/loop_lag.py` measures the same in milliseconds.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import running_broker_room
from large_requests import LARGEST, ask, crowd, every_request, fill, heartbeat
from orbitmq.broker.processors.clients import BODY_BYTES_MAX, GROUPS_PER_CONNECTION_MAX
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from work_room import counted

CALLS_MAX = 80_000  # between two yields: some 13 ms
EXPRESSION_CALLS_MAX = 150_000  # some 20 ms: the longest expression of a filter is compiled in one go
PULLS = 3_000


def test_no_request_does_more_between_two_yields_than_is_stated(tmp_path: Path) -> None:
    wanted = every_request()

    async def scenario() -> dict[str, str]:
        too_much: dict[str, str] = {}
        async with running_broker_room.broker(tmp_path, enablePropertyFilter="true", maxRequestsInFlight="100000") as broker:
            await fill(broker)
            with counted() as work:
                for name, each in wanted.items():
                    answer = await ask(broker, work, each)
                    if work.most > (EXPRESSION_CALLS_MAX if "expression" in name else CALLS_MAX):
                        too_much[name] = f"{work.most} calls in {work.where}"
                    if name in LARGEST:
                        assert answer.code == ResponseCode.SUCCESS, (name, answer)
                for name, calls in (await crowd(broker, work, PULLS)).items():
                    if calls > CALLS_MAX:
                        too_much[name] = f"{calls} calls"
        return too_much

    assert asyncio.run(scenario()) == {}


@pytest.mark.parametrize("code", [RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
def test_a_body_that_is_larger_is_refused_with_the_limit(tmp_path: Path, code: int) -> None:
    async def scenario() -> RemotingCommand:
        async with running_broker_room.broker(tmp_path) as broker:
            return await broker(RemotingCommand(code, body=b" " * (BODY_BYTES_MAX + 1)))

    answer = asyncio.run(scenario())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert str(BODY_BYTES_MAX) in (answer.remark or "")


def test_a_connection_that_joins_more_groups_is_refused_with_the_limit(tmp_path: Path) -> None:
    async def scenario() -> RemotingCommand:
        async with running_broker_room.broker(tmp_path) as broker:
            return await broker(heartbeat("c", [], GROUPS_PER_CONNECTION_MAX + 1))

    answer = asyncio.run(scenario())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert str(GROUPS_PER_CONNECTION_MAX) in (answer.remark or "")
