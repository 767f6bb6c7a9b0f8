"""Measure the cost of remoting alone, compiled and interpreted, next to Apache's. Prints one JSON
line; see README.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

from _bare_server import ECHO_CODE
from _harness import (
    ROOT,
    UNKNOWN_CODE,
    Pace,
    Workload,
    contest,
    emit,
    name_server,
    parse_arguments,
    refuse_stale_kernels,
    running,
)
from interop import apache

CONTENDERS = ("compiled", "interpreted", "apache")
SHAPES = ((64, 1), (1, 64))  # connections, requests in flight on each
HEADERS = {"JSON": (), "binary": ("-b",)}
FIELDS = ("-F", "topic=BenchmarkTest", "-F", "queueId=3", "-F", "consumerGroup=benchmark_consumer")


def workloads(title: str, answer_code: int, *arguments: str) -> list[Workload]:
    """Return the same requests in both header encodings and every shape."""
    return [
        Workload(
            name=f"{title}, {headers} headers {connections}x{window}",
            arguments=("-m", "request", *arguments, *options),
            connections=connections,
            window=window,
            answer_code=answer_code,
        )
        for headers, options in HEADERS.items()
        for connections, window in SHAPES
    ]


def main() -> None:
    options = parse_arguments(__doc__, CONTENDERS)
    pace = Pace.of(options)
    refuse_stale_kernels()

    def make(contender: str, home: Path) -> apache.Server:
        if contender == "apache":
            return name_server(contender, home, options.apache)
        port = apache.free_port()
        command = [sys.executable, str(ROOT / "bench" / "_bare_server.py"), str(port)]
        home.mkdir()
        return apache.Server(
            command,
            port,
            home / "console.log",
            {"ORBITMQ_PURE": "1" if contender == "interpreted" else "0"},
        )

    with running(make, options.server) as servers:
        ours = {contender: server for contender, server in servers.items() if contender != "apache"}
        for contender, server in ours.items():
            if f"kernels: {contender}\n" not in server.console_tail():
                raise RuntimeError(
                    f"the {contender} server does not run so; it said:\n{server.console_tail()}"
                )
        measured = contest(servers, workloads("unknown code", 3, "-C", str(UNKNOWN_CODE)), pace)
        measured |= (
            contest(ours, workloads("echo", 0, "-C", str(ECHO_CODE), *FIELDS), pace) if ours else {}
        )
    emit("remoting", options, {"workloads": measured})


if __name__ == "__main__":
    main()
