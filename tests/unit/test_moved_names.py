"""Import paths that older documentation showed still work, and say where the names are now."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import orbitmq
from orbitmq.admin import positions
from orbitmq.common import errors

OLD_PATHS = [
    ("orbitmq.client.credentials", "Credentials", "orbitmq.access.credentials"),
    ("orbitmq.client.producer", "Producer", "orbitmq.client.producer.producer"),
    ("orbitmq.client.pull_consumer", "PullConsumer", "orbitmq.client.consumer.pull_consumer"),
    ("orbitmq.client.rebalance", "Averagely", "orbitmq.client.consumer.rebalance"),
    ("orbitmq.client.session", "ClientSession", "orbitmq.client.session.client_session"),
    ("orbitmq.spark.stream_writer", "stream_writer", "orbitmq.spark.sink.stream_writer"),
]


@pytest.mark.parametrize(("old", "name", "new"), OLD_PATHS)
def test_an_old_path_leads_to_the_new_one_with_a_warning(old: str, name: str, new: str) -> None:
    if "spark" in old:
        pytest.importorskip("pyspark")
    with pytest.warns(DeprecationWarning, match=f"import it from {new}"):
        found = getattr(import_module(old), name)
    assert found is getattr(import_module(new), name)


@pytest.mark.parametrize(("old", "new"), errors.OLD_NAMES.items())
def test_an_old_name_of_an_error_is_the_new_one_with_a_warning(old: str, new: str) -> None:
    for module in (errors, orbitmq):
        with pytest.warns(DeprecationWarning, match=f"{old} was renamed: use {new}"):
            assert getattr(module, old) is getattr(errors, new)


@pytest.mark.parametrize(("old", "new"), [("Edge", "QueueEdge"), ("AtTime", "AtStoreTime")])
def test_an_old_name_of_a_position_is_the_new_one_with_a_warning(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} was renamed: use {new}"):
        assert getattr(positions, old) is getattr(positions, new)


def test_errors_are_caught_by_the_names_that_python_has_for_them() -> None:
    assert issubclass(orbitmq.RemoteTimeoutError, TimeoutError)
    assert issubclass(orbitmq.RequestTimeoutError, TimeoutError)
    assert issubclass(orbitmq.RemoteUnavailableError, ConnectionError)
    assert str(orbitmq.RequestTimeoutError("no reply", was_sent=True)) == "no reply"


def test_an_unknown_name_of_an_old_path_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        from orbitmq.client.producer import Nothing  # noqa: F401


def test_the_package_itself_uses_no_old_path() -> None:
    program = "import orbitmq; [getattr(orbitmq, name) for name in orbitmq.__all__]"
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
