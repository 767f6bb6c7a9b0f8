"""Packages that are installed for the length of a test: a folder on sys.path with distributions as
an installer lays them down.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def site_packages(folder: Path) -> Iterator[Path]:
    """`folder` as a place of installed packages; what was imported from it is forgotten
    afterwards.
    """
    sys.path.insert(0, str(folder))
    before = set(sys.modules)
    try:
        yield folder
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]


def install(site: Path, name: str, entry_points: str, module: str = "") -> None:
    """A distribution of one module of the same name; `entry_points` is the text of its file of that
    name.
    """
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    (site / f"{name}.py").write_text(module)
    importlib.invalidate_caches()
