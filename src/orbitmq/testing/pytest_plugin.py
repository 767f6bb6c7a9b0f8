"""The pytest plug-in: fixtures `mq`, a cluster for one test, and `mq_session`, one for all tests that ask for it.

Found by its entry point in every project that OrbitMQ is installed for, so it costs nothing until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from orbitmq.testing.local_cluster import LocalCluster

_MARKER = "orbitmq(**options): what the fixture `mq` gives to LocalCluster, as brokers=2 or topics={'orders': 4}"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def mq(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A name server and a broker for this test alone; `@pytest.mark.orbitmq(...)` says what else they should be."""
    from orbitmq.testing.local_cluster import LocalCluster

    options: dict[str, object] = {}
    for marker in reversed(list(request.node.iter_markers("orbitmq"))):  # the nearest counts
        if marker.args:
            raise pytest.UsageError(f"orbitmq takes names with values, as orbitmq(brokers=2), not {marker.args[0]!r}")
        options |= marker.kwargs
    with LocalCluster(**options) as cluster:  # type: ignore[arg-type]
        yield cluster


@pytest.fixture(scope="session")
def mq_session() -> Iterator[LocalCluster]:
    """A name server and a broker that all tests share: give each test topics and groups of its own."""
    from orbitmq.testing.local_cluster import LocalCluster

    with LocalCluster() as cluster:
        yield cluster
