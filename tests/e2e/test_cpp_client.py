"""Apache's C++ client, as PyPI has it, against a name server and a broker that `orbitmq up
--ephemeral --json` starts.

What it cannot do with any broker is left out: its batches are marked in a way that Java does not
read, so they arrive as one message.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from e2e import cpp_client
from interop.apache import STOP_WITHIN_S

PROGRAM = Path(__file__).with_name("cpp_client.py")

pytestmark = pytest.mark.skipif(
    find_spec("rocketmq") is None, reason="the C++ client is built for Linux on x86-64 only"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    """The addresses of a cluster that goes with the tests."""
    command = [str(Path(sys.executable).with_name("orbitmq")), "up", "--ephemeral", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_WITHIN_S) == 0


@pytest.fixture(scope="module")
def lines(
    cluster: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """What the client said of everything it sent and consumed."""
    environment = {
        **os.environ,
        "HOME": str(tmp_path_factory.mktemp("cpp")),
    }  # its log files lie there
    command = [sys.executable, str(PROGRAM), cluster["nameServer"]]
    said = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env=environment, check=False
    )
    assert said.returncode == 0, said.stderr
    return [json.loads(line) for line in said.stdout.splitlines()]


def consumed(lines: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == "consumed" and line["by"] == name]


def test_every_send_of_the_cpp_client_is_acknowledged(lines: list[dict[str, Any]]) -> None:
    sent = [line for line in lines if line["event"] == "sent"]
    assert len(sent) == 2 * cpp_client.MAILS // 3 + cpp_client.ORDERS * cpp_client.STEPS
    assert {line["status"] for line in sent} == {"OK"}


def test_the_cpp_client_consumes_whole_what_it_sent_and_once(lines: list[dict[str, Any]]) -> None:
    got = consumed(lines, "all")
    wanted = {
        f"mail-{n}": (cpp_client.tag_of(n), "日本語 𝄞", cpp_client.LONG if n == 0 else f"mail {n}")
        for n in range(cpp_client.MAILS)
    }
    assert {line["key"]: (line["tag"], line["size"], line["body"]) for line in got} == wanted
    assert len(got) == len(wanted)
    assert len({(line["queue"], line["offset"]) for line in got}) == len(wanted)
    assert lines[-1] == {"event": "done", "complete": True}


def test_the_cpp_client_gets_the_tags_that_it_subscribed_to(lines: list[dict[str, Any]]) -> None:
    got = consumed(lines, "some")
    wanted = [
        f"mail-{n}" for n in range(cpp_client.MAILS) if cpp_client.tag_of(n) in ("red", "blue")
    ]
    assert sorted(line["key"] for line in got) == sorted(wanted)


def test_the_cpp_client_consumes_each_queue_in_order(lines: list[dict[str, Any]]) -> None:
    queues, steps = defaultdict[int, list[int]](list), defaultdict[str, list[int]](list)
    for line in consumed(lines, "orderly"):
        _, order, step = line["key"].split("-")
        queues[line["queue"]].append(line["offset"])
        steps[order].append(int(step))
    assert steps == {
        str(order): list(range(cpp_client.STEPS)) for order in range(cpp_client.ORDERS)
    }
    assert all(offsets == list(range(len(offsets))) for offsets in queues.values())
