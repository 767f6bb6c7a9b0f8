"""What users say of a cluster and of what they want from it, as values. Pure: nobody is asked.

Every bad value, and every pair of options that contradict each other, is a ConfigurationError in one sentence. Values can be pickled and
compared: they travel to executors, and connections are kept by them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from orbitmq.admin.following import TOOLS_GROUP
from orbitmq.client.credentials import Credentials
from orbitmq.client.pulling import subscription
from orbitmq.client.settings import NAME_SERVERS_VARIABLE, ClientSettings
from orbitmq.common.errors import ConfigurationError, MessageIllegal
from orbitmq.message.tag_expression import tags_of
from orbitmq.protocol.bodies.subscriptions import SQL92, TAG, SubscriptionData
from orbitmq.remoting.tls import ClientTls
from orbitmq.spark.offsets import EARLIEST, LATEST, Offsets, QueueKey, parse, parse_queues
from orbitmq.spark.option_texts import OptionTexts

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
_CHOICES: Final = ("subscribe", "subscribePattern", "assign")
_STARTS: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_ENDS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
SOURCE_OPTIONS: Final = (
    *_CHOICES,
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


class Edge(Enum):
    """An end of every queue."""

    EARLIEST = EARLIEST
    LATEST = LATEST


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message of every queue that was stored at that time or later."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The same with a time for each queue."""

    times_ms: Offsets


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each queue; EARLIEST and LATEST among them."""

    offsets: Offsets


Place = Edge | AtTime | AtTimes | AtOffsets


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Which queues are read: all of some topics, all of topics whose whole name fits a pattern, or those that are listed."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: frozenset[QueueKey] = frozenset()

    def __contains__(self, queue: QueueKey) -> bool:
        """Whether a queue is one of these, if it exists."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, queue.topic) is not None
        return queue in self.queues or queue.topic in self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """A read of topics, at once or as a stream."""

    client: ClientSettings
    choice: TopicChoice
    start: Place | None  # None: the default of a batch or of a stream
    end: Place | None
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
    def is_meant(cls, options: Mapping[str, str]) -> bool:
        """Whether these options can only be those of a read."""
        return bool(OptionTexts(options).given(SOURCE_OPTIONS))

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        texts = OptionTexts(options)
        _check_use(texts)
        expression, kind = _expression(texts)
        limit = texts.number("maxOffsetsPerTrigger", 1)
        count_min = texts.number("minOffsetsPerTrigger", 1)
        if limit is not None and count_min is not None and count_min > limit:
            raise ConfigurationError(
                f"option minOffsetsPerTrigger={count_min} is more than maxOffsetsPerTrigger={limit}; it has to be at most that"
            )
        return cls(
            client=connection(texts),
            choice=_choice(texts),
            start=_place(texts, _STARTS),
            end=_place(texts, _ENDS),
            fail_on_data_loss=texts.flag("failOnDataLoss", True),
            limit=limit,
            count_min=count_min,
            wait_ms_max=texts.duration_ms("maxTriggerDelay", 15 * 60_000),
            parts_min=texts.number("minPartitions", 1, 1_000_000),
            part_size_max=texts.number("maxRecordsPerPartition", 1),
            group=_group(texts),
            expression=expression,
            expression_kind=kind,
            retry_ms=texts.duration_ms("retryTimeout", 120_000),
        )

    @property
    def reader_group(self) -> str:
        """In whose name brokers are asked, as they know it; without a group it is that of tools, and no group comes to be."""
        return self.client.names.wire(self.group) if self.group else TOOLS_GROUP

    def wanted(self, topic: str) -> SubscriptionData:
        """What brokers are asked for of a topic."""
        return subscription(topic, self.expression, self.expression_kind)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that are wanted; none for all."""
        return (tags_of(self.expression) or ()) if self.expression_kind == TAG else ()

    def check_batch(self) -> None:
        """Refuse what has no meaning when everything is read at once."""
        for name, value in (("maxOffsetsPerTrigger", self.limit), ("minOffsetsPerTrigger", self.count_min)):
            if value is not None:
                raise ConfigurationError(f"option {name} is about the batches of a stream; leave it out, or use readStream")
        if _has(self.start, LATEST):
            raise ConfigurationError(
                "startingOffsets=latest leaves a batch nothing to read; begin at earliest, at offsets, at a time, or use readStream"
            )
        if _has(self.end, EARLIEST):
            raise ConfigurationError("endingOffsets=earliest leaves a batch nothing to read; end at latest, at offsets or at a time")

    def check_stream(self) -> None:
        """Refuse what has no meaning on a stream, or would lose messages there."""
        if self.end is not None:
            raise ConfigurationError(f"{', '.join(_ENDS)}: a stream has no end; use spark.read, or trigger(availableNow=True)")
        if self.group is None and _has(self.start or Edge.LATEST, LATEST):
            raise ConfigurationError(
                "a stream from startingOffsets=latest, which is the default, needs the option consumerGroup: the group keeps where the "
                "query began, so that nothing is lost when it fails in its first batch; or set startingOffsets=earliest"
            )


def connection(texts: OptionTexts) -> ClientSettings:
    """How the cluster is reached."""
    settings = ClientSettings(
        name_servers=texts.text("nameServer"),
        namespace=texts.text("namespace"),
        credentials=_credentials(texts),
        timeout_ms=texts.duration_ms("requestTimeout", 10_000, 1),
        tls=_tls(texts),
    )
    try:
        known = settings.known_name_servers()
    except ConfigurationError as problem:
        raise ConfigurationError(f"option nameServer: {problem}") from problem
    if not known:
        raise ConfigurationError(f"option nameServer is missing, and the variable {NAME_SERVERS_VARIABLE} is not set; give host:port")
    return settings


def _check_use(texts: OptionTexts) -> None:
    """Refuse what would be passed over in silence."""
    if useless := texts.given(SINK_OPTIONS):
        raise ConfigurationError(f"option {useless[0]} is for writing, and this is a read; leave it out")
    if texts.has("path"):
        raise ConfigurationError("load() is given a path, and topics have none; say what to read with the option subscribe")
    if texts.has("maxTriggerDelay") and not texts.has("minOffsetsPerTrigger"):
        raise ConfigurationError("option maxTriggerDelay is of use only with minOffsetsPerTrigger; add that, or leave it out")


def _credentials(texts: OptionTexts) -> Credentials | None:
    given = texts.given(("accessKey", "secretKey"))
    if len(given) == 1:
        raise ConfigurationError(f"option {given[0]} is given alone; accessKey and secretKey go together")
    if not given:
        if texts.has("securityToken"):
            raise ConfigurationError("option securityToken is given alone; it goes with accessKey and secretKey")
        return None
    return Credentials(texts.text("accessKey"), texts.text("secretKey"), texts.text("securityToken") or None)


def _tls(texts: OptionTexts) -> ClientTls:
    files = [name for name in CONNECTION_OPTIONS if name.startswith("tls") and name != "tlsEnable"]
    is_enabled = texts.flag("tlsEnable", False)
    if not is_enabled:
        if given := texts.given(files):
            raise ConfigurationError(f"option {given[0]} is given, and tlsEnable is not true; set it, or leave {given[0]} out")
        return ClientTls()
    if len(texts.given(("tlsCertPath", "tlsKeyPath"))) == 1:
        raise ConfigurationError("tlsCertPath and tlsKeyPath go together: a certificate of the client's own needs its key")
    return ClientTls(
        enabled=True,
        test_mode=False,
        key_path=texts.text("tlsKeyPath") or None,
        key_password=texts.text("tlsKeyPassword") or None,
        cert_path=texts.text("tlsCertPath") or None,
        verify_server=texts.flag("tlsVerifyServer", texts.has("tlsTrustCertPath")),
        trust_cert_path=texts.text("tlsTrustCertPath") or None,
    )


def _choice(texts: OptionTexts) -> TopicChoice:
    match texts.only_one(_CHOICES):
        case "subscribe":
            topics = tuple(dict.fromkeys(topic for part in texts.text("subscribe").split(",") if (topic := part.strip())))
            if not topics:
                raise texts.refused("subscribe", "it is a topic, or several with commas between them")
            return TopicChoice(topics=topics)
        case "subscribePattern":
            try:
                re.compile(texts.text("subscribePattern"))
            except re.error as problem:
                raise texts.refused("subscribePattern", f"it is no regular expression: {problem}") from problem
            return TopicChoice(pattern=texts.text("subscribePattern"))
        case "assign":
            return TopicChoice(queues=parse_queues(texts.text("assign"), "assign"))
        case _:
            raise ConfigurationError(f"nothing says what to read; give one of the options {', '.join(_CHOICES)}")


def _place(texts: OptionTexts, names: tuple[str, str, str]) -> Place | None:
    by_offset, by_time, by_times = names
    match texts.only_one(names):
        case None:
            return None
        case name if name == by_time:
            return AtTime(texts.time_ms(name))
        case name if name == by_times:
            return AtTimes(parse(texts.text(name), name, low=0))
        case name:
            text = texts.text(by_offset)
            if text.lower() in ("earliest", "latest"):
                return Edge[text.upper()]
            if not text.startswith("{"):
                raise texts.refused(by_offset, 'it is earliest, latest, or JSON as {"topic":{"broker":{"0":23}}}')
            return AtOffsets(parse(text, by_offset, low=EARLIEST))


def _group(texts: OptionTexts) -> str | None:
    if not texts.has("consumerGroup"):
        return None
    group = texts.text("consumerGroup")
    if not _GROUP.fullmatch(group):
        raise texts.refused("consumerGroup", "a group has at most 255 letters, digits, and the signs % | - _")
    return group


def _expression(texts: OptionTexts) -> tuple[str | None, str]:
    match texts.only_one(("tags", "sql92")):
        case "tags":
            text = texts.text("tags")
            try:
                return (None if tags_of(text) is None else text), TAG
            except MessageIllegal as problem:
                raise texts.refused("tags", str(problem)) from problem
        case "sql92":
            return texts.text("sql92"), SQL92
        case _:
            return None, TAG


def _has(place: Place | None, edge: int) -> bool:
    """Whether a place is, for some queue, an end of it."""
    return edge in place.offsets.values() if isinstance(place, AtOffsets) else isinstance(place, Edge) and place.value == edge
