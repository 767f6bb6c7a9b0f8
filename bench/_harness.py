"""What the benchmarks share: the load generator, servers as child processes, interleaved rounds, medians, one JSON line.

Knows which servers there are, not what is asked of them. Progress goes to standard error, the result to standard output.
Invariant: contenders of one contest live at the same time and take turns (A B A B …), so noise of the machine meets all alike.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orbitmq import kernels
from orbitmq.protocol import frame
from orbitmq.protocol.command import RemotingCommand

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from interop import apache, subject  # noqa: E402 - the launchers lie with the tests that use them most

UNKNOWN_CODE = 9999
HEADERS_DIFFER_BYTES = 120  # 5.x answers a binary header by a JSON header; bodies do not differ
# The launcher makes JVMs small and quick to start. These, which come after its own and win, undo that: the optimising compiler,
# the collector that the release's start script asks for, and a heap that holds a million queues.
APACHE_JVM_OPTIONS = ("-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-XX:+UseG1GC", "-Xms2g", "-Xmx2g")

QUIET_CPU_MAX = 0.05  # cores: what idle servers may use together
NOISY_CPU_MIN = 0.2  # cores: when other processes use more, a measurement says little

Result = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One question to a server: what mqload asks, how many connections do so, and which answer code is right."""

    name: str
    arguments: tuple[str, ...]
    connections: int
    window: int
    answer_code: int


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long a contest takes: every number is per contender and workload."""

    rounds: int = 5
    seconds: float = 3.0
    settle_s: float = 0.5
    warm_up_s: float = 10.0  # before the first round: a JVM compiles what is asked, a cache fills

    @classmethod
    def of(cls, options: argparse.Namespace) -> Pace:
        return cls(rounds=1, seconds=1.0, settle_s=0.2, warm_up_s=1.0) if options.quick else cls(rounds=options.rounds)


def parse_arguments(description: str, contenders: Sequence[str]) -> argparse.Namespace:
    """The options that every program has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="one short round, the smallest tables: does it work at all?")
    parser.add_argument("--rounds", type=int, default=Pace.rounds, help="how many rounds the medians are of (%(default)s)")
    parser.add_argument("--server", action="append", choices=contenders, help="measure only this one; may be repeated (all)")
    parser.add_argument("--apache", default="5.5.0", metavar="VERSION", help="the release to compare with (%(default)s)")
    options = parser.parse_args()
    options.server = options.server or list(contenders)
    return options


def say(text: str) -> None:
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)


def emit(program: str, options: argparse.Namespace, result: Result) -> None:
    """Print the result as one line of JSON, with what a reader needs to judge it."""
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "kernels": kernels.mode()}
    print(json.dumps({"program": program, "quick": options.quick, "apache": options.apache, "machine": machine, **result}), flush=True)


def refuse_stale_kernels() -> None:
    """Stop when a compiled kernel is older than its source: the numbers would be those of code that is no more."""
    for name in kernels.KERNELS:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        built = Path(spec.origin)
        source = built.with_name(built.name.partition(".")[0] + ".py")
        if built.stat().st_mtime < source.stat().st_mtime:
            raise SystemExit(f"{source} changed after it was compiled; compile the kernels again, then measure")


def build_mqload() -> Path:
    """Compile the load generator unless that was done since its source changed; returns the program."""
    source, program = ROOT / "bench" / "mqload.c", ROOT / "build" / "bench" / "mqload"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-pthread", "-o", program, source], check=True)
    return program


def ask(peer: socket.socket, request: RemotingCommand) -> RemotingCommand:
    """Send one request and wait for the frame that comes back."""
    peer.sendall(frame.encode(request))
    received = bytearray()
    while (end := frame.frame_end(received, 0, len(received), frame.FrameLimits())) == 0:
        chunk = peer.recv(1 << 16)
        if not chunk:
            raise ConnectionError(f"the server closed the connection instead of answering {request!r}")
        received += chunk
    answer: RemotingCommand = frame.decode(received, 0, end)
    return answer


def pid_of(server: apache.Server) -> int:
    process = server._process
    assert process is not None, "the server was not started"
    return process.pid


def rss_mb(server: apache.Server) -> float:
    """The resident memory of the server's process, in millions of bytes."""
    status = Path(f"/proc/{pid_of(server)}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024 / 1e6


def name_server(contender: str, home: Path, apache_version: str) -> apache.Server:
    """The name server of that contender, `orbitmq` or `apache`, not started yet."""
    if contender == "apache":
        return apache.name_server(apache.Release(apache_version).fetch(), home, options=APACHE_JVM_OPTIONS)
    return subject.name_server(home)


def start_and_time(server: apache.Server, within_s: float = 60.0) -> float:
    """Start the server and return the seconds until it answered its first request."""
    begin = time.perf_counter()
    server.start()
    while True:
        try:
            with socket.create_connection(("127.0.0.1", server.port), timeout=within_s) as peer:
                ask(peer, RemotingCommand(UNKNOWN_CODE))
                return time.perf_counter() - begin
        except ConnectionRefusedError:
            if not server.is_alive() or time.perf_counter() - begin > within_s:
                raise RuntimeError(f"the server did not come up:\n{server.console_tail()}") from None
            time.sleep(0.002)


@contextmanager
def running(make: Callable[[str, Path], apache.Server], contenders: Sequence[str]) -> Iterator[dict[str, apache.Server]]:
    """The contenders' servers, started and answering, with their files in a directory that goes with them."""
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as directory, ExitStack() as stack:
        servers = {}
        for contender in contenders:
            servers[contender] = server = make(contender, Path(directory) / contender)
            stack.callback(server.stop)
            say(f"{contender}: answers on {server.address} after {start_and_time(server):.2f} s")
        yield servers


def cpu_seconds(server: apache.Server) -> float:
    """The CPU time that the server's process has used so far, user and system."""
    fields = Path(f"/proc/{pid_of(server)}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy_cores(during_s: float = 0.5) -> float:
    """How many cores all processes together use, by a look at the next moment."""

    def busy_s() -> float:
        user, nice, system, _idle, _io, irq, soft_irq = map(int, Path("/proc/stat").read_text().split(maxsplit=8)[1:8])
        return (user + nice + system + irq + soft_irq) / os.sysconf("SC_CLK_TCK")

    before_s = busy_s()
    time.sleep(during_s)
    return (busy_s() - before_s) / during_s


def wait_until_quiet(servers: Collection[apache.Server], within_s: float = 15.0) -> None:
    """Wait until servers that are not asked do nothing: a JVM works on for seconds after its load, at the cost of whoever is next."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        before = sum(map(cpu_seconds, servers))
        time.sleep(0.5)
        if sum(map(cpu_seconds, servers)) - before <= 0.5 * QUIET_CPU_MAX:
            return
    say(f"the servers were not quiet within {within_s:g} s: the next numbers suffer from it")


def load(server: apache.Server, workload: Workload, seconds: float, warm_up_s: float) -> Result:
    """One run of the load generator; an answer code that is not the right one is an error."""
    shape = ["-c", str(workload.connections), "-w", str(workload.window), "-d", str(seconds), "-W", str(warm_up_s)]
    command = [str(build_mqload()), "-j", "-p", str(server.port), "-P", str(pid_of(server)), *shape, *workload.arguments]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\nended with status {run.returncode}; the server said:\n{server.console_tail()}")
    report: Result = json.loads(run.stdout)
    if set(report["codes"]) != {str(workload.answer_code)}:
        raise RuntimeError(f"{workload.name}: answer codes {report['codes']}, all should be {workload.answer_code}")
    return report


def contest(
    servers: Mapping[str, apache.Server],
    workloads: Sequence[Workload],
    pace: Pace,
    between: Callable[[], None] = lambda: None,
    quiet_within_s: float = 15.0,
) -> Result:
    """Every workload in turn on every server, round after round; medians by workload and contender, and ratios to `apache`."""
    measured = {}
    for workload in workloads:
        between()
        for contender, server in servers.items():
            say(f"{workload.name}: warming {contender} up")
            load(server, workload, pace.warm_up_s, 0.0)
        rounds: dict[str, list[Result]] = {contender: [] for contender in servers}
        for number in range(pace.rounds):
            for contender, server in servers.items():
                between()
                wait_until_quiet(servers.values(), quiet_within_s)
                rounds[contender].append(report := load(server, workload, pace.seconds, pace.settle_s))
                say(
                    f"{workload.name}: {number + 1}/{pace.rounds} {contender} {report['requests_per_s']:.0f}/s "
                    f"{report['server_us_per_request']:.1f} µs CPU, p99 {report['p99_us']:.0f} µs, others {report['other_cpu']:.2f} cores"
                )
        measured[workload.name] = compare({contender: medians(reports) for contender, reports in rounds.items()})
    return measured


def medians(reports: Sequence[Result]) -> Result:
    """What is told of one contender under one workload."""
    result = {
        key: round(statistics.median(report[key] for report in reports), 1)
        for key in (
            *("messages_per_s", "requests_per_s", "server_us_per_message", "server_us_per_request", "server_cpu"),
            *("p50_us", "p99_us", "p999_us", "bytes_per_answer", "other_cpu"),
        )
    }
    rates = [report["requests_per_s"] for report in reports]
    result["requests_per_s_range"] = [min(rates), max(rates)]
    return result


def compare(by_contender: dict[str, Result]) -> Result:
    """Add the ratios of everybody's medians to Apache's; answers of different length are an error, for work left out is no speed."""
    result: Result = {**by_contender, "noisy": any(ours["other_cpu"] >= NOISY_CPU_MIN for ours in by_contender.values())}
    theirs = by_contender.get("apache")
    for contender, ours in by_contender.items():
        if theirs is None or ours is theirs:
            continue
        if not contender.startswith("apache") and abs(ours["bytes_per_answer"] - theirs["bytes_per_answer"]) > HEADERS_DIFFER_BYTES:
            raise RuntimeError(f"{contender} answers {ours['bytes_per_answer']} bytes where Apache answers {theirs['bytes_per_answer']}")
        result[f"{contender}/apache"] = {
            key: round(ours[key] / theirs[key], 2) for key in ("requests_per_s", "server_us_per_request", "p50_us", "p99_us")
        }
    return result
