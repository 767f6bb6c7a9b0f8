"""The body of REGISTER_BROKER: a broker's topics, in any of the four forms that brokers of all ages send.

    plain       {"filterServerList":[…],"topicConfigSerializeWrapper":{"dataVersion":…,"topicConfigTable":{…}, 5.x: mappings}}
    compressed  one zlib stream of
                    int length, DataVersion as JSON
                    int count, count x (int length, "name read write perm filterType[ attributes as JSON]")
                    int length, filter servers as a JSON array
                    from V5_0_0 on: int count, count x (int length, TopicQueueMappingInfo as JSON)
    before V3_0_11   the topicConfigSerializeWrapper alone, as JSON
    no body     no topics, version {0, 0, 0}

A zlib stream is known by its first byte, whatever the header says: brokers 5.3 to 5.5 compress and still say that they did not.
Topics lose their system flag and order in the compressed form. Invariant: whatever the bytes, reading returns or raises
ProtocolError, and never holds more than INFLATED_BYTES_MAX of inflated content.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig, TopicQueueMappingInfo, as_object, mapping_table, text_map, texts
from orbitmq.protocol.versions import CURRENT_VERSION, V3_0_11, V5_0_0

INFLATED_BYTES_MAX: Final = 64 * 1024 * 1024

_ZLIB_FIRST_BYTE: Final = b"\x78"
_COMPRESSION_LEVEL: Final = 9
_LENGTH: Final = Struct(">i")


def body_crc32(body: bytes) -> int:
    """The checksum of a body as the header states it: without the sign bit, so that it is a number of Java's."""
    return zlib.crc32(body) & 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class RegisterBrokerBody:
    """A broker's topics as of a version. `data_version` is None when a peer sent topics without one; `filter_servers` None means
    that nothing was said of them."""

    data_version: DataVersion | None = field(default_factory=DataVersion)
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    filter_servers: list[str] | None = field(default_factory=list)
    queue_mappings: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)

    @classmethod
    def decode(cls, body: bytes | None, *, compressed: bool = False, version: int = CURRENT_VERSION) -> RegisterBrokerBody:
        """The registration in the form that a peer of that version sends."""
        if not body:
            return cls(filter_servers=[] if version >= V3_0_11 else None)
        if version < V3_0_11:
            return _from_wrapper(fastjson.loads(body), None)
        if compressed or body.startswith(_ZLIB_FIRST_BYTE):
            return _read_compressed(_inflate(body), with_mappings=version >= V5_0_0)
        members = as_object(fastjson.loads(body), "RegisterBrokerBody")
        has_filters = members.get("filterServerList", []) is not None
        return _from_wrapper(members.get("topicConfigSerializeWrapper"), texts(members.get("filterServerList")) if has_filters else None)

    def encode(self, *, compressed: bool = False, version: int = CURRENT_VERSION) -> bytes:
        """The body as a broker of that version sends it."""
        data_version = self.data_version or DataVersion()
        if compressed:
            return zlib.compress(self._packed(data_version, is_v5=version >= V5_0_0), _COMPRESSION_LEVEL)
        wrapper: dict[str, Any] = {
            "dataVersion": data_version.to_json(),
            "mappingDataVersion": self.mapping_data_version.to_json(),
            "topicConfigTable": {name: topic.to_json() for name, topic in self.topics.items()},
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {topic: info.to_json() for topic, info in self.queue_mappings.items()},
        }
        return fastjson.dumps(fastjson.bean(filterServerList=self.filter_servers, topicConfigSerializeWrapper=wrapper))

    def _packed(self, data_version: DataVersion, *, is_v5: bool) -> bytes:
        out: list[bytes] = []

        def put(item: bytes) -> None:
            out.extend((_LENGTH.pack(len(item)), item))

        put(fastjson.dumps(data_version.to_json()))
        out.append(_LENGTH.pack(len(self.topics)))
        for topic in self.topics.values():
            put(_topic_line(topic, with_attributes=is_v5))
        put(fastjson.dumps(self.filter_servers or []))
        if is_v5:
            out.append(_LENGTH.pack(len(self.queue_mappings)))
            for mapping in self.queue_mappings.values():
                put(fastjson.dumps(mapping.to_json()))
        return b"".join(out)


def _from_wrapper(value: Any, filter_servers: list[str] | None) -> RegisterBrokerBody:
    wrapper = as_object({} if value is None else value, "topicConfigSerializeWrapper")
    data_version, mapping_version = wrapper.get("dataVersion"), wrapper.get("mappingDataVersion")
    topics: dict[str, TopicConfig] = {}
    for key, members in as_object(wrapper.get("topicConfigTable") or {}, "topicConfigTable").items():
        topic = TopicConfig.from_json(members, name=str(key))
        topics[topic.name] = topic
    return RegisterBrokerBody(
        data_version=None if data_version is None else DataVersion.from_json(data_version),
        topics=topics,
        filter_servers=filter_servers,
        queue_mappings=mapping_table(wrapper.get("topicQueueMappingInfoMap")),
        mapping_data_version=DataVersion() if mapping_version is None else DataVersion.from_json(mapping_version),
    )


def _inflate(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise ProtocolError(f"the body is no zlib stream: {error}") from error
    if stream.eof:
        return plain
    if len(plain) >= INFLATED_BYTES_MAX:
        raise ProtocolError(f"the body inflates to more than {INFLATED_BYTES_MAX} bytes; register fewer topics at a time")
    raise ProtocolError("the body's zlib stream is cut short")


def _read_compressed(plain: bytes, *, with_mappings: bool) -> RegisterBrokerBody:
    reader = _Reader(plain)
    data_version = DataVersion.from_json(fastjson.loads(reader.block()))
    topics = [_read_topic_line(reader.block()) for _ in range(reader.number())]
    filter_servers = texts(fastjson.loads(reader.block()))
    mapping_count = reader.number() if with_mappings else 0
    mappings = [TopicQueueMappingInfo.from_json(fastjson.loads(reader.block())) for _ in range(mapping_count)]
    return RegisterBrokerBody(
        data_version,
        {topic.name: topic for topic in topics},
        filter_servers,
        {mapping.topic: mapping for mapping in mappings},
    )


class _Reader:
    """Takes the parts of the inflated content, one after the other."""

    __slots__ = ("_at", "_plain")

    def __init__(self, plain: bytes) -> None:
        self._plain = plain
        self._at = 0

    def number(self) -> int:
        """A length or count; what it announces takes at least a byte each, so more than what is left cannot be."""
        left = len(self._plain) - self._at - _LENGTH.size
        if left < 0:
            raise ProtocolError(f"the inflated body ends at byte {len(self._plain)}, where a number is expected at byte {self._at}")
        (value,) = _LENGTH.unpack_from(self._plain, self._at)
        if not 0 <= value <= left:
            raise ProtocolError(f"the inflated body announces {value} at byte {self._at} of {len(self._plain)}; that much does not follow")
        self._at += _LENGTH.size
        return int(value)

    def block(self) -> bytes:
        length = self.number()
        self._at += length
        return self._plain[self._at - length : self._at]


def _topic_line(topic: TopicConfig, *, with_attributes: bool) -> bytes:
    line = f"{topic.name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} {topic.filter_type}".encode()
    return line + b" " + fastjson.dumps(dict(topic.attributes)) if with_attributes else line


def _read_topic_line(line: bytes) -> TopicConfig:
    try:
        name, read, write, perm, filter_type, *attributes = line.decode().split(" ", 5)
        numbers = int(read), int(write), int(perm)
    except ValueError:
        raise ProtocolError(f"a topic is 'name read write perm filterType [attributes]', found {line[:100]!r}") from None
    if any(not -(1 << 31) <= value < 1 << 31 for value in numbers):
        raise ProtocolError(f"a topic's numbers must fit 32 bits, found {line[:100]!r}")
    return TopicConfig(name, *numbers, filter_type, attributes=text_map(fastjson.loads(attributes[0])) if attributes else {})
