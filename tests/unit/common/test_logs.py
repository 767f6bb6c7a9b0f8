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


def test_a_record_is_one_line_on_standard_error_and_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "logs" / "namesrv.log"
    logs.set_up(file=file)
    logging.getLogger("orbitmq.room").info("broker_registered name=%s", "a\nb\rc")
    logging.getLogger("orbitmq.room").debug("not shown")
    line = capsys.readouterr().err
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO orbitmq\.room broker_registered name=a\\nb\\rc\n", line)
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
