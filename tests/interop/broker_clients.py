"""Brokers for real clients, the original and ours, each with a name server of its own; and the
programs in `java/` that use them.

Invariant: both have the same name, the same cluster, the same topics and, but for their ports and
folders, the same configuration.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop import apache, subject
from interop.apache import Release, Server
from interop.frames import Request, ask
from interop.programs import Admin
from support.common.waiting import wait_until

BROKER_NAME = "broker-a"
SUITE_WITHIN_S = 300.0


@dataclass(frozen=True)
class Cluster:
    """A name server and the broker that is registered there."""

    name_server: Server
    broker: Server

    def make_topics(self, queue_counts: Mapping[str, int]) -> None:
        """Make topics with so many queues, and wait until clients can find them."""
        for topic, count in queue_counts.items():
            queues = {
                "readQueueNums": str(count),
                "writeQueueNums": str(count),
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
            }
            header = {
                "topic": topic,
                "defaultTopic": "TBW102",
                **queues,
                "topicSysFlag": "0",
                "order": "false",
            }
            answer = ask(self.broker.address, Request(17, header))
            assert answer.code == 0, answer
        for topic in queue_counts:
            wait_until(lambda topic=topic: self.has_route(topic), f"the route of {topic}")  # type: ignore[misc]

    def has_route(self, topic: str) -> bool:
        return ask(self.name_server.address, Request(105, {"topic": topic})).code == 0

    def wait_registered(self) -> None:
        wait_until(
            lambda: self.has_route(BROKER_NAME), "the broker is registered"
        )  # each broker has a topic of its own name


def our_broker(
    home: Path, name_servers: list[str], settings: Mapping[str, object] | None = None
) -> Server:
    """A broker of ours with its files in `home`, configured as `apache.broker` configures the
    original.
    """
    if subject.IS_ORIGINAL:
        return apache.broker(Release("5.5.0").fetch(), home, name_servers, settings=settings)
    home.mkdir(parents=True)
    port = apache.free_port((-2, 1))
    own = {
        **apache.small_broker(home, port, name_servers),
        "brokerName": BROKER_NAME,
        "bindAddress": "127.0.0.1",
    }
    configuration = home / "broker.conf"
    configuration.write_text(
        "".join(f"{key}={value}\n" for key, value in {**own, **(settings or {})}.items())
    )
    command = [str(Path(sys.executable).with_name("mqbroker")), "-c", str(configuration)]
    return Server(
        command, port, home / "console.log", {"ROCKETMQ_HOME": str(home), "HOME": str(home)}
    )


@contextmanager
def our_cluster(home: Path, settings: Mapping[str, object] | None = None) -> Iterator[Cluster]:
    """A name server and a broker of ours."""
    names = subject.name_server(home / "names")
    ours = Cluster(names, our_broker(home / "broker", [names.address], settings))
    with apache.running(names), apache.running(ours.broker):
        ours.wait_registered()
        yield ours


@contextmanager
def original_cluster(
    release: Release, home: Path, settings: Mapping[str, object] | None = None
) -> Iterator[Cluster]:
    """A name server and a broker of a release."""
    names = apache.name_server(release, home / "original-names")
    original = Cluster(
        names,
        apache.broker(
            release, home / "original", [names.address], name=BROKER_NAME, settings=settings
        ),
    )
    with apache.running(names), apache.running(original.broker):
        original.wait_registered()
        yield original


@contextmanager
def clusters(
    release: Release, home: Path, settings: Mapping[str, object] | None = None
) -> Iterator[tuple[Cluster, Cluster]]:
    """The original, and ours."""
    with (
        our_cluster(home / "ours", settings) as ours,
        original_cluster(release, home, settings) as original,
    ):
        yield original, ours


def suite(
    release: Release, home: Path, program: str, name_server: str, *scenarios: str
) -> dict[str, Any]:
    """Run scenarios of a suite in `java/` with the client of a release; the answers of each, by its
    name.
    """
    command = release.java(home, program, name_server, *scenarios, compiled=True)
    said = subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=SUITE_WITHIN_S, check=False
    )
    assert said.returncode == 0, f"{program} failed:\n{said.stdout[-3000:]}\n{said.stderr}"
    found = [json.loads(line) for line in said.stdout.splitlines() if line.startswith('{"answers"')]
    answers = {line["scenario"]: line["answers"] for line in found}
    for scenario in scenarios:
        assert "failed" not in answers[scenario], (
            f"{scenario}: {answers[scenario]}\n{said.stderr[-3000:]}"
        )
    return answers


@contextmanager
def started(release: Release, home: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program in `java/` with pipes to it, which runs in `home` as long as the block."""
    command = release.java(home, *arguments, compiled=True)
    environment = {**os.environ, "ROCKETMQ_HOME": str(home)}
    with (home / "console.log").open("ab") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            cwd=home,
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def admin(release: Release, home: Path) -> Iterator[Admin]:
    """An `mqadmin` that lives as long as the block; the files that its commands write lie in
    `home`.
    """
    with started(release, home, "AdminShell") as process:
        yield Admin(process)


@contextmanager
def residents(release: Release, home: Path, name_server: str) -> Iterator[dict[str, str]]:
    """A producer and a consumer that are online during the block, and the ids of the first message
    they exchanged.
    """
    with started(release, home, "Residents", name_server) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(b'{"event":"ready"'):
                yield json.loads(line)
                return
        raise AssertionError(f"the residents ended: see {home}")
