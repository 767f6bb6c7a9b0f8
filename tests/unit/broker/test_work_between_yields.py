"""No request holds a broker's loop: of every code, at the largest size that is accepted, the work
between two yields is bounded.

The broker has 10,000 topics and 2,000 groups with offsets. `bench/loop_lag.py` measures the same in
milliseconds.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.broker.consume.membership import GROUPS_PER_CONNECTION_MAX
from orbitmq.kernels import mode
from orbitmq.protocol.bodies.clients import CLIENT_BODY_BYTES_MAX
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from support.access.people import OPERATOR, USERS
from support.broker import running
from support.broker.large_requests import (
    KEYS,
    LARGEST,
    REFUSED,
    ask,
    client_of,
    crowd,
    every_request,
    fill,
    heartbeat,
    make_user,
)
from support.remoting.work_between_yields import counted

CALLS_MAX = 80_000  # between two yields: some 13 ms
EXPRESSION_CALLS_MAX = (
    150_000  # some 20 ms: the longest expression of a filter is compiled in one go
)
PULLS = 3_000
BATCHES = [
    name for name in LARGEST if name.startswith("a batch")
]  # of which kernels do most of the work, and interpreted ones count it


@pytest.mark.slow
@pytest.mark.timeout(900)  # every call is counted, which takes a minute on a quiet machine
@pytest.mark.parametrize("with_access_control", [False, True])
def test_no_request_does_more_between_two_yields_than_is_stated(
    tmp_path: Path, with_access_control: bool
) -> None:
    async def scenario() -> dict[str, str]:
        too_much: dict[str, str] = {}
        keys = {**KEYS, **(USERS if with_access_control else {})}
        async with running.broker(tmp_path, **keys) as broker:
            async with client_of(broker, OPERATOR if with_access_control else None) as operator:
                await fill(operator)
            who = await make_user(broker) if with_access_control else None
            with counted() as work:
                for name, each in every_request().items():
                    answer = await ask(broker, work, each, who)
                    calls_max = EXPRESSION_CALLS_MAX if "expression" in name else CALLS_MAX
                    if work.most > calls_max and not (name in BATCHES and mode() != "compiled"):
                        too_much[name] = f"{work.most} calls in {work.where}"
                    is_accepted = answer.code == ResponseCode.SUCCESS
                    assert is_accepted or name not in LARGEST, (name, answer)
                    assert not is_accepted or name not in REFUSED, (name, answer)
                if not with_access_control:
                    for name, calls in (await crowd(broker, work, PULLS)).items():
                        if calls > CALLS_MAX:
                            too_much[name] = f"{calls} calls"
        return too_much

    assert asyncio.run(scenario()) == {}


@pytest.mark.parametrize(
    "code", [RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ]
)
def test_a_body_that_is_larger_is_refused_with_the_limit(tmp_path: Path, code: int) -> None:
    async def scenario() -> RemotingCommand:
        async with running.broker(tmp_path) as broker:
            return await broker(RemotingCommand(code, body=b" " * (CLIENT_BODY_BYTES_MAX + 1)))

    answer = asyncio.run(scenario())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert str(CLIENT_BODY_BYTES_MAX) in (answer.remark or "")


def test_a_connection_that_joins_more_groups_is_refused_with_the_limit(tmp_path: Path) -> None:
    async def scenario() -> RemotingCommand:
        async with running.broker(tmp_path) as broker:
            return await broker(heartbeat("c", [], GROUPS_PER_CONNECTION_MAX + 1))

    answer = asyncio.run(scenario())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert str(GROUPS_PER_CONNECTION_MAX) in (answer.remark or "")
