"""A broker that is killed again and again while topics come and go, with damaged derived files and
a full disk in between.

`ORBITMQ_CRASH_ROUNDS` is how often it is killed in all, 24 unless told otherwise, half of them with
each flush mode; `ORBITMQ_CRASH_SEED` repeats the choices of a run, though not its moments. A
producer keeps many requests in flight, deletes topics and creates them again, with messages of both
lives around the deletion. Some rounds end by SIGTERM instead, so that there is a manifest. While
the broker is down, files that follow from the log are damaged; in some rounds the disk has no room,
before and after the end. After every start each topic must be exactly one of the lives that it may
have: `topic_model` says which. One line of JSON for each campaign.

The process is killed, not the machine: what was written is in the page cache, so ASYNC_FLUSH may
lose nothing either.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from crash.topic_model import Differences, Life, Read, Topic
from interop.apache import Server
from interop.broker_clients import our_broker
from interop.frames import Answer, Closed, Connection, Request
from orbitmq.message.record import decode_all
from orbitmq.protocol.codes import RequestCode, ResponseCode
from support.broker.bad_input import SERVED
from support.common.waiting import wait_until
from support.store import derived_files
from support.store.full_disks import NoSmallDisk, fill, small_disk

pytestmark = pytest.mark.crash

KILLS = max(1, int(os.environ.get("ORBITMQ_CRASH_ROUNDS", "24")) // 2)
SEED = int(os.environ.get("ORBITMQ_CRASH_SEED", "0")) or Random().randrange(1 << 32)
QUEUES = 3
STEPS_MAX = 100
BATCH_MAX = 30
PADDING_MAX = 400
ANSWER_WITHIN_S = 60.0
SETTINGS = {
    "cleanFileForciblyEnable": "false",  # a full disk deletes nothing
    "mappedFileSizeCommitLog": 256 << 10,
    "mappedFileSizeConsumeQueue": 600,
    "maxIndexNum": 1000,
}
GONE = (Closed, OSError)
REFUSED = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,  # a table that cannot be saved
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.FLUSH_DISK_TIMEOUT,
    }
)


@dataclass(slots=True)
class Report:
    """The numbers of one campaign."""

    mode: str
    seed: int
    acknowledged: int = 0
    kills: int = 0
    stops: int = 0
    deletes: int = 0
    damages: int = 0
    full_disk_rounds: int = 0
    lost: int = 0
    phantom: int = 0
    duplicated: int = 0
    misplaced: int = 0

    def line(self) -> str:
        return json.dumps(asdict(self))

    def count(self, found: Differences) -> None:
        self.lost += len(found.lost)
        self.phantom += len(found.phantom)
        self.duplicated += len(found.duplicated)
        self.misplaced += len(found.misplaced)


class Send(NamedTuple):
    """A message under way."""

    topic: Topic
    life: Life
    queue: int
    body: bytes


class Flight:
    """Requests that leave in one write, so that the broker may find them in one read."""

    _opaques = count(1 << 20)  # a connection's own begin with 1

    def __init__(self) -> None:
        self.frames = b""
        self.sends: dict[int, Send] = {}

    def put(self, request: Request) -> int:
        opaque = next(self._opaques)
        self.frames += request.encode(opaque)
        return opaque


class Producer:
    """Sends, deletes and creates on one connection at a time, and tells the model what was asked
    and what was acknowledged.
    """

    def __init__(self, topics: list[Topic], report: Report, random: Random) -> None:
        self._topics = topics
        self._report = report
        self._random = random
        self.may_be_refused = False

    def step(self, connection: Connection) -> None:
        """One thing that a client or an operator does."""
        kept, *others = self._topics
        living = [topic for topic in others if topic.life.exists]
        dead = [topic for topic in others if not topic.life.exists]
        what = self._random.random()
        if what < 0.12 and living:
            self.delete(connection, self._random.choice(living))
        elif what < 0.25 and dead:
            self.create(connection, self._random.choice(dead))
        else:
            self.send(
                connection,
                [
                    self._random.choice([kept, *living])
                    for _ in range(self._random.randint(1, BATCH_MAX))
                ],
            )

    def create(self, connection: Connection, topic: Topic) -> None:
        life = topic.begin()
        queues = {"readQueueNums": str(topic.queues), "writeQueueNums": str(topic.queues)}
        answer = connection.ask(
            Request(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                {**SERVED[17].good_fields, "topic": topic.name, **queues},
            )
        )
        if self._accepted(answer.code, answer.remark):
            topic.settle(life)

    def delete(self, connection: Connection, topic: Topic) -> None:
        """Delete a topic with messages of its life in flight before the deletion, and perhaps some
        behind it, which begin the next life.
        """
        flight = Flight()
        for _ in range(self._random.randrange(6)):
            self._put_send(flight, topic)
        gone = topic.end()
        deletion = flight.put(Request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic.name}))
        if behind := self._random.choice((0, 0, 1, 5)):
            topic.begin()
        for _ in range(behind):
            self._put_send(flight, topic)
        connection.send_bytes(flight.frames)
        while flight.sends or deletion:
            answer = connection.receive()
            if answer.opaque != deletion:
                self._take(flight.sends.pop(answer.opaque), answer)
                continue
            deletion = 0
            self._report.deletes += 1
            if self._accepted(answer.code, answer.remark):
                topic.settle(gone)

    def send(self, connection: Connection, topics: list[Topic]) -> bool:
        """Send a message to each of these topics, all at once; whether all were acknowledged."""
        flight = Flight()
        for topic in topics:
            self._put_send(flight, topic)
        connection.send_bytes(flight.frames)
        are_accepted = True
        while flight.sends:
            answer = connection.receive()
            are_accepted &= self._take(flight.sends.pop(answer.opaque), answer)
        return are_accepted

    def _put_send(self, flight: Flight, topic: Topic) -> None:
        life, queue = topic.life, self._random.randrange(topic.queues)
        body = life.next_body(self._random.randrange(PADDING_MAX))
        key = body.split(b" x")[0].decode().replace(" ", "-")
        fields = {
            "b": topic.name,
            "d": str(topic.queues),
            "e": str(queue),
            "i": f"UNIQ_KEY\x01{key}\x02",
        }
        opaque = flight.put(
            Request(RequestCode.SEND_MESSAGE_V2, {**SERVED[310].good_fields, **fields}, body)
        )
        flight.sends[opaque] = Send(topic, life, queue, body)

    def _take(self, sent: Send, answer: Answer) -> bool:
        """Take over what the broker says of a message; whether it was acknowledged."""
        if not self._accepted(answer.code, answer.remark):
            return False
        self._report.acknowledged += 1
        sent.topic.settle(sent.life)
        place = sent.queue, int(answer.fields["queueOffset"])
        if not sent.life.acknowledge(place, sent.body):
            self._report.duplicated += 1
            raise AssertionError(
                f"{place} of {sent.life.name} was given to {sent.life.known[place][:30]!r}, and to"
                f" {sent.body[:30]!r}"
            )
        return True

    def _accepted(self, code: int, remark: str | None) -> bool:
        if code == ResponseCode.SUCCESS:
            return True
        assert self.may_be_refused, f"refused with room on the disk: {code} {remark}"
        assert code in REFUSED, f"{code} {remark}"
        return False


class Campaign:
    """Rounds of load, of ends, of damage and of looking, on one store."""

    def __init__(
        self, server: Server, root: Path, disk: Path | None, report: Report, folder: Path
    ) -> None:
        self._server = server
        self._root = root
        self._disk = disk
        self._report = report
        self._older, self._failed = folder / "older", folder / "failed-store"
        self._random = Random(f"{SEED} {report.mode}")
        self._topics = [Topic(f"T{number}", QUEUES) for number in range(4)]
        self._producer = Producer(self._topics, report, self._random)
        self._ballast: Path | None = None
        self._story: list[str] = []

    def begin(self) -> None:
        self._start()
        with self._connected() as connection:
            for topic in self._topics:
                self._producer.create(connection, topic)
        self._look()  # which makes the consumer group known: a full disk takes no new one

    def round(self) -> None:
        """Load, an end, perhaps damage, a start; then every topic has what it should."""
        random = self._random
        self._story.append(f"round {self._report.kills + self._report.stops}:")
        self._load(
            is_full=self._disk is not None and random.random() < 0.3,
            by=signal.SIGTERM if random.random() < 0.2 else signal.SIGKILL,
        )
        if random.random() < 0.5:
            self._damage()
        if random.random() < 0.4:
            self._copy()
        if self._ballast is not None:
            fill(self._ballast.parent)  # what the end of the process gave back
        if random.random() < 0.2:
            self._kill_while_it_starts()
        self._start()
        if self._ballast is not None:
            self._look(is_complete=False)
            self._make_room()
        self._look()

    def finish(self) -> None:
        """Stop, start once more, and look for the last time."""
        self._story.append("finish:")
        self._server.send_signal(signal.SIGTERM)
        assert self._server.wait_ended() == 0, self._server.console_tail()
        self._damage()
        self._start()
        self._look()

    def _load(self, *, is_full: bool, by: signal.Signals) -> None:
        steps = self._random.randint(1, STEPS_MAX)
        is_freed = self._random.random() < 0.5
        delay_s = self._random.choice((0.0, 0.005, 0.05)) * self._random.random()
        ender = threading.Timer(delay_s, self._server.send_signal, [by])
        self._producer.may_be_refused = is_full
        self._report.full_disk_rounds += is_full
        with suppress(*GONE), self._connected() as connection:
            for number in range(steps):
                if is_full and number == steps // 3:
                    assert self._disk is not None
                    self._ballast = fill(self._disk)
                if self._ballast is not None and is_freed and number == 2 * steps // 3:
                    self._make_room(connection)
                self._producer.step(connection)
            self._producer.may_be_refused |= by == signal.SIGTERM
            ender.start()
            while True:
                self._producer.step(connection)
        assert ender.ident is not None, (
            self._server.console_tail()
        )  # or it closed the connection before
        ender.join()
        ended = self._server.wait_ended()
        assert ended == -signal.SIGKILL if by == signal.SIGKILL else ended == 0 or is_full, (
            self._server.console_tail()
        )
        self._report.kills += by == signal.SIGKILL
        self._report.stops += by == signal.SIGTERM
        self._story[-1] += (
            f" {steps} steps,"
            f" {by.name}{', disk full' if is_full else ''}{' until the end' if self._ballast else ''}"
        )
        self._producer.may_be_refused = False

    def _make_room(self, connection: Connection | None = None) -> None:
        """Give the disk its room back, and wait until the broker takes messages again."""
        assert self._ballast is not None
        self._ballast.unlink()
        self._ballast = None
        with ExitStack() as stack:
            link = connection or stack.enter_context(self._connected())
            before, self._producer.may_be_refused = self._producer.may_be_refused, True
            wait_until(
                lambda: self._producer.send(link, self._topics[:1]), "messages are accepted again"
            )
            self._producer.may_be_refused = before

    def _damage(self) -> None:
        """Damage some of the files that follow from the log, each in its own way."""
        random = self._random
        ways: dict[str, Callable[[Path], None]] = {
            "missing": derived_files.unlink,
            "zeroed": derived_files.zero,
            "cut": derived_files.cut,
            "flipped": lambda path: derived_files.flip(path, random.random(), random.randrange(8)),
            "older": lambda path: derived_files.replace(
                path, self._older / path.relative_to(self._root)
            ),
        }
        files = list(self._derived())
        if random.random() < 0.2 and self._older.exists():
            chosen = dict.fromkeys(files, "older")  # a backup that was restored, but for the log
        else:
            chosen = {
                random.choice(files): random.choice(list(ways)) for _ in range(random.randint(1, 6))
            }
        for path, way in chosen.items():
            with suppress(OSError):  # a full disk may not take what is written over a file
                ways[way](path)
            self._report.damages += 1
        told = ", ".join(
            f"{path.relative_to(self._root)} {way}" for path, way in list(chosen.items())[:8]
        )
        self._story[-1] += f"; damaged {len(chosen)}: {told}"

    def _copy(self) -> None:
        shutil.rmtree(self._older, ignore_errors=True)
        for path in self._derived():
            copy = self._older / path.relative_to(self._root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)

    def _derived(self) -> Iterator[Path]:
        yield from derived_files.queue_files(self._root)
        yield from sorted((self._root / "index").glob("*"))
        yield from sorted((self._root / "config").glob("topics.json.bak"))

    def _kill_while_it_starts(self) -> None:
        self._server.start()
        with suppress(subprocess.TimeoutExpired):
            self._server.wait_ended(self._random.random() * 1.5)
        assert self._server.is_alive(), self._told(self._server.console_tail())
        self._server.send_signal(signal.SIGKILL)
        self._server.wait_ended()
        self._report.kills += 1
        self._story[-1] += "; killed while it started"

    def _start(self) -> None:
        self._server.start()
        try:
            self._server.wait_ready()
        except (RuntimeError, AssertionError) as problem:
            self._fail([f"the broker does not start: {problem}"])

    def _connected(self) -> Connection:
        return Connection(self._server.address, ANSWER_WITHIN_S)

    def _look(self, *, is_complete: bool = True) -> None:
        """Read every topic and compare; while the disk is full, only what must not be there."""
        problems = []
        with self._connected() as connection:
            for topic in self._topics:
                exists, reads = _read(connection, topic)
                found = (
                    topic.shown(exists=exists, reads=reads) if is_complete else topic.excess(reads)
                )
                self._report.count(found)
                problems += [
                    f"{topic.name} {kind}: {text}"
                    for kind, texts in found._asdict().items()
                    for text in texts[:5]
                ]
        if problems:
            self._fail(problems)

    def _fail(self, problems: list[str]) -> None:
        shutil.copytree(self._root, self._failed)
        warnings = [line for line in self._server.console().splitlines() if " INFO " not in line][
            -20:
        ]
        raise AssertionError(
            self._told("\n".join([*problems, f"the store: {self._failed}", *warnings]))
        )

    def _told(self, problem: str) -> str:
        return "\n".join([f"seed {SEED}", self._report.line(), *self._story[-6:], problem])


def _read(connection: Connection, topic: Topic) -> tuple[bool, list[Read]]:
    """Whether the topic exists, and everything that a consumer gets of it."""
    exists = (
        connection.ask(Request(RequestCode.GET_TOPIC_CONFIG, {"topic": topic.name})).code
        == ResponseCode.SUCCESS
    )
    reads = []
    for queue in range(topic.queues):
        offset, next_offset = -1, 0
        while next_offset > offset:
            offset = next_offset
            fields = {
                **SERVED[11].good_fields,
                "topic": topic.name,
                "queueId": str(queue),
                "queueOffset": str(offset),
            }
            answer = connection.ask(Request(RequestCode.PULL_MESSAGE, fields))
            if answer.code == ResponseCode.SUCCESS:
                reads += [
                    Read(queue, message.queue_offset, message.body)
                    for message in decode_all(answer.body)
                ]
            next_offset = int(answer.fields.get("nextBeginOffset", offset))
    return exists, reads


@pytest.mark.timeout(180 + 30 * KILLS)
@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_killed_broker_has_the_present_life_of_each_topic_and_no_other(
    mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report(mode, SEED)
    with ExitStack() as stack:
        disk: Path | None = None
        with suppress(NoSmallDisk):  # then no round has a full disk, and the line says so
            disk = stack.enter_context(small_disk(tmp_path / "disk", 16 + KILLS))
        root = (disk or tmp_path) / "store"
        settings = {
            **SETTINGS,
            "storePathRootDir": root,
            "storePathCommitLog": root / "commitlog",
            "flushDiskType": mode,
        }
        server = our_broker(tmp_path / "home", ["127.0.0.1:1"], settings)
        stack.callback(server.stop)
        campaign = Campaign(server, root, disk, report, tmp_path)
        try:
            campaign.begin()
            while report.kills < KILLS:
                campaign.round()
            campaign.finish()
        finally:
            with capsys.disabled():
                print("\n" + report.line())
    assert report.acknowledged > 10 * report.kills, "the producer hardly sent"
