"""Trace records, byte for byte as Java clients write them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.messages import TransactionState
from orbitmq.client.trace_records import (
    Consumed,
    ConsumeStarted,
    MessageKind,
    Published,
    Recalled,
    TraceRecord,
    TransactionEnded,
    decode,
    encode,
    index_keys,
)
from orbitmq.common.errors import ProtocolError

# Bodies of messages in RMQ_SYS_TRACE_TOPIC, written by the Java clients 5.5.0 and 4.9.7.
WRITTEN_BY_JAVA = {
    "Pub\x011794832710178\x01DefaultRegion\x01pg\x01T\x01C00002027E7C4E0E2F2A4FF5D2210000\x01tag\x01k1 k2\x01127.0.0.1:22265\x015\x01108\x010\x017F000001000056F90000000000000000\x01true\x02": Published(  # noqa: E501
        time_ms=1794832710178,
        region="DefaultRegion",
        group="pg",
        topic="T",
        msg_id="C00002027E7C4E0E2F2A4FF5D2210000",
        tags="tag",
        keys="k1 k2",
        store_host="127.0.0.1:22265",
        body_size=5,
        cost_ms=108,
        kind=MessageKind.NORMAL,
        offset_msg_id="7F000001000056F90000000000000000",
        is_success=True,
    ),
    "SubBefore\x011794832752922\x01null\x01cg\x01C0000202021C4E0E2F2A4FF6791A0004\x01C0000202021C4E0E2F2A4FF6788E0000\x010\x01k1 k2\x02": ConsumeStarted(  # noqa: E501
        time_ms=1794832752922,
        region=None,
        group="cg",
        request_id="C0000202021C4E0E2F2A4FF6791A0004",
        msg_id="C0000202021C4E0E2F2A4FF6788E0000",
        retry_count=0,
        keys="k1 k2",
    ),
    "SubAfter\x01C0000202021C4E0E2F2A4FF6791A0004\x01C0000202021C4E0E2F2A4FF6788E0000\x011\x01true\x01k1 k2\x010\x011794832752923\x01cg\x02": Consumed(  # noqa: E501
        request_id="C0000202021C4E0E2F2A4FF6791A0004",
        msg_id="C0000202021C4E0E2F2A4FF6788E0000",
        cost_ms=1,
        is_success=True,
        keys="k1 k2",
        outcome=0,
        time_ms=1794832752923,
        group="cg",
    ),
    "EndTransaction\x011794832712055\x01DefaultRegion\x01tg\x01X\x01C00002027E7C4E0E2F2A4FF5D463000A\x01tag\x01t3\x01127.0.0.1:22265\x012\x01C00002027E7C4E0E2F2A4FF5D463000A\x01COMMIT_MESSAGE\x01true\x02": TransactionEnded(  # noqa: E501
        time_ms=1794832712055,
        region="DefaultRegion",
        group="tg",
        topic="X",
        msg_id="C00002027E7C4E0E2F2A4FF5D463000A",
        tags="tag",
        keys="t3",
        broker_address="127.0.0.1:22265",
        kind=MessageKind.TRANSACTION_END,
        transaction_id="C00002027E7C4E0E2F2A4FF5D463000A",
        state=TransactionState.COMMIT,
        from_check=True,
    ),
}


@pytest.mark.parametrize(("text", "record"), WRITTEN_BY_JAVA.items())
def test_what_java_clients_write_is_read_and_written_the_same(
    text: str, record: TraceRecord
) -> None:
    assert list(decode(text)) == [record]
    assert encode(record) == text


times = st.integers(0, 2**62)
counts = st.integers(0, 2**31 - 1)
words = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"])).filter(
    lambda text: text != "null"
)
maybe = st.none() | words
kinds = st.sampled_from(MessageKind)
records: st.SearchStrategy[TraceRecord] = st.one_of(
    st.builds(
        Published,
        times,
        maybe,
        maybe,
        maybe,
        words,
        maybe,
        maybe,
        maybe,
        counts,
        counts,
        kinds,
        maybe,
        st.booleans(),
    ),
    st.builds(ConsumeStarted, times, maybe, maybe, maybe, words, counts, maybe),
    st.builds(Consumed, maybe, words, counts, st.booleans(), maybe, counts, times, maybe),
    st.builds(
        TransactionEnded,
        *(times, maybe, maybe, maybe, words, maybe, maybe, maybe, kinds, maybe),
        *(st.sampled_from(TransactionState), st.booleans()),
    ),
    st.builds(Recalled, times, maybe, maybe, maybe, words, st.booleans()),
)


@given(st.lists(records))
def test_every_record_is_read_as_it_was_written(written: list[TraceRecord]) -> None:
    found = list(decode("".join(map(encode, written))))
    assert found == written
    assert [type(record) for record in found] == [type(record) for record in written]


@given(records, st.text("a\x01\x02", min_size=1))
def test_a_separator_in_a_field_does_not_make_a_field_of_its_own(
    record: TraceRecord, text: str
) -> None:
    dirty = record._replace(msg_id=text)
    assert list(decode(encode(dirty))) == [
        record._replace(msg_id=text.replace("\x01", " ").replace("\x02", " "))
    ]


@given(
    st.text()
    | st.lists(
        st.sampled_from(["Pub", "SubAfter", "Recall", "\x01", "\x02", "1", "true", "null"])
    ).map("".join)
)
def test_whatever_else_stands_there_is_passed_over_or_refused(text: str) -> None:
    found: list[TraceRecord] = []
    with contextlib.suppress(ProtocolError):
        found += decode(text)
    assert list(decode("".join(map(encode, found)))) == found


def test_records_of_other_ages_are_read_as_far_as_they_are_known() -> None:
    assert list(decode("SubAfter\x01r\x01ID\x015\x01false\x01null\x014\x02")) == [
        Consumed("r", "ID", 5, False, None, 4)
    ]
    newer = "Recall\x011\x01region\x01g\x01T\x01ID\x01true\x01something new\x02Unknown\x011\x02"
    assert list(decode(newer)) == [Recalled(1, "region", "g", "T", "ID", True)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Pub\x011\x01region\x02", "a trace record Pub has 2 fields instead of 13"),
        (
            "Recall\x01soon\x01region\x01g\x01T\x01ID\x01true\x02",
            "Recall is malformed: invalid literal",
        ),
        (
            "EndTransaction\x011\x01r\x01g\x01T\x01ID\x01t\x01k\x01h\x012\x01x\x01MAYBE\x01true\x02",
            "is malformed: 'MAYBE'",
        ),
    ],
)
def test_what_cannot_be_read_is_said(text: str, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        list(decode(text))


def test_a_record_is_found_by_the_id_and_the_keys_of_its_message() -> None:
    assert list(index_keys(ConsumeStarted(1, None, None, None, "ID", 0, "a b"))) == ["ID", "a", "b"]
    assert list(index_keys(ConsumeStarted(1, None, None, None, "ID", 0, None))) == ["ID"]
    assert list(index_keys(Recalled(1, None, None, None, "ID", True))) == ["ID"]
