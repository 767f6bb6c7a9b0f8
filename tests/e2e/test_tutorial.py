"""The tutorial docs/tutorial.md: its programs and commands run in order and print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from orbitmq.testing import LocalCluster

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
EXAMPLE = re.compile(
    r"^```(?P<language>python|sh)\n(?P<code>.*?)^```\n(\n```text\n(?P<output>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)
NAME_SERVER = "127.0.0.1:9876"
SPARK_STEP = PAGE.index("with Spark\n\n```python")


class Step(NamedTuple):
    """A program or a script of the page, and the output that the page shows, if any."""

    line: int
    language: str
    code: str
    output: str | None


def steps(begin: int, end: int) -> Iterator[Step]:
    for found in EXAMPLE.finditer(PAGE, begin, end):
        line = PAGE.count("\n", 0, found.start()) + 1
        yield Step(line, found["language"], found["code"], found["output"])


def run(step: Step, name_server: str, folder: Path) -> str:
    """Run a step as a reader would, and return its output."""
    scripts = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": os.pathsep.join((str(scripts), os.environ["PATH"])),
        "NAMESRV_ADDR": name_server,
        "PYTHONPATH": str(ROOT / "src"),
    }
    code = step.code.replace(NAME_SERVER, name_server)
    command = ["bash", "-euc", code] if step.language == "sh" else [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"line {step.line}: {done.stdout}{done.stderr}"
    return done.stdout


def run_steps(begin: int, end: int, name_server: str, folder: Path) -> list[str]:
    outputs = []
    for step in steps(begin, end):
        output = run(step, name_server, folder)
        if step.output is not None:
            assert output == step.output, f"line {step.line}"
        outputs.append(output)
    return outputs


@pytest.mark.slow
def test_the_steps_before_spark_print_what_the_page_says(tmp_path: Path) -> None:
    with LocalCluster() as mq:
        outputs = run_steps(0, SPARK_STEP, mq.name_server, tmp_path)
    assert len(outputs) == 5
    looked_at = outputs[3]
    assert looked_at.count("lisbon") >= 1
    assert "berlin-desk" in looked_at


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark_reads_the_topic_into_a_table(tmp_path: Path) -> None:
    with LocalCluster() as mq:
        sends = list(steps(0, SPARK_STEP))[:2]
        for step in sends:
            run(step, mq.name_server, tmp_path)
        assert len(run_steps(SPARK_STEP, len(PAGE), mq.name_server, tmp_path)) == 1
