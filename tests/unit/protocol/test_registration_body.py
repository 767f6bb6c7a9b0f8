"""The body of a registration in all its forms, and refused bodies."""

from __future__ import annotations

import struct
import zlib

import pytest

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies import registration
from orbitmq.protocol.bodies.nameserver import (
    ATTRIBUTES_MAX,
    MAPPED_QUEUES_MAX,
    DataVersion,
    TopicConfig,
    TopicQueueMappingInfo,
)
from orbitmq.protocol.bodies.registration import RegisterBrokerBody, body_crc32

CONTENT = RegisterBrokerBody(
    DataVersion(3, 1000, 1),
    {
        "T1": TopicConfig("T1", 4, 8, 6, attributes={"+message.type": "FIFO"}),
        "T2": TopicConfig("T2"),
    },
    ["10.0.0.1:30000"],
    {"T1": TopicQueueMappingInfo("T1", "b", 4, 7, {0: 0, 3: 1})},
)


def block(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def test_both_forms_say_the_same() -> None:
    assert RegisterBrokerBody.decode(CONTENT.encode()) == CONTENT
    assert RegisterBrokerBody.decode(CONTENT.encode(compressed=True), compressed=True) == CONTENT


def test_the_compressed_form_is_what_the_format_says() -> None:
    plain = zlib.decompress(CONTENT.encode(compressed=True))
    mapping = b'{"bname":"b","currIdMap":{0:0,3:1},"dirty":false,"epoch":7,"scope":"__global__","topic":"T1","totalQueues":4}'
    assert plain == (
        block(b'{"counter":3,"stateVersion":1,"timestamp":1000}')
        + struct.pack(">i", 2)
        + block(b'T1 4 8 6 SINGLE_TAG {"+message.type":"FIFO"}')
        + block(b"T2 16 16 6 SINGLE_TAG {}")
        + block(b'["10.0.0.1:30000"]')
        + struct.pack(">i", 1)
        + block(mapping)
    )


def test_a_peer_before_5_0_gets_neither_attributes_nor_mappings() -> None:
    plain = zlib.decompress(CONTENT.encode(compressed=True, version=409))
    assert block(b"T1 4 8 6 SINGLE_TAG") in plain
    assert plain.endswith(block(b'["10.0.0.1:30000"]'))
    content = RegisterBrokerBody.decode(zlib.compress(plain), compressed=True, version=409)
    assert (content.topics["T1"].attributes, content.queue_mappings) == ({}, {})


def test_a_zlib_stream_is_known_whatever_the_header_says() -> None:
    assert RegisterBrokerBody.decode(CONTENT.encode(compressed=True), compressed=False) == CONTENT


def test_no_body_means_no_topics_at_version_zero() -> None:
    assert RegisterBrokerBody.decode(None) == RegisterBrokerBody(DataVersion(0, 0, 0), {}, [])
    assert RegisterBrokerBody.decode(b"", version=30).filter_servers is None


def test_before_3_0_11_the_body_is_the_wrapper_alone_and_says_nothing_of_filter_servers() -> None:
    wrapper = fastjson.loads(CONTENT.encode())["topicConfigSerializeWrapper"]
    content = RegisterBrokerBody.decode(fastjson.dumps(wrapper), version=36)
    assert (content.topics, content.filter_servers) == (CONTENT.topics, None)


def test_what_is_missing_has_the_defaults_of_the_original() -> None:
    body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T1":{"topicName":"T1"},"T2":{"perm":4}}}}'
    content = RegisterBrokerBody.decode(body)
    assert content.data_version is None
    assert content.topics == {
        "T1": TopicConfig("T1", 16, 16, 6),
        "T2": TopicConfig("T2", 16, 16, 4),
    }
    assert content.filter_servers == []
    assert RegisterBrokerBody.decode(b'{"filterServerList":null}').filter_servers is None


def test_a_topic_goes_by_its_name_not_by_its_key() -> None:
    content = RegisterBrokerBody.decode(
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"key":{"topicName":"name"}}}}'
    )
    assert content.topics.keys() == {"name"}


def test_a_stream_that_inflates_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "INFLATED_BYTES_MAX", 1_000_000)
    bomb = zlib.compress(bytes(10_000_000), 9)
    assert len(bomb) < 10_000
    with pytest.raises(ProtocolError, match="more than 1000000 bytes"):
        RegisterBrokerBody.decode(bomb)


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"\0\0\0",
        struct.pack(">i", -1),
        struct.pack(">i", 5) + b"{}",
        block(b"{}") + struct.pack(">i", 1_000_000_000),
        block(b"{}") + struct.pack(">i", -1),
        block(b"{}") + struct.pack(">i", 1) + block(b"T1 4 4"),
        block(b"{}") + struct.pack(">i", 1) + block(b"T1 4 four 6 SINGLE_TAG"),
        block(b"{}") + struct.pack(">i", 1) + block(b"T1 4 4294967296 6 SINGLE_TAG"),
        block(b"{}") + struct.pack(">i", 1) + block(b"T1 4 4 6 SINGLE_TAG {"),
        block(b"{}") + struct.pack(">i", 1) + block(b"\xff 4 4 6 SINGLE_TAG"),
        block(b"{}") + struct.pack(">i", 0) + block(b"{}") + struct.pack(">i", 0),
        block(b"{}") + struct.pack(">i", 0) + block(b"[]"),
    ],
)
def test_a_compressed_body_that_is_cut_or_says_too_much_is_refused(plain: bytes) -> None:
    with pytest.raises(ProtocolError):
        RegisterBrokerBody.decode(zlib.compress(plain))


def test_a_stream_that_is_cut_short_is_refused() -> None:
    body = CONTENT.encode(compressed=True)
    for length in range(1, len(body)):
        with pytest.raises(ProtocolError):
            RegisterBrokerBody.decode(body[:length])


@pytest.mark.parametrize(
    "topic",
    [
        '{"perm":"x"}',
        '{"perm":[]}',
        '{"perm":4294967296}',
        '{"topicName":3}',
        "7",
        '{"attributes":[]}',
        '{"readQueueNums":1e400}',
    ],
)
def test_a_topic_of_the_wrong_shape_is_refused(topic: str) -> None:
    with pytest.raises(ProtocolError):
        RegisterBrokerBody.decode(
            f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{"T":{topic}}}}}}}'.encode()
        )


def test_the_checksum_has_no_sign_bit() -> None:
    assert body_crc32(b"a") == zlib.crc32(b"a") & 0x7FFFFFFF != zlib.crc32(b"a")


@pytest.mark.parametrize("compressed", [False, True])
def test_a_large_registration_is_written_and_read_in_many_slices(compressed: bool) -> None:
    content = RegisterBrokerBody(
        DataVersion(1, 1, 1),
        {f"topic-{number}": TopicConfig(f"topic-{number}") for number in range(20_000)},
    )
    body = content.encode(compressed=compressed)
    assert sum(1 for _ in content.encode_in_slices(compressed=compressed)) >= 20
    assert sum(1 for _ in RegisterBrokerBody.decode_in_slices(body, compressed=compressed)) >= 20
    assert RegisterBrokerBody.decode(body, compressed=compressed) == content


@pytest.mark.parametrize("compressed", [False, True])
def test_slices_of_a_registration_count_what_its_topics_hold(compressed: bool) -> None:
    attributes = {f"name{number}": "value" for number in range(1_000)}
    queues = {number: number for number in range(10_000)}
    content = RegisterBrokerBody(
        DataVersion(1, 1, 1),
        {f"T{number}": TopicConfig(f"T{number}", attributes=attributes) for number in range(100)},
        queue_mappings={
            f"M{number}": TopicQueueMappingInfo(f"M{number}", "b", 10_000, 1, queues)
            for number in range(10)
        },
    )
    body = content.encode(compressed=compressed)
    assert sum(1 for _ in RegisterBrokerBody.decode_in_slices(body, compressed=compressed)) >= 20
    assert sum(1 for _ in content.encode_in_slices(compressed=compressed)) >= 20
    assert RegisterBrokerBody.decode(body, compressed=compressed) == content


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            RegisterBrokerBody(filter_servers=["f"] * (registration.FILTER_SERVERS_MAX + 1)),
            "filter servers",
        ),
        (
            RegisterBrokerBody(
                topics={
                    "T": TopicConfig(
                        "T", attributes={f"a{n}": "" for n in range(ATTRIBUTES_MAX + 1)}
                    )
                }
            ),
            "attributes",
        ),
        (
            RegisterBrokerBody(
                queue_mappings={
                    "T": TopicQueueMappingInfo(
                        "T", "b", curr_id_map={n: n for n in range(MAPPED_QUEUES_MAX + 1)}
                    )
                }
            ),
            "queues on a broker",
        ),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_absurd_numbers_of_items_are_refused(
    content: RegisterBrokerBody, why: str, compressed: bool
) -> None:
    with pytest.raises(ProtocolError, match=why):
        RegisterBrokerBody.decode(content.encode(compressed=compressed), compressed=compressed)
