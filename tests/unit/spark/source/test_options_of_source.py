"""Tests the options of a read: their meaning, and the errors for invalid ones."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest

from orbitmq.access.credentials import Credentials
from orbitmq.common.errors import ConfigurationError
from orbitmq.protocol.bodies.subscriptions import SQL92, TAG
from orbitmq.spark.offsets import QueueName
from orbitmq.spark.option_reader import OptionReader
from orbitmq.spark.options import (
    CONNECTION_OPTIONS,
    SOURCE_OPTIONS,
    EdgePosition,
    OffsetPerQueue,
    QueueSelection,
    SourceOptions,
    TimestampPerQueue,
    TimestampPosition,
)

LEAST = {"nameServer": "127.0.0.1:9876", "subscribe": "orders"}
QUEUE = QueueName("orders", "broker-a", 0)


def parsed(**options: str) -> SourceOptions:
    return SourceOptions.of({**LEAST, **options})


def refusal(**options: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        parsed(**options)
    return str(refused.value)


def test_a_name_server_and_a_topic_are_enough() -> None:
    options = parsed()
    assert options.selection == QueueSelection(topics=("orders",))
    assert (options.start, options.end, options.limit, options.group) == (None, None, None, None)
    assert options.fail_on_data_loss
    assert options.reader_group == "TOOLS_CONSUMER"
    assert options.client.tls.enabled is False


def test_names_of_options_may_be_written_in_any_case() -> None:
    assert (
        SourceOptions.of(
            {"NAMESERVER": "127.0.0.1:9876", "subscribe": "a", "startingoffsets": "EARLIEST"}
        ).start
        is EdgePosition.EARLIEST
    )


def test_the_name_servers_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876;10.0.0.2:9876")
    assert SourceOptions.of({"subscribe": "a"}).client.known_name_servers() == [
        "10.0.0.1:9876",
        "10.0.0.2:9876",
    ]
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(
        ConfigurationError,
        match=(
            "option nameServer is missing, and the variable NAMESRV_ADDR is not set; give host:port"
        ),
    ):
        SourceOptions.of({"subscribe": "a"})


def test_what_is_read_is_given_in_one_of_three_ways() -> None:
    assert parsed(subscribe=" a, b ,a").selection == QueueSelection(topics=("a", "b"))
    least = {"nameServer": "127.0.0.1:9876"}
    assert SourceOptions.of({**least, "subscribePattern": "ord.*"}).selection == QueueSelection(
        pattern="ord.*"
    )
    assigned = SourceOptions.of({**least, "assign": '{"orders":{"broker-a":[0]}}'})
    assert assigned.selection == QueueSelection(queues=frozenset({QUEUE}))


def test_places_are_ends_offsets_a_time_or_times() -> None:
    assert parsed(startingOffsets="latest").start is EdgePosition.LATEST
    assert parsed(startingOffsets='{"orders":{"broker-a":{"0":-2}}}').start == OffsetPerQueue(
        {QUEUE: -2}
    )
    assert parsed(startingTimestamp="1700000000123").start == TimestampPosition(1_700_000_000_123)
    assert parsed(startingTimestamp="2023-11-14T22:13:20.123Z").start == TimestampPosition(
        1_700_000_000_123
    )
    assert parsed(startingTimestamp="2023-11-15T00:13:20.123+02:00").start == TimestampPosition(
        1_700_000_000_123
    )
    assert parsed(
        startingOffsetsByTimestamp='{"orders":{"broker-a":{"0":5}}}'
    ).start == TimestampPerQueue({QUEUE: 5})
    assert parsed(endingOffsets='{"orders":{"broker-a":{"0":-1}}}').end == OffsetPerQueue(
        {QUEUE: -1}
    )
    assert parsed(endingTimestamp="7").end == TimestampPosition(7)
    assert parsed(
        endingOffsetsByTimestamp='{"orders":{"broker-a":{"0":5}}}'
    ).end == TimestampPerQueue({QUEUE: 5})


def test_times_may_have_units() -> None:
    assert parsed(minOffsetsPerTrigger="5", maxTriggerDelay="250").wait_ms_max == 250
    assert parsed(minOffsetsPerTrigger="5", maxTriggerDelay="10s").wait_ms_max == 10_000
    assert (
        parsed(minOffsetsPerTrigger="5", maxTriggerDelay="15 m").wait_ms_max
        == parsed().wait_ms_max
        == 900_000
    )
    assert parsed(retryTimeout="1h").retry_ms == 3_600_000


def test_tags_and_expressions_go_to_the_broker() -> None:
    by_tags = parsed(tags="a || b")
    assert (by_tags.expression_kind, by_tags.tags) == (TAG, ("a", "b"))
    assert by_tags.subscription_for("orders").sub_string == "a || b"
    assert parsed(tags="*").tags == ()
    by_sql = parsed(sql92="amount > 5")
    assert (by_sql.subscription_for("orders").expression_type, by_sql.tags) == (SQL92, ())


def test_credentials_namespace_and_tls_reach_the_client() -> None:
    options = parsed(
        accessKey="me",
        secretKey="hush-hush",
        namespace="shop",
        consumerGroup="g",
        tlsEnable="true",
        tlsTrustCertPath="ca.pem",
    )
    client = options.client
    assert client.credentials == Credentials("me", "hush-hush")
    assert options.reader_group == "shop%g"
    assert (
        client.tls.enabled,
        client.tls.verify_server,
        client.tls.trust_cert_path,
        client.tls.test_mode,
    ) == (True, True, "ca.pem", False)
    assert "hush" not in repr(options)


def test_options_travel_to_executors_and_are_a_key_of_connections() -> None:
    options = parsed(
        consumerGroup="g",
        startingOffsets='{"orders":{"broker-a":{"0":3}}}',
        accessKey="a",
        secretKey="b",
    )
    copy = pickle.loads(pickle.dumps(options))
    assert copy == options
    assert hash(copy.client) == hash(options.client)
    assert replace(options.client, namespace="x") != copy.client


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"subscribe": "", "assign": "{}"},
            "options subscribe and assign exclude each other; give only one",
        ),
        ({"subscribe": " "}, "option subscribe is empty; give it a value or leave it out"),
        (
            {"subscribe": ",,"},
            "option subscribe=',,': must be a topic, or several separated by commas",
        ),
        (
            {"nameServer": "nowhere"},
            "option nameServer: 'nowhere' is not an address of the form host:port",
        ),
        (
            {"startingOffsets": "newest"},
            "option startingOffsets='newest': must be earliest, latest, or JSON such as",
        ),
        (
            {"startingOffsets": "latest", "startingTimestamp": "5"},
            "options startingOffsets and startingTimestamp exclude each other; give only one",
        ),
        (
            {"startingTimestamp": "yesterday"},
            "option startingTimestamp='yesterday': must be milliseconds since 1970, or a time such"
            " as",
        ),
        (
            {"startingTimestamp": "2026-01-31T12:00:00"},
            "option startingTimestamp='2026-01-31T12:00:00': must be milliseconds",
        ),
        ({"startingOffsetsByTimestamp": '{"t":{"b":{"0":-1}}}'}, "t/b/0 has -1, which is below 0"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss='maybe': must be true or false"),
        (
            {"maxOffsetsPerTrigger": "0"},
            "option maxOffsetsPerTrigger='0': must be a whole number of at least 1",
        ),
        (
            {"maxOffsetsPerTrigger": "1e6"},
            "option maxOffsetsPerTrigger='1e6': must be a whole number of at least 1",
        ),
        (
            {"maxOffsetsPerTrigger": "10", "minOffsetsPerTrigger": "11"},
            (
                "option minOffsetsPerTrigger=11 is more than maxOffsetsPerTrigger=10; lower it to"
                " at most that"
            ),
        ),
        ({"requestTimeout": "0s"}, "option requestTimeout='0s': must be at least 1 ms"),
        (
            {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"},
            "option maxTriggerDelay='soon': must be a duration such as 500ms, 10s, 15m or 1h",
        ),
        (
            {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "5 parsecs"},
            "option maxTriggerDelay='5 parsecs': must be a duration such as",
        ),
        (
            {"minPartitions": "-1"},
            "option minPartitions='-1': must be a whole number from 1 to 1000000",
        ),
        (
            {"maxRecordsPerPartition": "x"},
            "option maxRecordsPerPartition='x': must be a whole number of at least 1",
        ),
        (
            {"consumerGroup": "my group"},
            (
                "option consumerGroup='my group': must have at most 255 letters, digits and"
                " characters"
            ),
        ),
        (
            {"tags": "a", "sql92": "b"},
            "options tags and sql92 exclude each other; give only one",
        ),
        ({"tags": "||"}, "option tags='||': the expression '||' names no tag"),
        (
            {"accessKey": "a"},
            "option accessKey is given alone; give both accessKey and secretKey",
        ),
        (
            {"tlsCertPath": "c.pem"},
            (
                "option tlsCertPath is given but tlsEnable is not true; set tlsEnable=true, or"
                " leave tlsCertPath out"
            ),
        ),
        ({"tlsEnable": "true", "tlsCertPath": "c.pem"}, "give both tlsCertPath and tlsKeyPath"),
    ],
)
def test_every_bad_value_is_one_sentence_that_names_it(
    options: dict[str, str], sentence: str
) -> None:
    said = refusal(**options)
    assert sentence in said
    assert "\n" not in said


def test_nothing_to_read_and_bad_patterns_are_told() -> None:
    least = {"nameServer": "127.0.0.1:9876"}
    with pytest.raises(
        ConfigurationError,
        match=("no topic is selected; give one of the options subscribe, subscribePattern, assign"),
    ):
        SourceOptions.of(least)
    with pytest.raises(
        ConfigurationError, match=r"option subscribePattern='\(': is not a regular expression"
    ):
        SourceOptions.of({**least, "subscribePattern": "("})


def test_a_batch_has_something_between_its_ends() -> None:
    parsed(startingOffsets="earliest", endingOffsets="latest").check_batch()
    for wrong in (
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"orders":{"broker-a":{"0":-1}}}'},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"orders":{"broker-a":{"0":-2}}}'},
    ):
        with pytest.raises(ConfigurationError, match="leaves a batch nothing to read"):
            parsed(**wrong).check_batch()


def test_a_stream_has_no_end_and_a_group_that_keeps_where_it_began() -> None:
    parsed(startingOffsets="earliest").check_stream()
    parsed(startingTimestamp="5").check_stream()
    parsed(consumerGroup="g").check_stream()
    for late in (
        {},
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"orders":{"broker-a":{"0":-1}}}'},
    ):
        with pytest.raises(ConfigurationError, match="needs the option consumerGroup"):
            parsed(**late).check_stream()
    with pytest.raises(ConfigurationError, match="a stream has no end"):
        parsed(startingOffsets="earliest", endingTimestamp="5").check_stream()


def test_a_misspelt_option_is_refused_and_sparks_own_are_not() -> None:
    texts = OptionReader({"startingoffset": "x"})
    with pytest.raises(
        ConfigurationError,
        match=r"^unknown option startingoffset; did you mean startingOffsets\?$",
    ):
        texts.check_names(("nameServer", "startingOffsets"))
    with pytest.raises(
        ConfigurationError, match=r"^unknown option zebra; known options: nameServer, subscribe$"
    ):
        OptionReader({"zebra": "x"}).check_names(("subscribe", "nameServer"))
    OptionReader({"path": "x", "checkpointLocation": "y", "spark.sql.something": "z"}).check_names(
        ()
    )


def test_the_page_tells_of_every_option_and_of_no_other() -> None:
    page = (Path(__file__).parents[4] / "docs" / "spark-source.md").read_text()
    rows = [
        line.split("|")[1]
        for line in page.partition("## Options")[2].partition("## How it behaves")[0].splitlines()
        if "| `" in line
    ]
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(told) == sorted((*CONNECTION_OPTIONS, *SOURCE_OPTIONS))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"batchBytes": "7"},
            "option batchBytes applies to writes only, and this is a read; leave it out",
        ),
        (
            {"path": "/some/where"},
            ("load() was given a path, but topics have none; use the option subscribe"),
        ),
        (
            {"maxTriggerDelay": "1m"},
            (
                "option maxTriggerDelay works only with minOffsetsPerTrigger; add that, or leave"
                " it out"
            ),
        ),
        (
            {"securityToken": "t"},
            "option securityToken is given alone; it needs accessKey and secretKey",
        ),
    ],
)
def test_an_option_that_would_be_passed_over_is_refused(
    options: dict[str, str], sentence: str
) -> None:
    assert refusal(**{"subscribe": "orders", **options}) == sentence


def test_a_batch_has_no_triggers() -> None:
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger"):
        with pytest.raises(
            ConfigurationError,
            match=(f"option {name} applies to streams only; leave it out, or use readStream"),
        ):
            parsed(subscribe="orders", **{name: "5"}).check_batch()
