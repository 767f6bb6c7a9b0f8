"""Parts of installed packages that take the place of a broker's transactions: of who asks, or of
everything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.test_plugin_package import install_example
from orbitmq.client.messages import Message
from orbitmq.common.errors import SendFailedError
from orbitmq.common.service import StartFailedError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.testing import LocalCluster
from support.broker.transactions import COMMIT, GIVEN_UP, TOPIC, UNKNOWN, Desk, Ledger, order, run
from support.common.installed_packages import install, site_packages
from support.common.waiting import until

INTERVAL_S = 30
SERVICE = """
from orbitmq.common.errors import RequestRefusedError

class Counting:
    def __init__(self, own, checks):
        self._own = own
        self.load, self.is_undone, self.resume, self.tick = own.load, own.is_undone, own.resume, own.tick

    def prepare(self, message, found):
        half = self._own.prepare(message, found)
        if half is not None and b"poison" in bytes(half.body):
            raise RuntimeError("no poison")
        return half

    def end(self, half, kind):
        if half.body == b"never":
            raise RequestRefusedError(604, "never, whatever you say")
        return self._own.end(half, kind)
"""
OFFER = "[orbitmq.transaction_services]\ncounting = counting_parts:Counting\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    with site_packages(tmp_path / "site") as site:
        yield site


def cluster(**keys: str) -> LocalCluster:
    return LocalCluster(virtual_clock=True, topics={TOPIC: 1}, broker=keys)


def test_the_checks_of_a_package_ask_and_say_what_is_kept(
    site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install_example(site)
    ledger = Ledger(real=[UNKNOWN], test=[UNKNOWN])

    async def scenario() -> None:
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            await producer.send_in_transaction(order("real"))
            await producer.send_in_transaction(
                Message(TOPIC, b"test", keys="test", properties={"test": "yes"})
            )
            mq.advance(INTERVAL_S + 1)
            await until(lambda: sorted(ledger.asked) == ["real", "test"])
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"real", topic=GIVEN_UP)
            mq.advance(2 * INTERVAL_S)
            assert len(ledger.asked) == 2

    with caplog.at_level(logging.INFO, "acme_broker_parts"), cluster(transactionCheckMax="1") as mq:
        run(scenario)
    told = [
        record.getMessage()
        for record in caplog.records
        if record.name == "acme_broker_parts" and "asked id=" in record.getMessage()
    ]
    assert [line.endswith("times=1") for line in told] == [True, True]


def test_a_service_of_a_package_is_in_force_and_its_mistakes_have_its_name(site: Path) -> None:
    install(site, "counting_parts", OFFER, SERVICE)
    ledger = Ledger(poison=[COMMIT], never=[UNKNOWN], good=[COMMIT])

    async def scenario() -> None:
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            with pytest.raises(
                SendFailedError,
                match="the transaction service counting failed, see the server's log",
            ):
                await producer.send_in_transaction(order("poison"))
            sent = (await producer.send_in_transaction(order("never"))).sent
            answer = await desk.end(sent, COMMIT)
            assert (answer.code, answer.remark) == (
                ResponseCode.ILLEGAL_OPERATION,
                "never, whatever you say",
            )
            await producer.send_in_transaction(order("good"))
            await desk.wait_for(b"good")

    with cluster() as mq:
        run(scenario)


def test_a_second_one_that_asks_stops_the_start(site: Path) -> None:
    install(site, "counting_parts", OFFER, SERVICE)
    install(site, "more_parts", OFFER.replace("counting", "more"), SERVICE)
    with pytest.raises(
        StartFailedError,
        match=r"one transaction service, and 2 packages offer one: counting .*; uninstall all but",
    ):
        cluster().__enter__()
