"""What somebody without keys is told by a broker with accounts: one error, by the shell and by a
consumer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq import (
    LitePullConsumer,
    Message,
    Producer,
    RequestRefusedError,
    SendFailedError,
    SendRefusedError,
)
from orbitmq.testing import LocalCluster
from support.access.people import OPERATOR, PLAIN_ACL, run, settings
from support.cli.commands import Shell

UNSIGNED = "No accessKey is configured"


@pytest.fixture(scope="module")
def mq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder: Path = tmp_path_factory.mktemp("conf")
    (folder / "plain_acl.yml").write_text(PLAIN_ACL)
    with LocalCluster(broker={"aclEnable": "true", "aclFolder": str(folder)}) as running:

        async def prepare() -> None:
            async with Producer(settings(running.name_server, OPERATOR)) as producer:
                await producer.send(Message("T", b"first"))

        run(prepare)
        yield running


def test_a_send_that_is_refused_prints_the_error_alone(mq: LocalCluster) -> None:
    with Shell(mq.name_server).process("message", "send", "T", "hello") as command:
        _, told = command.communicate()
    assert command.returncode == 1
    (line,) = told.splitlines()
    assert line.startswith("orbitmq: a message to topic T was refused")
    assert UNSIGNED in line


def test_a_send_that_is_refused_is_a_failed_send_and_a_refused_request(mq: LocalCluster) -> None:
    async def send(message: Message, **extra: object) -> None:
        async with Producer(settings(mq.name_server, OPERATOR if extra else None)) as producer:
            with pytest.raises(SendRefusedError) as refused:
                await producer.send(message)
            assert isinstance(refused.value, SendFailedError)
            assert isinstance(refused.value, RequestRefusedError)
            assert refused.value.code > 0

    run(lambda: send(Message("T", b"unsigned")))
    run(lambda: send(Message("T", b"late", delay_ms=10 * 365 * 86_400_000), signed=True))


@pytest.mark.parametrize("by_assign", [False, True])
def test_a_consumer_without_keys_is_told_that_it_is_refused(
    mq: LocalCluster, by_assign: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def consume() -> None:
        async with LitePullConsumer(settings(mq.name_server, None), "lite") as consumer:
            if by_assign:
                await consumer.assign(await consumer.queues("T"))
            else:
                consumer.subscribe("T")
            for _ in range(2):
                with pytest.raises(RequestRefusedError, match=UNSIGNED):
                    await consumer.poll(timeout_ms=60_000)

    run(consume)
    assert "broker_not_told" in caplog.text
    assert "code=34 request=HEART_BEAT" in caplog.text
