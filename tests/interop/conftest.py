"""What the interop tests share: the releases of Apache RocketMQ, fetched once."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.apache import ApacheUnavailable, Release
from requirements_table import lack


def _fetched(version: str) -> Release:
    try:
        return Release(version).fetch()
    except ApacheUnavailable as missing:
        lack("maven", str(missing))


@pytest.fixture(scope="session")
def apache_5() -> Release:
    return _fetched("5.5.0")


@pytest.fixture(scope="session")
def apache_4() -> Release:
    return _fetched("4.9.7")


@pytest.fixture(params=["5.5.0", "4.9.7"])
def release(request: pytest.FixtureRequest) -> Release:
    """Each release in turn."""
    return _fetched(request.param)


@pytest.fixture(scope="module")
def module_home(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A directory for the servers that one test module shares."""
    return tmp_path_factory.mktemp(request.module.__name__)
