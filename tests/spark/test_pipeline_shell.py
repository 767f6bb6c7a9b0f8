"""Tests `orbitmq pipeline` with Spark: the output of `explain`, and a run that is stopped by a
signal.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from orbitmq.cli.main import cli
from orbitmq.spark.pipeline import cluster_session
from orbitmq.testing import LocalCluster
from support.spark.pipelines import pipeline_in, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = """\
name: archive
source:
  format: rocketmq
  options: {{nameServer: "{name_server}", subscribe: archived, startingOffsets: earliest, secretKey: s, accessKey: a}}
steps:
  - filter: queueId < 2
sinks: [{{format: parquet, path: out/archive, partitionBy: [topic]}}]
trigger: {{processingTime: 1 second}}
checkpoint: out/checkpoint
"""


def shell(*arguments: str) -> str:
    """Return the output of a command that needs no Spark."""
    result = CliRunner().invoke(cli, ["pipeline", *arguments], prog_name="orbitmq")
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_explain_shows_what_is_read_and_written_and_how(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cluster_session, "close_session", lambda: None
    )  # all tests share the session
    file = pipeline_in(tmp_path, TEXT.format(name_server="127.0.0.1:1")).file
    found = json.loads(shell("explain", str(file), "--master", "local[2]", "-o", "json"))[0]
    assert (
        found["reads"]
        == "rocketmq nameServer=127.0.0.1:1 subscribe=archived startingOffsets=earliest"
        " secretKey=*** accessKey=***"
    )
    assert found["writes"] == f"parquet {tmp_path}/out/archive"
    assert (found["steps"], found["mode"], found["partitioned_by"]) == (
        ["filter"],
        "append",
        ["topic"],
    )
    assert len(found["columns_read"]) == 18
    assert "queueOffset bigint" in found["columns"]
    assert found["checkpoint"] == f"{tmp_path}/out/checkpoint/parquet-archive"
    assert "StreamingRelation" in found["plan"]
    assert "columns read  topic, brokerName" in shell("explain", str(file), "--master", "local[2]")
    assert not (tmp_path / "out").exists()


@pytest.mark.short
def test_a_signal_stops_a_run_after_its_batch(
    spark: SparkSession, mq_session: LocalCluster, tmp_path: Path
) -> None:
    mq_session.create_topic("archived", queues=2)
    bodies = [b"%d" % number for number in range(100)]
    send(mq_session.name_server, "archived", bodies)
    text = TEXT.format(name_server=mq_session.name_server).replace(
        ", secretKey: s, accessKey: a", ""
    )
    file = pipeline_in(tmp_path, text).file
    command = [
        sys.executable,
        "-m",
        "orbitmq",
        "pipeline",
        "run",
        str(file),
        "--master",
        "local[1]",
        "--conf",
        "spark.ui.enabled=false",
    ]
    environment = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1", **os.environ}
    with subprocess.Popen(
        [*command, "-o", "json"], stdout=subprocess.PIPE, env=environment, text=True
    ) as running:
        assert running.stdout is not None
        events = (json.loads(line) for line in running.stdout)
        rows_in = 0
        while rows_in < len(bodies):
            event = next(events)
            rows_in += event["rows_in"] if event["event"] == "batch" else 0
        assert json.loads(shell("status", str(file), "-o", "json"))[0]["state"] == "running"
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (
            second.returncode,
            second.stderr.startswith("orbitmq: the pipeline is already running in process"),
        ) == (1, True)
        running.send_signal(signal.SIGTERM)
        rest = list(events)
    assert running.returncode == 0
    assert [event["state"] for event in rest if event["event"] == "state"] == [
        "stopping",
        "stopped",
    ]
    status = json.loads(shell("status", str(file), "-o", "json"))[0]
    assert (status["state"], status["sinks"][0]["rows_out"]) == ("stopped", len(bodies))
    assert json.loads(shell("list", str(tmp_path), "-o", "json"))[0]["state"] == "stopped"
    archived = spark.read.parquet(str(tmp_path / "out/archive")).collect()
    assert sorted(bytes(row["body"]) for row in archived) == sorted(bodies)
