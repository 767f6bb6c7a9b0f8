"""Replication with real brokers of 4.9.7 and 5.5.0 on either end: the logs have the same bytes,
over files, and after each of both was killed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interop import apache, subject
from interop.apache import Release, Server
from interop.broker_clients import BROKER_NAME, our_broker
from interop.frames import Connection, Request
from orbitmq.protocol.codes import RequestCode, ResponseCode
from support.broker.bad_input import SERVED
from support.common.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

FILE_SIZE = 1 << 20
SETTINGS = {"mappedFileSizeCommitLog": FILE_SIZE, "flushDiskType": "ASYNC_FLUSH"}
MASTER = {**SETTINGS, "brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 60_000}
SLAVE = {**SETTINGS, "brokerRole": "SLAVE", "brokerId": 1}
ACKNOWLEDGED = ResponseCode.SUCCESS


@contextmanager
def served(server: Server) -> Iterator[Connection]:
    with Connection(server.address, 90.0) as connection:
        yield connection


def send(master: Server, count: int, size: int = 10_000) -> list[int]:
    """Send messages one after the other; the code of each answer."""
    with served(master) as connection:
        codes = []
        for number in range(count):
            fields = {"b": "T", "d": "4", "e": str(number % 4), "i": f"UNIQ_KEY\x01k{number}\x02"}
            answer = connection.ask(
                Request(
                    RequestCode.SEND_MESSAGE_V2,
                    {**SERVED[310].good_fields, **fields},
                    b"%06d" % number + os.urandom(16) + b"x" * size,
                )
            )
            codes.append(answer.code)
        return codes


def create(master: Server) -> None:
    with served(master) as connection:
        fields = {**SERVED[17].good_fields, "topic": "T", "readQueueNums": "4"}
        answer = connection.ask(
            Request(RequestCode.UPDATE_AND_CREATE_TOPIC, {**fields, "writeQueueNums": "4"})
        )
        assert answer.code == 0, answer.remark


def log_of(home: Path) -> dict[str, bytes]:
    """The files of a log; zeros at the end of the last one do not count."""
    folder = home / "store" / "commitlog"
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    return {name: content for name, content in files.items() if any(content)}


def are_equal(master: Path, slave: Path) -> bool:
    mine, others = log_of(master), log_of(slave)
    return len(mine) > 1 and mine == others


def follows(master: Server) -> None:
    """Wait until a slave has connected: a send is confirmed then."""
    wait_until(lambda: send(master, 1) == [ACKNOWLEDGED], "a slave confirms", seconds=90)


def scenario(master: Server, slave: Server, master_home: Path, slave_home: Path) -> None:
    """Sends, a slave that is killed, a master that is killed; after each, the logs are equal."""
    create(master)
    follows(master)
    assert set(send(master, 150)) == {ACKNOWLEDGED}, "over the end of a file"
    wait_until(lambda: are_equal(master_home, slave_home), "the logs are equal", seconds=90)
    slave.send_signal(signal.SIGKILL)
    slave.wait_ended()
    slave.start()
    slave.wait_ready()
    follows(master)
    assert set(send(master, 120)) == {ACKNOWLEDGED}
    wait_until(lambda: are_equal(master_home, slave_home), "the logs are equal", seconds=90)
    master.send_signal(signal.SIGKILL)
    master.wait_ended()
    master.start()
    master.wait_ready()
    follows(master)
    assert set(send(master, 120)) == {ACKNOWLEDGED}
    wait_until(lambda: are_equal(master_home, slave_home), "the logs are equal", seconds=90)


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_slave_of_apache_follows_our_master(version: str, tmp_path: Path) -> None:
    names = subject.name_server(tmp_path / "names")
    with apache.running(names):
        master = our_broker(tmp_path / "m", [names.address], MASTER)
        slave = apache.broker(
            Release(version).fetch(),
            tmp_path / "s",
            [names.address],
            name=BROKER_NAME,
            broker_id=1,
            settings=SLAVE,
        )
        with apache.running(master, slave):
            scenario(master, slave, tmp_path / "m", tmp_path / "s")


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_our_slave_follows_a_master_of_apache(version: str, tmp_path: Path) -> None:
    names = subject.name_server(tmp_path / "names")
    with apache.running(names):
        master = apache.broker(
            Release(version).fetch(),
            tmp_path / "m",
            [names.address],
            name=BROKER_NAME,
            settings=MASTER,
        )
        slave = our_broker(tmp_path / "s", [names.address], SLAVE)
        with apache.running(master, slave):
            scenario(master, slave, tmp_path / "m", tmp_path / "s")
