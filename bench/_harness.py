"""Shared code of the benchmarks: the load generator, servers as child processes, interleaved
rounds, medians, one JSON line.

Knows which servers exist, not what they are asked. Progress goes to standard error, the result to
standard output. Invariant: contenders of one contest run at the same time and take turns (A B A B
…), so machine noise affects all alike; a server is stopped (SIGSTOP) while it is not its turn. A
turn that fails is lost, reported and counted, and the others go on.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import signal
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
from interop import (  # noqa: E402
    apache,
    subject,
)

UNKNOWN_CODE = 9999
HEADERS_DIFFER_BYTES = 120  # 5.x answers a binary header with a JSON header; bodies do not differ
# The launcher configures JVMs for a small footprint and a quick start. These options come after its
# own and override them: the optimising compiler, the collector of the release's start script, and a
# heap that holds a million queues.
APACHE_JVM_OPTIONS = (
    "-XX:TieredStopAtLevel=4",
    "-XX:-UseSerialGC",
    "-XX:+UseG1GC",
    "-Xms2g",
    "-Xmx2g",
)

QUIET_CPU_MAX = 0.05  # cores: what idle servers may use together
NOISY_CPU_MIN = 0.2  # cores: above this use by other processes a measurement is unreliable
# beyond its time: a load generator that waits longer for responses will not get them
LOAD_WITHIN_S = 120.0
# the exceptions by which a turn may fail
LOSSES = (RuntimeError, OSError, subprocess.SubprocessError)
LOAD_KEYS = (
    *(
        "messages_per_s",
        "requests_per_s",
        "server_us_per_message",
        "server_us_per_request",
        "server_cpu",
    ),
    *("p50_us", "p99_us", "p999_us", "bytes_per_answer", "rss_mb", "other_cpu"),
)
RATIO_KEYS = (
    *(
        "messages_per_s",
        "requests_per_s",
        "server_us_per_message",
        "server_us_per_request",
        "client_us_per_message",
    ),
    *(
        "p50_us",
        "p99_us",
        "p999_us",
        "off_p50_us",
        "off_p99_us",
        "rss_mb",
        "mean_ms",
        "b2c_ms",
        "start_s",
        "idle_rss_mb",
    ),
)

Result = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One load on a server: what mqload sends, on how many connections, and the expected response
    code.
    """

    name: str
    arguments: tuple[str, ...]
    connections: int
    window: int
    answer_code: int
    settle_s: float = 0.0  # minimum time before a turn is measured


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The duration of a contest; all numbers are per contender and workload."""

    rounds: int = 5
    seconds: float = 3.0
    settle_s: float = 0.5
    warm_up_s: float = 10.0  # before the first round: JIT compilation, caches

    @classmethod
    def of(cls, options: argparse.Namespace) -> Pace:
        return (
            cls(rounds=1, seconds=1.0, settle_s=0.2, warm_up_s=1.0)
            if options.quick
            else cls(rounds=options.rounds, seconds=options.seconds)
        )


def parse_arguments(
    description: str,
    contenders: Sequence[str],
    sections: Sequence[str] = (),
    numbers: Mapping[str, tuple[str, int]] | None = None,
) -> argparse.Namespace:
    """Parse the options of every program, plus `--only` for programs with sections, and their own
    numbers with help and default.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one short round, the smallest tables: does it work at all?",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=Pace.rounds,
        help="how many rounds the medians are of (%(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=Pace.seconds,
        help="how long a turn is measured (%(default)s)",
    )
    parser.add_argument(
        "--server",
        action="append",
        choices=contenders,
        help="measure only this one; may be repeated (all)",
    )
    parser.add_argument(
        "--apache",
        default="5.5.0",
        metavar="VERSION",
        help="the release to compare with (%(default)s)",
    )
    for name, (meaning, default) in (numbers or {}).items():
        parser.add_argument(f"--{name}", type=int, default=default, help=meaning)
    if sections:
        parser.add_argument(
            "--only",
            action="append",
            choices=sections,
            help="measure only this section; may be repeated (all)",
        )
    options = parser.parse_args()
    if sections:
        options.only = [section for section in sections if section in (options.only or sections)]
    options.server = options.server or list(contenders)
    return options


def say(text: str) -> None:
    """Print one line of progress."""
    print(text, file=sys.stderr, flush=True)


def emit(program: str, options: argparse.Namespace, result: Result) -> None:
    """Print the result as one line of JSON, with the context needed to judge it."""
    pace = Pace.of(options)
    about = {
        "program": program,
        "quick": options.quick,
        "apache": options.apache,
        "rounds": pace.rounds,
        "seconds": pace.seconds,
    }
    print(json.dumps({**about, "machine": machine(), **result}), flush=True)


def machine() -> Result:
    """Describe the machine of the measurement."""
    processor = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory_kb = int(Path("/proc/meminfo").read_text().split("MemTotal:")[1].split()[0])
    versions = {
        "linux": platform.release(),
        "python": platform.python_version(),
        "kernels": kernels.mode(),
    }
    return {
        "cpus": os.cpu_count(),
        "cpu": processor[0] if processor else platform.machine(),
        "memory_gb": round(memory_kb / 1e6, 1),
        **versions,
    }


def refuse_stale_kernels() -> None:
    """Exit if a compiled kernel is older than its source: the numbers would be those of
    old code.
    """
    for name in kernels.KERNELS:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        built = Path(spec.origin)
        source = built.with_name(built.name.partition(".")[0] + ".py")
        if built.stat().st_mtime < source.stat().st_mtime:
            raise SystemExit(
                f"{source} changed after it was compiled; compile the kernels again, then measure"
            )


def build_mqload() -> Path:
    """Compile the load generator if its source changed; return the path of the program."""
    source, program = ROOT / "bench" / "mqload.c", ROOT / "build" / "bench" / "mqload"
    written_at = max(each.stat().st_mtime for each in (source, source.with_name("hmac_sha1.h")))
    if not program.exists() or program.stat().st_mtime < written_at:
        program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [os.environ.get("CC", "cc"), "-O2", "-pthread", "-o", program, source], check=True
        )
    return program


def ask(peer: socket.socket, request: RemotingCommand) -> RemotingCommand:
    """Send one request and return the response frame."""
    peer.sendall(frame.encode(request))
    received = bytearray()
    while (end := frame.frame_end(received, 0, len(received), frame.FrameLimits())) == 0:
        chunk = peer.recv(1 << 16)
        if not chunk:
            raise ConnectionError(
                f"the server closed the connection instead of answering {request!r}"
            )
        received += chunk
    answer: RemotingCommand = frame.decode(received, 0, end)
    return answer


def ask_at(address: str, request: RemotingCommand) -> RemotingCommand:
    """Like `ask`, on a new connection."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as peer:
        return ask(peer, request)


def pid_of(server: apache.Server) -> int:
    process = server._process
    assert process is not None, "the server was not started"
    return process.pid


def rss_mb(server: apache.Server) -> float:
    """Return the resident memory of the server's process, in millions of bytes."""
    status = Path(f"/proc/{pid_of(server)}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024 / 1e6


def anon_mb(server: apache.Server) -> float:
    """Return the part of it that is not file-backed."""
    status = Path(f"/proc/{pid_of(server)}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024 / 1e6


def name_server(contender: str, home: Path, apache_version: str) -> apache.Server:
    """Return the name server of this contender, `orbitmq` or `apache`, not started yet."""
    if contender == "apache":
        return apache.name_server(
            apache.Release(apache_version).fetch(), home, options=APACHE_JVM_OPTIONS
        )
    return subject.name_server(home)


def start_and_time(
    server: apache.Server, within_s: float = 120.0, request: RemotingCommand | None = None
) -> float:
    """Start the server and return the seconds until its first response; with a request, until it is
    accepted.
    """
    begin = time.perf_counter()
    server.start()
    while server.is_alive() and time.perf_counter() - begin < within_s:
        try:
            with socket.create_connection(("127.0.0.1", server.port), timeout=within_s) as peer:
                answer = ask(peer, request or RemotingCommand(UNKNOWN_CODE))
                taken_s = time.perf_counter() - begin
        except ConnectionError:
            time.sleep(0.002)
            continue
        if not _listens(server):
            raise RuntimeError(
                f"somebody else listens on port {server.port}; run again: another port is taken"
                " then"
            )
        if request is None or answer.code == 0:
            return taken_s
    why = f"is not up after {within_s:g} s" if server.is_alive() else "ended instead of coming up"
    raise RuntimeError(f"the server {why}; it said:\n{server.console_tail()}")


def _listens(server: apache.Server) -> bool:
    """Return whether this server's own process listens on its port."""
    listening = "0A"
    sockets = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    inodes = {
        f"socket:[{row[9]}]"
        for row in sockets
        if row[3] == listening and int(row[1].rpartition(":")[2], 16) == server.port
    }
    return any(
        str(descriptor.readlink()) in inodes
        for descriptor in Path(f"/proc/{pid_of(server)}/fd").iterdir()
    )


@contextmanager
def running(
    make: Callable[[str, Path], apache.Server], contenders: Sequence[str]
) -> Iterator[dict[str, apache.Server]]:
    """Start the contenders' servers, with their files in a temporary directory; an Apache server
    that fails to start is left out.
    """
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # servers end with this process, also those that are stopped
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as directory, ExitStack() as stack:
        servers = {}
        for contender in contenders:
            try:
                server = make(contender, Path(directory) / contender)
                stack.callback(server.stop)
                say(
                    f"{contender}: answers on {server.address} after {start_and_time(server):.2f} s"
                )
                servers[contender] = server
            except (*LOSSES, apache.ApacheUnavailable) as problem:
                if not contender.startswith("apache"):
                    raise
                say(f"{contender}: lost, it does not start: {problem}")
        yield servers


def cpu_seconds(server: apache.Server) -> float:
    """Return the CPU time of the server's process so far, user and system."""
    fields = Path(f"/proc/{pid_of(server)}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy_seconds() -> float:
    """Return the CPU time of all processes so far."""
    user, nice, system, _idle, _io, irq, soft_irq = map(
        int, Path("/proc/stat").read_text().split(maxsplit=8)[1:8]
    )
    return (user + nice + system + irq + soft_irq) / os.sysconf("SC_CLK_TCK")


def busy_cores(during_s: float = 0.5) -> float:
    """Return how many cores all processes together use, sampled over a moment."""
    before_s = busy_seconds()
    time.sleep(during_s)
    return (busy_seconds() - before_s) / during_s


def wait_until_quiet(servers: Collection[apache.Server], within_s: float = 15.0) -> None:
    """Wait until idle servers use no CPU: a JVM works on for seconds after its load, at the cost of
    the next contender.
    """
    deadline = time.monotonic() + within_s
    alive = [server for server in servers if server.is_alive()]
    while time.monotonic() < deadline:
        before = sum(map(cpu_seconds, alive))
        time.sleep(0.5)
        if sum(map(cpu_seconds, alive)) - before <= 0.5 * QUIET_CPU_MAX:
            return


@contextmanager
def stopped(servers: Collection[apache.Server]) -> Iterator[None]:
    """Stop these servers inside the block: an idle Apache broker polls every millisecond, at the
    cost of the measured contender.
    """
    alive = [server for server in servers if server.is_alive()]
    try:
        for server in alive:
            server.send_signal(signal.SIGSTOP)
        yield
    finally:
        for server in alive:
            server.send_signal(signal.SIGCONT)


def load(server: apache.Server, workload: Workload, seconds: float, warm_up_s: float) -> Result:
    """Run the load generator once; an unexpected response code is an error."""
    shape = [
        "-c",
        str(workload.connections),
        "-w",
        str(workload.window),
        "-d",
        str(seconds),
        "-W",
        str(warm_up_s),
    ]
    command = [
        str(build_mqload()),
        "-j",
        "-p",
        str(server.port),
        "-P",
        str(pid_of(server)),
        *shape,
        *workload.arguments,
    ]
    run = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=seconds + warm_up_s + LOAD_WITHIN_S,
    )
    if run.returncode != 0:
        raise RuntimeError(
            f"{' '.join(command)}\nended with status {run.returncode}; the server"
            f" said:\n{server.console_tail()}"
        )
    report: Result = json.loads(run.stdout)
    if set(report["codes"]) != {str(workload.answer_code)}:
        raise RuntimeError(
            f"{workload.name}: answer codes {report['codes']}, all should be {workload.answer_code}"
        )
    return {**report, "rss_mb": rss_mb(server)}


def take_turns(
    name: str,
    servers: Mapping[str, apache.Server],
    rounds: int,
    turn: Callable[[str], Result],
    *,
    between: Callable[[], None] = lambda: None,
    quiet_within_s: float = 15.0,
    tell: Callable[[str], None] = say,
) -> dict[str, list[Result]]:
    """Return the reports of `turn` for each contender, round by round, without lost rounds."""
    reports: dict[str, list[Result]] = {contender: [] for contender in servers}
    for number in range(rounds):
        for contender in servers:
            where = f"{name}: round {number + 1}/{rounds} {contender}"
            try:
                between()
                wait_until_quiet(servers.values(), quiet_within_s)
                with stopped([server for rival, server in servers.items() if rival != contender]):
                    reports[contender].append(report := turn(contender))
            except LOSSES as problem:
                tell(f"{where}: this round is lost: {problem}")
                continue
            latency = f", p99 {report['p99_us']:.0f} µs" if "p99_us" in report else ""
            whose = "server" if "server_us_per_message" in report else "client"
            cost = (
                f"{report['messages_per_s']:.0f}/s {report[f'{whose}_us_per_message']:.1f} µs CPU"
            )
            tell(f"{where} {cost}{latency}, others {report['other_cpu']:.2f} cores")
    return reports


def contest(
    servers: Mapping[str, apache.Server],
    workloads: Sequence[Workload],
    pace: Pace,
    between: Callable[[], None] = lambda: None,
    quiet_within_s: float = 15.0,
    tell: Callable[[str], None] = say,
    keys: Sequence[str] = LOAD_KEYS,
) -> Result:
    """Run every workload on every server in turn, round by round; return medians by workload and
    contender, and ratios to Apache's.
    """
    measured = {}
    for workload in workloads:
        between()
        for contender, server in servers.items():
            tell(f"{workload.name}: warming {contender} up")
            try:
                load(server, workload, pace.warm_up_s, workload.settle_s)
            except LOSSES as problem:
                tell(f"{workload.name}: {contender} could not be warmed up: {problem}")

        def turn(contender: str, workload: Workload = workload) -> Result:
            return load(
                servers[contender], workload, pace.seconds, max(pace.settle_s, workload.settle_s)
            )

        reports = take_turns(
            workload.name,
            servers,
            pace.rounds,
            turn,
            between=between,
            quiet_within_s=quiet_within_s,
            tell=tell,
        )
        measured[workload.name] = compare(
            {contender: medians(of, pace.rounds, keys) for contender, of in reports.items()}
        )
    return measured


def medians(reports: Sequence[Result], rounds: int, keys: Sequence[str] = LOAD_KEYS) -> Result:
    """Return the medians of one contender under one workload, or only the number of lost rounds."""
    result: Result = {"rounds_lost": rounds - len(reports)}
    if reports:
        result |= {
            key: round(statistics.median(report[key] for report in reports), 2) for key in keys
        }
        rates = [report["messages_per_s"] for report in reports]
        result["messages_per_s_range"] = [round(min(rates)), round(max(rates))]
    return result


def compare(by_contender: dict[str, Result]) -> Result:
    """Add the ratios of all medians to those of each Apache.

    None if the response length differs from that of `apache`: omitted work is not speed. Older
    releases store less, so their responses are shorter.
    """
    result: Result = {
        **by_contender,
        "noisy": any(ours.get("other_cpu", 0.0) >= NOISY_CPU_MIN for ours in by_contender.values()),
    }
    for peer, theirs in by_contender.items():
        for contender, ours in by_contender.items():
            if not peer.startswith("apache") or contender.startswith("apache"):
                continue
            sizes = [
                each["bytes_per_answer"] for each in (ours, theirs) if "bytes_per_answer" in each
            ]
            if peer == "apache" and sizes and max(sizes) - min(sizes) > HEADERS_DIFFER_BYTES:
                say(f"{contender} and {peer} answer {sizes} bytes: they are not compared")
                continue
            result[f"{contender}/{peer}"] = {
                key: round(ours[key] / theirs[key], 3)
                for key in RATIO_KEYS
                if ours.get(key) and theirs.get(key)
            }
    return result
