"""Clients of RocketMQ in other languages, Apache's for Go and ali-ons for Node, send to our broker
and consume from it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.apache import HERE
from interop.broker_clients import Cluster, our_cluster
from interop.other_clients import NPM_INSTALL, built, go_program

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

MAILS, ORDERS, STEPS = 30, 5, 8  # of go/roundtrip.go
NOTES = 30  # of node/main.js


@pytest.fixture(scope="module")
def cluster(module_home: Path) -> Iterator[Cluster]:
    with our_cluster(module_home) as ours:
        ours.make_topics({"Mails": 4, "Steps": 4, "Notes": 4})
        yield ours


def lines(command: list[str], folder: Path) -> list[dict[str, Any]]:
    """Run a client to its end; the JSON lines that it printed."""
    said = subprocess.run(
        command, capture_output=True, text=True, timeout=100, cwd=folder, check=False
    )
    assert said.returncode == 0, said.stderr
    return [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]


def consumed(said: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [line for line in said if line["event"] == "consumed" and line["by"] == name]


@pytest.mark.short
@pytest.mark.needs("go")
def test_the_go_client_sends_and_consumes(cluster: Cluster, tmp_path: Path) -> None:
    said = lines([str(go_program()), "roundtrip", cluster.name_server.address], tmp_path)
    assert all(line["ok"] for line in said if line["event"] == "sent")
    keys = [f"mail-{n:02d}" for n in range(MAILS)]
    got = consumed(said, "all")
    assert sorted(line["key"] for line in got) == sorted([*keys, "batch-0", "batch-1"])
    assert all(line["body"] == f"body of {line['key']}" for line in got)
    assert sorted(line["key"] for line in consumed(said, "some")) == [
        key for n, key in enumerate(keys) if n % 3 != 1
    ]
    steps, offsets = defaultdict[str, list[int]](list), defaultdict[int, list[int]](list)
    for line in consumed(said, "orderly"):
        _, order, step = line["key"].split("-")
        steps[order].append(int(step))
        offsets[line["queue"]].append(line["offset"])
    assert steps == {str(order): list(range(STEPS)) for order in range(ORDERS)}
    assert all(each == list(range(len(each))) for each in offsets.values())
    assert said[-1] == {"event": "done", "complete": True}


@pytest.mark.short
@pytest.mark.needs("node")
def test_the_node_client_sends_and_consumes(cluster: Cluster, tmp_path: Path) -> None:
    folder = shutil.copytree(HERE / "node", tmp_path / "node")
    built("node", NPM_INSTALL, folder)
    said = lines(["node", "main.js", cluster.name_server.address], folder)
    assert sum(line["ok"] for line in said if line["event"] == "sent") == NOTES
    got = consumed(said, "all")
    assert sorted(line["key"] for line in got) == sorted(f"note-{n}" for n in range(NOTES))
    assert all(line["whole"] for line in got)
    assert sorted(line["key"] for line in consumed(said, "some")) == sorted(
        f"note-{n}" for n in range(NOTES) if n % 3 != 1
    )
    assert said[-1] == {"event": "done", "complete": True}
