"""The disk fills up under a real broker process: sends are refused and say why, everything else
goes on, and nothing acknowledged is lost.

The store lies on a small file system in memory of its own, which takes root to mount: without that
the tests are skipped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from interop.apache import Server, running
from interop.broker_clients import our_broker
from interop.frames import Answer, Connection, Request
from orbitmq.message.record import decode_all
from orbitmq.protocol.codes import ResponseCode
from support.broker.bad_input import SERVED
from support.broker.bad_peers import MIB, SERVED_WITHIN_S
from support.common.waiting import wait_until
from support.store.full_disks import NoSmallDisk, fill, small_disk

pytestmark = pytest.mark.slow

SEND = SERVED[310].good_fields
PULL = SERVED[11].good_fields
COMMIT = SERVED[15].good_fields
BODY_SIZE = 100_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 32 MiB."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(small_disk(tmp_path / "disk", 32))
        except NoSmallDisk as reason:
            pytest.skip(str(reason))
        yield folder


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def server(request: pytest.FixtureRequest, tmp_path: Path, disk: Path) -> Server:
    """A broker on that disk, not started yet. It deletes nothing to make room."""
    settings = {
        "storePathRootDir": disk / "store",
        "storePathCommitLog": disk / "store" / "commitlog",
        "mappedFileSizeCommitLog": 2 * MIB,
        "flushDiskType": request.param,
        "cleanFileForciblyEnable": "false",
        "cleanResourceInterval": 1_000,  # how soon it sees that there is room again
    }
    return our_broker(tmp_path / "home", ["127.0.0.1:1"], settings)


class Producer:
    """Sends numbered messages, and knows which were acknowledged, and where."""

    def __init__(self, queue_id: int = 0) -> None:
        self._queue_id = str(queue_id)
        self.acknowledged: dict[int, bytes] = {}  # by their offsets
        self._numbers = count()

    def send(self, connection: Connection, size: int = BODY_SIZE) -> Answer:
        body = b"%d" % next(self._numbers) + bytes(size)
        answer = connection.ask(
            Request(310, {**SEND, "b": "T", "d": "4", "e": self._queue_id}, body)
        )
        if answer.code == ResponseCode.SUCCESS:
            self.acknowledged[int(answer.fields["queueOffset"])] = body
        return answer

    def send_until_refused(self, connection: Connection) -> Answer:
        for _ in range(10_000):
            answer = self.send(connection)
            if answer.code != ResponseCode.SUCCESS:
                return answer
        raise AssertionError("the disk is full, and everything is taken")

    def check_all_there(self, connection: Connection) -> None:
        """Read the queue from its beginning: every message that was acknowledged is where it was
        said to be.
        """
        found: dict[int, bytes] = {}
        while (
            answer := connection.ask(
                Request(11, {**PULL, "queueId": self._queue_id, "queueOffset": str(len(found))})
            )
        ).code == ResponseCode.SUCCESS:
            found |= {message.queue_offset: message.body for message in decode_all(answer.body)}
        assert self.acknowledged
        lost = [offset for offset, body in self.acknowledged.items() if found.get(offset) != body]
        assert lost == []


def committed(connection: Connection) -> str | None:
    return connection.ask(
        Request(14, {**SERVED[14].good_fields, "setZeroIfNotFound": "false"})
    ).fields.get("offset")


def test_sends_are_refused_while_the_disk_is_full_and_all_that_was_acknowledged_stays(
    server: Server, disk: Path
) -> None:
    producer = Producer()
    with running(server), Connection(server.address, SERVED_WITHIN_S) as connection:
        for _ in range(20):
            answer = producer.send(connection)
            assert answer.code == ResponseCode.SUCCESS, answer
        producer.check_all_there(connection)  # which makes the group known
        assert connection.ask(Request(15, COMMIT)).code == ResponseCode.SUCCESS

        ballast = fill(disk)
        check_refusal(producer.send_until_refused(connection))
        for _ in range(20):
            check_refusal(producer.send_until_refused(connection))
        producer.check_all_there(connection)
        commit = connection.ask(Request(15, {**COMMIT, "commitOffset": "7"}))
        assert commit.code == ResponseCode.SUCCESS or "space" in (commit.remark or ""), commit
        made = connection.ask(Request(17, {**SERVED[17].good_fields, "topic": "Made"}))
        assert made.code == ResponseCode.SUCCESS or "No space left" in (made.remark or ""), made

        ballast.unlink()
        wait_until(
            lambda: producer.send(connection).code == ResponseCode.SUCCESS,
            "sends are accepted again",
        )
        for _ in range(20):
            answer = producer.send(connection)
            assert answer.code == ResponseCode.SUCCESS, answer
        assert (
            connection.ask(Request(15, {**COMMIT, "commitOffset": "9"})).code
            == ResponseCode.SUCCESS
        )
        producer.check_all_there(connection)
    with running(server), Connection(server.address, SERVED_WITHIN_S) as connection:
        producer.check_all_there(connection)
        assert committed(connection) == "9"
        assert producer.send(connection).code == ResponseCode.SUCCESS


def test_messages_that_fill_the_disk_themselves_are_taken_up_to_the_last_that_fits(
    server: Server, disk: Path
) -> None:
    producer = Producer()
    reserve = disk / "reserve"
    reserve.write_bytes(bytes(MIB))
    with running(server), Connection(server.address, SERVED_WITHIN_S) as connection:
        check_refusal(producer.send_until_refused(connection))
        assert len(producer.acknowledged) > 100, "of the 300 or so that fit"
        producer.check_all_there(connection)
    reserve.unlink()
    with running(server), Connection(server.address, SERVED_WITHIN_S) as connection:
        producer.check_all_there(connection)
        check_refusal(producer.send_until_refused(connection))


@pytest.mark.parametrize("count", [10, 150], ids=["one log file", "several log files"])
def test_a_broker_that_was_killed_starts_on_a_full_disk_serves_and_takes_messages_when_there_is_room(
    server: Server, disk: Path, count: int
) -> None:
    producer = Producer()
    with running(server), Connection(server.address, SERVED_WITHIN_S) as connection:
        for _ in range(count):
            assert producer.send(connection).code == ResponseCode.SUCCESS
        ballast = fill(disk)
        check_refusal(producer.send_until_refused(connection))
        server.send_signal(signal.SIGKILL)
        server.wait_ended()
    fill(disk)
    with running(server), Connection(server.address, SERVED_WITHIN_S) as connection:
        producer.check_all_there(connection)
        check_refusal(producer.send_until_refused(connection))
        producer.check_all_there(connection)
        ballast.unlink()
        wait_until(
            lambda: producer.send(connection).code == ResponseCode.SUCCESS,
            "sends are accepted again",
        )
        producer.check_all_there(connection)
    with running(server), Connection(server.address, SERVED_WITHIN_S) as connection:
        producer.check_all_there(connection)


def test_a_broker_that_starts_on_a_full_disk_deletes_expired_files_and_takes_messages_again(
    server: Server, disk: Path
) -> None:
    producer = Producer()
    with running(server), Connection(server.address, SERVED_WITHIN_S) as connection:
        for _ in range(100):
            assert producer.send(connection).code == ResponseCode.SUCCESS
    with running(server), Connection(server.address, SERVED_WITHIN_S) as connection:
        fill(disk)
        check_refusal(producer.send_until_refused(connection))
        server.send_signal(signal.SIGKILL)
        server.wait_ended()
    fill(disk)
    *expired, _last = sorted((disk / "store" / "commitlog").iterdir())
    for file in expired:
        os.utime(file, (0, 0))
    with running(server), Connection(server.address, SERVED_WITHIN_S) as connection:
        wait_until(
            lambda: producer.send(connection).code == ResponseCode.SUCCESS,
            "sends are accepted when expired files are gone",
        )
        assert not expired[0].exists()
        newest = max(producer.acknowledged)
        pulled = connection.ask(Request(11, {**PULL, "queueOffset": str(newest)}))
        assert [message.body for message in decode_all(pulled.body)] == [
            producer.acknowledged[newest]
        ]


def test_a_broker_whose_index_is_damaged_starts_on_a_full_disk_and_builds_it_again_when_there_is_room(
    server: Server, disk: Path
) -> None:
    producer = Producer()
    with running(server), Connection(server.address, SERVED_WITHIN_S) as connection:
        for _ in range(20):
            assert producer.send(connection).code == ResponseCode.SUCCESS
    (index,) = (disk / "store" / "index").iterdir()
    index.unlink()
    ballast = fill(disk)
    with running(server), Connection(server.address, SERVED_WITHIN_S) as connection:
        producer.check_all_there(connection)
        ballast.unlink()
        wait_until(
            lambda: producer.send(connection).code == ResponseCode.SUCCESS, "sends are accepted"
        )
        producer.check_all_there(connection)
        assert list((disk / "store" / "index").iterdir())


def test_the_first_message_of_a_queue_that_a_full_disk_has_no_room_for_is_read_when_there_is_some(
    server: Server, disk: Path
) -> None:
    producers = [Producer(queue_id) for queue_id in range(4)]
    with running(server), Connection(server.address, SERVED_WITHIN_S) as connection:
        assert producers[0].send(connection).code == ResponseCode.SUCCESS
        ballast = fill(disk)
        for producer in producers:
            producer.send(connection, size=10)
        ballast.unlink()
        for producer in producers:
            wait_until(
                lambda producer=producer: producer.send(connection).code == ResponseCode.SUCCESS,  # type: ignore[misc]
                "sends are accepted again",
            )
            producer.check_all_there(connection)
    with running(server), Connection(server.address, SERVED_WITHIN_S) as connection:
        for producer in producers:
            producer.check_all_there(connection)


def test_a_broker_that_cannot_bring_everything_to_a_full_disk_says_so_by_how_it_ends(
    server: Server, disk: Path
) -> None:
    producers = [Producer(queue_id) for queue_id in range(4)]
    with running(server), Connection(server.address, SERVED_WITHIN_S) as connection:
        assert producers[0].send(connection).code == ResponseCode.SUCCESS
        ballast = fill(disk)
        accepted = [
            producer
            for producer in producers[1:]
            if producer.send(connection, size=10).code == ResponseCode.SUCCESS
        ]
        is_open = (disk / "store" / "abort").exists()
        server.send_signal(signal.SIGTERM)
        ended = server.wait_ended()
        assert is_open
        assert (ended != 0) == (disk / "store" / "abort").exists()
    ballast.unlink()
    with running(server), Connection(server.address, SERVED_WITHIN_S) as connection:
        for producer in (producers[0], *accepted):
            producer.check_all_there(connection)


def check_refusal(answer: Answer) -> None:
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, answer
    remark = answer.remark or ""
    assert "service not available now" in remark, remark
    assert "No space left" in remark or "disk" in remark, remark
