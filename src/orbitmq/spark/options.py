"""The options of the `rocketmq` source as typed values. Pure: makes no connection.

Every bad value, and every pair of contradicting options, raises a ConfigurationError in one
sentence. Values can be pickled and hashed: they travel to executors, and connections are cached by
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from orbitmq.access.credentials import Credentials
from orbitmq.admin.following import TOOLS_GROUP
from orbitmq.client.consumer.pulling import subscription
from orbitmq.client.settings import NAME_SERVERS_VARIABLE, ClientSettings
from orbitmq.common.errors import ConfigurationError, InvalidMessageError
from orbitmq.message.tag_expression import tags_of
from orbitmq.protocol.bodies.subscriptions import SQL92, TAG, SubscriptionData
from orbitmq.remoting.tls import ClientTls
from orbitmq.spark.offsets import EARLIEST, LATEST, Offsets, QueueName, parse, parse_queues
from orbitmq.spark.option_reader import OptionReader

CONNECTION_OPTIONS: Final = (
    "nameServer",
    "namespace",
    "accessKey",
    "secretKey",
    "securityToken",
    "tlsEnable",
    "tlsTrustCertPath",
    "tlsCertPath",
    "tlsKeyPath",
    "tlsKeyPassword",
    "tlsVerifyServer",
    "requestTimeout",
    "retryTimeout",
)
_SELECTIONS: Final = ("subscribe", "subscribePattern", "assign")
_STARTS: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_ENDS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
SOURCE_OPTIONS: Final = (
    *_SELECTIONS,
    *_STARTS,
    *_ENDS,
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "consumerGroup",
    "tags",
    "sql92",
)
SINK_OPTIONS: Final = (
    "topic",
    "producerGroup",
    "batchMessages",
    "batchBytes",
    "maxInFlightBytes",
    "maxMessageSize",
    "compression",
    "compressOver",
    "maxMessagesPerSecond",
    "reservedProperties",
    "deliveryGuarantee",
    "transactionLog",
    "transactionId",
    "transactionBatch",
)
_GROUP: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")


class EdgePosition(Enum):
    """The first or the last offset of every queue."""

    EARLIEST = EARLIEST
    LATEST = LATEST


@dataclass(frozen=True, slots=True)
class TimestampPosition:
    """In every queue, the first message stored at or after a time."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class TimestampPerQueue:
    """In each queue, the first message stored at or after the queue's own time."""

    times_ms: Offsets


@dataclass(frozen=True, slots=True)
class OffsetPerQueue:
    """An offset for each queue, EARLIEST and LATEST included."""

    offsets: Offsets


ReadPosition = EdgePosition | TimestampPosition | TimestampPerQueue | OffsetPerQueue


@dataclass(frozen=True, slots=True)
class QueueSelection:
    """The queues to read: all queues of some topics, of topics whose full name matches a pattern,
    or an explicit list.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: frozenset[QueueName] = frozenset()

    def __contains__(self, queue: QueueName) -> bool:
        """Return whether the selection covers a queue, if it exists."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, queue.topic) is not None
        return queue in self.queues or queue.topic in self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a batch or streaming read."""

    client: ClientSettings
    selection: QueueSelection
    start: ReadPosition | None  # None: the default of a batch or of a stream
    end: ReadPosition | None
    fail_on_data_loss: bool
    limit: int | None
    count_min: int | None
    wait_ms_max: int
    parts_min: int | None
    part_size_max: int | None
    group: str | None
    expression: str | None
    expression_kind: str
    retry_ms: int

    @classmethod
    def has_any(cls, options: Mapping[str, str]) -> bool:
        """Return whether any option is one that only a read may have."""
        return bool(OptionReader(options).given(SOURCE_OPTIONS))

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse and check the options of a read."""
        reader = OptionReader(options)
        _check_use(reader)
        expression, kind = _expression(reader)
        limit = reader.number("maxOffsetsPerTrigger", 1)
        count_min = reader.number("minOffsetsPerTrigger", 1)
        if limit is not None and count_min is not None and count_min > limit:
            raise ConfigurationError(
                f"option minOffsetsPerTrigger={count_min} is more than"
                f" maxOffsetsPerTrigger={limit}; lower it to at most that"
            )
        return cls(
            client=client_settings(reader),
            selection=_selection(reader),
            start=_position(reader, _STARTS),
            end=_position(reader, _ENDS),
            fail_on_data_loss=reader.flag("failOnDataLoss", True),
            limit=limit,
            count_min=count_min,
            wait_ms_max=reader.duration_ms("maxTriggerDelay", 15 * 60_000),
            parts_min=reader.number("minPartitions", 1, 1_000_000),
            part_size_max=reader.number("maxRecordsPerPartition", 1),
            group=_group(reader),
            expression=expression,
            expression_kind=kind,
            retry_ms=reader.duration_ms("retryTimeout", 120_000),
        )

    @property
    def reader_group(self) -> str:
        """The consumer group sent with pulls, as brokers know it. Without a group it is the tools'
        group, so that no new group is created.
        """
        return self.client.names.wire(self.group) if self.group else TOOLS_GROUP

    def subscription_for(self, topic: str) -> SubscriptionData:
        """Return the subscription to send with pulls from a topic."""
        return subscription(topic, self.expression, self.expression_kind)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags to read; empty means all."""
        return (tags_of(self.expression) or ()) if self.expression_kind == TAG else ()

    def check_batch(self) -> None:
        """Refuse options that make no sense in a batch read."""
        for name, value in (
            ("maxOffsetsPerTrigger", self.limit),
            ("minOffsetsPerTrigger", self.count_min),
        ):
            if value is not None:
                raise ConfigurationError(
                    f"option {name} applies to streams only; leave it out, or use readStream"
                )
        if _has(self.start, LATEST):
            raise ConfigurationError(
                "startingOffsets=latest leaves a batch nothing to read; start at earliest, at"
                " offsets or at a time, or use readStream"
            )
        if _has(self.end, EARLIEST):
            raise ConfigurationError(
                "endingOffsets=earliest leaves a batch nothing to read; end at latest, at offsets"
                " or at a time"
            )

    def check_stream(self) -> None:
        """Refuse options that make no sense in a stream or would lose messages."""
        if self.end is not None:
            raise ConfigurationError(
                f"{', '.join(_ENDS)}: a stream has no end; use spark.read, or"
                " trigger(availableNow=True)"
            )
        if self.group is None and _has(self.start or EdgePosition.LATEST, LATEST):
            raise ConfigurationError(
                "a stream from startingOffsets=latest, which is the default, needs the option"
                " consumerGroup: the group records where the query started, so that nothing is"
                " lost if it fails in its first batch; or set startingOffsets=earliest"
            )


def client_settings(reader: OptionReader) -> ClientSettings:
    """Return how to connect to the cluster."""
    settings = ClientSettings(
        name_servers=reader.text("nameServer"),
        namespace=reader.text("namespace"),
        credentials=_credentials(reader),
        timeout_ms=reader.duration_ms("requestTimeout", 10_000, 1),
        tls=_tls(reader),
    )
    try:
        known = settings.known_name_servers()
    except ConfigurationError as problem:
        raise ConfigurationError(f"option nameServer: {problem}") from problem
    if not known:
        raise ConfigurationError(
            f"option nameServer is missing, and the variable {NAME_SERVERS_VARIABLE} is not set;"
            " give host:port"
        )
    return settings


def _check_use(reader: OptionReader) -> None:
    """Refuse options that would be ignored silently."""
    if useless := reader.given(SINK_OPTIONS):
        raise ConfigurationError(
            f"option {useless[0]} applies to writes only, and this is a read; leave it out"
        )
    if reader.has("path"):
        raise ConfigurationError(
            "load() was given a path, but topics have none; use the option subscribe"
        )
    if reader.has("maxTriggerDelay") and not reader.has("minOffsetsPerTrigger"):
        raise ConfigurationError(
            "option maxTriggerDelay works only with minOffsetsPerTrigger; add that, or leave it out"
        )


def _credentials(reader: OptionReader) -> Credentials | None:
    given = reader.given(("accessKey", "secretKey"))
    if len(given) == 1:
        raise ConfigurationError(
            f"option {given[0]} is given alone; give both accessKey and secretKey"
        )
    if not given:
        if reader.has("securityToken"):
            raise ConfigurationError(
                "option securityToken is given alone; it needs accessKey and secretKey"
            )
        return None
    return Credentials(
        reader.text("accessKey"), reader.text("secretKey"), reader.text("securityToken") or None
    )


def _tls(reader: OptionReader) -> ClientTls:
    files = [name for name in CONNECTION_OPTIONS if name.startswith("tls") and name != "tlsEnable"]
    is_enabled = reader.flag("tlsEnable", False)
    if not is_enabled:
        if given := reader.given(files):
            raise ConfigurationError(
                f"option {given[0]} is given but tlsEnable is not true; set tlsEnable=true, or"
                f" leave {given[0]} out"
            )
        return ClientTls()
    if len(reader.given(("tlsCertPath", "tlsKeyPath"))) == 1:
        raise ConfigurationError(
            "give both tlsCertPath and tlsKeyPath: a client certificate needs its key"
        )
    return ClientTls(
        enabled=True,
        test_mode=False,
        key_path=reader.text("tlsKeyPath") or None,
        key_password=reader.text("tlsKeyPassword") or None,
        cert_path=reader.text("tlsCertPath") or None,
        verify_server=reader.flag("tlsVerifyServer", reader.has("tlsTrustCertPath")),
        trust_cert_path=reader.text("tlsTrustCertPath") or None,
    )


def _selection(reader: OptionReader) -> QueueSelection:
    match reader.only_one(_SELECTIONS):
        case "subscribe":
            topics = tuple(
                dict.fromkeys(
                    topic for part in reader.text("subscribe").split(",") if (topic := part.strip())
                )
            )
            if not topics:
                raise reader.invalid("subscribe", "must be a topic, or several separated by commas")
            return QueueSelection(topics=topics)
        case "subscribePattern":
            try:
                re.compile(reader.text("subscribePattern"))
            except re.error as problem:
                raise reader.invalid(
                    "subscribePattern", f"is not a regular expression: {problem}"
                ) from problem
            return QueueSelection(pattern=reader.text("subscribePattern"))
        case "assign":
            return QueueSelection(queues=parse_queues(reader.text("assign"), "assign"))
        case _:
            raise ConfigurationError(
                f"no topic is selected; give one of the options {', '.join(_SELECTIONS)}"
            )


def _position(reader: OptionReader, names: tuple[str, str, str]) -> ReadPosition | None:
    by_offset, by_time, by_times = names
    match reader.only_one(names):
        case None:
            return None
        case name if name == by_time:
            return TimestampPosition(reader.time_ms(name))
        case name if name == by_times:
            return TimestampPerQueue(parse(reader.text(name), name, low=0))
        case name:
            text = reader.text(by_offset)
            if text.lower() in ("earliest", "latest"):
                return EdgePosition[text.upper()]
            if not text.startswith("{"):
                raise reader.invalid(
                    by_offset,
                    'must be earliest, latest, or JSON such as {"topic":{"broker":{"0":23}}}',
                )
            return OffsetPerQueue(parse(text, by_offset, low=EARLIEST))


def _group(reader: OptionReader) -> str | None:
    if not reader.has("consumerGroup"):
        return None
    group = reader.text("consumerGroup")
    if not _GROUP.fullmatch(group):
        raise reader.invalid(
            "consumerGroup", "must have at most 255 letters, digits and characters of % | - _"
        )
    return group


def _expression(reader: OptionReader) -> tuple[str | None, str]:
    match reader.only_one(("tags", "sql92")):
        case "tags":
            text = reader.text("tags")
            try:
                return (None if tags_of(text) is None else text), TAG
            except InvalidMessageError as problem:
                raise reader.invalid("tags", str(problem)) from problem
        case "sql92":
            return reader.text("sql92"), SQL92
        case _:
            return None, TAG


def _has(position: ReadPosition | None, edge: int) -> bool:
    """Return whether the position is, for some queue, the given edge."""
    return (
        edge in position.offsets.values()
        if isinstance(position, OffsetPerQueue)
        else isinstance(position, EdgePosition) and position.value == edge
    )
