"""The options of the `rocketmq` sink as typed values. Pure: makes no connection.

Every bad value raises a ConfigurationError in one sentence. Values can be pickled and hashed: they
travel to executors, and connections are cached by them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from orbitmq.client.producer.outbox import ProducerSettings
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import ConfigurationError
from orbitmq.message.flags import CompressionType
from orbitmq.spark.option_reader import OptionReader
from orbitmq.spark.options import SourceOptions, client_settings
from orbitmq.spark.sink.rate_limit import rows_per_portion

DEFAULT_GROUP: Final = "ORBITMQ_SPARK"
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
_TOPIC_SIZE_MAX: Final = 127
_COMPRESSIONS: Final = {
    "none": None,
    "zlib": CompressionType.ZLIB,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """Where delivered batches are recorded. A batch write names its own batch; a stream numbers
    them.
    """

    log: str
    query: str | None
    batch: int | None
    checkpoint: str | None = None  # of a stream


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of a batch or streaming write."""

    client: ClientSettings
    topic: str | None  # None: each row has its own
    group: str
    batch_messages: int  # 1: every message is sent alone
    batch_size: int
    in_flight_size_max: int  # bytes sent by one task and not yet acknowledged
    body_size_max: int
    compression: CompressionType | None
    compress_over: int
    drops_reserved: bool
    rate_max: int | None  # messages per second and task
    retry_ms: int
    exactly_once: ExactlyOnce | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """Parse and check the options of a write."""
        reader = OptionReader(options)
        if SourceOptions.has_any(options):
            raise ConfigurationError(
                "some of the options apply to reads only, and this is a write; leave them out"
            )
        if reader.has("path"):
            raise ConfigurationError(
                "save() or start() was given a path, but topics have none; use the option topic"
            )
        body_size_max = reader.number("maxMessageSize", 1, 1 << 30) or 4 << 20
        rate_max = reader.number("maxMessagesPerSecond", 1)
        batch_messages = reader.number("batchMessages", 1, 32_768) or 4_000
        return cls(
            client=client_settings(reader),
            topic=_topic(reader),
            group=_name(reader, "producerGroup", DEFAULT_GROUP),
            batch_messages=(
                batch_messages
                if rate_max is None
                else min(batch_messages, rows_per_portion(rate_max))
            ),
            batch_size=reader.number("batchBytes", 1, body_size_max) or min(1 << 20, body_size_max),
            in_flight_size_max=reader.number("maxInFlightBytes", 1, 1 << 30) or 8 << 20,
            body_size_max=body_size_max,
            compression=_compression(reader),
            compress_over=reader.number("compressOver", 1) or 4_096,
            drops_reserved=_drops_reserved(reader),
            rate_max=rate_max,
            retry_ms=reader.duration_ms("retryTimeout", 120_000),
            exactly_once=_exactly_once(reader),
        )

    @property
    def alone_from(self) -> int:
        """The body size from which a message is sent alone: because it is compressed, or because
        batches are off.
        """
        if self.batch_messages == 1 or self.exactly_once is not None:
            return 0
        return sys.maxsize if self.compression is None else self.compress_over

    def producer_settings(self) -> ProducerSettings:
        """Return the settings of the producer that sends the rows."""
        return ProducerSettings(
            timeout_ms=self.client.timeout_ms,
            compress_over=sys.maxsize if self.compression is None else self.compress_over,
            compression=self.compression or CompressionType.ZLIB,
            size_max=self.body_size_max,
            avoid_slow_brokers=True,
        )


def _name(reader: OptionReader, name: str, default: str) -> str:
    found = reader.text(name, default)
    if not _NAME.fullmatch(found):
        raise reader.invalid(
            name, "must have at most 255 letters, digits and characters of % | - _"
        )
    return found


def _topic(reader: OptionReader) -> str | None:
    topic = _name(reader, "topic", "-")
    if len(topic) > _TOPIC_SIZE_MAX:
        raise reader.invalid(
            "topic", f"it has {len(topic)} characters, but only {_TOPIC_SIZE_MAX} are allowed"
        )
    return topic if reader.has("topic") else None


def _compression(reader: OptionReader) -> CompressionType | None:
    found = reader.text("compression", "none").lower()
    if found not in _COMPRESSIONS:
        raise reader.invalid("compression", f"must be one of {', '.join(_COMPRESSIONS)}")
    return _COMPRESSIONS[found]


def _exactly_once(reader: OptionReader) -> ExactlyOnce | None:
    found = reader.text("deliveryGuarantee", "at-least-once").lower()
    if found not in ("at-least-once", "exactly-once"):
        raise reader.invalid("deliveryGuarantee", "must be at-least-once or exactly-once")
    if found == "at-least-once":
        if useless := reader.given(("transactionLog", "transactionId", "transactionBatch")):
            raise ConfigurationError(
                f"option {useless[0]} works only with deliveryGuarantee=exactly-once; add that, or"
                " leave it out"
            )
        return None
    if useless := reader.given(("batchMessages", "batchBytes")):
        raise ConfigurationError(
            f"option {useless[0]} has no effect with deliveryGuarantee=exactly-once: each row is"
            " sent as a separate message; leave it out"
        )
    if not reader.has("transactionLog") and not reader.has("checkpointLocation"):
        raise ConfigurationError(
            "deliveryGuarantee=exactly-once needs the option transactionLog: a folder visible to"
            " driver and executors that records which batches were delivered; a stream with the"
            " option checkpointLocation keeps it there"
        )
    checkpoint = (
        absolute(reader.text("checkpointLocation").rstrip("/"))
        if reader.has("checkpointLocation")
        else None
    )
    place = (
        absolute(reader.text("transactionLog"))
        if reader.has("transactionLog")
        else f"{checkpoint}/transactions"
    )
    query = reader.text("transactionId") or None
    batch = reader.number("transactionBatch", 0)
    if batch is not None and query is None:
        raise ConfigurationError(
            "option transactionBatch needs the option transactionId, which identifies the query"
        )
    return ExactlyOnce(place, query, batch, checkpoint)


def _drops_reserved(reader: OptionReader) -> bool:
    found = reader.text("reservedProperties", "fail").lower()
    if found not in ("fail", "drop"):
        raise reader.invalid("reservedProperties", "must be fail or drop")
    return found == "drop"


def absolute(place: str) -> str:
    """Return a location that means the same in every process: an absolute local path, or the URI
    unchanged.
    """
    parts = urlsplit(place)
    if parts.scheme in ("", "file"):
        return str(Path(unquote(parts.path) if parts.scheme else place).absolute())
    return place
