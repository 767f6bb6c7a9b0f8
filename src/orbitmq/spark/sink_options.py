"""What users say of how rows are sent, as values. Pure: nobody is asked.

Every bad value is a ConfigurationError in one sentence. Values can be pickled and compared: they travel to executors, and connections are
kept by them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from orbitmq.client.outbox import ProducerSettings
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import ConfigurationError
from orbitmq.message.flags import CompressionType
from orbitmq.spark.option_texts import OptionTexts
from orbitmq.spark.options import SourceOptions, connection
from orbitmq.spark.pacing import portion

DEFAULT_GROUP: Final = "ORBITMQ_SPARK"
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
_TOPIC_SIZE_MAX: Final = 127
_COMPRESSIONS: Final = {"none": None, "zlib": CompressionType.ZLIB, "lz4": CompressionType.LZ4, "zstd": CompressionType.ZSTD}


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """Where it is recorded which batches were delivered; a batch write says which one it is, a stream knows."""

    log: str
    query: str | None
    batch: int | None
    checkpoint: str | None = None  # of a stream


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """A write to topics, at once or as a stream."""

    client: ClientSettings
    topic: str | None  # None: each row has its own
    group: str
    batch_messages: int  # 1: every message goes alone
    batch_size: int
    in_flight_size_max: int  # bytes of one task that are sent and not confirmed
    body_size_max: int
    compression: CompressionType | None
    compress_over: int
    drops_reserved: bool
    rate_max: int | None  # messages a second of one task
    retry_ms: int
    exactly_once: ExactlyOnce | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        texts = OptionTexts(options)
        if SourceOptions.is_meant(options):
            raise ConfigurationError("some of the options are for reading, and these rows are written; leave out what says what to read")
        if texts.has("path"):
            raise ConfigurationError("save() or start() is given a path, and topics have none; say where rows go with the option topic")
        body_size_max = texts.number("maxMessageSize", 1, 1 << 30) or 4 << 20
        rate_max = texts.number("maxMessagesPerSecond", 1)
        batch_messages = texts.number("batchMessages", 1, 32_768) or 4_000
        return cls(
            client=connection(texts),
            topic=_topic(texts),
            group=_name(texts, "producerGroup", DEFAULT_GROUP),
            batch_messages=batch_messages if rate_max is None else min(batch_messages, portion(rate_max)),
            batch_size=texts.number("batchBytes", 1, body_size_max) or min(1 << 20, body_size_max),
            in_flight_size_max=texts.number("maxInFlightBytes", 1, 1 << 30) or 8 << 20,
            body_size_max=body_size_max,
            compression=_compression(texts),
            compress_over=texts.number("compressOver", 1) or 4_096,
            drops_reserved=_drops_reserved(texts),
            rate_max=rate_max,
            retry_ms=texts.duration_ms("retryTimeout", 120_000),
            exactly_once=_exactly_once(texts),
        )

    @property
    def alone_from(self) -> int:
        """How large a body is that cannot be part of a batch: compressed, or because there are none."""
        if self.batch_messages == 1 or self.exactly_once is not None:
            return 0
        return sys.maxsize if self.compression is None else self.compress_over

    def producer_settings(self) -> ProducerSettings:
        return ProducerSettings(
            timeout_ms=self.client.timeout_ms,
            compress_over=sys.maxsize if self.compression is None else self.compress_over,
            compression=self.compression or CompressionType.ZLIB,
            size_max=self.body_size_max,
            avoid_slow_brokers=True,
        )


def _name(texts: OptionTexts, name: str, default: str) -> str:
    found = texts.text(name, default)
    if not _NAME.fullmatch(found):
        raise texts.refused(name, "it has at most 255 letters, digits, and the signs % | - _")
    return found


def _topic(texts: OptionTexts) -> str | None:
    topic = _name(texts, "topic", "-")
    if len(topic) > _TOPIC_SIZE_MAX:
        raise texts.refused("topic", f"it has {len(topic)} characters, and {_TOPIC_SIZE_MAX} are allowed")
    return topic if texts.has("topic") else None


def _compression(texts: OptionTexts) -> CompressionType | None:
    found = texts.text("compression", "none").lower()
    if found not in _COMPRESSIONS:
        raise texts.refused("compression", f"it is one of {', '.join(_COMPRESSIONS)}")
    return _COMPRESSIONS[found]


def _exactly_once(texts: OptionTexts) -> ExactlyOnce | None:
    found = texts.text("deliveryGuarantee", "at-least-once").lower()
    if found not in ("at-least-once", "exactly-once"):
        raise texts.refused("deliveryGuarantee", "it is at-least-once or exactly-once")
    if found == "at-least-once":
        if useless := texts.given(("transactionLog", "transactionId", "transactionBatch")):
            raise ConfigurationError(f"option {useless[0]} is of use only with deliveryGuarantee=exactly-once; add that, or leave it out")
        return None
    if useless := texts.given(("batchMessages", "batchBytes")):
        raise ConfigurationError(f"option {useless[0]} is of no use with deliveryGuarantee=exactly-once: each row is a message of its own")
    if not texts.has("transactionLog") and not texts.has("checkpointLocation"):
        raise ConfigurationError(
            "deliveryGuarantee=exactly-once needs the option transactionLog: a folder that driver and executors see, "
            "for the record of what was delivered; a stream that has the option checkpointLocation keeps it there"
        )
    checkpoint = absolute(texts.text("checkpointLocation").rstrip("/")) if texts.has("checkpointLocation") else None
    place = absolute(texts.text("transactionLog")) if texts.has("transactionLog") else f"{checkpoint}/transactions"
    query = texts.text("transactionId") or None
    batch = texts.number("transactionBatch", 0)
    if batch is not None and query is None:
        raise ConfigurationError("option transactionBatch needs the option transactionId, of whose batches it is one")
    return ExactlyOnce(place, query, batch, checkpoint)


def _drops_reserved(texts: OptionTexts) -> bool:
    found = texts.text("reservedProperties", "fail").lower()
    if found not in ("fail", "drop"):
        raise texts.refused("reservedProperties", "it is fail or drop")
    return found == "drop"


def absolute(place: str) -> str:
    """A place that means the same in every process: a path of this machine whatever the folder, or an URI as it is."""
    parts = urlsplit(place)
    if parts.scheme in ("", "file"):
        return str(Path(unquote(parts.path) if parts.scheme else place).absolute())
    return place
