"""A name server killed while an operator writes: what was acknowledged is there after the next
start, and the file is always readable.
"""

from __future__ import annotations

import json
import random
import signal
import threading
from pathlib import Path

import pytest

from interop import subject
from interop.apache import running
from interop.frames import Closed, Connection, Request

pytestmark = pytest.mark.crash

ROUNDS = 40


def put(key: str, value: str) -> Request:
    return Request(100, {"namespace": "crash", "key": key, "value": value})


@pytest.mark.timeout(300)
def test_acknowledged_values_survive_a_kill_at_any_moment(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    choose = random.Random(seed)
    server = subject.name_server(tmp_path / "home")
    acknowledged: dict[str, str] = {}
    in_doubt: dict[str, str] = {}  # sent, and killed before the answer
    attempted = lost = phantom = 0
    for _ in range(ROUNDS):
        with running(server), Connection(server.address) as operator:
            answer = operator.ask(Request(219, {"namespace": "crash"}))
            found: dict[str, str] = json.loads(answer.body)["table"] if answer.code == 0 else {}
            lost += sum(
                found.get(key) not in (value, in_doubt.get(key))
                for key, value in acknowledged.items()
            )
            phantom += sum(
                value not in (acknowledged.get(key), in_doubt.get(key))
                for key, value in found.items()
            )
            acknowledged = found
            killer = threading.Timer(
                choose.uniform(0.01, 0.3), server.send_signal, [signal.SIGKILL]
            )
            killer.start()
            try:
                while True:
                    key, value = f"key-{choose.randrange(20)}", f"value-{attempted}"
                    attempted += 1
                    in_doubt = {key: value}
                    assert operator.ask(put(key, value)).code == 0
                    acknowledged[key] = value
            except (Closed, OSError):
                killer.join()
    report = {
        "seed": seed,
        "rounds": ROUNDS,
        "attempted": attempted,
        "acknowledged": len(acknowledged),
        "lost": lost,
        "phantom": phantom,
    }
    print(json.dumps(report))
    assert attempted > ROUNDS
    assert (lost, phantom) == (0, 0), report
