"""Brokers to measure: ours and Apache's, each with the settings of a server that is meant to be fast, and topics with messages to pull.

None of them registers anywhere: what name servers cost is another program's question.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from _harness import APACHE_JVM_OPTIONS, ask, build_mqload
from interop import apache
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand

NOWHERE = "127.0.0.1:9"  # no name server listens there
QUEUES = 8
PULL_COUNT = 32
PULL_TOPIC = "BenchmarkTest"  # every broker has it from the start
OLD_RELEASE = "4.9.7"
# The launchers make files small and quick to start with: these are the releases' own sizes. A cold JVM on a busy machine answers "busy"
# after 200 ms, which ends a measurement: let it take its time instead.
_APACHE = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "waitTimeMillsInSendQueue": 10_000,
    "osPageCacheBusyTimeOutMills": 10_000,
}


def broker(contender: str, home: Path, *, apache_version: str, settings: Mapping[str, object] | None = None) -> apache.Server:
    """The broker of that contender, `orbitmq`, `apache` or `apache-4.9`, not started yet."""
    if contender != "orbitmq":
        release = apache.Release(apache_version if contender == "apache" else OLD_RELEASE).fetch()
        return apache.broker(release, home, [NOWHERE], settings={**_APACHE, **(settings or {})}, options=APACHE_JVM_OPTIONS)
    home.mkdir(parents=True)
    port = apache.free_port((-2, 1))
    own = {
        "listenPort": port,
        "brokerIP1": "127.0.0.1",
        "brokerName": "broker-a",
        "namesrvAddr": NOWHERE,
        "storePathRootDir": home / "store",
    }
    configuration = home / "broker.conf"
    configuration.write_text("".join(f"{key}={value}\n" for key, value in {**own, **(settings or {})}.items()))
    command = [str(Path(sys.executable).with_name("mqbroker")), "-c", str(configuration)]
    return apache.Server(command, port, home / "console.log", {"ROCKETMQ_HOME": str(home), "HOME": str(home)})


def fill(server: apache.Server, messages: int) -> None:
    """Send messages to pull, and see that no queue ends where a pull does: then no pull of a round comes back empty."""
    load = [str(build_mqload()), "-m", "send", "-T", PULL_TOPIC, "-q", str(QUEUES), "-p", str(server.port)]
    subprocess.run([*load, "-c", "1", "-w", "64", "-N", str(messages)], check=True, stdout=subprocess.DEVNULL)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as peer:
        for queue in range(QUEUES):
            while _length(peer, queue) % PULL_COUNT == 0:
                _demand(peer, RequestCode.SEND_MESSAGE_V2, _send_fields(queue), b"one more")


def _length(peer: socket.socket, queue: int) -> int:
    fields = _demand(peer, RequestCode.GET_MAX_OFFSET, {"topic": PULL_TOPIC, "queueId": str(queue)})
    return int(fields["offset"])


def _send_fields(queue: int) -> dict[str, str]:
    fields = {"a": "filler", "b": PULL_TOPIC, "c": "TBW102", "d": "4", "e": str(queue), "f": "0", "g": "1700000000000", "h": "0"}
    return {**fields, "i": "UNIQ_KEY\x017F0000010001251A69D73B1F00000000\x02"}


def _demand(peer: socket.socket, code: RequestCode, fields: dict[str, str], body: bytes | None = None) -> dict[str, str]:
    answer = ask(peer, RemotingCommand(code, ext_fields=fields, body=body))
    if answer.code != 0:
        raise RuntimeError(f"{code.name} {fields}: the broker answered {answer!r}")
    return answer.ext_fields or {}
