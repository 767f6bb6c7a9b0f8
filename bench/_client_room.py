"""The clients to measure, as child processes that execute orders, and the cluster that all of them
use.

Knows how each is started, not what it is asked to do. Invariant: every child has ended when its
`with` block is left.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from _broker_room import Desk, broker, wait_for_route
from _client_player import FIRST_WITHIN_S, Order, Report
from _harness import APACHE_JVM_OPTIONS, running, say
from interop import apache, subject

OURS = ("orbitmq", "orbitmq-blocking", "orbitmq-coroutine")
CPP, JAVA = "apache-cpp", "apache-java"
ANSWER_WITHIN_S = (
    FIRST_WITHIN_S + 60.0
)  # beyond the time of the order: a client that takes longer hangs
_OUR_FLAGS = {"orbitmq-blocking": ["--blocking"], "orbitmq-coroutine": ["--coroutine"]}


class Client(apache.Server):
    """A child process that executes orders; it listens on no port."""

    def __init__(self, command: list[str], home: Path) -> None:
        super().__init__(command, 0, home / "console.log", {"HOME": str(home)})

    def start(self) -> None:
        with self._console.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self._environment,
            )

    def obey(self, order: Order) -> Report:
        """Return the result of an order; raise if it failed or timed out."""
        assert self._process is not None, "the client was not started"
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(asdict(order)).encode() + b"\n")
        line = b" "
        while line and not line.startswith(b"{"):  # libraries print lines too
            if not select.select(
                [stdout], [], [], order.settle_s + order.seconds + ANSWER_WITHIN_S
            )[0]:
                self.stop()
                raise RuntimeError(f"the client hangs; it said:\n{self.console_tail()}")
            line = stdout.readline()
        if not line:
            raise RuntimeError(
                f"the client ended with status {self.wait_ended()}; it said:\n{self.console_tail()}"
            )
        answer: Report = json.loads(line)
        if "problem" in answer:
            raise RuntimeError(f"the client could not: {answer['problem']}")
        return answer


def client(contender: str, home: Path, *, name_server: str, apache_version: str) -> Client:
    """Return the client of this contender, not started yet."""
    home.mkdir(parents=True)
    if contender == JAVA:
        release = apache.Release(apache_version).fetch()
        return Client(
            release.java(
                home, "ClientLoad", name_server, options=APACHE_JVM_OPTIONS, compiled=True
            ),
            home,
        )
    if contender == CPP and find_spec("rocketmq") is None:
        raise apache.ApacheUnavailable("its wheel is built for Linux on x86-64 only")
    program = Path(__file__).with_name(
        "_client_cpp.py" if contender == CPP else "_client_orbitmq.py"
    )
    return Client([sys.executable, str(program), name_server, *_OUR_FLAGS.get(contender, [])], home)


@contextmanager
def clients(
    contenders: Sequence[str], name_server: str, apache_version: str
) -> Iterator[dict[str, Client]]:
    """Start the contenders' clients; those that are unavailable here are left out."""
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as directory, ExitStack() as stack:
        found = {}
        for contender in contenders:
            try:
                made = client(
                    contender,
                    Path(directory) / contender,
                    name_server=name_server,
                    apache_version=apache_version,
                )
            except apache.ApacheUnavailable as problem:
                say(f"{contender}: left out: {problem}")
                continue
            stack.callback(made.stop)
            made.start()
            found[contender] = made
        yield found


@contextmanager
def cluster(topics: Sequence[str]) -> Iterator[tuple[apache.Server, str]]:
    """Start a broker of ours with these topics; yield it and the address of its name server."""
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as directory:
        names = subject.name_server(Path(directory) / "names")
        with (
            apache.running(names),
            running(
                partial(broker, apache_version="", name_server=names.address), ["orbitmq"]
            ) as servers,
        ):
            server = servers["orbitmq"]
            for topic in topics:
                with Desk(server) as desk:
                    desk.make_topic(topic)
                wait_for_route(names.address, topic)
            yield server, names.address
