"""Tests pipeline files: their meaning, and the exact errors for invalid ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.pipeline.definition import is_pipeline, load
from orbitmq.spark.pipeline.format_options import with_connection
from orbitmq.spark.pipeline.model import DedupStep, FilterStep, JsonStep, SqlStep, WindowStep

EXAMPLES = Path(__file__).parents[4] / "examples"
GOOD = """\
name: orders-per-minute
source: {format: rocketmq, options: {nameServer: "127.0.0.1:9876", subscribe: orders, startingOffsets: earliest}}
steps:
  - json: {schema: "id string, shop string, amount double, at timestamp"}
  - filter: "amount > 0"
  - dedup: {key: uniqueKey, within: 10 minutes}
  - window: {time: at, watermark: 1 minute, size: 1 minute, groupBy: [shop], aggregate: {total: "sum(amount)", orders: "count(*)"}}
  - sql: "select shop, window.start as minute, total, orders from input"
sinks:
  - {format: rocketmq, options: {topic: orders-per-minute}}
  - {format: parquet, path: out/orders, partitionBy: [date]}
trigger: {processingTime: 5 seconds}
checkpoint: out/checkpoint
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "orders.yaml"
    file.write_text(text)
    return file


def problem(folder: Path, text: str, *settings: str) -> str:
    """Return the error for a file, without its folder."""
    with pytest.raises(ConfigurationError) as caught:
        load(write(folder, text), settings, {})
    return str(caught.value).replace(f"{folder}/", "")


def test_a_file_becomes_values(tmp_path: Path) -> None:
    pipeline = load(write(tmp_path, GOOD), environment={})
    assert (pipeline.name, pipeline.is_stream, pipeline.interval_ms) == (
        "orders-per-minute",
        True,
        5_000,
    )
    assert pipeline.checkpoint == str(tmp_path / "out/checkpoint")
    parse, condition, dedup, window, query = pipeline.steps
    assert isinstance(parse, JsonStep)
    assert (parse.column, parse.malformed) == ("body", "keep")
    assert isinstance(condition, FilterStep)
    assert isinstance(dedup, DedupStep)
    assert (dedup.keys, dedup.within_ms, dedup.time, dedup.watermark_ms) == (
        ("uniqueKey",),
        600_000,
        "at",
        60_000,
    )
    assert isinstance(window, WindowStep)
    assert (window.size_ms, window.slide_ms, window.group_by, dict(window.aggregate)) == (
        60_000,
        60_000,
        ("shop",),
        {"total": "sum(amount)", "orders": "count(*)"},
    )
    assert isinstance(query, SqlStep)
    topic, table = pipeline.sinks
    assert (topic.name, table.name, table.path, table.partition_by) == (
        "rocketmq-orders-per-minute",
        "parquet-orders",
        str(tmp_path / "out/orders"),
        ("date",),
    )


def test_a_sink_that_names_no_cluster_uses_that_of_the_source(tmp_path: Path) -> None:
    topic = load(write(tmp_path, GOOD), environment={}).sinks[0]
    assert topic.options == {"nameServer": "127.0.0.1:9876", "topic": "orders-per-minute"}
    other = load(
        write(tmp_path, GOOD), ["sinks.0.options={topic: t, nameServer: 10.0.0.1:9876}"], {}
    ).sinks[0]
    assert other.options == {"nameServer": "10.0.0.1:9876", "topic": "t"}


def test_what_a_sink_says_of_a_connection_replaces_that_alone() -> None:
    source = {
        "nameServer": "a:1",
        "accessKey": "k",
        "secretKey": "s",
        "securityToken": "t",
        "tlsEnable": "true",
        "tlsTrustCertPath": "c",
    }
    subscribed = {**source, "subscribe": "orders"}
    assert with_connection({"topic": "t", "retrytimeout": "5s"}, subscribed) == {
        **source,
        "topic": "t",
        "retrytimeout": "5s",
    }
    assert with_connection(
        {"accesskey": "o", "secretKey": "p"}, {**source, "tlsEnable": "false"}
    ) == {
        **{name: text for name, text in source.items() if name.startswith(("name", "tls"))},
        "tlsEnable": "false",
        "accesskey": "o",
        "secretKey": "p",
    }
    assert with_connection({"tlsEnable": "false"}, source) == {
        **{name: text for name, text in source.items() if not name.startswith("tls")},
        "tlsEnable": "false",
    }
    assert with_connection({"NAMESERVER": "b:1", "topic": "t"}, source) == {
        "NAMESERVER": "b:1",
        "topic": "t",
    }


def test_each_of_several_sinks_has_a_consumer_group_of_its_own(tmp_path: Path) -> None:
    both = load(write(tmp_path, GOOD), ["source.options.consumerGroup=billing"], {})
    assert [both.source_of(sink).options["consumerGroup"] for sink in both.sinks] == [
        "billing-rocketmq-orders-per-minute",
        "billing-parquet-orders",
    ]
    one = replace(both, sinks=both.sinks[:1])
    assert one.source_of(one.sinks[0]).options["consumerGroup"] == "billing"


def test_variables_stand_for_what_the_environment_says(tmp_path: Path) -> None:
    text = GOOD.replace("127.0.0.1:9876", "${HOSTS:-localhost:9876}").replace(
        "out/checkpoint", "${STATE}/orders"
    )
    pipeline = load(write(tmp_path, text), environment={"STATE": "/state"})
    assert (pipeline.source.options["nameServer"], pipeline.checkpoint) == (
        "localhost:9876",
        "/state/orders",
    )
    assert (
        problem(tmp_path, text)
        == "orders.yaml:13: checkpoint: the variable STATE is not set; set it, or give a default"
        " with ${STATE:-default}"
    )


def test_what_the_command_line_sets_counts_more_and_is_seen_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    settings = [
        "trigger={availableNow: true}",
        "checkpoint=state",
        "steps.1.filter=amount > 5",
        "sinks.1.partitionBy=shop",
        "conf.spark=1",
    ]
    pipeline = load(write(tmp_path, GOOD), settings, {})
    assert pipeline.interval_ms is None
    assert pipeline.checkpoint == str(here / "state")
    condition = pipeline.steps[1]
    assert isinstance(condition, FilterStep)
    assert condition.condition == "amount > 5"
    assert pipeline.sinks[1].partition_by == ("shop",)
    assert pipeline.conf == {"spark": "1"}


@pytest.mark.parametrize(
    ("text", "length_ms"),
    [
        ("500 ms", 500),
        ("5 seconds", 5_000),
        ("1 hour 30 minutes", 5_400_000),
        ("10m", 600_000),
        ("1 day", 86_400_000),
        ("0 seconds", 0),
    ],
)
def test_times_are_written_as_people_say_them(tmp_path: Path, text: str, length_ms: int) -> None:
    assert (
        load(write(tmp_path, GOOD), [f"trigger.processingTime={text}"], {}).interval_ms == length_ms
    )


def test_a_source_with_an_end_needs_neither_checkpoint_nor_watermark(tmp_path: Path) -> None:
    text = """\
name: report
source: {format: parquet, path: archive}
steps:
  - dedup: {key: uniqueKey, within: 10 minutes}
  - window: {time: storeTimestamp, size: 1 hour, aggregate: {messages: count(*)}}
sinks:
  - {format: parquet, path: report}
  - {format: console}
"""
    pipeline = load(write(tmp_path, text), environment={})
    assert not pipeline.is_stream
    assert pipeline.source.options == {"path": str(tmp_path / "archive")}
    assert [sink.mode for sink in pipeline.sinks] == ["error", "append"]
    assert pipeline.status_file == tmp_path / "orders.status.json"


def test_several_stores_are_read_at_once(tmp_path: Path) -> None:
    text = (
        "name: n\nsource: {format: rocketmq-commitlog, path: 'a, /b'}\nsinks: [{format: console}]\n"
    )
    assert load(write(tmp_path, text), environment={}).source.options["path"] == f"{tmp_path}/a,/b"


def test_the_status_lies_beside_a_checkpoint_of_this_machine_only(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD)
    assert load(file, environment={}).status_file == tmp_path / "out/checkpoint.status.json"
    assert load(file, ["checkpoint=file:///state/orders"], {}).status_file == Path(
        "/state/orders.status.json"
    )
    assert (
        load(file, ["checkpoint=s3a://bucket/orders"], {}).status_file
        == tmp_path / "orders.status.json"
    )


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_every_example_is_good(file: Path) -> None:
    assert load(file, environment={"HOME": "/home/user"}).name == file.stem


def test_other_yaml_is_no_pipeline(tmp_path: Path) -> None:
    assert is_pipeline(write(tmp_path, GOOD))
    assert not is_pipeline(write(tmp_path, "services: {}\n"))
    assert not is_pipeline(write(tmp_path, "- 1\n"))


def changed(old: str, new: str) -> str:
    assert old in GOOD, old
    return GOOD.replace(old, new)


BAD: list[tuple[str, str, str]] = [
    ("an empty file", "", "orders.yaml: the file is empty"),
    ("a list", "- 1\n", "orders.yaml:1: the file is a list but must be a table of key: value"),
    (
        "no YAML",
        "name: [\n",
        (
            "orders.yaml:2: invalid YAML: while parsing a flow node expected the node content, but"
            " found '<stream end>'"
        ),
    ),
    (
        "a control character",
        "name: a\nsource: \x01\n",
        "orders.yaml:2: invalid YAML: the character #x0001 is not allowed",
    ),
    (
        "no name",
        changed("name: orders-per-minute\n", ""),
        "orders.yaml:1: the file has no name: the name of the pipeline",
    ),
    (
        "a bad name",
        changed("name: orders-per-minute", "name: orders/minute"),
        (
            "orders.yaml:1: name is 'orders/minute' but must have at most 100 letters, digits and"
            " characters of . _ -"
        ),
    ),
    (
        "a misspelt key",
        changed("checkpoint:", "chekpoint:"),
        "orders.yaml:13: the file has no key chekpoint; did you mean checkpoint?",
    ),
    (
        "a key from nowhere",
        changed("trigger:", "xyz:"),
        (
            "orders.yaml:12: the file has no key xyz; allowed keys: name, source, steps, sinks,"
            " trigger, checkpoint, conf"
        ),
    ),
    (
        "a key twice",
        GOOD + "name: again\n",
        "orders.yaml:14: the file has the key name twice, first at orders.yaml:1",
    ),
    (
        "no source",
        changed("source:", "#source:"),
        (
            "orders.yaml:1: the file has no source: where rows come from, for example source:"
            " {format: rocketmq, options: {…}}"
        ),
    ),
    (
        "a source without format",
        changed("format: rocketmq, options: {name", "options: {name"),
        "orders.yaml:2: source has no format: one of rocketmq, rocketmq-commitlog, parquet, rate",
    ),
    (
        "a misspelt format",
        changed("format: rocketmq, options: {name", "format: rocketmk, options: {name"),
        (
            "orders.yaml:2: source.format is rocketmk but must be rocketmq, rocketmq-commitlog,"
            " parquet or rate; did you mean rocketmq?"
        ),
    ),
    (
        "a key of another format",
        changed("{format: rocketmq, options: {name", "{format: rocketmq, path: x, options: {name"),
        "orders.yaml:2: source (rocketmq) has no key path; allowed keys: format, options",
    ),
    (
        "an option that there is not",
        changed("subscribe: orders", "subscribes: orders"),
        "orders.yaml:2: source: unknown option subscribes; did you mean subscribe?",
    ),
    (
        "an option with a bad value",
        changed("startingOffsets: earliest", "startingOffsets: first"),
        """orders.yaml:2: source: option startingOffsets='first': must be earliest, latest, or JSON such as {"topic":{"broker":{"0":23}}}""",  # noqa: E501
    ),
    (
        "options that are no table",
        changed("options: {topic: orders-per-minute}", "options: topic"),
        "orders.yaml:10: sinks.0.options is the string 'topic' but must be a table of key: value",
    ),
    (
        "steps that are a table",
        "name: n\nsource: {format: rate}\nsteps: {}\nsinks: [{format: console}]\n",
        "orders.yaml:3: steps is a table but must be a list with at least one member",
    ),
    (
        "an empty list of steps",
        "name: n\nsource: {format: rate}\nsteps: []\nsinks: [{format: console}]\ncheckpoint: c\n",
        "orders.yaml:3: steps is an empty list but must be a list with at least one member",
    ),
    (
        "a step that there is not",
        changed("- filter:", "- filtre:"),
        "orders.yaml:5: steps.1 has no key filtre; did you mean filter?",
    ),
    (
        "two steps in one",
        changed('  - filter: "amount > 0"\n', '  - filter: "amount > 0"\n    sql: select 1\n'),
        (
            "orders.yaml:5: steps.1 has filter and sql but must be one of json, filter, dedup,"
            " window, sql: start each step with its own dash"
        ),
    ),
    (
        "json without schema",
        changed(
            'json: {schema: "id string, shop string, amount double, at timestamp"}', "json: {}"
        ),
        (
            "orders.yaml:4: steps.0.json has no schema: the columns, for example id string, amount"
            " double, at timestamp"
        ),
    ),
    (
        "an unknown way with malformed texts",
        changed('at timestamp"}', 'at timestamp", malformed: ignore}'),
        "orders.yaml:4: steps.0.json.malformed is ignore but must be keep, drop or fail",
    ),
    (
        "an empty condition",
        changed('filter: "amount > 0"', "filter:"),
        "orders.yaml:5: steps.1.filter is empty but must be a condition, for example amount > 0",
    ),
    (
        "a condition that is a list",
        changed('filter: "amount > 0"', "filter: [a, b]"),
        "orders.yaml:5: steps.1.filter is a list but must be a condition, for example amount > 0",
    ),
    (
        "dedup without within",
        changed(", within: 10 minutes", ""),
        (
            "orders.yaml:6: steps.2.dedup has no within: how far apart duplicate rows may be, for"
            " example 10 minutes"
        ),
    ),
    (
        "a time that is none",
        changed("within: 10 minutes", "within: ten minutes"),
        (
            "orders.yaml:6: steps.2.dedup.within is ten minutes but must be a duration such as 500"
            " ms, 5 seconds, 1 hour 30 minutes or 1 day"
        ),
    ),
    (
        "no time at all",
        changed("within: 10 minutes", "within: 0 s"),
        "orders.yaml:6: steps.2.dedup.within is 0; it must be a positive duration",
    ),
    (
        "two times in one query",
        changed("within: 10 minutes", "within: 10 minutes, time: bornTimestamp"),
        (
            "orders.yaml:6: steps.2.dedup.time is bornTimestamp, but the window's time is at:"
            " Spark supports one event time per query, so use the same for both"
        ),
    ),
    (
        "dedup after window",
        changed("  - sql:", "  - dedup: {key: shop, within: 1 day}\n  - sql:"),
        "orders.yaml:8: dedup comes after window; put it before, where rows still have their keys",
    ),
    (
        "a second window",
        changed(
            "  - sql:",
            "  - window: {time: at, watermark: 1 day, size: 1 day, aggregate: {n: count(*)}}\n  -"
            " sql:",
        ),
        (
            "orders.yaml:8: this is the second window step, but a pipeline may have only one;"
            " aggregate further in another pipeline"
        ),
    ),
    (
        "a window of a stream without watermark",
        changed("watermark: 1 minute, ", ""),
        (
            "orders.yaml:7: steps.3.window has no watermark: the maximum lateness of a row, for"
            " example 1 minute; a window is complete that long after its end"
        ),
    ),
    (
        "windows with gaps between them",
        changed("size: 1 minute,", "size: 1 minute, slide: 2 minutes,"),
        (
            "orders.yaml:7: steps.3.window.slide is longer than the window's size, so rows between"
            " windows would be lost; make it shorter"
        ),
    ),
    (
        "a window without results",
        changed('aggregate: {total: "sum(amount)", orders: "count(*)"}', "aggregate: {}"),
        (
            "orders.yaml:7: steps.3.window.aggregate is an empty table but needs at least one"
            " result, for example total: sum(amount)"
        ),
    ),
    (
        "no sinks",
        "name: n\nsource: {format: rate}\ncheckpoint: c\n",
        "orders.yaml:1: the file has no sinks: a list of where rows go",
    ),
    (
        "a sink that there is not",
        changed("format: parquet", "format: parket"),
        (
            "orders.yaml:11: sinks.1.format is parket but must be rocketmq, parquet or console;"
            " did you mean parquet?"
        ),
    ),
    (
        "a table without a folder",
        changed("path: out/orders, ", ""),
        "orders.yaml:11: sinks.1 has no path: the folder to write to",
    ),
    (
        "a key of another sink",
        changed("{topic: orders-per-minute}}", "{topic: orders-per-minute}, partitionBy: [shop]}"),
        (
            "orders.yaml:10: sinks.0 (rocketmq) has no key partitionBy; allowed keys: format, name,"
            " options, mode"
        ),
    ),
    (
        "a misspelt option of a sink",
        changed("{topic: orders-per-minute}", "{topik: orders-per-minute}"),
        "orders.yaml:10: sinks.0: unknown option topik; did you mean topic?",
    ),
    (
        "updates in files",
        changed("path: out/orders,", "path: out/orders, mode: update,"),
        (
            "orders.yaml:11: sinks.1.mode is update but must be append where a stream is written"
            " to parquet"
        ),
    ),
    (
        "dateOf without date",
        changed("partitionBy: [date]", "partitionBy: [shop], dateOf: minute"),
        (
            "orders.yaml:11: sinks.1.dateOf defines date, but partitionBy has no date; add it, or"
            " leave dateOf out"
        ),
    ),
    (
        "two sinks of one name",
        changed("trigger:", "  - {format: parquet, path: other/orders}\ntrigger:"),
        (
            "orders.yaml:12: sinks.2 is called parquet-orders like the sink at orders.yaml:11;"
            " rename one of them"
        ),
    ),
    (
        "a trigger that is none",
        changed("processingTime: 5 seconds", ""),
        "orders.yaml:12: trigger must be processingTime, for example 5 seconds, or availableNow:"
        " true",
    ),
    (
        "a trigger that says no",
        changed("processingTime: 5 seconds", "availableNow: false"),
        "orders.yaml:12: trigger.availableNow is false; leave it out, or use processingTime",
    ),
    (
        "a flag that is none",
        changed("processingTime: 5 seconds", "availableNow: yes"),
        "orders.yaml:12: trigger.availableNow is the string 'yes' but must be true or false",
    ),
    (
        "a stream without checkpoint",
        changed("checkpoint: out/checkpoint\n", ""),
        (
            "orders.yaml:1: the file has no checkpoint: a folder for the progress of the pipeline,"
            " for example out/checkpoint"
        ),
    ),
]


@pytest.mark.parametrize(
    ("text", "sentence"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_what_is_wrong_is_said_with_its_line_and_what_to_do(
    tmp_path: Path, text: str, sentence: str
) -> None:
    assert problem(tmp_path, text) == sentence


def test_a_stream_from_the_end_needs_a_group_that_keeps_where_it_began(tmp_path: Path) -> None:
    said = problem(tmp_path, GOOD, "source.options.startingOffsets=latest")
    assert said.startswith(
        "orders.yaml:2: source: a stream from startingOffsets=latest, which is the default, needs"
        " the option consumerGroup"
    )


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        (
            "nonsense",
            "--set nonsense: must be path=value, for example"
            " source.options.nameServer=10.0.0.1:9876",
        ),
        (
            "trigger..x=1",
            (
                "--set trigger..x=1: must be path=value, for example"
                " source.options.nameServer=10.0.0.1:9876"
            ),
        ),
        (
            "sinks.7.path=x",
            "--set sinks.7.path: the list there has no member 7; its members are 0 to 1",
        ),
        ("name.x=1", "--set name.x: the parent of x is not a table"),
        (
            "tigger.availableNow=true",
            "--set tigger.availableNow: the file has no key tigger; did you mean trigger?",
        ),
        ("checkpoint=", "--set checkpoint: checkpoint is empty but must be a path"),
        (
            "source.options.maxOffsetsPerTrigger=many",
            (
                "--set source.options.maxOffsetsPerTrigger: source: option"
                " maxOffsetsPerTrigger='many': must be a whole number of at least 1"
            ),
        ),
        (
            "steps={",
            (
                "--set steps:1: invalid YAML: while parsing a flow node expected the node content,"
                " but found '<stream end>'"
            ),
        ),
    ],
)
def test_what_is_wrong_with_a_setting_is_said_by_its_name(
    tmp_path: Path, setting: str, sentence: str
) -> None:
    assert problem(tmp_path, GOOD, setting) == sentence


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"nowhere\.yaml cannot be read: No such file or directory"
    ):
        load(tmp_path / "nowhere.yaml")
    file = tmp_path / "binary.yaml"
    file.write_bytes(b"name: \xff\n")
    with pytest.raises(
        ConfigurationError,
        match=r"binary\.yaml: not valid UTF-8: invalid start byte at byte 6",
    ):
        load(file)
