"""Programs that are told by lines what to do, or that tell by JSON lines what happened; and those
in `java/` that do so: `mqadmin` and drivers of the real client, run with the jars of one release.

Invariant: a program that was started here has ended when its `with` block is left.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interop.apache import STOP_WITHIN_S, Release
from support.common.waiting import wait_until

_DRIVER_WITHIN_S = 100.0

Event = dict[str, Any]


class Events:
    """What a program tells by JSON lines, in order, while it is told by lines what to do."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.events: list[Event] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{"):
                self.events.append(json.loads(line))

    def write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(lambda: condition() or not self._reader.is_alive(), what)
        assert condition(), f"{what}: the program ended before"

    def happened(self, name: str, **members: object) -> list[Event]:
        """The events of a name that have these members."""
        return [
            event
            for event in list(self.events)
            if event["event"] == name and members.items() <= event.items()
        ]

    def wait_for(self, name: str, count: int = 1, **members: object) -> Event:
        """The first event of a name that has these members, as soon as there are so many."""
        self._wait(
            lambda: len(self.happened(name, **members)) >= count, f"the peer's {name} {members}"
        )
        return self.happened(name, **members)[0]

    def next_event(self, name: str, begin: Callable[[], None]) -> Event:
        """Begin something, and wait for the next event of a name; an order that failed is an
        error.
        """
        before = len(self.events)
        begin()

        def found() -> Event | None:
            return next(
                (event for event in self.events[before:] if event["event"] in (name, "failed")),
                None,
            )

        self._wait(lambda: found() is not None, f"the peer's {name}")
        event = found()
        assert event is not None
        assert event["event"] == name, event
        return event


@contextmanager
def _started(
    release: Release, home: Path, *arguments: str, options: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A Java program of ours with pipes to it; its input ends with the block, and that ends it."""
    command = release.java(home, *arguments, options=options, compiled=True)
    environment = {**os.environ, "ROCKETMQ_HOME": str(home)}
    with (home / "console.log").open("ab") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment
        )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout:
        try:
            yield process
        finally:
            process.stdin.close()
            try:
                process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Admin:
    """`mqadmin` of one release: one JVM that runs sub-commands one after the other, since each
    start would take seconds.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __call__(self, *arguments: str) -> str:
        """Run one sub-command and return all that it printed, on standard output and error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\x1f".join(arguments).encode() + b"\n")
        self._process.stdin.flush()
        length = self._process.stdout.readline()
        if not length:
            raise RuntimeError(f"the JVM of mqadmin ended in: mqadmin {' '.join(arguments)}")
        return self._process.stdout.read(int(length)).decode()


@contextmanager
def admin(release: Release, home: Path) -> Iterator[Admin]:
    """An `mqadmin` that lives as long as the block."""
    with _started(release, home, "AdminShell") as process:
        yield Admin(process)


def round_trip(
    release: Release,
    home: Path,
    name_servers: str,
    topic: str,
    count: int,
    options: tuple[str, ...] = (),
) -> list[dict[str, Any]]:
    """Send `count` messages with the real client and consume them; returns the lines the driver
    printed.
    """
    return _lines(
        release, home, "Driver", "roundtrip", name_servers, topic, str(count), options=options
    )


def send_and_read(
    release: Release, home: Path, name_servers: str, broker: str, series: str, topics: Iterable[str]
) -> list[dict[str, Any]]:
    """Send messages of every kind to one broker with the real client, and read all of its topics; a
    line per message sent or read.
    """
    return _lines(release, home, "StoreClient", name_servers, broker, series, *topics)


def _lines(
    release: Release, home: Path, *arguments: str, options: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Run a Java program of ours to its end; the JSON lines that it printed."""
    command = release.java(home, *arguments, options=options, compiled=True)
    said = subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=_DRIVER_WITHIN_S, check=False
    )
    assert said.returncode == 0, f"{arguments[0]} failed:\n{said.stdout[-3000:]}\n{said.stderr}"
    return [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]


class Load:
    """The driver in its load mode: sends without end, and asks for the route over one new
    connection after the other.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def lines(self) -> Iterator[dict[str, Any]]:
        """The driver's lines as they come: one per route that a new connection got."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{"):
                yield json.loads(line)

    def wait_for_routes(self, count: int) -> None:
        """Wait until `count` more new connections got their route."""
        for _, line in zip(range(count), self.lines(), strict=False):
            assert line["event"] == "route", line

    def finish(self) -> dict[str, Any]:
        """End the load and return its closing line: sends, routes and failures."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        closing = [line for line in self.lines() if line["event"] == "done"]
        assert closing, "the driver ended without its closing line"
        return closing[0]


@contextmanager
def load(
    release: Release, home: Path, name_servers: str, topic: str, options: tuple[str, ...] = ()
) -> Iterator[Load]:
    """Load by the real client for as long as the block lasts."""
    with _started(release, home, "Driver", "load", name_servers, topic, options=options) as process:
        yield Load(process)
