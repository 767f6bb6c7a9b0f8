"""`orbitmq message`: what is sent is followed and found again; pipes and Ctrl-C end quietly."""

from __future__ import annotations

import json
import signal
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.testing.local_cluster import LocalCluster
from support.cli.commands import PATIENT, Shell

ENDS_WITHIN_S = 60


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as running:
        yield running


@pytest.fixture
def shell(mq: LocalCluster) -> Shell:
    return Shell(mq.name_server)


def topic(shell: Shell, name: str) -> str:
    """A topic with one queue on each broker."""
    shell.table("topic", "create", name, "--queues", "1")
    return name


def tail(shell: Shell, *arguments: str) -> list[dict[str, object]]:
    result = shell.run("message", "tail", *arguments, "-o", "json")
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_message_is_sent_with_everything_that_is_said_of_it(shell: Shell) -> None:
    name = topic(shell, "sent")
    (sent,) = shell.json(
        *("message", "send", name, "grüß", "--tags", "new", "--keys", "4711", "--keys", "k2"),
        *("--property", "colour=blau", "--property", "a=b=c", "--queue", "broker-b:0"),
    )
    assert (sent["topic"], sent["broker"], sent["queue"], sent["offset"], sent["status"]) == (
        name,
        "broker-b",
        0,
        0,
        "SEND_OK",
    )
    (found,) = tail(shell, name, "--from", "first", "-c", "1")
    assert (found["body"], found["tags"], found["keys"]) == ("grüß", "new", ["4711", "k2"])
    assert (found["msg_id"], found["offset_msg_id"]) == (sent["msg_id"], sent["offset_msg_id"])
    properties = found["properties"]
    assert isinstance(properties, dict)
    assert (properties["colour"], properties["a"]) == ("blau", "b=c")


def test_a_body_comes_from_a_file_or_from_standard_input_whatever_its_bytes(
    shell: Shell, tmp_path: Path
) -> None:
    name = topic(shell, "bodies")
    raw = bytes(range(256))
    (tmp_path / "body").write_bytes(raw)
    assert (
        len(
            shell.json(
                "message", "send", name, "--file", str(tmp_path / "body"), "--queue", "broker-a:0"
            )
        )
        == 1
    )
    assert (
        len(
            shell.json("message", "send", name, "--queue", "broker-a:0", "-c", "3", stdin="piped\n")
        )
        == 3
    )
    found = tail(shell, name, "--from", "first", "-c", "4")
    assert b64decode(str(found[0]["body_base64"])) == raw
    assert found[0]["body"] is None
    assert [each["body"] for each in found[1:]] == ["piped\n"] * 3
    text = shell.run("message", "tail", name, "--from", "first", "-c", "4").stdout.splitlines()
    assert len(text) == 4, "one line each"
    assert text[1].endswith("broker-a/0@1  piped")


def test_a_tail_shows_what_an_expression_is_true_of(shell: Shell) -> None:
    name = topic(shell, "by-sql")
    for amount in (50, 150, 250):
        shell.table(
            "message",
            "send",
            name,
            f"for {amount}",
            "--property",
            f"amount={amount}",
            "--queue",
            "broker-a:0",
        )
    found = tail(shell, name, "--from", "first", "--sql92", "amount > 100", "-c", "2")
    assert [each["body"] for each in found] == ["for 150", "for 250"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["send", "T", "x", "--file", __file__], 2, "give a BODY or a --file, not both"),
        (["send", "T", ""], 1, "the body of a message to T is empty"),
        (["send", "T", "x", "--property", "KEYS=k"], 1, "property KEYS is reserved by RocketMQ"),
        (["send", "T", "x", "--property", "colour"], 2, "'colour' is not of the form KEY=VALUE"),
        (["send", "no topic", "x"], 1, "contains illegal characters"),
        (["send", "TBW102", "x", "--queue", "99"], 2, "has no queue '99'; there are broker-a:0"),
        (
            ["send", "TBW102", "x", "--queue", "0"],
            2,
            "'0' may be any of broker-a:0, broker-b:0: say which",
        ),
        (["tail", "Missing"], 1, "no route to topic Missing"),
        (
            ["tail", "TBW102", "--tags", "a", "--sql92", "b = 1"],
            2,
            "--tags and --sql92 exclude each other",
        ),
        (
            ["tail", "TBW102", "--sql92", "b = ", "--from", "first"],
            1,
            "at column 5: found the end of the expression, expected a property",
        ),
        (["find", "T"], 2, "say what to look for: --key, or --since a time"),
        (["find", "T", "--since", "yesterday"], 2, "'yesterday' is no time; write now, -15m"),
        (["find", "Missing", "--key", "k"], 1, "no route to topic Missing"),
        (
            ["get", "nothing", "--topic", "TBW102"],
            1,
            "searched by offset id: it is not an offset id; by unique id in topic TBW102; by key in",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_done_says_why(
    shell: Shell, arguments: list[str], code: int, words: str
) -> None:
    assert words in shell.fails("message", *arguments, code=code)


def test_a_message_is_found_by_each_of_its_ids_and_by_time(shell: Shell) -> None:
    name = topic(shell, "found")
    (sent,) = shell.json(
        "message",
        "send",
        name,
        "here",
        "--keys",
        "needle",
        "--tags",
        "a",
        "--property",
        "order_id=1",
    )
    shell.table("message", "send", name, "other", "--tags", "b")
    for kind, message_id in (
        ("place", sent["offset_msg_id"]),
        ("unique id", sent["msg_id"]),
        ("key", "needle"),
    ):
        (row,) = shell.json("message", "show", message_id)
        assert (row["found_by"], row["body"], row["msg_id"]) == (kind, "here", sent["msg_id"])
    lines = shell.table("message", "show", "needle", "--topic", name)
    shown = dict(line for line in lines if len(line) == 2)
    assert (shown["topic"], shown["body"], shown["tags"]) == (name, "here", "a")
    assert [
        "property",
        "order_id",
        "1",
    ] in lines, "a property has the name that its producer gave it"
    assert [row["body"] for row in shell.json("message", "find", name, "--key", "needle")] == [
        "here"
    ]
    assert shell.json("message", "find", name, "--key", "needle", "--tags", "b") == []
    assert shell.json("message", "find", name, "--key", "needle", "--until", "-1h") == []
    assert [row["body"] for row in shell.json("message", "find", name, "--since", "-1h")] == [
        "here",
        "other",
    ]
    assert [
        row["body"] for row in shell.json("message", "find", name, "--since", "-1h", "--tags", "b")
    ] == ["other"]
    assert [
        row["body"] for row in shell.json("message", "find", name, "--since", "@0", "-c", "1")
    ] == ["here"]
    assert shell.json("message", "find", name, "--since", "-2h", "--until", "-1h") == []
    assert shell.table("message", "find", name, "--since", "-1h")[0] == [
        "STORED",
        "BROKER",
        "QUEUE",
        "OFFSET",
        "MSG",
        "ID",
        "TAGS",
        "KEYS",
        "BODY",
    ]


def test_tags_and_a_time_choose_what_is_followed(shell: Shell) -> None:
    name = topic(shell, "chosen")
    for tag in ("a", "b", "c"):
        shell.table("message", "send", name, tag, "--tags", tag)
    assert sorted(
        str(row["body"])
        for row in tail(shell, name, "--from", "-1h", "--tags", "a || c", "-c", "2")
    ) == ["a", "c"]


def following(shell: Shell, *arguments: str) -> subprocess.Popen[str]:
    """A `tail` that has begun."""
    process = shell.process("message", "tail", *arguments, "--timeout-ms", PATIENT)
    assert process.stderr is not None
    assert "following 2 queues" in process.stderr.readline()
    return process


def test_new_messages_are_printed_as_they_come_and_ctrl_c_ends_it_quietly(shell: Shell) -> None:
    name = topic(shell, "coming")
    shell.table("message", "send", name, "before")
    with following(shell, name, "-o", "json") as process:
        assert process.stdout is not None
        for body in ("one", "two"):
            shell.table("message", "send", name, body)
            assert json.loads(process.stdout.readline())["body"] == body
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=ENDS_WITHIN_S)
        assert (process.returncode, out, err) == (130, "", "")


def test_a_reader_that_goes_away_ends_it_quietly(shell: Shell) -> None:
    name = topic(shell, "piped")
    shell.table("message", "send", name, "x" * 1000, "-c", "100")
    with following(shell, name, "--from", "first") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().rstrip().endswith("xxx")
        process.stdout.close()
        assert process.wait(ENDS_WITHIN_S) != 0
        assert process.stderr.read() == ""
