"""One Spark session for all tests: starting it takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from orbitmq.spark import runtime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark/" in item.path.as_posix():
            item.add_marker(pytest.mark.spark)
            item.add_marker(
                pytest.mark.timeout(600)
            )  # the first query of a session loads half of Spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two cores in this process's JVM."""
    session = runtime.session(
        "local[2]",
        "tests",
        {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"},
    )
    yield session
    session.stop()
