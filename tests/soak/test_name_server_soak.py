"""Mixed load on a name server for `ORBITMQ_SOAK_SECONDS` (an hour): memory and descriptors stay
flat, nobody is refused.

Brokers come, change and go, clients connect, ask and leave, frames are cut. Prints one JSON report.
"""

from __future__ import annotations

import json
import os
import random
import socket
import time
from pathlib import Path

import pytest

from interop import subject
from interop.apache import Server, running
from interop.frames import Connection, Request

pytestmark = pytest.mark.soak

SECONDS = float(os.environ.get("ORBITMQ_SOAK_SECONDS", "3600"))
GROWTH_MIB_MAX = 16.0


def register(name: str, topics: int, counter: int) -> Request:
    table = {
        topic: {
            "topicName": topic,
            "readQueueNums": 4,
            "writeQueueNums": 4,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
        }
        for topic in (f"topic-{number}" for number in range(topics))
    }
    wrapper = {"dataVersion": {"counter": counter, "timestamp": 1}, "topicConfigTable": table}
    body = {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}
    fields = {
        "brokerName": name,
        "brokerAddr": f"{name}:10911",
        "clusterName": "soak",
        "haServerAddr": f"{name}:10912",
        "brokerId": "0",
    }
    return Request(103, fields, json.dumps(body).encode())


def process_state(server: Server) -> tuple[float, int]:
    """Resident memory in MiB, and open descriptors."""
    process = Path("/proc") / str(server.pid)
    resident = int((process / "status").read_text().split("VmRSS:")[1].split()[0]) / 1024
    return resident, sum(1 for _ in (process / "fd").iterdir())


@pytest.mark.timeout(SECONDS + 120)
def test_memory_and_descriptors_stay_flat(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    choose = random.Random(seed)
    server = subject.name_server(tmp_path / "home")
    requests = refused = 0
    with running(server):
        brokers = {f"broker-{number}": Connection(server.address) for number in range(10)}
        warm_until = time.monotonic() + SECONDS / 5
        end = time.monotonic() + SECONDS
        baseline: tuple[float, int] | None = None
        while time.monotonic() < end:
            name = choose.choice(list(brokers))
            if choose.random() < 0.1:  # it goes and comes back
                brokers[name].close()
                brokers[name] = Connection(server.address)
            refused += (
                brokers[name].ask(register(name, choose.randrange(2, 200), requests)).code != 0
            )
            with Connection(server.address) as client:
                for _ in range(20):
                    refused += client.ask(
                        Request(105, {"topic": f"topic-{choose.randrange(2)}"})
                    ).code not in (0, 17)
                    requests += 1
            with socket.create_connection(("127.0.0.1", server.port)) as bad:
                bad.sendall(choose.randbytes(choose.randrange(1, 200)))
            if baseline is None and time.monotonic() >= warm_until:
                baseline = process_state(server)
        for broker in brokers.values():
            broker.close()
        final = process_state(server)
    assert baseline is not None
    report = {
        "seed": seed,
        "seconds": SECONDS,
        "requests": requests,
        "refused": refused,
        "rss_mib": [round(baseline[0], 1), round(final[0], 1)],
        "descriptors": [baseline[1], final[1]],
    }
    print(json.dumps(report))
    assert refused == 0, report
    assert final[0] - baseline[0] < GROWTH_MIB_MAX, report
    assert final[1] <= baseline[1] + 20, report
