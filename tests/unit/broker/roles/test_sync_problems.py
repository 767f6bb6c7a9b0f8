"""Problems of a slave's sync: kept until the step succeeds, logged once for each cause."""

from __future__ import annotations

import pytest

from orbitmq.broker.roles.sync_problems import SyncProblems
from orbitmq.common.errors import ProtocolError, RemoteTimeoutError, RequestRefusedError


def fail(problems: SyncProblems, step: str, error: Exception) -> None:
    with problems.step(step):
        raise error


def test_a_failure_is_kept_until_its_step_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    problems = SyncProblems(lambda: "m:1")
    fail(problems, "topics", ProtocolError("no topics"))
    fail(problems, "groups", ProtocolError("no groups"))
    assert problems.text == "topics: no topics; groups: no groups"
    with problems.step("topics"):
        pass
    assert problems.text == "groups: no groups"
    assert not problems.has("topics")
    assert problems.has("groups")
    assert "slave_sync_goes_on step=topics" in caplog.text
    problems.clear()
    assert problems.text is None


def test_each_cause_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    problems = SyncProblems(lambda: "m:1")
    for left_ms in range(3):
        fail(problems, "topics", RemoteTimeoutError(f"nothing within {left_ms} ms"))
    assert caplog.text.count("slave_sync_failed") == 1
    for code in (1, 1, 2):
        fail(problems, "topics", RequestRefusedError(code, "no"))
    assert caplog.text.count("slave_sync_failed") == 3
    with problems.step("topics"):
        pass
    fail(problems, "topics", RequestRefusedError(2, "no"))
    assert caplog.text.count("slave_sync_failed") == 4


def test_an_unexpected_failure_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    problems = SyncProblems(lambda: None)
    fail(problems, "topics", KeyError("T"))
    assert "Traceback" in caplog.text
    assert problems.has("topics")
