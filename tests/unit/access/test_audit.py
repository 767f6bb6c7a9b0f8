"""The audit log within its limit: every refusal has a line or is in a count, however many there
are.
"""

from __future__ import annotations

import pytest

from orbitmq.access.audit import LINES_MAX, OTHERS, PERIOD_MS, Audit, AuditLimit, LeftOut


def lines(limit: AuditLimit, host: str, times: int, now_ms: int) -> int:
    """How many of so many refusals have a line."""
    return sum(limit.has_line(host, now_ms) for _ in range(times))


def test_a_host_has_so_many_lines_in_a_period_and_the_rest_is_counted_once() -> None:
    limit = AuditLimit(lines_max=3, hosts_max=10)
    assert lines(limit, "10.0.0.1", 8, PERIOD_MS) == 3
    assert lines(limit, "10.0.0.2", 3, 2 * PERIOD_MS - 1) == 3, "another host has its own"
    assert limit.left_out(2 * PERIOD_MS - 1) == [], "it is not over"
    assert limit.left_out(2 * PERIOD_MS) == [LeftOut("10.0.0.1", 5)]
    assert limit.left_out(2 * PERIOD_MS) == []
    assert lines(limit, "10.0.0.1", 8, 2 * PERIOD_MS) == 3


def test_hosts_beyond_the_limit_are_counted_as_one() -> None:
    limit = AuditLimit(lines_max=3, hosts_max=2)
    assert sum(limit.has_line(f"10.0.0.{number}", 0) for number in range(200)) == 2 + 3
    assert limit.has_line("10.0.0.1", 0), "one that is known has its own lines still"
    assert limit.left_out(PERIOD_MS) == [LeftOut(OTHERS, 195)]


def test_a_clock_that_is_set_back_forgets_nothing() -> None:
    limit = AuditLimit(lines_max=1)
    assert lines(limit, "10.0.0.1", 3, 5 * PERIOD_MS) == 1
    assert limit.left_out(PERIOD_MS) == [LeftOut("10.0.0.1", 2)]
    assert lines(limit, "10.0.0.1", 3, PERIOD_MS) == 1


@pytest.mark.parametrize("is_refused_again", [True, False])
def test_what_was_left_out_is_told_when_the_period_is_over(
    is_refused_again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    now_ms = 0
    audit = Audit(lambda: now_ms)
    for port in range(1_000, 2_000):
        audit.denied(f"10.0.0.1:{port}", "access_denied from=%s", port)
    audit.tick()
    assert [record.getMessage() for record in caplog.records] == [
        f"access_denied from={1_000 + number}" for number in range(LINES_MAX)
    ]
    caplog.clear()
    now_ms = PERIOD_MS
    if is_refused_again:
        audit.denied("10.0.0.2:1", "access_denied from=%s", 1)
    else:
        audit.tick()
    told = [record.getMessage() for record in caplog.records]
    assert told[0].startswith(f"access_denied_more from=10.0.0.1 left_out={1_000 - LINES_MAX} ")
    assert told[1:] == ["access_denied from=1"] * is_refused_again
