"""consumerFilter.json, byte for byte as RocketMQ 5.5.0 wrote it."""

from __future__ import annotations

import pytest

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol.bodies.consumer_filters import (
    BloomPositions,
    FilterData,
    decode_filters,
    encode_filters,
)

ORIGINAL = b"""{
\t"filterDataByTopic":{
\t\t"TopicB":{
\t\t\t"groupFilterData":{
\t\t\t\t"g1":{
\t\t\t\t\t"bloomFilterData":{
\t\t\t\t\t\t"bitNum":112,
\t\t\t\t\t\t"bitPos":[92,11,28]
\t\t\t\t\t},
\t\t\t\t\t"bornTime":1794844184623,
\t\t\t\t\t"clientVersion":6,
\t\t\t\t\t"consumerGroup":"g1",
\t\t\t\t\t"dead":true,
\t\t\t\t\t"deadTime":1794844196218,
\t\t\t\t\t"expression":"TRUE",
\t\t\t\t\t"expressionType":"SQL92",
\t\t\t\t\t"topic":"TopicB"
\t\t\t\t}
\t\t\t},
\t\t\t"topic":"TopicB"
\t\t},
\t\t"TopicA":{
\t\t\t"groupFilterData":{
\t\t\t\t"g1":{
\t\t\t\t\t"bloomFilterData":{
\t\t\t\t\t\t"bitNum":112,
\t\t\t\t\t\t"bitPos":[19,13,46]
\t\t\t\t\t},
\t\t\t\t\t"bornTime":1794844184539,
\t\t\t\t\t"clientVersion":5,
\t\t\t\t\t"consumerGroup":"g1",
\t\t\t\t\t"dead":false,
\t\t\t\t\t"deadTime":0,
\t\t\t\t\t"expression":"a > 1 AND b = 'x\\"y'",
\t\t\t\t\t"expressionType":"SQL92",
\t\t\t\t\t"topic":"TopicA"
\t\t\t\t},
\t\t\t\t"g2":{
\t\t\t\t\t"bloomFilterData":{
\t\t\t\t\t\t"bitNum":112,
\t\t\t\t\t\t"bitPos":[33,20,42]
\t\t\t\t\t},
\t\t\t\t\t"bornTime":1794844184844,
\t\t\t\t\t"clientVersion":7,
\t\t\t\t\t"consumerGroup":"g2",
\t\t\t\t\t"dead":false,
\t\t\t\t\t"deadTime":0,
\t\t\t\t\t"expression":"c IS NULL",
\t\t\t\t\t"expressionType":"SQL92",
\t\t\t\t\t"topic":"TopicA"
\t\t\t\t}
\t\t\t},
\t\t\t"topic":"TopicA"
\t\t}
\t}
}"""

FILTERS = [
    FilterData(
        "TopicB",
        "g1",
        "TRUE",
        "SQL92",
        6,
        1794844184623,
        BloomPositions(112, (92, 11, 28)),
        1794844196218,
    ),
    FilterData(
        "TopicA",
        "g1",
        "a > 1 AND b = 'x\"y'",
        "SQL92",
        5,
        1794844184539,
        BloomPositions(112, (19, 13, 46)),
    ),
    FilterData(
        "TopicA", "g2", "c IS NULL", "SQL92", 7, 1794844184844, BloomPositions(112, (33, 20, 42))
    ),
]


def test_the_file_of_the_original_is_read_and_written_as_it_is() -> None:
    assert decode_filters(ORIGINAL) == FILTERS
    assert encode_filters(FILTERS) == ORIGINAL
    assert [each.is_dead for each in FILTERS] == [True, False, False]


def test_members_that_are_not_there_are_nothing() -> None:
    assert (
        decode_filters(b"{}") == decode_filters(b'{"filterDataByTopic":{"T":{"topic":"T"}}}') == []
    )
    (found,) = decode_filters(b'{"filterDataByTopic":{"T":{"groupFilterData":{"g":{}}}}}')
    assert found == FilterData("T", "g", "", "", 0, 0, None)
    assert decode_filters(encode_filters([])) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"filterDataByTopic":[1]}',
        b'{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"bornTime":"x"}}}}}',
    ],
)
def test_what_is_no_such_file_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_filters(data)
