"""How typed headers travel: names, texts, and refusals."""

from __future__ import annotations

import pytest

from orbitmq.common.errors import RequestRefusedError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers.base import BoundaryType
from orbitmq.protocol.headers.clients import UnregisterClientRequestHeader
from orbitmq.protocol.headers.nameserver import (
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
)
from orbitmq.protocol.headers.offsets import (
    QueryConsumerOffsetResponseHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
)
from orbitmq.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2

BROKER = {
    "brokerName": "b",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "c",
    "haServerAddr": "10.0.0.1:10912",
    "brokerId": "0",
}


def test_names_travel_in_camel_case_and_values_as_texts() -> None:
    header = GetRouteInfoRequestHeader(
        topic="T", accept_standard_json_only=True, target_broker="b", logical=False, zone_name="z"
    )
    assert header.to_fields() == {
        "topic": "T",
        "acceptStandardJsonOnly": "true",
        "bname": "b",
        "lo": "false",
        "__ZONE_NAME": "z",
    }


def test_fields_that_were_not_sent_are_none_and_do_not_travel() -> None:
    header = RegisterBrokerRequestHeader.from_fields(BROKER)
    assert header.compressed is None
    assert header.to_fields() == BROKER


def test_the_two_send_headers_differ_only_in_their_names_on_the_wire() -> None:
    fields = {
        "a": "g",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "-1",
        "f": "0",
        "g": "1700000000000",
        "h": "7",
        "l": "16",
        "n": "broker",
    }
    header = SendMessageRequestHeaderV2.from_fields(fields)
    assert isinstance(header, SendMessageRequestHeader)
    assert (header.topic, header.queue_id, header.max_reconsume_times, header.target_broker) == (
        "T",
        -1,
        16,
        "broker",
    )
    assert header.to_fields() == fields


@pytest.mark.parametrize(
    "fields",
    [None, {}, {"topic": None}],
    ids=["none at all", "not sent", "sent empty in a binary header"],
)
def test_a_missing_required_field_is_refused_by_name(fields: dict[str, str | None] | None) -> None:
    with pytest.raises(
        RequestRefusedError, match="topic of GetRouteInfoRequestHeader is missing"
    ) as refused:
        GetRouteInfoRequestHeader.from_fields(fields)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    "text", ["", "x", "1_0", " 1", "1.0", "0x1", "--1", "9223372036854775808", "9" * 5000]
)
def test_a_number_that_cannot_be_read_counts_as_not_sent(text: str) -> None:
    assert (
        RegisterBrokerRequestHeader.from_fields(
            BROKER | {"heartbeatTimeoutMillis": text}
        ).heartbeat_timeout_millis
        is None
    )
    with pytest.raises(
        RequestRefusedError, match="brokerId of RegisterBrokerRequestHeader cannot be read"
    ):
        RegisterBrokerRequestHeader.from_fields(BROKER | {"brokerId": text})


def test_a_strict_header_refuses_a_number_that_cannot_be_read_and_takes_none_for_not_sent() -> None:
    reset = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"}
    assert ResetOffsetRequestHeader.from_fields(reset | {"queueId": ""}).queue_id is None
    with pytest.raises(
        RequestRefusedError,
        match=(
            "queueId of ResetOffsetRequestHeader cannot be read from 'one'; send a whole number, or"
            " leave"
        ),
    ):
        ResetOffsetRequestHeader.from_fields(reset | {"queueId": "one"})


@pytest.mark.parametrize(
    ("text", "value"),
    [("+5", 5), ("-0", 0), ("007", 7), ("2147483647", 2**31 - 1), ("-2147483648", -(2**31))],
)
def test_numbers_are_read_as_java_reads_them(text: str, value: int) -> None:
    assert RegisterBrokerRequestHeader.from_fields(BROKER | {"bodyCrc32": text}).body_crc32 == value


def test_a_number_wider_than_its_field_counts_as_not_sent() -> None:
    assert (
        RegisterBrokerRequestHeader.from_fields(BROKER | {"bodyCrc32": "2147483648"}).body_crc32
        is None
    )
    assert QueryConsumerOffsetResponseHeader.from_fields({"offset": "2147483648"}).offset == 2**31


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("TRUE", True), ("false", False), ("yes", False), ("", False)],
)
def test_every_text_but_true_is_false(text: str, value: bool) -> None:
    assert (
        RegisterBrokerRequestHeader.from_fields(BROKER | {"compressed": text}).compressed is value
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("UPPER", BoundaryType.UPPER),
        ("upper", BoundaryType.UPPER),
        ("LOWER", BoundaryType.LOWER),
        ("?", BoundaryType.LOWER),
    ],
)
def test_every_boundary_but_upper_is_lower(text: str, value: BoundaryType) -> None:
    fields = {"topic": "T", "queueId": "0", "timestamp": "1", "boundaryType": text}
    assert SearchOffsetRequestHeader.from_fields(fields).boundary_type is value


def test_fields_that_the_header_does_not_know_are_ignored() -> None:
    assert UnregisterClientRequestHeader.from_fields(
        {"clientID": "c", "ReqT": "0"}
    ).to_fields() == {"clientID": "c"}
