"""What is written of a registration is read again, and no bytes bring anything but a registration
or ProtocolError.
"""

from __future__ import annotations

import contextlib
import zlib

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig, TopicQueueMappingInfo
from orbitmq.protocol.bodies.registration import RegisterBrokerBody

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
words = texts.filter(lambda text: " " not in text)


def topic_configs(
    names: st.SearchStrategy[str], *, compressed: bool
) -> st.SearchStrategy[TopicConfig]:
    return st.builds(
        TopicConfig,
        name=names,
        read_queue_nums=int32,
        write_queue_nums=int32,
        perm=int32,
        filter_type=st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
        sys_flag=st.just(0) if compressed else int32,
        order=st.just(False) if compressed else st.booleans(),
        attributes=st.dictionaries(texts, texts, max_size=2),
    )


def bodies(*, compressed: bool) -> st.SearchStrategy[RegisterBrokerBody]:
    mappings = st.builds(
        TopicQueueMappingInfo,
        topic=texts,
        broker_name=texts,
        total_queues=int32,
        epoch=int64,
        curr_id_map=st.dictionaries(int32, int32, max_size=3).map(
            lambda ids: dict(sorted(ids.items()))
        ),
        scope=texts,
        dirty=st.booleans(),
    )
    topics = st.lists(
        topic_configs(words if compressed else texts, compressed=compressed), max_size=5
    )
    return st.builds(
        RegisterBrokerBody,
        data_version=st.builds(DataVersion, int64, int64, int64),
        topics=topics.map(lambda configs: {config.name: config for config in configs}),
        filter_servers=st.lists(texts, max_size=2),
        queue_mappings=st.lists(mappings, max_size=2).map(
            lambda infos: {info.topic: info for info in infos}
        ),
    )


@given(bodies(compressed=False))
def test_a_plain_body_is_read_as_it_was_written(body: RegisterBrokerBody) -> None:
    assert RegisterBrokerBody.decode(body.encode()) == body


@given(bodies(compressed=True))
def test_a_compressed_body_is_read_as_it_was_written(body: RegisterBrokerBody) -> None:
    assert RegisterBrokerBody.decode(body.encode(compressed=True), compressed=True) == body


@given(st.binary(max_size=200), st.booleans(), st.sampled_from([30, 409, 513]))
def test_any_bytes_are_a_registration_or_a_protocol_error(
    data: bytes, compressed: bool, version: int
) -> None:
    for body in (data, zlib.compress(data)):
        with contextlib.suppress(ProtocolError):
            assert isinstance(
                RegisterBrokerBody.decode(body, compressed=compressed, version=version),
                RegisterBrokerBody,
            )


@given(bodies(compressed=False), st.data())
def test_a_damaged_body_is_a_registration_or_a_protocol_error(
    body: RegisterBrokerBody, data: st.DataObject
) -> None:
    damaged = bytearray(body.encode())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        assert isinstance(RegisterBrokerBody.decode(bytes(damaged)), RegisterBrokerBody)
