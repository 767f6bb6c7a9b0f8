"""Tests an example on a standalone cluster whose Python lacks our code: an executor and the driver
are killed, and the figures are still right.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import kernels
from orbitmq.testing import LocalCluster
from support.common.waiting import wait_until
from support.spark.pipelines import figures, figures_in, send, some_orders, watermark
from support.spark.standalone_cluster import (
    HOST,
    PATIENCE_S,
    StandaloneCluster,
    bare_environment,
    descendants,
    packed,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.crash
EXAMPLE = Path(__file__).parents[2] / "examples" / "orders-per-minute.yaml"
SINKS = {"rocketmq-orders-per-minute", "parquet-figures"}
BATCH = 80


@contextmanager
def running(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run a command in its own process group, which is killed at the end."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        env={**os.environ, **environment},
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def batches(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield the batches that a pipeline reports until it fails."""
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        assert event.get("state") != "failed", line
        if event["event"] == "batch":
            yield event
    raise AssertionError("the pipeline ended")


def has_our_kernels(executor: int, folder: Path) -> bool:
    """Return whether a Python of the executor runs a compiled kernel from its worker's folder."""
    kernel = (
        "orbitmq/spark/kernels/rows.cpython"
        if kernels.is_compiled("orbitmq.spark.kernels.rows")
        else "pyarrow/lib.cpython"
    )
    maps = (
        path.read_text()
        for pid in descendants(executor)
        if (path := Path(f"/proc/{pid}/maps")).exists()
    )
    return any(
        kernel in line and (str(folder) in line or "pyarrow" in kernel)
        for text in maps
        for line in text.splitlines()
    )


@pytest.mark.timeout(1800)  # a master, two workers, their executors, two drivers
def test_an_example_runs_on_machines_without_our_code_and_survives_the_loss_of_an_executor_and_of_its_driver(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    orders = some_orders(300, seed=5)
    expected = figures(orders, until=watermark(orders))
    table = tmp_path / "figures"
    python = bare_environment(tmp_path / "bare")
    with (
        LocalCluster(topics={"orders": 2, "orders-per-minute": 2}) as mq,
        StandaloneCluster(tmp_path / "spark") as cluster,
    ):
        send(mq.name_server, "orders", [order.body() for order in orders])
        command = [
            sys.executable,
            "-m",
            "orbitmq",
            "pipeline",
            "run",
            str(EXAMPLE),
            "--master",
            cluster.master,
            "-o",
            "json",
        ]
        for place in (
            f"checkpoint={tmp_path / 'checkpoint'}",
            f"sinks.1.path={table}",
            f"source.options.maxOffsetsPerTrigger={BATCH}",
        ):
            command += ["--set", place]
        for setting in (
            "spark.executor.memory=512m",
            "spark.sql.shuffle.partitions=2",
            "spark.ui.enabled=false",
        ):
            command += ["--conf", setting]
        (tmp_path / "tmp").mkdir()  # killed processes do not clean up
        environment = {
            "NAMESRV_ADDR": mq.name_server,
            "SPARK_LOCAL_IP": HOST,
            "TMPDIR": str(tmp_path / "tmp"),
        }

        with running(command, {**environment, "PYSPARK_PYTHON": str(python)}) as driver:
            done: Counter[str] = Counter()
            for event in batches(driver):
                done[event["sink"]] += event["rows_in"]
                if done.keys() == SINKS:
                    break
            wait_until(
                lambda: any(has_our_kernels(*executor) for executor in cluster.executors().items()),
                "an executor that has the kernels",
                seconds=PATIENCE_S,
            )
            lost = next(iter(cluster.executors()))
            os.kill(lost, signal.SIGKILL)
            for event in batches(driver):
                done[event["sink"]] += event["rows_in"]
                if (
                    min(done.values()) >= len(orders) // 2
                    and len(cluster.executors().keys() - {lost}) == 2
                ):
                    break

        again = [*command, "--once", "--archive", str(packed(python, tmp_path / "packed"))]
        ended = subprocess.run(
            again, capture_output=True, env={**os.environ, **environment}, text=True, check=False
        )
        assert ended.returncode == 0, ended
        in_topic = figures_in(mq.name_server, "orders-per-minute")

    spark: SparkSession = request.getfixturevalue("spark")
    rows = spark.read.parquet(str(table)).collect()
    in_table = [
        ((row["shop"], row["minute"].replace(tzinfo=UTC)), (row["total"], row["orders"]))
        for row in rows
    ]
    told = {
        "attempted": len(expected),
        "in_table": len(in_table),
        "in_topic": len(in_topic),
        "rows_read_before_kill": dict(done),
    }
    print(json.dumps({"what": "standalone cluster, an executor and the driver killed", **told}))
    assert sorted(in_table) == sorted(expected.items())
    assert dict(in_topic) == expected
    assert len(expected) > 20
