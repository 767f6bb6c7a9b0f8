"""What a command found is printed for people or for programs."""

from __future__ import annotations

import json
import re
import sys

import click
import pytest
import yaml

from orbitmq.cli.main import Failure
from orbitmq.cli.output import emit, json_text, moment, say, shortened, show_unreachable

ROWS: list[dict[str, object]] = [
    {
        "broker": "broker-a",
        "id": 0,
        "addresses": ["10.0.0.1:10911", "10.0.0.2:10911"],
        "extra": None,
    },
    {"broker": "经纪人", "id": 1024, "addresses": [], "extra": "[bold]x[/bold]"},
]
COLUMNS = ["broker", "id", "addresses", "extra"]


def test_a_table_lines_up_without_colour_codes_or_wrapping_when_it_is_not_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    emit([*ROWS, {"broker": "b" * 200, "id": 1, "addresses": [], "extra": None}], COLUMNS, "table")
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    gap = " " * (200 - len("broker-a"))
    assert lines[1] == f"broker-a{gap}     0  10.0.0.1:10911, 10.0.0.2:10911  -"
    assert lines[2].endswith("1024                                  [bold]x[/bold]")
    assert (
        lines[2].index("1024") == lines[1].index("    0") + 1 - 3
    )  # each of the three characters is two cells wide
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


BAD = "\x1b[2J\x00\x7f\x9b31m\u2028\u202e\x85\r\n\tend"


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_what_peers_sent_does_nothing_to_a_terminal(
    output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[dict[str, object]] = [
        {"name": BAD, "list": [BAD, 1], "größe": "经纪人"},
        {"name": "[red]x", "list": None, "größe": 1},
    ]
    emit(rows, ["name", "list", "größe"], output)
    printed = capsys.readouterr().out
    assert all(char == "\n" or char.isprintable() for char in printed)
    match output:
        case "json":
            assert json.loads(printed) == rows
        case "yaml":
            assert yaml.safe_load(printed) == rows
        case _:
            assert len(printed.splitlines()) == 3, "a row is a line"
            assert r"\x1b[2J\x00\x7f\x9b31m\u2028\u202e\x85\r\n\tend" in printed


def test_a_table_on_a_terminal_holds_no_codes_but_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "300")
    emit([{"name": BAD}], ["name"], "table")
    printed = capsys.readouterr().out
    assert re.sub("\x1b\\[[0-9;]*m", "", printed).replace("\n", "").isprintable()
    assert r"\x1b[2J" in printed


def table_on_a_terminal(
    rows: list[dict[str, object]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[str]:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    emit(rows, list(rows[0]), "table")
    return [
        re.sub("\x1b\\[[0-9;]*m", "", line).rstrip()
        for line in capsys.readouterr().out.splitlines()
    ]


def test_a_table_that_does_not_fit_folds_between_words_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    message_id = "C000020233A93D2BBC41589C7EA20000"
    rows: list[dict[str, object]] = [
        {
            "msg_id": message_id,
            "stored": "2026-11-18 04:57:31.045+00:00",
            "body": "five words of a body " * 3,
        }
    ]
    lines = table_on_a_terminal(rows, monkeypatch, capsys)
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].startswith(f"{message_id}  2026-11-18")
    assert "04:57:31.045+00:00" in lines[2]


def test_ids_stay_whole_in_a_table_that_cannot_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [
        "C000020233A93D2BBC41589C7EA20000",
        "7F00000100002A9F0000000000000000",
        "127.0.0.1:10911",
    ]
    lines = table_on_a_terminal(
        [dict(zip("abc", ids, strict=True)) | {"d": 1, "e": "SEND_OK"}], monkeypatch, capsys
    )
    assert lines[1].split() == [*ids, "1", "SEND_OK"]


def test_a_share_or_rate_has_two_digits_behind_the_point(
    capsys: pytest.CaptureFixture[str],
) -> None:
    emit([{"put_per_s": 0.0998003992015968}], ["put_per_s"], "table")
    assert capsys.readouterr().out.split() == ["PUT", "PER", "S", "0.10"]


def test_sentences_errors_and_json_lines_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"deleted {BAD}", err=True)
    Failure(f"refused: {BAD}").show()
    with pytest.raises(click.exceptions.Exit), click.Context(click.Command("x")):
        show_unreachable({BAD: BAD})
    printed = capsys.readouterr().err
    assert all(char == "\n" or char.isprintable() for char in printed)
    assert printed.count(r"\x1b[2J") == 4
    assert json_text({"body": BAD}).isprintable()
    assert json.loads(json_text({"body": BAD})) == {"body": BAD}
