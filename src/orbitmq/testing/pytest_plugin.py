"""The pytest plug-in: the fixture `mq` is a cluster for one test, `mq_session` one for the whole
session.

Its entry point loads it in every project in which OrbitMQ is installed, so it costs nothing until a
fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from orbitmq.testing.local_cluster import LocalCluster

_MARKER = (
    "orbitmq(**options): LocalCluster options of the fixture `mq`, such as brokers=2 or"
    " topics={'orders': 4}"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def mq(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A name server and a broker for this test alone; `@pytest.mark.orbitmq(...)` sets options."""
    from orbitmq.testing.local_cluster import LocalCluster

    options: dict[str, object] = {}
    for marker in reversed(list(request.node.iter_markers("orbitmq"))):  # the closest marker wins
        if marker.args:
            raise pytest.UsageError(
                "the orbitmq marker takes keyword arguments, such as orbitmq(brokers=2), not"
                f" {marker.args[0]!r}"
            )
        options |= marker.kwargs
    with LocalCluster(**options) as cluster:  # type: ignore[arg-type]
        yield cluster


@pytest.fixture(scope="session")
def mq_session() -> Iterator[LocalCluster]:
    """A name server and a broker that all tests share: use separate topics and groups."""
    from orbitmq.testing.local_cluster import LocalCluster

    with LocalCluster() as cluster:
        yield cluster
