"""The guide docs/testing.md: every example on it runs, and does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2]
PAGE = HERE / "docs" / "testing.md"
ADDRESS = r"127\.0\.0\.1:\d+"
ENVIRONMENT = os.environ | {
    "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
    "PYTHONPATH": str(HERE / "src"),
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": (
        "1"
    ),  # where the package is not installed, nothing but -p finds the plug-in
}


def blocks(language: str) -> list[str]:
    """The code of that language on the page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def said(command: list[str], folder: Path) -> str:
    told = subprocess.run(
        command,
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


@pytest.mark.slow
def test_the_python_examples_pass(tmp_path: Path) -> None:
    for code in blocks("python"):
        name = re.match(r"# (\w+\.py)\n", code)
        assert name is not None, code
        (tmp_path / name[1]).write_text(code)
    told = said(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "orbitmq.testing.pytest_plugin",
            "-p",
            "no:cacheprovider",
            ".",
        ],
        tmp_path,
    )
    assert "9 passed" in told


def test_the_shell_example_has_a_name_server(tmp_path: Path) -> None:
    (code,) = blocks("bash")
    assert re.fullmatch(ADDRESS, said(["bash", "-euc", code], tmp_path).strip())


LANGUAGES = {
    "java": ("Up.java", ["java", "Up.java"]),
    "go": ("up.go", ["go", "run", "up.go"]),
    "javascript": ("up.js", ["node", "up.js"]),
}


@pytest.mark.clients
@pytest.mark.parametrize(
    "language",
    [
        pytest.param("java", marks=pytest.mark.needs("java")),
        pytest.param("go", marks=pytest.mark.needs("go")),
        pytest.param("javascript", marks=pytest.mark.needs("node")),
    ],
)
def test_the_example_of_each_language_has_a_name_server(language: str, tmp_path: Path) -> None:
    (code,) = blocks(language)
    name, command = LANGUAGES[language]
    (tmp_path / name).write_text(code)
    assert re.fullmatch(ADDRESS, said(command, tmp_path).strip())
