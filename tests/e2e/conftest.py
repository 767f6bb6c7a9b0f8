"""What tests with many connections share."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process open as many files as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 11_000:
        pytest.skip(
            f"10,000 connections need as many files at each end, the hard limit is {hard}: raise it"
            " by `ulimit -Hn`"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
