"""The tool that runs the suite many times: what it reads from the output of runs, and that its busy
loops end.
"""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PATH = Path(__file__).parents[2] / "tools/repeat_suite.py"


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("repeat_suite", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_sessions_of_a_run_are_counted_and_failures_named_once(tool: ModuleType) -> None:
    output = """
FAILED tests/unit/test_a.py::test_x[1 failed in 2s] - AssertionError: 3 failed
ERROR tests/e2e/test_b.py::test_y - OSError: no
=========== 1 failed, 7098 passed, 3 skipped, 1 error in 400.12s (0:06:40) ===========
== make test-pure
FAILED tests/unit/test_a.py::test_x[1 failed in 2s] - AssertionError
1 failed, 10 passed in 2.10s
"""
    found = tool.outcome_of(output.splitlines())
    assert (found.passed, found.failed) == (7108, 3)
    assert found.failures == [
        "tests/e2e/test_b.py::test_y",
        "tests/unit/test_a.py::test_x[1 failed in 2s]",
    ]


def test_busy_loops_end_also_when_what_runs_beside_them_fails(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def started(*args: Any, **names: Any) -> subprocess.Popen[bytes]:
        loops.append(start(*args, **names))
        return loops[-1]

    monkeypatch.setattr(tool.subprocess, "Popen", started)

    def fail() -> None:
        with tool.busy_loops(2):
            assert all(loop.poll() is None for loop in loops)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [loop.returncode for loop in loops] == [-9, -9]


def test_a_run_is_written_down_with_the_seed_that_repeats_it(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        'echo "FAILED tests/t.py::test_z - x"; echo "1 failed, 2 passed in 0.10s"; echo'
        ' "$PYTEST_ARGS"; exit 1'
    )
    monkeypatch.setitem(tool.TARGETS, "test", ["sh", "-c", script])
    line = tool.run_once("test", 77)
    assert (line["passed"], line["failed"], line["failures"], line["seed"], line["exit_code"]) == (
        2,
        1,
        ["tests/t.py::test_z"],
        77,
        1,
    )
    assert "--hypothesis-seed=77" in line["tail"][-1]
