"""Look-ups in a small store: messages by key and place, ends of queues, offsets by time,
entries.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.broker.clients.registry import ClientInfo
from orbitmq.broker.processors.query import QueryProcessor
from orbitmq.common.slices import finish
from orbitmq.message.message_id import offset_id
from orbitmq.message.record import decode_all
from orbitmq.message.tags import java_hash
from orbitmq.protocol.bodies.clients import ConsumerData
from orbitmq.protocol.bodies.subscriptions import MessageModel, SubscriptionData
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from support.broker.socketless import BrokerRoom, body_of

QUERY = {
    "topic": "T",
    "key": "k1",
    "maxNum": 8,
    "beginTimestamp": 0,
    "endTimestamp": 9_000_000_000_000,
}
ENTRIES = {"topic": "T", "queueId": 0, "index": 0, "count": 2}
NOT_FOUND = (ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct")


@pytest.fixture
def query(room: BrokerRoom) -> QueryProcessor:
    return QueryProcessor(
        room.settings, room.store, room.store.reads, room.consumers, room.known_filters
    )


def fill(room: BrokerRoom) -> None:
    """Six messages, by turns in queues 0 and 1."""
    for number in range(6):
        room.put(
            b"body%d" % number,
            queue_id=number % 2,
            KEYS=f"k{number} all",
            TAGS="tag",
            UNIQ_KEY=f"U{number}",
        )


def found(answer: RemotingCommand) -> list[bytes]:
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    return [message.body for message in decode_all(answer.body or b"")]


# --- 12 and 33


@pytest.mark.parametrize(
    ("fields", "bodies"),
    [
        ({}, [b"body1"]),
        ({"key": "U2"}, [b"body2"]),
        ({"key": "all"}, [b"body%d" % number for number in range(6)]),
        ({"key": "all", "maxNum": 2}, [b"body4", b"body5"]),
        (
            {"key": "all", "maxNum": 2, "_UNIQUE_KEY_QUERY": "true"},
            [b"body%d" % number for number in range(6)],
        ),
        ({"key": "tag", "indexType": "T"}, [b"body%d" % number for number in range(6)]),
        ({"indexType": "K"}, [b"body1"]),
        ({"indexType": "what is this"}, [b"body1"]),
        ({"lastKey": "is not looked at"}, [b"body1"]),
    ],
)
def test_messages_are_found_by_key_the_newest_first_when_there_are_too_many(
    room: BrokerRoom, query: QueryProcessor, fields: dict[str, object], bodies: list[bytes]
) -> None:
    fill(room)
    answer = room.ask(query, RequestCode.QUERY_MESSAGE, {**QUERY, **fields})
    assert found(answer) == bodies
    last = room.store.reads.query("T", "k5")[0]
    assert answer.ext_fields == {
        "indexLastUpdateTimestamp": str(last.store_time_ms),
        "indexLastUpdatePhyoffset": str(last.log_offset),
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"key": "nobody"},
        {"topic": "nope"},
        {"key": ""},
        {"maxNum": 0},
        {"beginTimestamp": 9_000_000_000_000},
        {"endTimestamp": -1},
    ],
)
def test_no_message_is_found_where_there_is_none(
    room: BrokerRoom, query: QueryProcessor, fields: dict[str, object]
) -> None:
    fill(room)
    answer = room.ask(query, RequestCode.QUERY_MESSAGE, {**QUERY, **fields})
    assert (answer.code, answer.remark) == NOT_FOUND
    assert answer.ext_fields == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}


def test_a_query_gives_no_more_than_the_configuration_allows(
    room: BrokerRoom, query: QueryProcessor
) -> None:
    fill(room)
    room.settings.max_msgs_num_batch = 3
    assert (
        len(
            found(
                room.ask(query, RequestCode.QUERY_MESSAGE, {**QUERY, "key": "all", "maxNum": 1000})
            )
        )
        == 3
    )
    room.settings.default_query_max_num = 1
    assert (
        len(
            found(
                room.ask(
                    query,
                    RequestCode.QUERY_MESSAGE,
                    {**QUERY, "key": "all", "_UNIQUE_KEY_QUERY": "true"},
                )
            )
        )
        == 1
    )


def test_a_message_is_seen_by_its_place_in_the_log_whatever_the_topic_says(
    room: BrokerRoom, query: QueryProcessor
) -> None:
    fill(room)
    place = room.put(b"seen").offset
    assert found(room.ask(query, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place})) == [b"seen"]
    assert found(
        room.ask(query, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place, "topic": "other"})
    ) == [b"seen"]
    assert int(offset_id(b"\0" * 8, place)[16:], 16) == place


@pytest.mark.parametrize("offset", [5, -1, -(1 << 63), 999_999_999, (1 << 63) - 1])
def test_no_message_is_seen_where_none_begins(
    room: BrokerRoom, query: QueryProcessor, offset: int
) -> None:
    fill(room)
    refused = room.refusal(query, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark.startswith(f"can not find message by the offset, {offset}")


# --- 29 to 32


def test_the_ends_of_a_queue_and_the_time_of_its_first_message_are_told(
    room: BrokerRoom, query: QueryProcessor
) -> None:
    fill(room)
    first_ms = room.store.reads.query("T", "k0")[0].store_time_ms
    for queue_id, end, time_ms in (
        (0, 3, first_ms),
        (1, 3, first_ms + 1),
        (2, 0, -1),
        (9, 0, -1),
        (-1, 0, -1),
    ):
        queue = {"topic": "T", "queueId": queue_id}
        answer = room.ask(query, RequestCode.GET_MAX_OFFSET, queue)
        assert (answer.code, answer.remark, answer.ext_fields) == (0, None, {"offset": str(end)})
        answer = room.ask(query, RequestCode.GET_MIN_OFFSET, queue)
        assert (answer.code, answer.remark, answer.ext_fields) == (0, "", {"offset": "0"})
        answer = room.ask(query, RequestCode.GET_EARLIEST_MSG_STORETIME, queue)
        assert (answer.code, answer.remark, answer.ext_fields) == (
            0,
            None,
            {"timestamp": str(time_ms)},
        )
    assert room.ask(
        query, RequestCode.GET_MAX_OFFSET, {"topic": "../etc", "queueId": 0}
    ).ext_fields == {"offset": "0"}


@pytest.mark.parametrize(
    ("asked", "boundary", "offset"),
    [
        (0, None, 0),
        (-1, None, 0),
        (3, "lower", 2),
        (9_000_000_000_000, "LOWER", 3),
        (9_000_000_000_000, "upper", 2),
        (3, "UPPER", 1),
    ],
)
def test_the_offset_of_a_time_is_found_from_either_side(
    room: BrokerRoom, query: QueryProcessor, asked: int, boundary: str | None, offset: int
) -> None:
    fill(room)
    first_ms = room.store.reads.query("T", "k0")[0].store_time_ms
    fields = {
        "topic": "T",
        "queueId": 0,
        "timestamp": first_ms + asked if 0 < asked < 10 else asked,
    }
    answer = room.ask(
        query,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        fields | ({} if boundary is None else {"boundaryType": boundary}),
    )
    assert (answer.code, answer.remark, answer.ext_fields) == (0, None, {"offset": str(offset)})


# --- 321


def test_the_entries_of_a_queue_are_told_with_its_ends(
    room: BrokerRoom, query: QueryProcessor
) -> None:
    fill(room)
    answer = room.ask(query, RequestCode.QUERY_CONSUME_QUEUE, ENTRIES)
    assert answer.remark == "not set any response code"
    body = body_of(answer)
    records = room.store.reads.query("T", "all")
    assert body == {
        "maxQueueIndex": 3,
        "minQueueIndex": 0,
        "queueData": [
            {
                "eval": False,
                "physicOffset": record.log_offset,
                "physicSize": record.size,
                "tagsCode": java_hash("tag"),
            }
            for record in (records[0], records[2])
        ],
    }
    assert (
        len(
            body_of(room.ask(query, RequestCode.QUERY_CONSUME_QUEUE, {**ENTRIES, "count": 100}))[
                "queueData"
            ]
        )
        == 3
    )
    for count in (0, -1):
        assert (
            body_of(room.ask(query, RequestCode.QUERY_CONSUME_QUEUE, {**ENTRIES, "count": count}))[
                "queueData"
            ]
            == []
        )


def test_entries_are_told_with_the_subscription_of_a_group_that_is_online(
    room: BrokerRoom, query: QueryProcessor
) -> None:
    fill(room)
    fields = {**ENTRIES, "consumerGroup": "g"}
    body = body_of(room.ask(query, RequestCode.QUERY_CONSUME_QUEUE, fields))
    assert (body["filterData"], "subscriptionData" in body) == ("g@T is not online!", False)
    room.consume("g")
    body = body_of(room.ask(query, RequestCode.QUERY_CONSUME_QUEUE, fields))
    assert (body["filterData"], body["subscriptionData"]["topic"]) == ("null", "T")


def test_entries_of_a_queue_with_ext_files_are_told_with_their_units_and_whether_the_group_wants_them(
    tmp_path: Path,
) -> None:
    room = BrokerRoom(tmp_path, queue_ext_file_size=4096)
    fill(room)
    query = QueryProcessor(
        room.settings, room.store, room.store.reads, room.consumers, room.known_filters
    )
    time_ms = room.store.reads.query("T", "k0")[0].store_time_ms
    for online in (False, True):
        if online:
            room.consume("g")
        body = body_of(
            room.ask(
                query,
                RequestCode.QUERY_CONSUME_QUEUE,
                {**ENTRIES, "count": 1, "consumerGroup": "g"},
            )
        )
        (entry,) = body["queueData"]
        assert (entry["tagsCode"], entry["eval"]) == (java_hash("tag"), online)
        assert (
            entry["extendDataJson"]
            == f'{{"msgStoreTime":{time_ms},"size":20,"tagsCode":{java_hash("tag")}}}'
        )
    room.close()


def test_entries_are_told_with_the_filter_of_the_group_and_the_bits_that_it_is_asked_for(
    tmp_path: Path,
) -> None:
    room = BrokerRoom(tmp_path, queue_ext_file_size=4096)
    room.settings.enable_calc_filter_bit_map = True
    subscription = SubscriptionData("T", "a > 1", 1, expression_type="SQL92")
    data = ConsumerData("g", message_model=MessageModel.CLUSTERING, subscriptions=(subscription,))
    room.consumers.register(
        room.peers.connect(),
        ClientInfo("c", LanguageCode.JAVA, 513),
        data,
        room.clock.monotonic_ms(),
    )
    finish(room.known_filters.heard("g", (subscription,)))
    for value in ("1", "2"):
        room.put(a=value)
    query = QueryProcessor(
        room.settings, room.store, room.store.reads, room.consumers, room.known_filters
    )
    body = body_of(
        room.ask(query, RequestCode.QUERY_CONSUME_QUEUE, {**ENTRIES, "consumerGroup": "g"})
    )
    known = room.known_filters.find("T", "g")
    assert known is not None
    assert json.loads(body["filterData"]) == known.data.to_json() | {
        "bloomFilterData": {"bitNum": 112, "bitPos": [90, 68, 28]}
    }
    unwanted, wanted = body["queueData"]
    assert (unwanted["eval"], wanted["eval"]) == (False, True)
    assert unwanted["bitMap"] == f"{'0' * 48}\n{'0' * 64}\n"
    assert [len(line) for line in wanted["bitMap"].splitlines()] == [48, 64]
    assert [
        at for at, bit in enumerate(reversed(wanted["bitMap"].replace("\n", ""))) if bit == "1"
    ] == [28, 68, 90]
    assert json.loads(wanted["extendDataJson"])["filterBitMap"] == [
        0,
        0,
        0,
        16,
        0,
        0,
        0,
        0,
        16,
        0,
        0,
        4,
        0,
        0,
    ]
    room.close()


def test_an_entry_whose_unit_is_lost_says_so(tmp_path: Path) -> None:
    room = BrokerRoom(tmp_path, queue_ext_file_size=4096)
    fill(room)
    queue = room.store.queues.plain.find("T", 0)
    assert queue is not None
    assert queue.ext is not None
    queue.ext.destroy()
    query = QueryProcessor(
        room.settings, room.store, room.store.reads, room.consumers, room.known_filters
    )
    (entry,) = body_of(room.ask(query, RequestCode.QUERY_CONSUME_QUEUE, {**ENTRIES, "count": 1}))[
        "queueData"
    ]
    assert entry["msg"] == f"Cq extend not exist!addr: {entry['tagsCode']}"
    room.store.queues.files.close()
    room.close()


@pytest.mark.parametrize(
    ("fields", "where"),
    [({"index": 3}, "3 of 0@T"), ({"index": -1}, "-1 of 0@T"), ({"queueId": 2}, "0 of 2@T")],
)
def test_entries_that_are_not_there_are_no_error_and_no_body(
    room: BrokerRoom, query: QueryProcessor, fields: dict[str, object], where: str
) -> None:
    fill(room)
    answer = room.ask(query, RequestCode.QUERY_CONSUME_QUEUE, {**ENTRIES, **fields})
    assert (answer.code, answer.remark, answer.body) == (0, f"Index {where} is not exist!", None)


# --- what cannot be asked


@pytest.mark.parametrize(
    ("code", "fields", "what"),
    [
        *(
            (
                RequestCode.QUERY_MESSAGE,
                {name: value for name, value in QUERY.items() if name != missing},
                f"the field {missing}",
            )
            for missing in QUERY
        ),
        (RequestCode.QUERY_MESSAGE, None, "the field topic"),
        (RequestCode.QUERY_MESSAGE, {**QUERY, "maxNum": "x"}, "maxNum"),
        (RequestCode.QUERY_MESSAGE, {**QUERY, "maxNum": -1}, "maxNum=-1"),
        (RequestCode.VIEW_MESSAGE_BY_ID, {}, "the field offset"),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "x"}, "the field offset"),
        (RequestCode.GET_MAX_OFFSET, {"topic": "T"}, "the field queueId"),
        (RequestCode.GET_MAX_OFFSET, {"queueId": 0}, "the field topic"),
        (RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "x"}, "the field queueId"),
        (RequestCode.GET_MIN_OFFSET, {"topic": "T"}, "the field queueId"),
        (RequestCode.GET_MIN_OFFSET, {"queueId": 0}, "the field topic"),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "T"}, "the field queueId"),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, {"queueId": 0}, "the field topic"),
        (
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            {"topic": "T", "queueId": 0},
            "the field timestamp",
        ),
        (
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            {"topic": "T", "timestamp": 0},
            "the field queueId",
        ),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"queueId": 0, "timestamp": 0}, "the field topic"),
        (
            RequestCode.QUERY_CONSUME_QUEUE,
            {"queueId": 0, "index": 0, "count": 2},
            "the field topic",
        ),
        (RequestCode.QUERY_CONSUME_QUEUE, None, "the field topic"),
    ],
)
def test_a_question_that_says_too_little_is_refused_with_what_is_wrong(
    room: BrokerRoom,
    query: QueryProcessor,
    code: RequestCode,
    fields: dict[str, object] | None,
    what: str,
) -> None:
    refused = room.refusal(query, code, fields)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert what in refused.remark
