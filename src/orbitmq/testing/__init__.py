"""What tests of users need: a cluster for as long as a test lasts, a clock moved by hand, disks that fail and forget.

`from orbitmq.testing import LocalCluster, ManualClock`. Nothing is imported before it is asked for: pytest loads the plug-in of this room
in every project that OrbitMQ is installed for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.testing.faulty_disk import FaultyDisk
    from orbitmq.testing.local_cluster import LocalCluster
    from orbitmq.testing.manual_clock import ManualClock

__all__ = ["FaultyDisk", "LocalCluster", "ManualClock"]

_MODULES = {"FaultyDisk": "faulty_disk", "LocalCluster": "local_cluster", "ManualClock": "manual_clock"}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
