"""What a command found is printed for people or for programs."""

from __future__ import annotations

import json

import pytest
import yaml

from orbitmq.cli.output import emit, moment, shortened

ROWS: list[dict[str, object]] = [
    {"broker": "broker-a", "id": 0, "addresses": ["10.0.0.1:10911", "10.0.0.2:10911"], "extra": None},
    {"broker": "经纪人", "id": 1024, "addresses": [], "extra": "[bold]x[/bold]"},
]
COLUMNS = ["broker", "id", "addresses", "extra"]


def test_a_table_lines_up_without_colour_codes_or_wrapping_when_it_is_not_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    emit([*ROWS, {"broker": "b" * 200, "id": 1, "addresses": [], "extra": None}], COLUMNS, "table")
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    gap = " " * (200 - len("broker-a"))
    assert lines[1] == f"broker-a{gap}     0  10.0.0.1:10911, 10.0.0.2:10911  -"
    assert lines[2].endswith("1024                                  [bold]x[/bold]")
    assert lines[2].index("1024") == lines[1].index("    0") + 1 - 3  # each of the three characters is two cells wide
    assert len(lines) == 4
    assert "\x1b" not in "".join(lines)


def test_headings_are_words(capsys: pytest.CaptureFixture[str]) -> None:
    emit([], ["name_server", "key"], "table")
    assert capsys.readouterr().out.split("\n")[0].rstrip() == "NAME SERVER  KEY"


def test_json_and_yaml_hold_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    emit(ROWS, ["broker"], "json")
    assert json.loads(capsys.readouterr().out) == ROWS
    emit(ROWS, ["broker"], "yaml")
    assert yaml.safe_load(capsys.readouterr().out) == ROWS


def test_times_and_bodies_fit_a_cell() -> None:
    assert moment(0) is None
    assert moment(1 << 62) == f"{1 << 62} ms"
    assert str(moment(1_700_000_000_123)).startswith("2023-11-1")
    assert shortened("a\nb") == "a·b"
    assert shortened("x" * 100) == "x" * 60 + "…"
