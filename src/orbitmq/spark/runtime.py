"""A Spark that starts: its Java, its Python, and a session that says nothing but what concerns its user.

Knows nothing of RocketMQ. Whatever the user has set himself stays: variables of the environment, and every key of `conf`. Nothing of Spark
is imported before a session is asked for, so that `orbitmq spark doctor` works where it is missing.
"""

from __future__ import annotations

import atexit
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark import java
from orbitmq.spark.spark_home import quick_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INSTALL: Final = "pip install 'orbitmq[spark]'"
_OLDEST: Final[Mapping[str, tuple[int, ...]]] = {"pyspark": (4, 2), "pyarrow": (18,)}
# A failure reaches whoever asked for the work, in words; its Java stack frames need not come first.
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
class Finding:
    """One thing that Spark needs: what there is, and what to do when that will not do."""

    part: str
    found: str | None
    is_good: bool
    remedy: str | None = None


def findings(environment: Mapping[str, str] | None = None) -> list[Finding]:
    """What there is of everything that Spark needs."""
    environment = os.environ if environment is None else environment
    found = [_python(), _java(environment), *map(_package, _OLDEST)]
    if home := environment.get("SPARK_HOME"):
        found.append(_other_spark(Path(home)))
    return found


def prepare_environment(master: str, environment: MutableMapping[str, str] | None = None) -> None:
    """Set what Spark's launcher reads, where the user has not; a Java that is too old is replaced."""
    environment = os.environ if environment is None else environment
    environment["JAVA_HOME"] = str(java.search(environment).chosen().home())
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if environment["PYSPARK_PYTHON"] == sys.executable and (home := quick_home()) is not None:
            environment.setdefault("SPARK_HOME", str(home))


def check_packages() -> None:
    """Say what is missing, before something else says it by an import that fails."""
    for finding in map(_package, _OLDEST):
        if not finding.is_good:
            raise ConfigurationError(f"{finding.part}: {finding.found or 'not installed'}; {finding.remedy}")


def session(master: str = "local[*]", name: str = "orbitmq", conf: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process, started unless there is one; then `conf` counts as far as Spark lets it."""
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


def _python() -> Finding:
    return Finding(part="python", found=f"{platform.python_version()} at {sys.executable}", is_good=True)


def _java(environment: Mapping[str, str]) -> Finding:
    search = java.search(environment)
    chosen = search.java
    if chosen is None:
        return Finding(part="java", found="; ".join(search.refused) or None, is_good=False, remedy=java.REMEDY)
    note = f", passed over: {'; '.join(search.refused)}" if search.refused else ""
    return Finding(part="java", found=f"{chosen.version} at {chosen.executable} ({chosen.origin}{note})", is_good=True)


def _other_spark(home: Path) -> Finding:
    """PySpark starts the Spark of SPARK_HOME instead of its own, and both have to be of one version."""
    jars = sorted(home.glob("jars/spark-core_*.jar"))
    version = jars[0].stem.rpartition("-")[2] if jars else None
    is_good = version is not None and version == _version("pyspark")
    remedy = (
        None if is_good else "SPARK_HOME names another Spark than the installed pyspark: unset it, or install the pyspark of its version"
    )
    return Finding(part="SPARK_HOME", found=f"{version or 'no Spark'} at {home}", is_good=is_good, remedy=remedy)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _is_importable(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _package(name: str) -> Finding:
    oldest = _OLDEST[name]
    version = _version(name)
    if version is None:
        return Finding(part=name, found=None, is_good=False, remedy=_INSTALL)
    if not _is_importable(name):
        return Finding(part=name, found=f"{version}, which cannot be imported", is_good=False, remedy=f"{_INSTALL} --force-reinstall")
    numbers = tuple(int(part) for part in version.split(".")[: len(oldest)] if part.isdigit())
    if numbers < oldest:
        text = ".".join(map(str, oldest))
        return Finding(part=name, found=version, is_good=False, remedy=f"{name} {text} or newer is needed: {_INSTALL} --upgrade")
    return Finding(part=name, found=version, is_good=True)
