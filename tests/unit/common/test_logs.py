"""Log lines are one line each, for people or for machines."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.common import logs


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []  # pytest's own stay out of reach of `force`
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_record_is_one_line_on_standard_error_and_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "logs" / "namesrv.log"
    logs.set_up(file=file)
    logging.getLogger("orbitmq.room").info("broker_registered name=%s", "a\nb\rc")
    logging.getLogger("orbitmq.room").debug("not shown")
    line = capsys.readouterr().err
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO orbitmq\.room broker_registered"
        r" name=a\\nb\\rc\n",
        line,
    )
    assert file.read_text() == line


def test_json_lines_hold_the_same_and_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(level="debug", log_format=logs.LogFormat.JSON)
    try:
        raise ValueError("x")
    except ValueError:
        logging.getLogger("room").exception("failed key=%d", 1)
    (line,) = capsys.readouterr().err.splitlines()
    record = json.loads(line)
    assert {name: record[name] for name in ("level", "logger", "message")} == {
        "level": "ERROR",
        "logger": "room",
        "message": "failed key=1",
    }
    assert record["exception"].endswith("ValueError: x")


def test_a_second_set_up_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up()
    logs.set_up(level="ERROR")
    logging.getLogger("room").warning("not shown")
    logging.getLogger("room").error("shown once")
    assert capsys.readouterr().err.count("shown") == 1


BAD = "\x1b[2J\x00\x07\x7f\x9b31m\u2028\u2029\u202e\ud800\x85\x0b"


def _raised(text: str) -> ValueError:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_nothing_that_a_peer_sent_reaches_the_log_raw_not_even_in_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broker.log"
    logs.set_up(file=file)
    forged = f"{BAD}\n2026-01-31 12:00:00.123 INFO orbitmq.room forged\r\n"
    error = _raised(forged)
    logging.getLogger("orbitmq.room").error(
        "bad_peer said=%s", forged, exc_info=error, stack_info=True
    )
    written = capsys.readouterr().err
    assert file.read_text() == written
    assert all(char == "\n" or char.isprintable() for char in written)
    first, *traceback = written.removesuffix("\n").split("\n")
    assert (
        r"bad_peer said=\x1b[2J\x00\x07\x7f\x9b31m\u2028\u2029\u202e\ud800\x85\x0b\n2026-01-31"
        in first
    )
    assert all(line.startswith("  ") for line in traceback), (
        "a line that begins a record is none of a traceback"
    )
    assert "  Traceback (most recent call last):" in traceback
    assert any(line.startswith("  ValueError: \\x1b[2J") for line in traceback)
    assert any(line.startswith("  Stack (most recent call last):") for line in traceback)
    assert len(traceback) > 5, "its lines remain lines"


def test_a_traceback_that_another_handler_put_into_words_is_escaped_as_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.set_up()
    record = logging.LogRecord("room", logging.ERROR, "", 1, "failed", None, None)
    record.exc_text = "ValueError: \x1b[2J"
    logging.getLogger().handle(record)
    assert capsys.readouterr().err.endswith("failed\n  ValueError: \\x1b[2J\n")


def test_json_lines_hold_what_was_sent_and_are_printable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.set_up(log_format=logs.LogFormat.JSON)
    logging.getLogger("room").error("said=%s", BAD, exc_info=_raised(BAD))
    line = capsys.readouterr().err
    assert line.removesuffix("\n").isprintable()
    assert json.loads(line)["message"] == f"said={BAD}"
    assert json.loads(line)["exception"].endswith(BAD)
