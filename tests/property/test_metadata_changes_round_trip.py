"""Every page of every table reads as it was written, and a malformed one is refused without a
guess.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.common.change_log import Position
from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import finish
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies import metadata_changes as changes
from orbitmq.protocol.bodies import metadata_rows as rows
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.consumer_filters import BloomPositions, FilterData
from orbitmq.protocol.bodies.delay import DelayOffsets, TimingCount
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.metadata_changes import NumberedValue, TableCodec, TablePage
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig
from orbitmq.protocol.bodies.request_modes import RequestMode

CHARACTERS = st.characters(codec="utf-8")
NAMES = st.text(CHARACTERS, min_size=1, max_size=8)
TEXTS = st.text(CHARACTERS, max_size=5)
INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)
NUMBERS = st.integers(1, 2**63 - 1)
VERSIONS = st.builds(DataVersion, INT64, INT64, INT64)
TOPICS = st.builds(
    rows.TopicRow,
    st.builds(
        TopicConfig,
        NAMES,
        INT32,
        INT32,
        INT32,
        st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
        INT32,
        order=st.booleans(),
        attributes=st.dictionaries(NAMES, NAMES, max_size=3),
    ),
    INT64,
)
GROUPS = NAMES.flatmap(
    lambda name: st.builds(
        rows.GroupRow,
        st.just(name),
        st.none() | st.builds(GroupConfig, st.just(name), retry_max_times=INT32),
        st.dictionaries(NAMES, INT32, max_size=3),
    )
)
OFFSETS = st.builds(rows.OffsetsRow, NAMES, st.dictionaries(INT32, INT64, max_size=20))
MODES = st.builds(
    RequestMode, NAMES, NAMES, st.sampled_from(["PULL", "POP", None]), pop_share_queue_num=INT32
)
FILTERS = st.builds(
    FilterData,
    NAMES,
    NAMES,
    st.text(CHARACTERS, max_size=300),
    NAMES,
    INT64,
    INT64,
    st.builds(BloomPositions, INT32, st.tuples(INT32, INT32)),
    INT64,
)
LOCK_KEYS = st.builds(rows.LockKey, NAMES, st.builds(MessageQueue, NAMES, NAMES, INT32))
LOCKS = st.builds(rows.LockRow, LOCK_KEYS, NAMES, st.none() | NAMES)
TIMING = st.builds(rows.TimingRow, TEXTS, st.builds(TimingCount, INT64, INT64))
PAIRS = st.tuples(NAMES, NAMES)

CODECS: list[tuple[TableCodec[Any, Any], st.SearchStrategy[Any], st.SearchStrategy[Any]]] = [
    (rows.TOPICS, TOPICS, NAMES),
    (rows.GROUPS, GROUPS, NAMES),
    (rows.OFFSETS, OFFSETS, NAMES),
    (rows.REQUEST_MODES, MODES, PAIRS),
    (rows.FILTERS, FILTERS, PAIRS),
    (rows.LOCKS, LOCKS, LOCK_KEYS),
    (rows.TIMER_METRICS, TIMING, TEXTS),
]


def written(name: str, members: Any) -> Any:
    """The members after a journey as bytes."""
    return finish(changes.decode_changes(finish(changes.encode_changes({name: members}))))[name]


@pytest.mark.parametrize(("codec", "table", "keys"), CODECS, ids=[each[0].name for each in CODECS])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_page_reads_as_it_was_written(
    codec: TableCodec[Any, Any],
    table: st.SearchStrategy[Any],
    keys: st.SearchStrategy[Any],
    data: st.DataObject,
) -> None:
    page = data.draw(
        st.builds(
            TablePage,
            number=NUMBERS,
            rows=st.lists(table, max_size=5),
            removed=st.lists(keys, max_size=5),
            whole_begun=st.just(0) | NUMBERS,
            has_more=st.booleans(),
            version=st.none() | VERSIONS,
        )
    )
    assert finish(codec.page_from_json(written(codec.name, codec.page_to_json(page)))) == page


@given(value=st.builds(NumberedValue, NUMBERS, st.none() | st.binary(max_size=60)))
def test_a_check_point_reads_as_it_was_written(value: NumberedValue[bytes]) -> None:
    members = written(changes.TIMER_CHECK_POINT, changes.check_point_to_json(value))
    assert changes.check_point_from_json(members) == value


@given(
    number=NUMBERS,
    offsets=st.none() | st.builds(DelayOffsets, st.dictionaries(INT32, INT64), VERSIONS),
)
def test_delay_offsets_read_as_they_were_written(number: int, offsets: DelayOffsets | None) -> None:
    value = NumberedValue(number, offsets)
    members = written(changes.DELAY_OFFSETS, changes.delay_offsets_to_json(value))
    assert changes.delay_offsets_from_json(members) == value


@given(position=st.builds(Position, INT64, INT64))
def test_a_position_reads_as_it_was_written(position: Position) -> None:
    assert changes.read_position(changes.write_position(position)) == position


@pytest.mark.parametrize("text", [None, "", "x", "1/2/3", "-1", "1/", "1" * 40, "١"])
def test_a_position_that_cannot_be_read_stands_for_nothing(text: str | None) -> None:
    assert changes.read_position(text) == Position()


@pytest.mark.parametrize(
    "members",
    [
        None,
        [],
        {},
        {"number": 0},
        {"number": -4},
        {"number": "many"},
        {"number": 1, "whole": 1},
        {"number": 1, "whole": 1, "rows": None},
        {"number": 1, "rows": {}},
        {"number": 1, "rows": [{}]},
        {"number": 1, "rows": [{"config": {}, "begin": 0}]},
        {"number": 1, "rows": [{"config": {"topicName": "T"}, "begin": -1}]},
        {"number": 1, "removed": [None]},
        {"number": 1, "removed": [""]},
        {"number": 1, "dataVersion": 5},
    ],
)
def test_a_malformed_page_of_topics_is_refused(members: Any) -> None:
    with pytest.raises(ProtocolError):
        finish(rows.TOPICS.page_from_json(members))


@pytest.mark.parametrize(
    ("codec", "row"),
    [
        (rows.GROUPS, {"config": {}}),
        (rows.OFFSETS, {"offsets": {}}),
        (rows.OFFSETS, {"key": "T@g", "offsets": []}),
        (rows.REQUEST_MODES, {"topic": "T"}),
        (rows.FILTERS, {"topic": "T"}),
        (rows.LOCKS, {"group": "g", "clientId": "c"}),
        (rows.LOCKS, {"group": "g", "queue": {"topic": "T"}}),
        (rows.TIMER_METRICS, {"topic": 5}),
    ],
)
def test_a_row_without_its_key_is_refused(codec: TableCodec[Any, Any], row: Any) -> None:
    with pytest.raises(ProtocolError):
        finish(codec.page_from_json({"number": 1, "rows": [row]}))


@given(body=st.binary(max_size=200))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    try:
        found = finish(changes.decode_changes(body))
    except ProtocolError:
        return
    assert fastjson.dumps(dict(found))
