"""Starts Spark: finds a Java and a Python for it, and opens a session with quiet logs.

Knows nothing of RocketMQ. Everything the user has set himself wins: environment variables and all
keys of `conf`. Spark is imported only when a session is opened, so that `orbitmq spark doctor`
works without it.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INSTALL: Final = "pip install 'orbitmq[spark]'"
_HOME_FOLDERS: Final = ("bin", "jars", "sbin")
_OLDEST: Final[Mapping[str, tuple[int, ...]]] = {"pyspark": (4, 2), "pyarrow": (18,)}
# Failures are raised to the caller as text; Java stack traces need not precede them in the log.
_LOG_SETTINGS: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
logger.scheduler.name = org.apache.spark.scheduler
logger.scheduler.level = off
logger.streaming.name = org.apache.spark.sql.execution.streaming
logger.streaming.level = off
logger.writing.name = org.apache.spark.sql.execution.datasources
logger.writing.level = off
logger.aborting.name = org.apache.spark.util.Utils
logger.aborting.level = off
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementCheck:
    """The check of one requirement of Spark: what was found, and the remedy if it is not met."""

    part: str
    found: str | None
    is_good: bool
    remedy: str | None = None


def check_requirements(environment: Mapping[str, str] | None = None) -> list[RequirementCheck]:
    """Check everything that Spark needs."""
    environment = os.environ if environment is None else environment
    found = [_python(), _java(environment), *map(_package, _OLDEST)]
    if home := environment.get("SPARK_HOME"):
        found.append(_other_spark(Path(home)))
    return found


def prepare_environment(master: str, environment: MutableMapping[str, str] | None = None) -> None:
    """Set the variables that Spark's launcher reads unless the user has; a Java that is too old is
    replaced.
    """
    environment = os.environ if environment is None else environment
    environment["JAVA_HOME"] = str(java.search(environment).require().home())
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if (
            environment["PYSPARK_PYTHON"] == sys.executable
            and (home := _fast_spark_home()) is not None
        ):
            environment.setdefault("SPARK_HOME", str(home))


def check_packages() -> None:
    """Raise ConfigurationError if a required package is missing, before an import fails."""
    for finding in map(_package, _OLDEST):
        if not finding.is_good:
            raise ConfigurationError(
                f"{finding.part}: {finding.found or 'not installed'}; {finding.remedy}"
            )


def session(
    master: str = "local[*]", name: str = "orbitmq", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the session of this process, started if there is none. In a running session Spark
    applies only part of `conf`.
    """
    check_packages()
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        prepare_environment(master)
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**_quiet(), **(conf or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _quiet() -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_log_file().as_uri()}",
    }


@cache
def _log_file() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="orbitmq-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "log4j2.properties"
    path.write_text(_LOG_SETTINGS)
    return path


@cache
def _fast_spark_home() -> Path | None:
    """Return a SPARK_HOME in which Python workers start in a third of the time, or None if pyspark
    is not laid out as its package is.

    Spark makes its workers import pyspark from a source archive in its home, which Python compiles
    again for every worker. The archive is useless if the workers' Python is the one pyspark is
    installed for. So this home links to Spark's own but leaves the archive out, and workers import
    the installed, compiled pyspark. It is deleted when this process ends.
    """
    spec = importlib.util.find_spec("pyspark")
    installed = Path(spec.origin).parent if spec is not None and spec.origin is not None else Path()
    if not all((installed / name).is_dir() for name in _HOME_FOLDERS[:2]):
        return None
    home = Path(tempfile.mkdtemp(prefix="orbitmq-spark-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for name in _HOME_FOLDERS:
        if (installed / name).is_dir():
            (home / name).symlink_to(installed / name)
    return home


def _python() -> RequirementCheck:
    return RequirementCheck(
        part="python", found=f"{platform.python_version()} at {sys.executable}", is_good=True
    )


def _java(environment: Mapping[str, str]) -> RequirementCheck:
    search = java.search(environment)
    chosen = search.java
    if chosen is None:
        return RequirementCheck(
            part="java", found="; ".join(search.refused) or None, is_good=False, remedy=java.REMEDY
        )
    note = f", skipped: {'; '.join(search.refused)}" if search.refused else ""
    return RequirementCheck(
        part="java",
        found=f"{chosen.version} at {chosen.executable} ({chosen.origin}{note})",
        is_good=True,
    )


def _other_spark(home: Path) -> RequirementCheck:
    """Check SPARK_HOME: PySpark starts the Spark there instead of its own, and both need the same
    version.
    """
    jars = sorted(home.glob("jars/spark-core_*.jar"))
    version = jars[0].stem.rpartition("-")[2] if jars else None
    is_good = version is not None and version == _version("pyspark")
    remedy = (
        None
        if is_good
        else (
            "SPARK_HOME has another version than the installed pyspark: unset it, or install the"
            " matching pyspark"
        )
    )
    return RequirementCheck(
        part="SPARK_HOME",
        found=f"{version or 'no Spark'} at {home}",
        is_good=is_good,
        remedy=remedy,
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _is_importable(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _package(name: str) -> RequirementCheck:
    oldest = _OLDEST[name]
    version = _version(name)
    if version is None:
        return RequirementCheck(
            part=name,
            found=None,
            is_good=False,
            remedy=f"{_INSTALL}, or in a checkout: pip install '.[spark]'",
        )
    if not _is_importable(name):
        return RequirementCheck(
            part=name,
            found=f"{version}, which cannot be imported",
            is_good=False,
            remedy=f"{_INSTALL} --force-reinstall",
        )
    numbers = tuple(int(part) for part in version.split(".")[: len(oldest)] if part.isdigit())
    if numbers < oldest:
        text = ".".join(map(str, oldest))
        return RequirementCheck(
            part=name,
            found=version,
            is_good=False,
            remedy=f"{name} {text} or newer is needed: {_INSTALL} --upgrade",
        )
    return RequirementCheck(part=name, found=version, is_good=True)
