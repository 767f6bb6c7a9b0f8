"""Tests the options of a write: their meaning, and the errors for invalid ones."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from orbitmq.common.errors import ConfigurationError
from orbitmq.message.flags import CompressionType
from orbitmq.spark.option_reader import OptionReader
from orbitmq.spark.options import CONNECTION_OPTIONS, SINK_OPTIONS
from orbitmq.spark.sink.options import ExactlyOnce, SinkOptions


def parsed(**options: str) -> SinkOptions:
    texts = {"nameServer": "127.0.0.1:9876", **options}
    OptionReader(texts).check_names((*CONNECTION_OPTIONS, *SINK_OPTIONS))
    return SinkOptions.of(texts)


def test_without_options_rows_go_in_batches_uncompressed() -> None:
    options = parsed()
    assert options.topic is None
    assert options.batch_messages > 1
    assert options.alone_from == sys.maxsize
    assert options.producer_settings().compress_over == sys.maxsize
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options) == hash(parsed())


def test_every_option_counts_whatever_its_case() -> None:
    options = parsed(
        TOPIC="orders",
        producergroup="g",
        batchmessages="10",
        batchBytes="2000",
        maxInFlightBytes="5000",
        maxMessageSize="3000",
        compression="ZSTD",
        compressOver="100",
        reservedProperties="drop",
        requestTimeout="2s",
        retryTimeout="3s",
    )
    assert (options.topic, options.group, options.batch_messages, options.batch_size) == (
        "orders",
        "g",
        10,
        2_000,
    )
    assert (options.in_flight_size_max, options.body_size_max, options.retry_ms) == (
        5_000,
        3_000,
        3_000,
    )
    assert (options.compression, options.alone_from, options.drops_reserved) == (
        CompressionType.ZSTD,
        100,
        True,
    )
    settings = options.producer_settings()
    assert (settings.timeout_ms, settings.size_max, settings.compress_over) == (2_000, 3_000, 100)


def test_a_batch_of_one_is_no_batch() -> None:
    assert parsed(batchMessages="1").alone_from == 0


def test_a_batch_is_no_larger_than_a_message_may_be() -> None:
    assert parsed(maxMessageSize="1000").batch_size == 1_000
    with pytest.raises(
        ConfigurationError, match="option batchBytes='1001': must be a whole number from 1 to 1000"
    ):
        parsed(maxMessageSize="1000", batchBytes="1001")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"topic": "a b"},
            "option topic='a b': must have at most 255 letters, digits and characters",
        ),
        ({"topic": "t" * 128}, "it has 128 characters, but only 127 are allowed"),
        ({"topic": " "}, "option topic is empty"),
        ({"producerGroup": "ä"}, "option producerGroup='ä': must have at most 255 letters"),
        (
            {"batchMessages": "0"},
            "option batchMessages='0': must be a whole number from 1 to 32768",
        ),
        (
            {"compression": "gzip"},
            "option compression='gzip': must be one of none, zlib, lz4, zstd",
        ),
        ({"reservedProperties": "keep"}, "option reservedProperties='keep': must be fail or drop"),
        ({"retryTimeout": "soon"}, "option retryTimeout='soon': must be a duration such as"),
        ({"nameServer": "nowhere"}, "option nameServer"),
        (
            {"deliveryGuarantee": "once"},
            "option deliveryGuarantee='once': must be at-least-once or exactly-once",
        ),
        (
            {"deliveryGuarantee": "exactly-once"},
            "exactly-once needs the option transactionLog: a folder",
        ),
        (
            {"transactionLog": "log"},
            "option transactionLog works only with deliveryGuarantee=exactly-once",
        ),
        (
            {"deliveryGuarantee": "exactly-once", "transactionLog": "log", "transactionBatch": "1"},
            "option transactionBatch needs the option transactionId",
        ),
        ({"path": "orders"}, "use the option topic"),
        ({"topik": "orders"}, "unknown option topik; did you mean topic?"),
        ({"batchMessage": "1"}, "did you mean batchMessages?"),
    ],
)
def test_what_will_not_do_is_refused_in_one_sentence(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said.replace("?", r"\?")) as refused:
        parsed(**options)
    assert "\n" not in str(refused.value)


def test_the_record_of_what_was_delivered_is_in_the_checkpoint_unless_said_otherwise() -> None:
    once = {"deliveryGuarantee": "Exactly-Once"}
    assert parsed(**once, checkpointLocation="/a/checkpoint/").exactly_once == ExactlyOnce(
        "/a/checkpoint/transactions", None, None, "/a/checkpoint"
    )
    assert parsed(
        **once, checkpointLocation="/a", transactionLog="file:/b"
    ).exactly_once == ExactlyOnce("/b", None, None, "/a")
    assert parsed(
        **once, transactionLog="/b", transactionId="x", transactionBatch="7"
    ).exactly_once == ExactlyOnce("/b", "x", 7)
    assert parsed(checkpointLocation="/a").exactly_once is None


def test_the_guide_names_every_option() -> None:
    guide = (Path(__file__).parents[4] / "docs" / "spark-sink.md").read_text()
    assert [name for name in (*CONNECTION_OPTIONS, *SINK_OPTIONS) if f"`{name}`" not in guide] == []


def test_options_of_a_read_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="reads only"):
        SinkOptions.of({"nameServer": "127.0.0.1:9876", "topic": "a", "subscribe": "b"})


def test_exactly_once_has_no_batches_of_messages() -> None:
    for name in ("batchMessages", "batchBytes"):
        with pytest.raises(
            ConfigurationError,
            match=(
                f"option {name} has no effect with deliveryGuarantee=exactly-once: each row is"
                f" sent as a separate message"
            ),
        ):
            SinkOptions.of(
                {
                    "nameServer": "a:1",
                    "deliveryGuarantee": "exactly-once",
                    "transactionLog": "log",
                    name: "10",
                }
            )
