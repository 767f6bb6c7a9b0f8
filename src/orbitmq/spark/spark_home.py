"""A home for Spark in which its Python workers start in a third of the time.

Spark has its workers import pyspark from an archive of sources that lies in its home: Python compiles it anew for every worker. Where the
workers' Python is the one that pyspark is installed for, the archive is of no use. So this home is Spark's own, by links, without it; the
workers find pyspark where it is installed, compiled. It goes with this process.
"""

from __future__ import annotations

import atexit
import importlib.util
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

_NEEDED: Final = ("bin", "jars", "sbin")


@cache
def quick_home() -> Path | None:
    """The home; None when pyspark is not laid out as its package is."""
    spec = importlib.util.find_spec("pyspark")
    installed = Path(spec.origin).parent if spec is not None and spec.origin is not None else Path()
    if not all((installed / name).is_dir() for name in _NEEDED[:2]):
        return None
    home = Path(tempfile.mkdtemp(prefix="orbitmq-spark-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for name in _NEEDED:
        if (installed / name).is_dir():
            (home / name).symlink_to(installed / name)
    return home
