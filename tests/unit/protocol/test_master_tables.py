"""The tables of real masters as a slave reads them: recorded responses of both lines, and
responses that lack their table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import Slices, finish
from orbitmq.protocol import frame
from orbitmq.protocol.bodies import master_tables
from orbitmq.protocol.bodies.delay import TimingCount
from orbitmq.protocol.bodies.metadata_rows import GroupRow, OffsetsRow, TimingRow
from orbitmq.protocol.bodies.nameserver import DataVersion
from orbitmq.protocol.bodies.request_modes import RequestMode
from support.common import golden_data

VERSION = b'"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1794890497957}'
EXPECTED = DataVersion(counter=1, timestamp=1794890497957)


def golden(name: str) -> bytes:
    """The body of a recorded response of a 4.9.8 master."""
    found = golden_data.files("ha-4.9.8")[f"ha-4.9.8/frames/{name}.resp-code0.bin"]
    body: bytes | None = frame.decode_one(found).body
    return body or b""


def test_topics_of_4_9() -> None:
    topics, version = finish(
        master_tables.decode_topics(golden("000021-GET_ALL_TOPIC_CONFIG-client-3"))
    )
    found = {topic.name: topic for topic in topics}
    assert found["GoldenA"].read_queue_nums == 4
    assert found["TBW102"].perm == 7
    assert version == DataVersion(counter=10, timestamp=1794786158264)


def test_groups_of_4_9() -> None:
    groups, version = finish(
        master_tables.decode_groups(golden("000201-GET_ALL_SUBSCRIPTIONGROUP_CONFIG-client-3"))
    )
    assert "CG_sql" in {group.name for group in groups}
    assert all(group.config is not None and not group.forbidden for group in groups)
    assert version == DataVersion(counter=2, timestamp=1794786158257)


def test_offsets_of_4_9_have_no_version() -> None:
    found = finish(master_tables.decode_offsets(golden("000043-GET_ALL_CONSUMER_OFFSET-client-3")))
    assert found == ([], None)
    levels = master_tables.decode_delay_offsets(golden("000045-GET_ALL_DELAY_OFFSET-client-3"))
    assert (levels.offsets, levels.version) == ({}, None)


def test_tables_of_5_x() -> None:
    offsets = b'{%s,"groupTopicMap":{},"offsetTable":{"T@g":{0:2,1:5}},"pullOffsetTable":{}}'
    assert finish(master_tables.decode_offsets(offsets % VERSION)) == (
        [OffsetsRow("T@g", {0: 2, 1: 5})],
        EXPECTED,
    )
    levels = master_tables.decode_delay_offsets(b'{%s,"offsetTable":{3:7}}' % VERSION)
    assert (levels.offsets, levels.version) == ({3: 7}, EXPECTED)
    timing = b'{%s,"timingCount":{"T":{"count":4,"timeStamp":9}}}' % VERSION
    assert finish(master_tables.decode_timing(timing)) == (
        [TimingRow("T", TimingCount(4, 9))],
        EXPECTED,
    )
    modes = b'{"messageRequestModeMap":{"T":{"g":{"mode":"POP","popShareQueueNum":3}}}}'
    assert finish(master_tables.decode_request_modes(modes)) == [RequestMode("T", "g", "POP", 3)]


def test_what_is_forbidden_to_a_group_that_does_not_exist_is_kept() -> None:
    body = (
        b'{%s,"forbiddenTable":{"g":{"T":4},"gone":{"U":4}},'
        b'"subscriptionGroupTable":{"g":{"groupName":"g"}}}'
    )
    groups = finish(master_tables.decode_groups(body % VERSION)).groups
    assert [(group.name, group.config is None, group.forbidden) for group in groups] == [
        ("g", False, {"T": 4}),
        ("gone", True, {"U": 4}),
    ]
    assert isinstance(groups[0], GroupRow)


@pytest.mark.parametrize(
    "decode",
    [
        master_tables.decode_topics,
        master_tables.decode_groups,
        master_tables.decode_offsets,
        master_tables.decode_request_modes,
        master_tables.decode_timing,
    ],
)
@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"{%s}" % VERSION, b'{"offsetTable":[]}'])
def test_a_response_without_its_table_is_refused(
    decode: Callable[[bytes], Slices[Any]], body: bytes
) -> None:
    with pytest.raises(ProtocolError):
        finish(decode(body))


@pytest.mark.parametrize("body", [b"", b"{}", b"{%s}" % VERSION, b'{"offsetTable":[]}'])
def test_delay_offsets_without_a_table_are_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        master_tables.decode_delay_offsets(body)


def test_a_version_is_asked_for_as_apache_writes_it() -> None:
    assert master_tables.version_text(None) == ""
    text = '{"counter":1,"stateVersion":0,"timestamp":1794890497957}'
    assert master_tables.version_text(EXPECTED) == text
