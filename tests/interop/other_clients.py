"""Apache's clients for Go and C++, each in a process of its own that obeys orders: see
`go/orders.go`, `cpp/peer.py` and `addon/main.js`.

Programs are built, and the C++ library is fetched, at first use, into
`${XDG_CACHE_HOME:-~/.cache}/orbitmq-clients`. Invariant: a process has ended when its `with` block
is left.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from interop.apache import HERE
from interop.programs import Event, Events
from orbitmq import Credentials
from support.common.requirements import lack

GO, CPP = "go", "cpp"
ADDON = "addon"  # a newer C++ client inside of Node, which can do less

NPM_INSTALL = [
    "npm",
    "install",
    "--no-audit",
    "--no-fund",
    "--no-package-lock",
    "--ignore-scripts",
    "--prefer-offline",
]


class OtherClient(Events):
    """A client that is told by JSON lines what to do."""

    def __init__(self, process: subprocess.Popen[bytes], home: Path) -> None:
        super().__init__(process)
        self._home = home

    def logged(self) -> str:
        """What the client wrote down: that for C++ tells only there what a broker said to a
        send.
        """
        return "".join(
            path.read_text(errors="replace") for path in sorted(self._home.rglob("*.log*"))
        )

    def order(self, order: str, **members: object) -> None:
        """Have it do something; what comes of it will be an event."""
        self.write(json.dumps({"order": order, **members}).encode())

    def do(self, order: str, until: str, **members: object) -> Event:
        """Have it do something, and wait for the next event of a name; one that failed is an error,
        with what the client wrote down.
        """
        try:
            return self.next_event(until, lambda: self.order(order, **members))
        except AssertionError as error:
            error.add_note(self.logged()[-3000:])
            raise

    def send(
        self, topic: str, key: str, *, group: str = "other-producers", **members: object
    ) -> Event:
        """Send a message whose body says its key; it is stored."""
        sent = self.do(
            "send", "sent", topic=topic, key=key, body=f"body of {key}", group=group, **members
        )
        assert sent["ok"], sent
        return sent

    def transact(
        self, group: str, topic: str, key: str, *states: str, others: str = "unknown"
    ) -> None:
        """Send a message in a transaction that ends by the first state, or by what is answered then
        each time that the broker asks.
        """
        sent = self.do(
            "transact",
            "transacted",
            group=group,
            topic=topic,
            key=key,
            body=f"body of {key}",
            states=states,
            others=others,
        )
        assert sent["ok"], sent

    def consume(self, group: str, topic: str, expression: str = "*", **members: object) -> None:
        """Have a group consume a topic."""
        self.do("consume", "consuming", group=group, topic=topic, expression=expression, **members)

    def consumed(self, key: str, **members: object) -> list[Event]:
        """Each time that the message of a key came."""
        return self.happened("consumed", key=key, **members)

    def wait_consumed(self, key: str, count: int = 1) -> list[Event]:
        """Wait until a message came so often."""
        self.wait_for("consumed", count, key=key)
        return self.consumed(key)


def built(requirement: str, command: list[str], folder: Path) -> None:
    """Get and build a program; where its packages cannot be had, that is a requirement that is not
    met.
    """
    said = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    if said.returncode != 0:
        lack(
            requirement, f"{' '.join(command)} failed: {(said.stdout + said.stderr).strip()[-300:]}"
        )


def _cached(language: str, make: Callable[[Path], None]) -> Path:
    """The folder with what is made of the sources of a language, which is made anew when they
    changed; several may do so at once.
    """
    sources = sorted(path for path in (HERE / language).iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orbitmq-clients"
    place = base / f"{language}-{digest}"
    if not place.is_dir():
        base.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix="making.", dir=base))
        try:
            make(new)
            new.rename(place)
        finally:
            if new.is_dir():  # it failed, or somebody else was quicker
                shutil.rmtree(new)
    return place


@lru_cache
def go_program() -> Path:
    """The program in `go/`."""
    return (
        _cached(
            GO, lambda new: built("go", ["go", "build", "-o", str(new / "client"), "."], HERE / GO)
        )
        / "client"
    )


@lru_cache
def cpp_library() -> Path:
    """The folder that Python finds the C++ client in: another release of it than that in our own
    environment.
    """
    pip = [sys._base_executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]  # type: ignore[attr-defined]
    return _cached(
        CPP,
        lambda new: built(
            "pip", [*pip, "--target", str(new), "-r", str(HERE / CPP / "requirements.txt")], HERE
        ),
    )


@lru_cache
def addon_program() -> Path:
    """The program in `addon/`, with what it needs beside it."""

    def make(new: Path) -> None:
        shutil.copytree(HERE / ADDON, new, dirs_exist_ok=True)
        built("node", NPM_INSTALL, new)

    return _cached(ADDON, make) / "main.js"


class StartClient(Protocol):
    """Starts the client of one language."""

    def __call__(
        self, name_server: str, credentials: Credentials | None = None, *, is_traced: bool = False
    ) -> AbstractContextManager[OtherClient]: ...


@contextmanager
def other_client(
    language: str,
    home: Path,
    name_server: str,
    credentials: Credentials | None = None,
    *,
    is_traced: bool = False,
) -> Iterator[OtherClient]:
    """A client that lives as long as the block; what it logs lies in `home`."""
    home.mkdir(parents=True, exist_ok=True)
    keys = [credentials.access_key, credentials.secret_key] if credentials is not None else []
    environment = {**os.environ, "HOME": str(home)}
    assert language == GO or not is_traced, "those for C++ do not trace"
    if language == GO:
        command = [str(go_program()), "orders", name_server, str(is_traced).lower(), *keys]
    elif language == ADDON:
        command = ["node", str(addon_program()), name_server, *keys]
    else:
        environment["PYTHONPATH"] = str(cpp_library())
        command = [sys.executable, str(HERE / CPP / "peer.py"), name_server, *keys]
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
            peer = OtherClient(process, home)
            peer.wait_for("ready")
            yield peer
        finally:
            process.kill()
