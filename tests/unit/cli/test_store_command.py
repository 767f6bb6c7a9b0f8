"""`orbitmq store`: what is printed, what is asked, exit codes, and errors in one sentence."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from orbitmq.cli import store_report
from orbitmq.cli.main import cli
from support.store.tools import checked, damage, filled, flip, golden, held, queued, tree


def run(*arguments: str | Path, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["store", *map(str, arguments)], input=text, prog_name="orbitmq")


def broken(root: Path) -> Path:
    filled(root)
    flip(root / "consumequeue/Orders/0/00000000000000000000", 27)
    return root


def test_info_shows_the_whole_store(tmp_path: Path) -> None:
    root = golden(tmp_path)
    before = tree(root)
    result = run("info", root)
    assert result.exit_code == 0, result.output
    for text in ("5.x", "345", "174244", "15", "topics.json", "batchconsumequeue", "log_time_ms"):
        assert text in result.stdout
    told = json.loads(run("info", root, "-o", "json").stdout)[0]
    assert (
        told["records"],
        told["log_end_offset"],
        told["queues"],
        told["index_slots"],
        told["open_by"],
    ) == (345, 174244, 21, 100, None)
    assert told["parts"]["commitlog"] == {
        "files": 3,
        "bytes": 196608,
        "bytes_on_disk": told["parts"]["commitlog"]["bytes_on_disk"],
    }
    assert yaml.safe_load(run("info", root, "-o", "yaml").stdout)[0]["records"] == 345
    assert tree(root) == before


def test_ls_lists_queues(tmp_path: Path) -> None:
    filled(tmp_path)
    rows = json.loads(run("ls", tmp_path, "-o", "json").stdout)
    assert [
        (row["topic"], row["queue_id"], row["min_offset"], row["max_offset"]) for row in rows
    ] == [
        ("Orders", 0, 0, 30),
        ("Orders", 1, 0, 30),
    ]
    assert "Orders" in run("ls", tmp_path, "-t", "Orders").stdout
    refused = run("ls", tmp_path, "-t", "None")
    assert refused.exit_code == 1
    assert "has no topic None" in refused.output


def test_dump_prints_messages(tmp_path: Path) -> None:
    filled(tmp_path)
    assert len(json.loads(run("dump", tmp_path, "-o", "json").stdout)) == 20
    rows = json.loads(
        run("dump", tmp_path, "-t", "Orders", "-q", "1", "--from", "28", "-o", "json").stdout
    )
    assert [(row["queue_offset"], row["body"]) for row in rows] == [
        (28, "body 57 " * 5),
        (29, "body 59 " * 5),
    ]
    lines = run("dump", tmp_path, "--key", "k7", "--body", "none").stdout.splitlines()
    assert len(lines) == 2
    assert "BODY" not in lines[0]
    assert "k7 shared" in lines[1]
    assert (
        json.loads(run("dump", tmp_path, "--offset", "0", "--limit", "1", "-o", "json").stdout)[0][
            "offset"
        ]
        == 0
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--offset", "0", "-t", "x"),
        ("-q", "1"),
        ("--from", "3"),
        ("--from", "0"),
        ("-t", "Orders", "--key", "k1", "--from", "3"),
        ("--limit", "0"),
        ("--body", "picture"),
    ],
)
def test_a_dump_of_what_cannot_be_is_a_wrong_command_line(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    filled(tmp_path, 1)
    assert run("dump", tmp_path, *arguments).exit_code == 2


def test_a_key_is_looked_for_in_the_log_while_a_broker_has_the_index_in_memory(
    tmp_path: Path,
) -> None:
    filled(tmp_path)
    (tmp_path / "abort").touch()
    shutil.rmtree(tmp_path / "index")
    result = run("dump", tmp_path, "-t", "Orders", "--key", "k7", "-o", "json")
    assert [row["keys"] for row in json.loads(result.stdout)] == ["k7 shared"]
    assert "the whole log is searched" in result.stderr


def test_a_repair_that_accepts_a_loss_lists_it_and_exits_with_1(tmp_path: Path) -> None:
    filled(tmp_path)
    max((tmp_path / "commitlog").iterdir()).unlink()
    result = run("check", tmp_path)
    assert result.exit_code == 1
    assert " 3 loss" in result.stderr
    result = run("repair", tmp_path, "--yes")
    assert result.exit_code == 1
    assert "continue without the records that the log lacks" in result.stdout
    assert "\nclean: " in result.stderr
    assert "lost: commitlog/" in result.stderr
    assert "lost: consumequeue/Orders/1/" in result.stderr
    assert run("check", tmp_path).exit_code == 0
    result = run("repair", tmp_path, "--yes")
    assert result.exit_code == 0
    assert "nothing to do" in result.stderr


def test_the_length_of_a_single_log_file_is_told_as_a_guess(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    assert "taken to have 4096 bytes" in run("repair", tmp_path, "--yes").stderr


def test_a_check_of_a_clean_store_is_0_and_of_another_1(tmp_path: Path) -> None:
    filled(tmp_path)
    result = run("check", tmp_path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "clean: 60 records" in result.stderr
    assert json.loads(run("check", tmp_path, "-o", "json").stdout) == []
    flip(tmp_path / "consumequeue/Orders/0/00000000000000000000", 27)
    before = tree(tmp_path)
    result = run("check", tmp_path)
    assert result.exit_code == 1
    assert "NOT clean" in result.stderr
    assert "consumequeue/Orders/0/00000000000000000000" in result.stdout
    (finding,) = json.loads(run("check", tmp_path, "-o", "json").stdout)
    assert (finding["severity"], finding["offset"]) == ("damage", 20)
    assert tree(tmp_path) == before


def test_a_repair_says_what_it_will_do_and_asks(tmp_path: Path) -> None:
    root = broken(tmp_path)
    before = tree(root)
    result = run("repair", root, text="n\n")
    assert result.exit_code == 1
    assert "rebuild the queue from the log" in result.stdout
    assert "Go on?" in result.stderr
    assert tree(root) == before
    result = run("repair", root, text="y\n")
    assert result.exit_code == 0, result.output
    assert "clean: 60 records" in result.stderr
    assert len(list(root.glob("repair-*"))) == 1
    result = run("repair", root, "--yes")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "nothing to do" in result.stderr


def test_a_repair_tells_what_stays(tmp_path: Path) -> None:
    offsets = filled(tmp_path)
    flip(tmp_path / "commitlog/00000000000000000000", offsets[10] + 120, 0x20)
    result = run("repair", tmp_path, "--yes")
    assert result.exit_code == 1
    assert f"stays: commitlog/00000000000000000000 at {offsets[10]}" in result.stderr
    assert "--truncate-damage" in result.stderr
    result = run("repair", tmp_path, "--yes", "--truncate-damage")
    assert result.exit_code == 0, result.output
    assert "clean: 10 records" in result.stderr


def test_a_rebuild_makes_queues_and_index_anew(tmp_path: Path) -> None:
    filled(tmp_path)
    messages = queued(tmp_path)
    result = run("rebuild", tmp_path, "-y")
    assert result.exit_code == 0, result.output
    assert "Orders/0 and 1 more" in result.stdout
    assert queued(tmp_path) == messages
    assert damage(checked(tmp_path)) == []
    assert {path.name for path in next(tmp_path.glob("repair-*")).iterdir()} == {
        "consumequeue",
        "index",
        "checkpoint",
    }


def test_a_store_that_is_open_is_shown_with_a_warning_and_not_repaired(tmp_path: Path) -> None:
    root = broken(tmp_path)
    with held(root) as process:
        shown = run("ls", root)
        refused = [run(verb, root, "--yes") for verb in ("repair", "rebuild")]
    assert shown.exit_code == 0
    assert f"warning: process {process} has the store open" in shown.stderr
    for result in refused:
        assert result.exit_code == 1
        assert "stop it first" in result.output


def test_a_broker_s_configuration_names_the_store(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathRootDir={tmp_path / 'store'}\nmaxHashSlotNum=11\nmaxIndexNum=60\n")
    assert run("check", "--config", config).exit_code == 0
    assert (
        run("check", tmp_path / "store", "--index-slots", "11", "--index-entries", "60").exit_code
        == 0
    )
    assert (
        run("check", tmp_path / "store", "--index-slots", "12", "--index-entries", "60").exit_code
        == 1
    )


@pytest.mark.parametrize("verb", ["info", "ls", "dump", "check", "repair", "rebuild"])
def test_what_is_no_store_is_told_in_one_sentence(verb: str, tmp_path: Path) -> None:
    for directory, told in (
        (tmp_path / "none", "is not a directory"),
        (tmp_path, "is not a store"),
    ):
        result = run(verb, directory)
        assert result.exit_code == 1
        assert told in result.output
        assert len(result.output.splitlines()) == 1
    assert run(verb).exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_told_in_one_sentence(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "commitlog/00000000000000000000").chmod(0)
    result = run("check", tmp_path)
    assert result.exit_code == 1
    assert "permission denied; run this as the user" in result.output


def test_a_store_of_somebody_else_says_who_may_read_it() -> None:
    from orbitmq.common.errors import StoreError

    with (
        pytest.raises(StoreError, match="file: permission denied; run this as the user"),
        store_report.readable(),
    ):
        raise PermissionError(13, "Permission denied", "file")


def test_progress_is_a_line_now_and_then_when_nobody_looks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 1.0, 11.0, 12.0, 22.0])
    monkeypatch.setattr("orbitmq.cli.store_report.time.monotonic", lambda: next(now))
    with store_report.progress("checking") as report:
        for done in (10, 50, 60, 75):
            report(done, 100)
    assert capsys.readouterr().err.splitlines() == [
        "checking: 50 %, 11 s left",
        "checking: 75 %, 7 s left",
    ]
