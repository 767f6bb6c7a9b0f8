"""The audit log of refusals, with a limited number of lines per host and ten seconds: refused
requests are unlimited, a disk is not.

Every refusal has a line, or is in the count of those left out, which is logged when the period is
over. A limited number of hosts is counted separately; the others are counted as one. No line holds
a secret or a signature.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from orbitmq.access.addresses import host_of

AUDIT: Final = logging.getLogger("orbitmq.audit")
PERIOD_MS: Final = 10_000  # long enough for a peer that tries many things once
LINES_MAX: Final = 200  # per host and period
HOSTS_MAX: Final = 100  # per period
OTHERS: Final = "others"


class LeftOut(NamedTuple):
    """Refusals without a line."""

    host: str
    refusals: int


class AuditLimit:
    """Decides which refusals have a line. Sans-IO: time comes in as `now_ms`."""

    def __init__(self, lines_max: int = LINES_MAX, hosts_max: int = HOSTS_MAX) -> None:
        self._lines_max = lines_max
        self._hosts_max = hosts_max
        self._period = 0
        self._refusals: dict[str, int] = {}  # of that period, by host

    def has_line(self, host: str, now_ms: int) -> bool:
        """Count a refusal, and return whether it has a line; call `left_out` first if the period is
        over.
        """
        assert not self._is_over(now_ms), "the counts left out would be lost"
        self._period = now_ms // PERIOD_MS
        known = host if host in self._refusals or len(self._refusals) < self._hosts_max else OTHERS
        count = self._refusals[known] = self._refusals.get(known, 0) + 1
        return count <= self._lines_max

    def left_out(self, now_ms: int) -> list[LeftOut]:
        """Return, once, what had no line in a period that is over."""
        if not self._is_over(now_ms):
            return []
        found = [
            LeftOut(host, count - self._lines_max)
            for host, count in self._refusals.items()
            if count > self._lines_max
        ]
        self._refusals.clear()
        return found

    def _is_over(self, now_ms: int) -> bool:
        return bool(self._refusals) and now_ms // PERIOD_MS != self._period


class Audit:
    """The audit log within that limit; `tick` logs what was left out even if no further refusal
    follows.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._limit = AuditLimit()

    def denied(self, remote_address: str, text: str, *arguments: object) -> None:
        """Log a refusal of a peer, if the limit allows."""
        now_ms = self._now_ms()
        self._log_left_out(now_ms)
        if self._limit.has_line(host_of(remote_address), now_ms):
            AUDIT.warning(text, *arguments)

    def tick(self) -> None:
        """Log what was left out of a period that is over."""
        self._log_left_out(self._now_ms())

    def _log_left_out(self, now_ms: int) -> None:
        for host, count in self._limit.left_out(now_ms):
            AUDIT.warning(
                "access_denied_more from=%s left_out=%d hint='a host has %d lines in %d s'",
                host,
                count,
                LINES_MAX,
                PERIOD_MS // 1000,
            )
