"""The real Java client on the other side of a conversation (`java/Peer.java`): told by lines what
to do, it tells by lines what happened.

Invariant: the process has ended when its `with` block is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interop.apache import Release
from interop.broker_clients import started
from interop.programs import Event, Events
from orbitmq import Credentials

WORD_END = "\x1f"


class JavaPeer(Events):
    """Its orders are those that `Peer.java` knows; what happened is in `events`, in order."""

    def order(self, *words: str) -> None:
        """Have it do something; what comes of it will be an event."""
        self.write(WORD_END.join(words).encode())

    def do(self, *words: str, until: str) -> Event:
        """Have it do something, and wait for the next event of a name; an order that failed is an
        error.
        """
        return self.next_event(until, lambda: self.order(*words))


@contextmanager
def java_peer(
    release: Release,
    home: Path,
    name_server: str,
    *,
    is_traced: bool = False,
    credentials: Credentials | None = None,
) -> Iterator[JavaPeer]:
    """A client of that release, as long as the block, which signs if it has credentials."""
    if credentials is not None:
        home.mkdir(parents=True, exist_ok=True)
        (home / "key").write_text(
            f"AccessKey={credentials.access_key}\nSecretKey={credentials.secret_key}\n"
        )
    with started(release, home, "Peer", name_server, str(is_traced).lower()) as process:
        peer = JavaPeer(process)
        peer.wait_for("ready")
        yield peer
