"""Apache's own benchmark programs as drivers: the Java producer with 64 threads, with or without
the consumer, against each broker.

Rates and latencies are those that they print, over their last ten seconds; the broker's CPU time is
that of its process over the whole turn, per message by which its queues grew. Each broker has its
own name server (ours), so clients find only that broker.
"""

from __future__ import annotations

import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from _broker_room import Desk, broker, wait_for_route
from _harness import (
    Pace,
    Result,
    busy_seconds,
    compare,
    cpu_seconds,
    medians,
    rss_mb,
    running,
    take_turns,
)
from interop import apache, subject

TOPIC = "StockBenchmark"
GROUP = "benchmark_consumer"
THREADS = 64
PROGRAMS_RELEASE = "5.5.0"  # the benchmark programs of 4.9 were not published
WINDOW_S = 10  # the window of a printed rate
WORKLOADS = {
    "stock producer": False,
    "stock producer and consumer": True,
}  # value: with a consumer
_START_WITHIN_S = 120.0
_CLIENT_JVM_OPTIONS = ("-XX:TieredStopAtLevel=4", "-Xmx1g")
_PRODUCED = re.compile(
    r"Send TPS: (\d+) \| Max RT\(ms\): (\d+) \| Average RT\(ms\): +([\d.]+) \| Send Failed: (\d+)"
    r" \| Response Failed: (\d+)"
)
_CONSUMED = re.compile(r"Consume TPS: (\d+) \| AVG\(B2C\) RT\(ms\): +([\d.]+|NaN)")
_PRODUCER_KEYS = (
    "messages_per_s",
    "server_us_per_message",
    "mean_ms",
    "max_ms",
    "failed",
    "rss_mb",
    "other_cpu",
)
_CONSUMER_KEYS = ("consumed_per_s", "b2c_ms")


class Program:
    """A running benchmark program whose output goes to a file."""

    def __init__(self, name: str, home: Path, name_server: str, *arguments: str) -> None:
        release = apache.Release(PROGRAMS_RELEASE).fetch()
        main_class = f"org.apache.rocketmq.example.benchmark.{name}"
        asked = ("-n", name_server, "-t", TOPIC, "-ri", "1000", *arguments)
        self._name = name
        self._console = home / "console.log"
        command = release.java(home, main_class, *asked, options=_CLIENT_JVM_OPTIONS)
        with self._console.open("wb") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def wait_for(self, pattern: str | re.Pattern[str], times: int = 1) -> list[tuple[str, ...]]:
        """Wait until the pattern was printed this many times; return the matches."""
        deadline = time.monotonic() + _START_WITHIN_S
        while (
            len(found := re.findall(pattern, printed := self._console.read_text(errors="replace")))
            < times
        ):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"the stock {self._name} does not do its work; it printed:\n{printed[-1500:]}"
                )
            time.sleep(0.1)
        return found

    def stop(self) -> None:
        self._process.kill()  # it is done, and a clean exit would only cost time
        self._process.wait()


@contextmanager
def brokers(
    contenders: Sequence[str], apache_version: str
) -> Iterator[tuple[dict[str, apache.Server], dict[str, str]]]:
    """Start the contenders' brokers; yield them and the addresses of their name servers, which know
    the topic.
    """
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as directory, ExitStack() as stack:
        addresses: dict[str, str] = {}

        def make(contender: str, home: Path) -> apache.Server:
            names = subject.name_server(Path(directory) / contender)
            stack.enter_context(apache.running(names))
            addresses[contender] = names.address
            return broker(contender, home, apache_version=apache_version, name_server=names.address)

        with running(make, contenders) as servers:
            for contender, server in servers.items():
                with Desk(server) as desk:
                    desk.make_topic(TOPIC)
                    desk.make_group(GROUP)
                wait_for_route(addresses[contender], TOPIC)
            yield servers, addresses


def drive(
    server: apache.Server, name_server: str, home: Path, pace: Pace, *, consume: bool
) -> Result:
    """Run one turn: the programs run until the producer's printed rates no longer include its
    start.
    """
    with ExitStack() as stack, Desk(server) as desk:
        if consume:
            desk.move_to_end(GROUP, TOPIC)
        sent, cpu_s, busy_s, clients_s = (
            sum(desk.ends(TOPIC)),
            cpu_seconds(server),
            busy_seconds(),
            _ended_children_s(),
        )
        begin, consumer = time.monotonic(), None
        if consume:
            consumer = Program("Consumer", home / "consumer", name_server, "-g", GROUP)
            stack.callback(consumer.stop)
            consumer.wait_for("Consumer Started")
        producer = Program(
            "Producer", home / "producer", name_server, "-w", str(THREADS), "-s", "256"
        )
        stack.callback(producer.stop)
        rate, max_ms, mean_ms, failed, unanswered = producer.wait_for(
            _PRODUCED, 1 + round(pace.seconds)
        )[-1]
        report: Result = {
            "messages_per_s": float(rate),
            "max_ms": float(max_ms),
            "mean_ms": float(mean_ms),
        }
        report["failed"] = int(failed) + int(unanswered)
        if consumer:
            consumed, b2c_ms = consumer.wait_for(_CONSUMED)[-1]
            report |= {"consumed_per_s": float(consumed), "b2c_ms": float(b2c_ms)}
        stack.close()
        seconds = time.monotonic() - begin
        cpu_s, sent = cpu_seconds(server) - cpu_s, sum(desk.ends(TOPIC)) - sent
    others_s = busy_seconds() - busy_s - cpu_s - (_ended_children_s() - clients_s)
    if not sent:
        raise RuntimeError("the stock producer stored no message")
    return {
        **report,
        "server_us_per_message": cpu_s * 1e6 / sent,
        "rss_mb": rss_mb(server),
        "other_cpu": max(0.0, others_s / seconds),
    }


def measure(
    contenders: Sequence[str],
    apache_version: str,
    pace: Pace,
    quiet_within_s: float,
    tell: Callable[[str], None],
) -> Mapping[str, Result]:
    """Measure both workloads, the contenders in turns; an uncounted first turn warms up each
    broker.
    """
    measured = {}
    with (
        brokers(contenders, apache_version) as (servers, addresses),
        tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as directory,
    ):
        for name, consume in WORKLOADS.items():

            def turn(contender: str, consume: bool = consume) -> Result:
                home = Path(tempfile.mkdtemp(dir=directory))
                return drive(servers[contender], addresses[contender], home, pace, consume=consume)

            if pace.rounds > 1:
                take_turns(
                    f"{name}, warming up",
                    servers,
                    1,
                    turn,
                    quiet_within_s=quiet_within_s,
                    tell=tell,
                )
            reports = take_turns(
                name, servers, pace.rounds, turn, quiet_within_s=quiet_within_s, tell=tell
            )
            keys = _PRODUCER_KEYS + (_CONSUMER_KEYS if consume else ())
            measured[name] = compare(
                {contender: medians(of, pace.rounds, keys) for contender, of in reports.items()}
            )
    return measured


def _ended_children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
