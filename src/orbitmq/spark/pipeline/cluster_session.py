"""Opens a Spark session for a pipeline, locally or on a cluster, to which OrbitMQ's code is
shipped.

Executors need a Python with pyarrow, or get a whole environment by `archive` (made with `venv-pack`
or `conda-pack`).
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
from orbitmq.spark.pipeline.shipped_code import expose_code_locally, ship_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENVIRONMENT: Final = "environment"  # folder in which executors find the unpacked archive
_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """Where Spark runs, and its configuration."""

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    archive: Path | None = None


def open_session(pipeline: Pipeline, settings: SessionSettings) -> SparkSession:
    """Start Spark for a pipeline; settings of the command line override those of the file."""
    return start_session(pipeline.name, pipeline.conf, settings)


def start_session(name: str, conf: Mapping[str, str], settings: SessionSettings) -> SparkSession:
    """Start Spark for an application of that name."""
    conf = {**_defaults(settings.master), **conf, **settings.conf}
    is_local = _LOCAL.fullmatch(settings.master) is not None
    if settings.archive is not None:
        if is_local:
            raise ConfigurationError(
                f"--archive is for remote executors, but --master {settings.master} runs here;"
                " leave it out"
            )
        conf["spark.archives"] = ",".join(
            filter(
                None, (conf.get("spark.archives"), f"{_checked(settings.archive)}#{_ENVIRONMENT}")
            )
        )
        _use_archive()
    if is_local:
        return runtime.session(settings.master, name, conf)
    expose_code_locally(_temporary_folder())
    spark = runtime.session(settings.master, name, conf)
    ship_code(spark, _temporary_folder())
    return spark


def close_session() -> None:
    """Stop the session of this process, if any."""
    if "pyspark" not in sys.modules:
        return
    from pyspark.sql import SparkSession

    if (spark := SparkSession.getActiveSession()) is not None:
        spark.stop()


def _defaults(master: str) -> dict[str, str]:
    conf = {"spark.ui.enabled": "true", "spark.sql.session.timeZone": "UTC"}
    if found := _LOCAL.fullmatch(master):
        # Spark's default of 200 partitions per aggregation suits clusters.
        cores = found[1] or "1"
        conf["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 1) if cores == "*" else cores
    return conf


def _checked(archive: Path) -> Path:
    if not archive.is_file():
        raise ConfigurationError(
            f"--archive {archive} is not a file; create one with venv-pack or conda-pack"
        )
    return archive.absolute()


def _use_archive() -> None:
    """Make executors run the Python of the archive. Spark has one path for all Pythons, so here it
    links to the running one.
    """
    folder = _temporary_folder()
    (folder / _ENVIRONMENT).symlink_to(sys.prefix)
    os.environ["PYSPARK_PYTHON"] = f"./{_ENVIRONMENT}/bin/python"
    os.chdir(folder)


def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="orbitmq-pipeline-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
