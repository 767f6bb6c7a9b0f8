"""Tests the batch encoder: batches equal those of the client, queues keep their order, and bad rows
are named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.messages import Message
from orbitmq.client.namespace import Namespace
from orbitmq.client.producer.outbox import Outbox, ProducerSettings
from orbitmq.client.producer.producer import by_sharding_key
from orbitmq.common.errors import InvalidMessageError
from orbitmq.message import batch, properties
from orbitmq.message.message_id import UniqueIds
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.spark.kernels.outgoing_rows import BatchEncoder, EncodingRules, OutgoingRequest
from orbitmq.spark.sink.columns import SinkRows

NEVER = 1 << 40
MAP = pa.map_(pa.string(), pa.string())
TYPES = {
    "body": pa.binary(),
    "properties": MAP,
    "keys": pa.string(),
    "tags": pa.string(),
    "topic": pa.string(),
    "shardingKey": pa.string(),
}
CLEAN = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=20)
OWN_NAMES = CLEAN.filter(lambda name: name not in ("", *properties.RESERVED))
ROWS = st.fixed_dictionaries(
    {
        "body": st.binary(min_size=1, max_size=60),
        "keys": st.none() | CLEAN,
        "tags": st.none() | CLEAN,
        "properties": st.none() | st.dictionaries(OWN_NAMES, st.none() | CLEAN, max_size=5),
        "shardingKey": (
            st.none()
            | st.text(max_size=5).filter(lambda text: "\x02" not in text and text.isprintable())
        ),
    }
)


def ids() -> UniqueIds:
    return UniqueIds(address=bytes(4), pid=1, process_number=2, now_ms=lambda: 1_700_000_000_000)


def encoder(**rules: Any) -> BatchEncoder:
    given = {
        "topic": "T",
        "batch_count_max": 7,
        "batch_size_max": 1000,
        "body_size_max": 5000,
        "alone_from": NEVER,
        "instance": "",
    }
    return BatchEncoder(
        EncodingRules(**{**given, "drops_reserved": False, "place": "of partition 3", **rules}),
        ids(),
        lambda _: 3,
    )


def columns(rows: Sequence[dict[str, Any]], **types: pa.DataType) -> pa.RecordBatch:
    def listed(value: Any) -> Any:
        return list(value.items()) if isinstance(value, dict) else value

    names = dict.fromkeys(name for row in rows for name in row)
    kinds = TYPES | types
    return pa.record_batch(
        {name: pa.array([listed(row.get(name)) for row in rows], kinds[name]) for name in names}
    )


def encoded(
    rows: BatchEncoder, *batches: pa.RecordBatch, has_topic: bool = True
) -> list[OutgoingRequest]:
    found = []
    for each in batches:
        rows.load(SinkRows.of(each).columns(has_topic=has_topic))
        at = 0
        while at < each.num_rows:
            at = rows.encode(at)
            found += rows.take()
    return found + rows.take_rest()


def items(parcels: Sequence[OutgoingRequest]) -> list[batch.BatchItem]:
    return [item for parcel in parcels for item in batch.decode(parcel.body or b"")]


def as_message(row: dict[str, Any]) -> Message:
    own = {name: text for name, text in (row.get("properties") or {}).items() if text is not None}
    keys, sharding_key = row.get("keys") or "", row.get("shardingKey") or None
    return Message("T", row["body"], row.get("tags"), keys, own, sharding_key=sharding_key)


@given(st.lists(ROWS, min_size=1, max_size=30), st.integers(0, 3))
def test_messages_are_those_that_the_clients_own_batches_hold(
    rows: list[dict[str, Any]], cut: int
) -> None:
    plain = [{**row, "shardingKey": None} for row in rows]
    table = columns(plain)
    parcels = (
        encoded(encoder(), table.slice(0, cut), table.slice(cut))
        if cut
        else encoded(encoder(), table)
    )
    (wanted,) = Outbox(ProducerSettings(), Namespace(), ids()).batches(
        [as_message(row) for row in plain]
    )
    of_outbox = [
        (item.flag, item.body, properties.parse(item.properties))
        for item in batch.decode(wanted.body)
    ]
    assert [
        (item.flag, item.body, properties.parse(item.properties)) for item in items(parcels)
    ] == of_outbox
    assert [parcel.messages for parcel in parcels] == [
        len(batch.decode(parcel.body or b"")) for parcel in parcels
    ]
    assert all(parcel.messages <= 7 and len(parcel.body or b"") <= 1000 for parcel in parcels)


@given(st.lists(ROWS, min_size=1, max_size=40))
def test_every_row_goes_to_the_queue_of_its_sharding_key_in_order(
    rows: list[dict[str, Any]],
) -> None:
    queues = [MessageQueue("T", "broker", number) for number in range(3)]
    wanted: dict[int | None, list[bytes]] = defaultdict(list)
    for row in rows:
        message = as_message(row)
        wanted[by_sharding_key(queues, message).queue_id if message.sharding_key else None].append(
            message.body
        )
    found: dict[int | None, list[bytes]] = defaultdict(list)
    for parcel in encoded(encoder(), columns(rows)):
        found[parcel.queue] += [item.body for item in batch.decode(parcel.body or b"")]
    assert found == wanted


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abö"), st.sampled_from([None, "k1", "k2"]), st.integers(1, 1200)
        ),
        min_size=1,
        max_size=30,
    )
)
def test_a_row_that_goes_alone_keeps_its_place_in_its_queue(
    kinds: list[tuple[str, str | None, int]],
) -> None:
    sent = [b"%04d" % number + bytes(size) for number, (_, _, size) in enumerate(kinds)]
    rows = [
        {"topic": topic, "shardingKey": key, "body": body}
        for (topic, key, _), body in zip(kinds, sent, strict=True)
    ]
    found: dict[tuple[str, int | None], list[bytes]] = defaultdict(list)
    for parcel in encoded(encoder(topic=None, alone_from=600), columns(rows), has_topic=False):
        if parcel.body is None:
            found[parcel.topic, parcel.queue].append(sent[parcel.row])
        else:
            found[parcel.topic, parcel.queue] += [item.body for item in batch.decode(parcel.body)]
    assert sum(map(len, found.values())) == len(rows)
    for (topic, queue), bodies in found.items():
        assert {rows[int(body[:4])]["topic"] for body in bodies} == {topic}
        assert bodies == sorted(bodies) or queue is None


def test_ids_of_rows_are_all_different_and_go_on_from_batch_to_batch() -> None:
    rows = encoder(batch_count_max=5000, batch_size_max=1 << 20)
    parcels = encoded(rows, *(columns([{"body": b"x"}] * 1500) for _ in range(3)))
    found = [properties.parse(item.properties)["UNIQ_KEY"] for item in items(parcels)]
    assert len(set(found)) == 4500
    assert all(len(each) == 32 and set(each) <= set("0123456789ABCDEF") for each in found)


def test_several_keys_and_a_namespace_become_properties() -> None:
    table = columns(
        [
            {"body": b"1", "keys": ["a", None, "", "b"]},
            {"body": b"2", "keys": []},
            {"body": b"3", "keys": None},
        ],
        keys=pa.list_(pa.string()),
    )
    found = [
        properties.parse(item.properties)
        for item in items(encoded(encoder(instance="shop"), table))
    ]
    assert [texts.get("KEYS") for texts in found] == ["a b", None, None]
    assert {texts["INSTANCE_ID"] for texts in found} == {"shop"}
    assert {texts["WAIT"] for texts in found} == {"true"}


def test_types_with_long_offsets_are_the_same_to_it() -> None:
    rows = [{"body": b"ab", "keys": ["k", "l"], "properties": {"x": "1"}, "tags": "t"}] * 3
    large = {
        "body": pa.large_binary(),
        "keys": pa.large_list(pa.large_string()),
        "tags": pa.large_string(),
    }
    large["properties"] = pa.map_(pa.large_string(), pa.large_string())
    found = [
        items(encoded(encoder(), columns(rows, **kinds)))
        for kinds in (large, {"keys": pa.list_(pa.string())})
    ]
    assert [item.body for item in found[0]] == [b"ab"] * 3
    assert found[0] == found[1]


def test_a_body_may_be_a_text() -> None:
    (item,) = items(encoded(encoder(), columns([{"body": "größer 🚀"}], body=pa.string())))
    assert item.body == "größer 🚀".encode()


def test_bodies_that_do_not_fit_a_batch_go_alone() -> None:
    sizes = [800, 979, 5000, 10]
    parcels = encoded(encoder(), columns([{"body": bytes(size)} for size in sizes]))
    assert [(parcel.row, parcel.body is None) for parcel in parcels] == [
        (1, True),
        (2, True),
        (0, False),
    ]
    assert [len(item.body) for item in batch.decode(parcels[-1].body or b"")] == [800, 10]


def test_many_topics_leave_nothing_behind() -> None:
    rows = encoder(topic=None)
    table = columns([{"topic": f"t{number % 50}", "body": b"x"} for number in range(200)])
    found = encoded(rows, table, has_topic=False)
    assert {parcel.topic: parcel.messages for parcel in found} == {
        f"t{number}": 4 for number in range(50)
    }
    assert rows.open_size == 0


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"body": None}, "its body is null, but a message needs a body"),
        ({"body": b""}, "its body is empty"),
        (
            {"body": bytes(5001)},
            "its body has 5001 bytes, but only 5000 are allowed (option maxMessageSize)",
        ),
        (
            {"body": b"x", "properties": {"KEYS": "a"}},
            "property KEYS is reserved by RocketMQ; use the column",
        ),
        ({"body": b"x", "properties": {"a\x01": "a"}}, "contain U+0001"),
        ({"body": b"x", "properties": {"": "a"}}, "a name must not be empty"),
        ({"body": b"x", "properties": {"a\x02": "a"}}, "'a\\x02' contains U+0002"),
        (
            {"body": b"x", "properties": {"a": "b\x02c"}},
            "'b\\x02c' contains U+0002, which ends a property",
        ),
        ({"body": b"x", "tags": "\x02"}, "contains U+0002"),
        ({"body": b"x", "keys": "k" * 40_000}, "exceed the limit of 32767 bytes"),
        (
            {"body": b"x", "properties": {str(number): "v" * 100 for number in range(400)}},
            "exceed the limit of 32767 bytes",
        ),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(row: dict[str, Any], said: str) -> None:
    rows = encoder()
    good = {"body": b"good", **{name: None for name in row if name != "body"}}
    assert len(items(encoded(rows, columns([good] * 9)))) == 9
    with pytest.raises(InvalidMessageError) as refused:
        encoded(rows, columns([good, good, row, good]))
    assert str(refused.value).startswith("row 11 of partition 3 cannot be sent: ")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("topic", [None, ""])
def test_a_row_without_a_topic_is_named(topic: str | None) -> None:
    with pytest.raises(
        InvalidMessageError, match="row 1 of partition 3 cannot be sent: its topic is null or empty"
    ):
        encoded(
            encoder(topic=None),
            columns([{"topic": "a", "body": b"x"}, {"topic": topic, "body": b"x"}]),
            has_topic=False,
        )


def test_properties_of_rocketmq_itself_are_left_out_when_that_is_wanted() -> None:
    own = {"UNIQ_KEY": "old", "x": "1", "KEYS": "k", "TRACE_ON": "true"}
    item, _ = items(
        encoded(encoder(drops_reserved=True), columns([{"body": b"x", "properties": own}] * 2))
    )
    assert properties.parse(item.properties).keys() == {"x", "WAIT", "UNIQ_KEY"}
    assert properties.parse(item.properties)["UNIQ_KEY"] != "old"
