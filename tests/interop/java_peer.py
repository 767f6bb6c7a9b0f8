"""The real Java client on the other side of a conversation (`java/Peer.java`): told by lines what to do, it tells by lines what happened.

Invariant: the process has ended when its `with` block is left.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interop.apache import Release, wait_until
from interop.broker_clients import started

WORD_END = "\x1f"

Event = dict[str, Any]


class JavaPeer:
    """Its orders are those that `Peer.java` knows; what happened is in `events`, in order."""

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

    def order(self, *words: str) -> None:
        """Have it do something; what comes of it will be an event."""
        assert self._process.stdin is not None
        self._process.stdin.write(WORD_END.join(words).encode() + b"\n")
        self._process.stdin.flush()

    def happened(self, name: str, **members: object) -> list[Event]:
        """The events of a name that have these members."""
        return [event for event in list(self.events) if event["event"] == name and members.items() <= event.items()]

    def wait_for(self, name: str, **members: object) -> Event:
        """The first event of a name that has these members, as soon as there is one."""
        wait_until(lambda: bool(self.happened(name, **members)), f"the peer's {name} {members}")
        return self.happened(name, **members)[0]

    def do(self, *words: str, until: str) -> Event:
        """Have it do something, and wait for the next event of a name; an order that failed is an error."""
        before = len(self.events)
        self.order(*words)

        def found(is_it: Callable[[Event], bool]) -> Event | None:
            return next((event for event in self.events[before:] if is_it(event)), None)

        wait_until(lambda: found(lambda event: event["event"] in (until, "failed")) is not None, f"the peer's {words[0]}")
        event = found(lambda event: event["event"] in (until, "failed"))
        assert event is not None
        assert event["event"] == until, event
        return event


@contextmanager
def java_peer(release: Release, home: Path, name_server: str, *, is_traced: bool = False) -> Iterator[JavaPeer]:
    """A client of that release, as long as the block."""
    with started(release, home, "Peer", name_server, str(is_traced).lower()) as process:
        peer = JavaPeer(process)
        peer.wait_for("ready")
        yield peer
