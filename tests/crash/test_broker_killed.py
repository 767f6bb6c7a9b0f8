"""A broker that is killed again and again while the real Java client sends to it and consumes from
it: L1 of the fault ladder.

`ORBITMQ_CRASH_ROUNDS` is how often it is killed in all, 100 unless told otherwise; half of them
with each flush mode. One client lives through all rounds of a campaign: it sends every message
once, and its consumer reads every queue from its first message on, so that what it consumed is what
the broker kept. An operator asks for the committed offsets all the time. One line of JSON for each
campaign.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from crash.store_verify import Report
from interop import apache, subject
from interop.apache import ApacheUnavailable, Release
from interop.broker_clients import BROKER_NAME, Cluster, our_broker, started
from interop.frames import Closed, Connection, Request
from support.common.requirements import lack
from support.common.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.needs("java", "maven")]

ROUNDS = int(os.environ.get("ORBITMQ_CRASH_ROUNDS", "100"))
SEED = int(os.environ.get("ORBITMQ_CRASH_SEED", "0")) or Random().randrange(1 << 32)
TOPIC, GROUP, QUEUES = "Crash", "crash-consumer", 4
NEWS_MIN = 20  # so many messages are acknowledged, and consumed, in every round


@dataclass(slots=True)
class BrokerReport(Report):
    """With what only a broker has."""

    redelivered: int = 0  # the same message again; at least once is what is promised
    offsets_gone_back: int = 0


class Load:
    """The client, and what it said so far."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.attempted: set[str] = set()
        self.acknowledged: dict[str, tuple[int, int]] = {}  # key -> queue, offset
        self.consumed: list[tuple[int, int, str]] = []  # queue, offset, key; as they came
        self.statuses: Counter[str] = Counter()
        self._stopped = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{"):
                self._take(json.loads(line))

    def _take(self, said: dict[str, Any]) -> None:
        match said["event"]:
            case "try":
                self.attempted.add(f"{said['queue']}-{said['number']}")
            case "acknowledged":
                self.statuses[said["status"]] += 1
                self.acknowledged[f"{said['queue']}-{said['number']}"] = (
                    said["queue"],
                    said["offset"],
                )
            case "consumed":
                self.consumed.append((said["queue"], said["offset"], said["key"]))
            case "stopped":
                self._stopped.set()

    def stop_sending(self) -> None:
        """Let no more be sent, and wait until the last answer came."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        assert self._stopped.wait(30), "the client did not stop sending"

    def wait_for_news(self) -> None:
        """Wait until messages are acknowledged and consumed again."""
        acknowledged, consumed = len(self.acknowledged) + NEWS_MIN, len(self.consumed) + NEWS_MIN
        wait_until(
            lambda: len(self.acknowledged) >= acknowledged and len(self.consumed) >= consumed,
            "the client goes on",
        )


@contextmanager
def load(release: Release, home: Path, name_server: str) -> Iterator[Load]:
    """A client that sends and consumes for as long as the block lasts."""
    with started(
        release, home, "CrashLoad", name_server, BROKER_NAME, TOPIC, str(QUEUES)
    ) as process:
        yield Load(process)


def committed(connection: Connection) -> list[int]:
    """How far the group is in each queue; -1 where it has said nothing yet."""
    offsets = []
    for queue in range(QUEUES):
        fields = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": str(queue),
            "setZeroIfNotFound": "false",
        }
        answer = connection.ask(Request(14, fields))
        assert answer.code in (0, 22), answer
        offsets.append(int(answer.fields["offset"]) if answer.code == 0 else -1)
    return offsets


class Campaign:
    """Rounds of load and of killing on one store."""

    def __init__(self, cluster: Cluster, client: Load, report: BrokerReport) -> None:
        self._cluster = cluster
        self._client = client
        self._report = report
        self._floor = [-1] * QUEUES
        self._random = Random(f"{SEED} {report.campaign}")

    def round(self) -> None:
        """Let the client go on for a while, watch the committed offsets, and kill the broker."""
        broker = self._cluster.broker
        self._client.wait_for_news()
        killer = threading.Timer(
            self._random.choice((0.02, 0.2, 1.0)) * self._random.random(),
            broker.send_signal,
            [signal.SIGKILL],
        )
        killer.start()
        try:
            with Connection(broker.address) as operator:
                while True:
                    self._watch(committed(operator))
        except (Closed, OSError):
            killer.join()
        assert broker.wait_ended() == -signal.SIGKILL, broker.console_tail()
        self._report.rounds += 1
        began = time.monotonic()
        broker.start()
        broker.wait_ready()
        self._report.recovery_ms.append((time.monotonic() - began) * 1000)
        with Connection(broker.address) as operator:
            self._watch(committed(operator))

    def _watch(self, offsets: list[int]) -> None:
        self._report.offsets_gone_back += sum(
            now < before for now, before in zip(offsets, self._floor, strict=True)
        )
        self._floor = offsets

    def finish(self) -> None:
        """Let the client consume all that is there, and count."""
        self._client.stop_sending()
        ends: dict[int, int] = {}
        with Connection(self._cluster.broker.address) as operator:
            for queue in range(QUEUES):
                ends[queue] = int(
                    operator.ask(Request(30, {"topic": TOPIC, "queueId": str(queue)})).fields[
                        "offset"
                    ]
                )
        wanted = {(queue, end - 1) for queue, end in ends.items()}
        wait_until(
            lambda: wanted <= {(queue, offset) for queue, offset, _ in list(self._client.consumed)},
            "everything is consumed",
        )
        self._count(ends)

    def _count(self, ends: dict[int, int]) -> None:
        client, report = self._client, self._report
        places: dict[tuple[int, int], str] = {}
        first_seen = defaultdict[int, list[int]](list)
        for queue, offset, key in client.consumed:
            if (queue, offset) in places:
                report.redelivered += 1
                report.reordered += places[queue, offset] != key
                continue
            places[queue, offset] = key
            first_seen[queue].append(offset)
        report.attempted, report.acknowledged = len(client.attempted), len(client.acknowledged)
        report.indeterminate = report.attempted - report.acknowledged
        report.delivered = len(places)
        report.lost = sum(places.get(place) != key for key, place in client.acknowledged.items())
        report.duplicated = len(places) - len(set(places.values()))
        report.phantom = len(set(places.values()) - client.attempted)
        report.gaps = sum(ends.values()) - len(places)
        for queue, offsets in first_seen.items():
            numbers = [int(places[queue, offset].split("-")[1]) for offset in sorted(offsets)]
            report.reordered += (offsets != sorted(offsets)) + (numbers != sorted(numbers))


@pytest.mark.timeout(120 + 15 * ROUNDS)
@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_killed_broker_has_everything_that_it_acknowledged(mode: str, tmp_path: Path) -> None:
    try:
        release = Release("5.5.0").fetch()
    except ApacheUnavailable as missing:
        lack("maven", str(missing))
    report = BrokerReport(f"kill -9 of a broker, {mode}", SEED)
    names = subject.name_server(tmp_path / "names")
    cluster = Cluster(
        names, our_broker(tmp_path / "broker", [names.address], {"flushDiskType": mode})
    )
    with apache.running(names), apache.running(cluster.broker):
        cluster.wait_registered()
        cluster.make_topics({TOPIC: QUEUES})
        with load(release, tmp_path / "client", names.address) as client:
            campaign = Campaign(cluster, client, report)
            for _ in range(max(1, ROUNDS // 2)):
                campaign.round()
            campaign.finish()
            statuses = client.statuses
    print(report.line())
    assert set(statuses) == {"SEND_OK"}, statuses
    wrong = (
        report.lost,
        report.duplicated,
        report.reordered,
        report.phantom,
        report.gaps,
        report.offsets_gone_back,
    )
    assert wrong == (0, 0, 0, 0, 0, 0), report.line()
