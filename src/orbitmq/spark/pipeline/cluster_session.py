"""A Spark session for a pipeline on whatever runs Spark; elsewhere than here, our code goes along.

Executors need a Python with pyarrow, or get a whole environment by `archive` (as `venv-pack` or `conda-pack` make it).
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark import runtime
from orbitmq.spark.pipeline.model import Pipeline
from orbitmq.spark.pipeline.shipped_code import ship, show_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENVIRONMENT: Final = "environment"  # the name under which executors find the archive, unpacked
_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """Where Spark runs, and what it is told."""

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    archive: Path | None = None


def open_session(pipeline: Pipeline, settings: SessionSettings) -> SparkSession:
    """Start Spark for a pipeline; what the command line says of it counts more than what the file says."""
    return started(pipeline.name, pipeline.conf, settings)


def started(name: str, conf: Mapping[str, str], settings: SessionSettings) -> SparkSession:
    """Start Spark for whatever has that name."""
    conf = {**_defaults(settings.master), **conf, **settings.conf}
    is_here = _LOCAL.fullmatch(settings.master) is not None
    if settings.archive is not None:
        if is_here:
            raise ConfigurationError(f"--archive is for other machines, and --master {settings.master} is this one; leave it out")
        conf["spark.archives"] = ",".join(filter(None, (conf.get("spark.archives"), f"{_checked(settings.archive)}#{_ENVIRONMENT}")))
        _use_archive()
    if is_here:
        return runtime.session(settings.master, name, conf)
    show_here(_temporary_folder())
    spark = runtime.session(settings.master, name, conf)
    ship(spark, _temporary_folder())
    return spark


def close_session() -> None:
    """End the session of this process, if it has one."""
    if "pyspark" not in sys.modules:
        return
    from pyspark.sql import SparkSession

    if (spark := SparkSession.getActiveSession()) is not None:
        spark.stop()


def _defaults(master: str) -> dict[str, str]:
    conf = {"spark.ui.enabled": "true", "spark.sql.session.timeZone": "UTC"}
    if found := _LOCAL.fullmatch(master):
        # Spark's default, 200 for every aggregation, is made for clusters.
        cores = found[1] or "1"
        conf["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 1) if cores == "*" else cores
    return conf


def _checked(archive: Path) -> Path:
    if not archive.is_file():
        raise ConfigurationError(f"--archive {archive} is no file; make one with venv-pack or conda-pack")
    return archive.absolute()


def _use_archive() -> None:
    """Let executors run the Python of the archive. Spark has one name for all Pythons, so here it leads to the one that runs already."""
    folder = _temporary_folder()
    (folder / _ENVIRONMENT).symlink_to(sys.prefix)
    os.environ["PYSPARK_PYTHON"] = f"./{_ENVIRONMENT}/bin/python"
    os.chdir(folder)


def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="orbitmq-pipeline-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
