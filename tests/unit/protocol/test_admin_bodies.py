"""Bodies for operators: those of real brokers and clients are read completely, and
ours round-trip.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import finish
from orbitmq.protocol import fastjson, frame
from orbitmq.protocol.bodies import admin_groups, admin_topics
from orbitmq.protocol.bodies.admin_topics import TopicOffset
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.consume_stats import ConsumedQueue, ConsumeStats
from orbitmq.protocol.bodies.running_info import (
    ConsumerRunningInfo,
    DirectOutcome,
    DirectResult,
    PopProgress,
    QueueProgress,
    TopicRates,
)
from orbitmq.protocol.bodies.subscriptions import SubscriptionData
from orbitmq.protocol.codes import RequestCode
from support.common import golden_data


def golden(code: RequestCode) -> list[Any]:
    """Return the bodies of all captured responses to this request."""
    captured = [
        each for each in golden_data.frames() if each.request_code == code and not each.is_request
    ]
    bodies = [(each.name, frame.decode_one(each.frame)) for each in captured]
    found = [
        pytest.param(answer.body, id=name)
        for name, answer in bodies
        if answer.code == 0 and answer.body
    ]
    assert found, f"no golden answers to {code}"
    return found


def members(body: bytes) -> Any:
    return fastjson.loads(body)


@pytest.mark.parametrize("body", golden(RequestCode.GET_TOPIC_STATS_INFO))
def test_golden_ends_of_queues_are_read_whole(body: bytes) -> None:
    queues, put_tps = admin_topics.decode_topic_stats(body)
    assert queues
    assert (
        members(finish(admin_topics.encode_topic_stats(queues, put_tps)))["offsetTable"]
        == members(body)["offsetTable"]
    )


@pytest.mark.parametrize("body", golden(RequestCode.GET_CONSUME_STATS))
def test_golden_progress_is_read_whole(body: bytes) -> None:
    written = members(finish(ConsumeStats.decode(body).encode()))
    assert all(
        {**ours, **theirs} == ours
        for ours, theirs in zip(
            *(each["offsetTable"].values() for each in (written, members(body))), strict=True
        )
    )
    assert written["offsetTable"].keys() == members(body)["offsetTable"].keys()


@pytest.mark.parametrize("body", golden(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO))
def test_golden_groups_of_a_topic_are_read_whole(body: bytes) -> None:
    assert finish(admin_groups.encode_group_list(admin_groups.decode_group_names(body))) == body


@pytest.mark.parametrize("body", golden(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET))
def test_golden_reset_offsets_are_read_whole(body: bytes) -> None:
    offsets = admin_groups.decode_reset_offsets(body)
    assert members(admin_groups.encode_reset_offsets(offsets)) == members(body)
    assert (
        admin_groups.decode_reset_offsets(
            finish(admin_groups.encode_reset_offsets_for_cpp(offsets))
        )
        == offsets
    )


@pytest.mark.parametrize("body", golden(RequestCode.GET_CONSUMER_RUNNING_INFO))
def test_golden_running_info_is_read_whole(body: bytes) -> None:
    info = ConsumerRunningInfo.decode(body)
    assert info.queues
    assert info.setting("pullThresholdForQueue", 7) == 1000
    assert info.setting("messageModel", 7) == info.setting("nothing of that name", 7) == 7
    assert not info.is_ordered
    written = members(info.encode())
    assert {**written, **members(body)} == written


@pytest.mark.parametrize("body", golden(RequestCode.CONSUME_MESSAGE_DIRECTLY))
def test_a_golden_direct_consumption_is_read_whole(body: bytes) -> None:
    assert members(DirectResult.decode(body).encode()) == members(body)


texts = st.text(max_size=5)
longs = st.integers(0, (1 << 63) - 1)
rates = st.floats(0, 1e9)
queues = st.builds(MessageQueue, texts, texts, st.integers(0, (1 << 31) - 1))


def tables(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[MessageQueue, Any]]:
    return st.dictionaries(queues, values, max_size=4)


@given(tables(st.builds(TopicOffset, longs, longs, longs)), rates)
def test_ends_of_queues_come_back_as_they_were(
    table: dict[MessageQueue, TopicOffset], put_tps: float
) -> None:
    assert admin_topics.decode_topic_stats(
        finish(admin_topics.encode_topic_stats(table, put_tps))
    ) == (table, put_tps)


@given(tables(st.builds(ConsumedQueue, longs, longs, longs, longs)), rates)
def test_progress_comes_back_as_it_was(
    table: dict[MessageQueue, ConsumedQueue], tps: float
) -> None:
    assert ConsumeStats.decode(finish(ConsumeStats(table, tps).encode())) == ConsumeStats(
        table, tps
    )


@given(tables(longs))
def test_reset_offsets_come_back_as_they_were(table: dict[MessageQueue, int]) -> None:
    assert admin_groups.decode_reset_offsets(admin_groups.encode_reset_offsets(table)) == table
    assert (
        admin_groups.decode_reset_offsets(finish(admin_groups.encode_reset_offsets_for_cpp(table)))
        == table
    )


numbers = {
    name: longs
    for name, kind in QueueProgress.__annotations__.items()
    if kind == "int" and name != "cached_bytes"
}
running = st.builds(
    ConsumerRunningInfo,
    properties=st.dictionaries(texts, texts, max_size=3),
    subscriptions=st.lists(
        st.builds(SubscriptionData, topic=texts, sub_version=longs), max_size=2
    ).map(tuple),
    queues=tables(
        st.builds(
            QueueProgress,
            **numbers,
            cached_bytes=st.integers(0, 1 << 40).map(lambda mib: mib << 20),
            is_locked=st.booleans(),
            is_dropped=st.booleans(),
        )
    ),
    pop_queues=tables(
        st.builds(
            PopProgress,
            waits_for_ack=st.integers(0, 9),
            last_pop_ms=longs,
            is_dropped=st.booleans(),
        )
    ),
    topics=st.dictionaries(
        texts,
        st.builds(TopicRates, pulled_per_s=rates, consume_ms=rates, failed_in_an_hour=longs),
        max_size=2,
    ),
    user_info=st.dictionaries(texts, texts, max_size=2),
    stacks=st.none() | texts,
)


@given(running)
def test_running_info_comes_back_as_it_was(info: ConsumerRunningInfo) -> None:
    assert ConsumerRunningInfo.decode(info.encode()) == info


@pytest.mark.parametrize("outcome", [None, *DirectOutcome])
def test_a_direct_consumption_comes_back_as_it_was(outcome: DirectOutcome | None) -> None:
    result = DirectResult(
        outcome=outcome, remark="why", spent_ms=7, in_order=True, auto_commit=False
    )
    assert DirectResult.decode(result.encode()) == result


def test_queues_may_be_keys_as_objects_or_as_texts_and_nothing_else() -> None:
    queue = MessageQueue("T", "b", 1)
    for body in (
        b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:5}}',
        rb'{"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":1,\"topic\":\"T\"}":5}}',
    ):
        assert admin_groups.decode_reset_offsets(body) == {queue: 5}
    with pytest.raises(ProtocolError, match="a queue is expected as key"):
        admin_groups.decode_reset_offsets(b'{"offsetTable":{"T":5}}')
    with pytest.raises(ProtocolError, match="consumeTps must be a number"):
        ConsumeStats.decode(b'{"consumeTps":"fast"}')


def test_an_answer_that_says_nothing_is_empty() -> None:
    assert ConsumerRunningInfo.decode(b"{}") == ConsumerRunningInfo()
    assert ConsumeStats.decode(b"{}") == ConsumeStats()
    assert QueueProgress.from_json({}) == QueueProgress()
