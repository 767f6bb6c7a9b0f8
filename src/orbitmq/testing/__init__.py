"""Tools for tests of applications: a cluster for the duration of a test, a manual clock, and a
faulty disk.

`from orbitmq.testing import LocalCluster, ManualClock`. Names are imported on first use: pytest
loads this package's plug-in in every project in which OrbitMQ is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.testing.faulty_disk import FaultyDisk
    from orbitmq.testing.local_cluster import LocalCluster
    from orbitmq.testing.manual_clock import ManualClock

__all__ = ["FaultyDisk", "LocalCluster", "ManualClock"]

_MODULES = {
    "FaultyDisk": "faulty_disk",
    "LocalCluster": "local_cluster",
    "ManualClock": "manual_clock",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
