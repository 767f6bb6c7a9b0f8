"""The body of REGISTER_BROKER: a broker's topics, in any of the four forms that brokers of all ages
send.

    plain
    {"filterServerList":[…],"topicConfigSerializeWrapper":{"dataVersion":…,"topicConfigTable":{…},
    5.x: mappings}}
    compressed  one zlib stream of
                    int length, DataVersion as JSON
                    int count, count x (int length, "name read write perm filterType[ attributes as
                    JSON]")
                    int length, filter servers as a JSON array
                    from V5_0_0 on: int count, count x (int length, TopicQueueMappingInfo as JSON)
    before V3_0_11   the topicConfigSerializeWrapper alone, as JSON
    no body     no topics, version {0, 0, 0}

A zlib stream is known by its first byte, whatever the header says: brokers 5.3 to 5.5 compress and
still say that they did not. Topics lose their system flag and order in the compressed form.
Invariant: whatever the bytes, reading returns or raises ProtocolError, and never holds more than
INFLATED_BYTES_MAX of inflated content.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final, cast

from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import SliceBudget, Slices, finish
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import (
    DataVersion,
    TopicConfig,
    TopicQueueMappingInfo,
    as_object,
    attribute_map,
    texts,
)
from orbitmq.protocol.versions import CURRENT_VERSION, V3_0_11, V5_0_0

INFLATED_BYTES_MAX: Final = 64 * 1024 * 1024
FILTER_SERVERS_MAX: Final = 1000
BLOCK_BYTES_MAX: Final = 64 * 1024  # of one topic, or of the version, in the compressed form

_UNITS_PER_SLICE: Final = 10_000  # of half a microsecond: an attribute of a topic, a mapped queue
_TOPIC_UNITS: Final = 10  # of a topic or mapping, beside what it holds
_UNIT_BYTES: Final = 16  # of JSON in the compressed form
_PACKED_BYTES_PER_SLICE: Final = 32 * 1024
_INFLATED_PER_SLICE: Final = 512 * 1024

_ZLIB_FIRST_BYTE: Final = b"\x78"
_COMPRESSION_LEVEL: Final = 9
_LENGTH: Final = Struct(">i")


def body_crc32(body: bytes) -> int:
    """The checksum of a body as the header states it: without the sign bit, so that it is a number
    of Java's.
    """
    return zlib.crc32(body) & 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class RegisterBrokerBody:
    """A broker's topics as of a version. `data_version` is None when a peer sent topics without
    one; `filter_servers` None means that nothing was said of them."""

    data_version: DataVersion | None = field(default_factory=DataVersion)
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    filter_servers: list[str] | None = field(default_factory=list)
    queue_mappings: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)

    @classmethod
    def decode(
        cls, body: bytes | None, *, compressed: bool = False, version: int = CURRENT_VERSION
    ) -> RegisterBrokerBody:
        """The registration in the form that a peer of that version sends."""
        return finish(cls.decode_in_slices(body, compressed=compressed, version=version))

    @classmethod
    def decode_in_slices(
        cls, body: bytes | None, *, compressed: bool = False, version: int = CURRENT_VERSION
    ) -> Slices[RegisterBrokerBody]:
        """Do what `decode` does, in slices."""
        if not body:
            return cls(filter_servers=[] if version >= V3_0_11 else None)
        if version < V3_0_11:
            return (yield from _from_wrapper((yield from fastjson.loads_in_slices(body)), None))
        if compressed or body.startswith(_ZLIB_FIRST_BYTE):
            return (
                yield from _read_compressed(
                    (yield from _inflate(body)), with_mappings=version >= V5_0_0
                )
            )
        members = as_object((yield from fastjson.loads_in_slices(body)), "RegisterBrokerBody")
        has_filters = members.get("filterServerList", []) is not None
        filter_servers = _filter_servers(members.get("filterServerList")) if has_filters else None
        return (
            yield from _from_wrapper(members.get("topicConfigSerializeWrapper"), filter_servers)
        )

    def encode(self, *, compressed: bool = False, version: int = CURRENT_VERSION) -> bytes:
        """The body as a broker of that version sends it."""
        return finish(self.encode_in_slices(compressed=compressed, version=version))

    def encode_in_slices(
        self, *, compressed: bool = False, version: int = CURRENT_VERSION
    ) -> Slices[bytes]:
        """Do what `encode` does, in slices."""
        data_version = self.data_version or DataVersion()
        if compressed:
            stream = zlib.compressobj(_COMPRESSION_LEVEL)
            packed: list[bytes] = []
            part: list[bytes] = []
            budget = SliceBudget(_PACKED_BYTES_PER_SLICE)
            for piece in self._packed(data_version, is_v5=version >= V5_0_0):
                part.append(piece)
                if budget.spend(len(piece)):
                    packed.append(stream.compress(b"".join(part)))
                    part = []
                    yield
            return b"".join((*packed, stream.compress(b"".join(part)), stream.flush()))
        wrapper: dict[str, Any] = {
            "dataVersion": data_version.to_json(),
            "mappingDataVersion": self.mapping_data_version.to_json(),
            "topicConfigTable": fastjson.Entries(
                (name, topic.to_json()) for name, topic in self.topics.items()
            ),
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": fastjson.Entries(
                (topic, info.to_json()) for topic, info in self.queue_mappings.items()
            ),
        }
        body = fastjson.bean(
            filterServerList=self.filter_servers, topicConfigSerializeWrapper=wrapper
        )
        return (yield from fastjson.dumps_in_slices(body))

    def _packed(self, data_version: DataVersion, *, is_v5: bool) -> Iterator[bytes]:
        """The pieces of the content that is compressed."""
        yield _sized(fastjson.dumps(data_version.to_json()))
        yield _LENGTH.pack(len(self.topics))
        for topic in self.topics.values():
            yield _sized(_topic_line(topic, with_attributes=is_v5))
        yield _sized(fastjson.dumps(self.filter_servers or []))
        if is_v5:
            yield _LENGTH.pack(len(self.queue_mappings))
            for mapping in self.queue_mappings.values():
                yield _sized(fastjson.dumps(mapping.to_json()))


def _from_wrapper(value: Any, filter_servers: list[str] | None) -> Slices[RegisterBrokerBody]:
    wrapper = as_object({} if value is None else value, "topicConfigSerializeWrapper")
    data_version, mapping_version = wrapper.get("dataVersion"), wrapper.get("mappingDataVersion")
    topics: dict[str, TopicConfig] = {}
    table = cast(
        "dict[Any, Any]", as_object(wrapper.get("topicConfigTable") or {}, "topicConfigTable")
    )
    budget = SliceBudget(_UNITS_PER_SLICE)
    for key in list(table):
        topic = TopicConfig.from_json(
            table.pop(key), name=str(key)
        )  # which frees it: all at once would take a while
        topics[topic.name] = topic
        if budget.spend(_TOPIC_UNITS + len(topic.attributes)):
            yield
    mappings: dict[str, TopicQueueMappingInfo] = {}
    known = wrapper.get("topicQueueMappingInfoMap")
    for name, info in as_object({} if known is None else known, "a map of queue mappings").items():
        mapping = mappings[name] = TopicQueueMappingInfo.from_json(info)
        if budget.spend(_TOPIC_UNITS + len(mapping.curr_id_map)):
            yield
    return RegisterBrokerBody(
        data_version=None if data_version is None else DataVersion.from_json(data_version),
        topics=topics,
        filter_servers=filter_servers,
        queue_mappings=mappings,
        mapping_data_version=(
            DataVersion() if mapping_version is None else DataVersion.from_json(mapping_version)
        ),
    )


def _filter_servers(value: Any) -> list[str]:
    if isinstance(value, list) and len(value) > FILTER_SERVERS_MAX:
        raise ProtocolError(
            f"a broker has at most {FILTER_SERVERS_MAX} filter servers, found {len(value)}"
        )
    return texts(value)


def _inflate(body: bytes) -> Slices[bytearray]:
    stream = zlib.decompressobj()
    plain = bytearray()
    rest = body
    while True:
        try:
            piece = stream.decompress(
                rest, min(_INFLATED_PER_SLICE, INFLATED_BYTES_MAX - len(plain))
            )
        except zlib.error as error:
            raise ProtocolError(f"the body is no zlib stream: {error}") from error
        rest = stream.unconsumed_tail
        plain += piece
        if stream.eof:
            return plain
        if len(plain) >= INFLATED_BYTES_MAX:
            raise ProtocolError(
                f"the body inflates to more than {INFLATED_BYTES_MAX} bytes; register fewer topics"
                " at a time"
            )
        if not rest and len(piece) < _INFLATED_PER_SLICE:
            raise ProtocolError("the body's zlib stream is cut short")
        yield


def _read_compressed(plain: bytearray, *, with_mappings: bool) -> Slices[RegisterBrokerBody]:
    reader = _Reader(plain)
    data_version = DataVersion.from_json(fastjson.loads(bytes(reader.block(BLOCK_BYTES_MAX))))
    topics: dict[str, TopicConfig] = {}
    budget = SliceBudget(_UNITS_PER_SLICE)
    for _ in range(reader.number()):
        line = reader.block(BLOCK_BYTES_MAX)
        topic = _read_topic_line(line)
        topics[topic.name] = topic
        if budget.spend(_TOPIC_UNITS + len(line) // _UNIT_BYTES):
            yield
    filter_servers = _filter_servers((yield from fastjson.loads_in_slices(bytes(reader.block()))))
    mappings: dict[str, TopicQueueMappingInfo] = {}
    for _ in range(reader.number() if with_mappings else 0):
        block = bytes(reader.block())
        mapping = TopicQueueMappingInfo.from_json((yield from fastjson.loads_in_slices(block)))
        mappings[mapping.topic] = mapping
        if budget.spend(_TOPIC_UNITS + len(block) // _UNIT_BYTES):
            yield
    return RegisterBrokerBody(data_version, topics, filter_servers, mappings)


class _Reader:
    """Takes the parts of the inflated content, one after the other."""

    __slots__ = ("_at", "_plain")

    def __init__(self, plain: bytearray) -> None:
        self._plain = plain
        self._at = 0

    def number(self) -> int:
        """A length or count; what it announces takes at least a byte each, so more than what is
        left cannot be.
        """
        left = len(self._plain) - self._at - _LENGTH.size
        if left < 0:
            raise ProtocolError(
                f"the inflated body ends at byte {len(self._plain)}, where a number is expected at"
                f" byte {self._at}"
            )
        (value,) = _LENGTH.unpack_from(self._plain, self._at)
        if not 0 <= value <= left:
            raise ProtocolError(
                f"the inflated body announces {value} at byte {self._at} of {len(self._plain)};"
                " that much does not follow"
            )
        self._at += _LENGTH.size
        return int(value)

    def block(self, bytes_max: int | None = None) -> bytearray:
        length = self.number()
        if bytes_max is not None and length > bytes_max:
            raise ProtocolError(
                f"a topic or version of {length} bytes is announced at byte {self._at}; up to"
                f" {bytes_max} are read"
            )
        self._at += length
        return self._plain[self._at - length : self._at]


def _sized(item: bytes) -> bytes:
    return _LENGTH.pack(len(item)) + item


def _topic_line(topic: TopicConfig, *, with_attributes: bool) -> bytes:
    line = (
        f"{topic.name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm}"
        f" {topic.filter_type}".encode()
    )
    return line + b" " + fastjson.dumps(dict(topic.attributes)) if with_attributes else line


def _read_topic_line(line: bytearray) -> TopicConfig:
    try:
        name, read, write, perm, filter_type, *attributes = line.decode().split(" ", 5)
        numbers = int(read), int(write), int(perm)
    except ValueError:
        raise ProtocolError(
            "a topic is 'name read write perm filterType [attributes]', found"
            f" {bytes(line[:100])!r}"
        ) from None
    if any(not -(1 << 31) <= value < 1 << 31 for value in numbers):
        raise ProtocolError(f"a topic's numbers must fit 32 bits, found {bytes(line[:100])!r}")
    return TopicConfig(
        name,
        *numbers,
        filter_type,
        attributes=attribute_map(fastjson.loads(attributes[0])) if attributes else {},
    )
