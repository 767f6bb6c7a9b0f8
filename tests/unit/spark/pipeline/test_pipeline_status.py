"""Tests the status of a pipeline: batches, the status file, its lock, and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from orbitmq.common.errors import AlreadyExistsError, ConfigurationError
from orbitmq.spark.pipeline.problems import summarize_error
from orbitmq.spark.pipeline.progress import BatchProgress, SinkProgress, parse_progress
from orbitmq.spark.pipeline.reporting import RunReporter
from orbitmq.spark.pipeline.shipped_code import cython_archive, package_archive
from orbitmq.spark.pipeline.status import State, Status, StatusFile
from orbitmq.spark.pipeline.stopping import StoppedEarly, StopRequest

TOLD: dict[str, Any] = {
    "batchId": 3,
    "timestamp": "2026-01-31T10:00:00.250Z",
    "numInputRows": 500,
    "durationMs": {"addBatch": 1500, "triggerExecution": 2000},
    "sources": [
        {
            "endOffset": {"orders": {"broker-a": {"0": 90, "1": 100}}},
            "latestOffset": {"orders": {"broker-a": {"0": 100, "1": 105, "2": 7}}},
        }
    ],
    "observedMetrics": {"orbitmq": {"rows": 20}},
}


def batch(number: int = 0, rows_out: int = 1, **others: Any) -> BatchProgress:
    return BatchProgress(
        **{
            "number": number,
            "time_ms": 0,
            "rows_in": 10,
            "rows_out": rows_out,
            "took_ms": 500,
            "lag": 0,
            **others,
        }
    )


def status(state: State = State.RUNNING, **others: Any) -> Status:
    progress = (SinkProgress(sink="one").after(batch()), SinkProgress(sink="two"))
    return Status(
        **{
            "name": "orders",
            "state": state,
            "started_ms": 1,
            "updated_ms": 2,
            "sinks": progress,
            **others,
        }
    )


def test_a_batch_is_what_spark_tells_of_it() -> None:
    found = parse_progress(TOLD)
    assert found == BatchProgress(
        number=3, time_ms=1769853600250, rows_in=500, rows_out=20, took_ms=2000, lag=15
    )
    assert (found.in_per_s, found.out_per_s) == (250.0, 10.0)


def test_offsets_may_come_as_a_text_and_other_sources_have_no_lag() -> None:
    as_text = [
        {
            "endOffset": '{"orders": {"broker-a": {"0": 1}}}',
            "latestOffset": '{"orders": {"broker-a": {"0": 3}}}',
        }
    ]
    assert parse_progress({**TOLD, "sources": as_text}).lag == 2
    assert parse_progress({**TOLD, "sources": [{"endOffset": 9, "latestOffset": 9}]}).lag is None
    assert parse_progress({**TOLD, "sources": []}).lag is None


def test_that_there_is_nothing_to_do_is_no_batch() -> None:
    idle = parse_progress(
        {
            **TOLD,
            "batchId": 4,
            "numInputRows": 0,
            "durationMs": {"latestOffset": 2, "triggerExecution": 2},
            "observedMetrics": {},
        }
    )
    assert idle.is_idle
    progress = SinkProgress(sink="one").after(parse_progress(TOLD))
    after = progress.after(idle)
    assert (after.batches, after.rows_in, after.rows_out) == (1, 500, 20)
    assert after.last is not None
    assert after.last.number == 3
    assert after.after(batch(number=4, rows_out=5)).rows_out == 25


def test_a_status_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = StatusFile(tmp_path / "deep" / "orders.status.json")
    file.acquire()
    written = status(ui="http://localhost:4040", master="local[2]")
    file.write(written)
    assert file.read() == written
    file.release()


def test_a_pipeline_that_never_ran_has_no_status(tmp_path: Path) -> None:
    assert StatusFile(tmp_path / "orders.status.json").read() is None


def test_one_that_ended_without_saying_so_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "orders.status.json"
    file = StatusFile(path)
    file.acquire()
    file.write(status())
    assert StatusFile(path).read() == status()
    file.release()
    killed = StatusFile(path).read()
    assert killed is not None
    assert killed.state is State.KILLED
    file.write(status(State.STOPPED))
    assert StatusFile(path).read() == status(State.STOPPED)


def test_the_lock_goes_with_the_process_that_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "orders.status.json"
    program = (
        "import sys, time, pathlib; from orbitmq.spark.pipeline.status import"
        " StatusFile;StatusFile(pathlib.Path(sys.argv[1])).acquire(); print('held', flush=True);"
        " time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(
            AlreadyExistsError,
            match="the pipeline is already running in another process; stop that first",
        ):
            StatusFile(path).acquire()
        holder.kill()
    file = StatusFile(path)
    file.acquire()
    file.release()


def test_two_runs_of_one_pipeline_are_one_too_many(tmp_path: Path) -> None:
    path = tmp_path / "orders.status.json"
    first = StatusFile(path)
    first.acquire()
    first.write(status(pid=4711, host="here"))
    with pytest.raises(
        AlreadyExistsError, match="the pipeline is already running in process 4711 on here"
    ):
        StatusFile(path).acquire()
    first.release()


def test_a_damaged_status_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "orders.status.json"
    path.write_text('{"name": "orders"}')
    with pytest.raises(
        ConfigurationError,
        match=r"is damaged \(not a status: 'sinks'\); delete it: the next run creates it again",
    ):
        StatusFile(path).read()


class Watcher:
    """An observer that records its calls."""

    def __init__(self) -> None:
        self.states: list[State] = []
        self.batches: list[tuple[str, int]] = []

    def status(self, status: Status) -> None:
        self.states.append(status.state)

    def batch(self, sink: str, batch: BatchProgress) -> None:
        self.batches.append((sink, batch.number))

    def rows(
        self, sink: str, number: int, columns: list[str], rows: list[tuple[Any, ...]]
    ) -> None: ...


def test_a_report_tells_who_watches_and_writes_the_file(tmp_path: Path) -> None:
    file, watcher = StatusFile(tmp_path / "orders.status.json"), Watcher()
    report = RunReporter(status(State.STARTING), file, watcher)
    report.change(State.RUNNING, ui="http://localhost:4040")
    report.batch("two", batch(number=7, rows_out=3))
    report.batch("two", batch(number=8, is_idle=True))
    report.change(State.FAILED, problem="because")
    assert watcher.states == [State.RUNNING, State.FAILED]
    assert watcher.batches == [("two", 7)]
    found = file.read()
    assert found is not None
    assert (found.state, found.problem, found.ui) == (
        State.FAILED,
        "because",
        "http://localhost:4040",
    )
    assert [(sink.batches, sink.rows_out) for sink in found.sinks] == [(1, 1), (1, 3)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_ask_to_stop_and_nothing_more(number: signal.Signals) -> None:
    stop, before = StopRequest(), signal.getsignal(number)
    with stop.by_signal():
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        assert stop.count == 2
    assert signal.getsignal(number) is before


def test_a_signal_ends_what_only_starts() -> None:
    stop = StopRequest()
    with stop.by_signal(), pytest.raises(StoppedEarly), stop.starting():
        os.kill(os.getpid(), signal.SIGTERM)
    assert stop.count == 1


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            (
                "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with"
                " name `amout` cannot be resolved. Did you mean one of the following? [`amount`,"
                " `at`]. SQLSTATE: 42703; line 1 pos 0;\n'Filter ('amout > 0)\n+- LogicalRDD"
            ),
            (
                "A column, variable, or function parameter with name `amout` cannot be resolved. "
                "Did you mean one of the following? [`amount`, `at`]"
            ),
        ),
        (
            (
                "\n[PARSE_SYNTAX_ERROR] Syntax error at or near '>'. SQLSTATE: 42601 (line 1, pos"
                " 9)\n\n== SQL ==\na > > 0\n---^^^\n"
            ),
            "Syntax error at or near '>' (line 1, position 10 of it)",
        ),
        (
            (
                "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:"
                " [PYTHON_DATA_SOURCE_ERROR] Failed when data source instance executes streaming:"
                " orbitmq.common.errors.NotFoundError: no route to topic orders; create it"
                " SQLSTATE: 38000\n=== Streaming Query ===\nIdentifier: x"
            ),
            "no route to topic orders; create it",
        ),
        (
            (
                "[TABLE_OR_VIEW_NOT_FOUND] The table cannot be found. Verify the spelling. If not,"
                " go. SQLSTATE: 4"
            ),
            "The table cannot be found. Verify the spelling",
        ),
        (
            (
                "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the function. Reason:"
                " Traceback (most recent call last):\n  File x\npy4j.protocol.Py4JJavaError: An"
                " error occurred while calling o1.count.\n: org.apache.spark.SparkException: Job"
                " aborted: Lost task 0.0: org.apache.spark.SparkException:"
                " [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected"
                " in record parsing: [null,null].\nParse Mode: FAILFAST. To go on, try. SQLSTATE:"
                " 22023\n\tat org.apache.x"
            ),
            "Malformed records are detected in record parsing: [null,null]. Parse Mode: FAILFAST",
        ),
        ("x" * 1000, "x" * 600 + "…"),
    ],
)
def test_what_spark_says_becomes_a_sentence(said: str, expected: str) -> None:
    assert summarize_error(said) == expected


@pytest.mark.parametrize("is_pure", ["0", "1"])
def test_the_code_that_is_shipped_is_all_that_a_python_needs(tmp_path: Path, is_pure: str) -> None:
    with zipfile.ZipFile(package_archive(tmp_path)) as archive:
        archive.extractall(tmp_path / "orbitmq")
        is_compiled = is_pure == "0" and any(
            name.endswith(tuple(EXTENSION_SUFFIXES)) for name in archive.namelist()
        )
    path = [str(cython_archive(tmp_path)), str(tmp_path)]
    program = (
        f"import sys; sys.path[:0] = {path}; import orbitmq.client.producer.producer,"
        " orbitmq.kernels as k; print(k.__file__, k.mode())"
    )
    environment = {"ORBITMQ_PURE": is_pure}
    found = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert (
        found == f"{tmp_path}/orbitmq/kernels.py {'compiled' if is_compiled else 'interpreted'}\n"
    )
