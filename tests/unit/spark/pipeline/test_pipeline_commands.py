"""`orbitmq pipeline`: the verbs that need no Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orbitmq.cli.main import cli
from orbitmq.cli.pipeline_progress import JsonLines, Lines, batch_line, state_line
from orbitmq.spark.pipeline.progress import BatchProgress, SinkProgress
from orbitmq.spark.pipeline.status import State, Status, StatusFile

ARCHIVE = """\
name: archive
source: {format: rocketmq, options: {nameServer: "127.0.0.1:9876", subscribe: orders, startingOffsets: earliest}}
sinks: [{format: parquet, path: out/archive}]
checkpoint: out/checkpoint
"""
BATCH = BatchProgress(number=2, time_ms=0, rows_in=100, rows_out=30, took_ms=500, lag=7)


def status(state: State, **others: str) -> Status:
    progress = SinkProgress(sink="parquet-archive").after(BATCH)
    return Status(
        name="archive",
        state=state,
        host="here",
        pid=4711,
        master="local[2]",
        started_ms=1769853600000,
        updated_ms=1769853660000,
        sinks=(progress,),
        **others,
    )


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["pipeline", *arguments], prog_name="orbitmq")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "archive.yaml"
    path.write_text(ARCHIVE)
    return path


def test_validate_says_what_a_good_file_is(file: Path) -> None:
    result = run("validate", str(file))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[1].split() == [
        str(file),
        "archive",
        "rocketmq",
        "parquet:parquet-archive",
    ]


def test_validate_goes_on_after_a_bad_file_and_fails(file: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(ARCHIVE.replace("sinks:", "sink:"))
    result = run("validate", str(bad), str(file))
    assert result.exit_code == 1
    assert result.stderr == f"orbitmq: {bad}:3: the file has no key sink; did you mean sinks?\n"
    assert "archive" in result.stdout
    found = json.loads(run("validate", str(bad), str(file), "-o", "json").stdout)
    assert [(each["valid"], each["problem"]) for each in found] == [
        (False, f"{bad}:3: the file has no key sink; did you mean sinks?"),
        (True, None),
    ]


def test_validate_needs_no_spark(file: Path) -> None:
    program = (
        "import sys; sys.modules['pyspark'] = sys.modules['pyarrow'] = None;from orbitmq.cli.main"
        " import cli; cli(['pipeline', 'validate', sys.argv[1]], prog_name='orbitmq')"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")


def test_a_setting_reaches_the_file(file: Path) -> None:
    result = run("validate", str(file), "--set", "sinks.0.pth=x")
    assert (
        result.stderr
        == "orbitmq: --set sinks.0.pth: sinks.0 (parquet) has no key pth; did you mean path?\n"
    )


def test_run_and_explain_refuse_a_bad_file_before_spark_starts(file: Path) -> None:
    for verb in ("run", "explain"):
        result = run(verb, str(file), "--set", "checkpoint=")
        assert (result.exit_code, result.stderr) == (
            1,
            "orbitmq: --set checkpoint: checkpoint is empty but must be a path\n",
        )


def test_a_setting_of_spark_has_a_name_and_a_value(file: Path) -> None:
    result = run("run", str(file), "--conf", "spark.ui.port")
    assert result.exit_code == 2
    assert "'spark.ui.port' is not of the form KEY=VALUE" in result.stderr


def test_an_archive_is_for_clusters(file: Path, tmp_path: Path) -> None:
    result = run("run", str(file), "--archive", str(tmp_path / "venv.tar.gz"))
    assert (result.exit_code, result.stderr) == (
        1,
        (
            "orbitmq: --archive is for remote executors, but --master local[*] runs here; leave it"
            " out\n"
        ),
    )


def test_a_pipeline_that_never_ran_says_so(file: Path, tmp_path: Path) -> None:
    assert (
        run("status", str(file)).stdout
        == f"archive never ran here: there is no {tmp_path}/out/checkpoint.status.json\n"
    )
    assert json.loads(run("status", str(file), "-o", "json").stdout) == [
        {"name": "archive", "state": "never ran"}
    ]


def test_status_shows_what_a_pipeline_did(file: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    StatusFile(tmp_path / "out/checkpoint.status.json").write(
        status(State.FAILED, problem="no route to topic orders")
    )
    lines = run("status", str(file)).stdout.splitlines()
    assert lines[0].startswith(
        "archive: failed (process 4711 on here, Spark local[2]); started 2026-01-31 "
    )
    assert lines[1] == "problem: no route to topic orders"
    assert lines[-1].split() == ["parquet-archive", "1", "100", "30", "200", "60", "7", "0.50", "s"]
    found = json.loads(run("status", str(file), "-o", "json").stdout)[0]
    assert (found["state"], found["sinks"][0]["last"]["lag"]) == ("failed", 7)


def test_list_shows_the_pipelines_of_a_folder_and_nothing_else(file: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    StatusFile(tmp_path / "out/checkpoint.status.json").write(
        status(State.RUNNING)
    )  # and the lock is free
    (tmp_path / "compose.yaml").write_text("services: {}\n")
    (tmp_path / "bad.yml").write_text("name: bad\nsource: {format: rate}\nsinks: []\n")
    (tmp_path / "torn.yaml").write_text("name: torn\nsource: {format: rate\nsinks: []\n")
    (tmp_path / "torn-compose.yaml").write_text("services: {\n")
    (tmp_path / "new.yaml").write_text(
        ARCHIVE.replace("name: archive", "name: new").replace("out/checkpoint", "out/new")
    )
    result = run("list", str(tmp_path))
    assert [(line.split()[0], line.split()[2]) for line in result.stdout.splitlines()[1:]] == [
        ("archive", "killed"),
        ("bad", "invalid"),
        ("new", "never"),
        ("torn", "invalid"),
    ]
    told = result.stderr.splitlines()
    assert (
        told[0]
        == f"orbitmq: {tmp_path}/bad.yml:3: sinks is an empty list but must be a list with at"
        " least one member"
    )
    assert told[1].startswith(f"orbitmq: {tmp_path}/torn.yaml")
    found = {
        row["name"]: row for row in json.loads(run("list", str(tmp_path), "-o", "json").stdout)
    }
    assert (found["archive"]["rows_out"], found["archive"]["lag"], found["new"]["batches"]) == (
        30,
        7,
        None,
    )


def test_a_line_for_each_batch() -> None:
    assert (
        batch_line("archive", BATCH)
        == "archive batch 2: 100 rows in (200/s), 30 out (60/s), 0.50 s, lag 7"
    )
    assert (
        state_line(status(State.STOPPED))
        == "archive: stopped (parquet-archive: 1 batches, 100 rows in, 30 out)"
    )


def test_a_pipe_gets_each_state_once_and_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    for state in (State.STARTING, State.STARTING, State.RUNNING, State.RUNNING):
        lines.status(status(state))
    lines.batch("archive", BATCH)
    lines.rows("console", 2, ["shop", "orders"], [("Berlin", 3), ("Osaka\n", 4)])
    assert capsys.readouterr().out.splitlines() == [
        "archive: starting",
        "archive: running (parquet-archive: 1 batches, 100 rows in, 30 out)",
        "archive batch 2: 100 rows in (200/s), 30 out (60/s), 0.50 s, lag 7",
        "console batch 2: shop=Berlin orders=3",
        "console batch 2: shop=Osaka· orders=4",
    ]


def test_programs_get_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = JsonLines()
    lines.status(status(State.RUNNING))
    lines.batch("archive", BATCH)
    lines.rows("console", 2, ["shop"], [("Berlin",)])
    state, batch, row = map(json.loads, capsys.readouterr().out.splitlines())
    assert (state["event"], state["state"]) == ("state", "running")
    assert (batch["event"], batch["sink"], batch["rows_out"]) == ("batch", "archive", 30)
    assert row == {"event": "row", "sink": "console", "batch": 2, "row": {"shop": "Berlin"}}
