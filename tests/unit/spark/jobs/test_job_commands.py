"""Tests the options of the job commands, without a cluster."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from orbitmq.admin.dead_letters import topic_of
from orbitmq.cli.main import cli
from orbitmq.cli.spark_running import (
    StepLines,
    cluster_options,
    format_options,
    place,
    same_cluster,
)
from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.jobs.archive import PartitionBy, pipeline

SERVERS = "10.0.0.1:9876"
PAGE = Path(__file__).parents[4] / "docs" / "spark-jobs.md"
SHOWN = re.findall(r"^orbitmq (.+?)(?:\s+#.*| \| jq.*)?$", PAGE.read_text(), re.MULTILINE)


def test_a_topic_may_have_name_servers_before_it() -> None:
    assert place("orders", SERVERS, "--to") == (SERVERS, "orders")
    assert place("10.0.0.2:9876/orders", SERVERS, "--to") == ("10.0.0.2:9876", "orders")
    assert place("a:1;b:2/%DLQ%billing", SERVERS, "--to") == ("a:1;b:2", "%DLQ%billing")
    for wrong in ("a/b", "/x", "a:1/", "a:1/b/c", ""):
        with pytest.raises(click.BadParameter, match="neither a TOPIC nor HOST:PORT/TOPIC"):
            place(wrong, SERVERS, "--to")


def test_options_are_those_of_the_format_and_a_write_gets_those_of_the_cluster_only() -> None:
    told = format_options(("accessKey=a", "secretKey=b", "tags=x"), 3000)
    assert told == {"requestTimeout": "3000ms", "accessKey": "a", "secretKey": "b", "tags": "x"}
    assert same_cluster(told) == {"requestTimeout": "3000ms", "accessKey": "a", "secretKey": "b"}
    with pytest.raises(ConfigurationError, match="unknown option acceskey; did you mean accessKey"):
        format_options(("accesKey=a",), 3000)


def options_of(
    arguments: list[str], *, default: dict[str, str] | None = None, **variables: str
) -> dict[str, str]:
    """Return the format options that a command with these arguments sets."""
    found: dict[str, str] = {}

    @click.command()
    @cluster_options
    def command(name_servers: str, timeout_ms: int, options: tuple[str, ...]) -> None:
        found.update(format_options(options, timeout_ms, default=default))

    result = CliRunner().invoke(command, arguments, env=variables)
    assert result.exit_code == 0, result.output
    return found


def test_the_keys_of_a_command_sign_what_its_job_asks(tmp_path: Path) -> None:
    keys = {"accessKey": "me", "secretKey": "mine", "requestTimeout": "3000ms"}
    (tmp_path / "tools.yml").write_text("accessKey: me\nsecretKey: mine\n")
    assert options_of(["--access-key", "me", "--secret-key", "mine"]) == keys
    assert options_of(["--key-file", str(tmp_path / "tools.yml")]) == keys
    assert options_of([], ORBITMQ_ACCESS_KEY="me", ORBITMQ_SECRET_KEY="mine") == keys
    assert options_of(
        [
            "--access-key",
            "a",
            "--secret-key",
            "b",
            "--option",
            "accesskey=me",
            "--option",
            "secretKey=mine",
        ]
    ) == {
        "accesskey": "me",
        "secretKey": "mine",
        "requestTimeout": "3000ms",
    }


def test_options_of_one_side_count_more_than_those_of_both() -> None:
    keys = dict.fromkeys(("accessKey", "secretKey", "securityToken"), "both")
    both = {**keys, "tlsEnable": "true"}
    assert options_of(["--option", "tlsenable=false"], default=both) == {
        **keys,
        "tlsenable": "false",
    }
    assert options_of(["--option", "accessKey=a", "--option", "secretKey=b"], default=both) == {
        "accessKey": "a",
        "secretKey": "b",
        "tlsEnable": "true",
    }
    assert options_of([], default=both) == both


def test_an_archive_is_a_pipeline_with_its_checkpoint_beside_its_files() -> None:
    made = pipeline(["orders", "payments"], "/data/shop/", {"nameServer": SERVERS})
    assert made.source.options == {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000000",
        "subscribe": "orders,payments",
        "nameServer": SERVERS,
    }
    assert (made.checkpoint, made.interval_ms, made.is_stream) == (
        "/data/shop/_checkpoint",
        None,
        True,
    )
    assert made.status_file == Path("/data/shop/_checkpoint.status.json")
    assert made.sinks[0].partition_by == ("date",)
    by_hour = pipeline(
        ["orders"],
        "out",
        {"nameServer": SERVERS, "startingTimestamp": "5", "maxoffsetspertrigger": "7"},
        partition_by=PartitionBy.HOUR,
    )
    assert by_hour.sinks[0].partition_by == ("date", "hour")
    assert "startingOffsets" not in by_hour.source.options
    assert "maxOffsetsPerTrigger" not in by_hour.source.options
    assert (
        pipeline(["a"], "out", {"nameServer": SERVERS}, partition_by=PartitionBy.NONE)
        .sinks[0]
        .partition_by
        == ()
    )
    with pytest.raises(ConfigurationError, match="needs the option consumerGroup"):
        pipeline(["orders"], "out", {"nameServer": SERVERS, "startingOffsets": "latest"})


def test_dead_letters_are_named_by_their_group_or_by_their_topic() -> None:
    assert topic_of("billing") == topic_of("%DLQ%billing") == "%DLQ%billing"


def test_a_step_is_one_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    lines = StepLines()
    lines.on_begin("counting")
    lines.on_progress(1, 2)  # not yet time for a line
    lines.on_end("2 messages")
    assert capsys.readouterr().err == "counting: 2 messages\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["archive", "--to", "x"], "Missing argument 'TOPIC...'"),
        (["archive", "orders"], "Missing option '--to'"),
        (["archive", "orders", "--to", "x", "--partition-by", "week"], "'week' is not one of"),
        (["replay", "--from", "a", "--to", "b", "--rate", "0"], "is no rate"),
        (["replay", "--from", "a", "--to", "b", "--since", "yesterday"], "'yesterday' is no time"),
        (["dlq", "billing", "burn"], "'burn' is not one of"),
        (["audit", "--left", "a"], "Missing option '--right'"),
        (
            ["audit", "--left", "a", "--right", "b", "--conf", "x"],
            "'x' is not of the form KEY=VALUE",
        ),
        (["report"], "Missing argument 'TOPIC...'"),
    ],
)
def test_a_wrong_command_line_is_2(arguments: list[str], why: str) -> None:
    result = CliRunner().invoke(
        cli, ["spark", *arguments, "-n", "127.0.0.1:1"], prog_name="orbitmq"
    )
    assert result.exit_code == 2, result.stderr
    assert why in result.stderr


def test_a_cluster_that_cannot_be_reached_is_3_before_spark_is_started(tmp_path: Path) -> None:
    for arguments in (
        ["archive", "a", "--to", str(tmp_path), "--once"],
        ["replay", "--from", "a", "--to", "b"],
        ["dlq", "g"],
        ["audit", "--left", "a", "--right", "b"],
        ["report", "a"],
    ):
        result = CliRunner().invoke(
            cli, ["spark", *arguments, "-n", "127.0.0.1:1"], prog_name="orbitmq"
        )
        assert result.exit_code == 3
        assert result.stderr.startswith(
            "orbitmq: no name server answers: cannot connect to 127.0.0.1:1"
        )


@pytest.mark.parametrize("text", SHOWN)
def test_a_command_of_the_guide_can_be_given(text: str) -> None:
    arguments = shlex.split(text)
    command: click.Command | None = cli
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), arguments.pop(0))
    assert command is not None
    command.make_context(text, arguments)


def test_the_guide_shows_every_job() -> None:
    assert {text.split()[1] for text in SHOWN} == {
        "doctor",
        "archive",
        "replay",
        "dlq",
        "audit",
        "report",
    }
