"""Where messages wait that come later, what is refused, and what is delivered of them: as the
original has it.
"""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.broker.delay.redelivery import delivered, fired, rolled
from orbitmq.broker.delay.rewriter import DelayRewriter, slot_of
from orbitmq.broker.produce.deferral import Deferred
from orbitmq.common.errors import InvalidMessageError, RefusedError
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType
from orbitmq.message.recall_handle import RecallHandle
from orbitmq.message.record_write import MessageRecord
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.codes import REFUSAL_CODES, ResponseCode
from support.broker.delay import timer_settings
from support.broker.services import ExpectedDelivery
from support.store import golden_stores
from support.store.golden_stores import GoldenRecord
from support.store.logs import HOST

NOW = 1_700_000_000_400
TIMES = ("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC")


def placed(names: dict[str, str], sys_flag: int = 0, settings: Any = None) -> Deferred | None:
    message = MessageRecord(
        b"T",
        b"x",
        born_host=HOST,
        born_time_ms=1,
        queue_id=3,
        sys_flag=sys_flag,
        properties=properties.encode(names),
    )
    return DelayRewriter(settings or timer_settings(), lambda: NOW, ExpectedDelivery()).rewrite(
        message, names
    )


def found(place: Deferred | None) -> tuple[str, int, dict[str, str]]:
    assert place is not None
    return (
        bytes(place.message.topic).decode(),
        place.message.queue_id,
        properties.parse(bytes(place.message.properties)),
    )


def test_a_level_is_a_queue_and_the_real_place_is_kept() -> None:
    topic, queue_id, names = found(placed({"DELAY": "3", "a": "b"}))
    assert (topic, queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert names == {"DELAY": "3", "a": "b", "REAL_TOPIC": "T", "REAL_QID": "3"}
    assert found(placed({"DELAY": "99"}))[1:] == (
        17,
        {"DELAY": "18", "REAL_TOPIC": "T", "REAL_QID": "3"},
    )


def test_a_level_wins_over_a_time_and_over_what_was_left_of_an_earlier_delay() -> None:
    names = found(
        placed({"DELAY": "1", **dict.fromkeys(TIMES, "5"), "REAL_TOPIC": "old", "REAL_QID": "9"})
    )[2]
    assert names == {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "3"}


@pytest.mark.parametrize(
    ("names", "out_ms"),
    [
        ({"TIMER_DELAY_SEC": "2"}, NOW + 1_600),  # 402_400
        ({"TIMER_DELAY_MS": "600"}, NOW - 400),  # exactly the next second: the slot before it
        ({"TIMER_DELAY_MS": "601"}, NOW + 600),
        ({"TIMER_DELIVER_MS": str(NOW + 1)}, NOW - 400),
        (
            {
                "TIMER_DELIVER_MS": str(NOW + 5_000),
                "TIMER_DELAY_MS": "1000",
                "TIMER_DELAY_SEC": "60",
            },
            NOW + 59_600,
        ),
    ],
)
def test_a_time_goes_to_its_slot_and_the_handle_names_it(
    names: dict[str, str], out_ms: int
) -> None:
    place = placed({"UNIQ_KEY": "id", **names})
    topic, queue_id, stored = found(place)
    assert (topic, queue_id) == ("rmq_sys_wheel_timer", 0)
    assert stored == {
        "UNIQ_KEY": "id",
        **names,
        "TIMER_OUT_MS": str(out_ms),
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
    }
    assert place is not None
    assert RecallHandle.parse(place.recall_handle or "") == RecallHandle(
        "T", "broker-a", out_ms + 1, "id"
    )


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"DELAY": "0"},
        {"DELAY": "-1"},
        {"TIMER_DELIVER_MS": str(NOW)},
        {"TIMER_DELAY_MS": "0"},
        {"TIMER_DELAY_MS": "-9"},
        {"TIMER_DELIVER_MS": str(NOW + 9), "TIMER_OUT_MS": "1"},  # it was delivered once
    ],
)
def test_what_does_not_wait_is_left_as_it_is(names: dict[str, str]) -> None:
    assert placed(names) is None


def test_half_messages_wait_for_their_transaction_and_committed_ones_for_their_time() -> None:
    assert placed({"DELAY": "3"}, TransactionType.PREPARED) is None
    assert placed({"TIMER_DELAY_SEC": "3"}, TransactionType.ROLLBACK) is None
    assert found(placed({"DELAY": "3"}, TransactionType.COMMIT))[1] == 2


@pytest.mark.parametrize(
    ("names", "settings", "code", "says"),
    [
        (
            {"DELAY": "soon"},
            {},
            ResponseCode.MESSAGE_ILLEGAL,
            "DELAY=soon: a whole number is required",
        ),
        ({"TIMER_DELAY_MS": "1.5"}, {}, ResponseCode.MESSAGE_ILLEGAL, "a whole number"),
        ({"TIMER_DELIVER_MS": "9" * 19}, {}, ResponseCode.MESSAGE_ILLEGAL, "a whole number"),
        ({"TIMER_DELAY_SEC": "259201"}, {}, ResponseCode.MESSAGE_ILLEGAL, "timerMaxDelaySec"),
        (
            {"TIMER_DELAY_MS": "0", "TIMER_DEL_UNIQKEY": "id"},
            {},
            ResponseCode.MESSAGE_ILLEGAL,
            "has been delivered already",
        ),
        (
            {"TIMER_DELAY_MS": "5", "TIMER_DEL_UNIQKEY": "id"},
            {"timer_stop_enqueue": True},
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "set timerStopEnqueue=false",
        ),
        (
            {"TIMER_DELAY_MS": "5"},
            {"timer_wheel_enable": False},
            ResponseCode.SYSTEM_ERROR,
            "timerWheelEnable=true",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(
    names: dict[str, str], settings: dict[str, object], code: int, says: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        placed(names, settings=timer_settings(**settings))
    assert (REFUSAL_CODES[refused.value.refusal], says in refused.value.remark) == (code, True), (
        refused.value.remark
    )


def test_a_slot_that_holds_enough_takes_no_more() -> None:
    delivery = ExpectedDelivery()
    delivery.congested = {slot_of(NOW + 5_000, 1000)}
    placer = DelayRewriter(timer_settings(), lambda: NOW, delivery)
    names = {"TIMER_DELAY_MS": "5000"}
    with pytest.raises(RefusedError, match="timerCongestNumEachSlot") as refused:
        placer.rewrite(MessageRecord(b"T", b"x", born_host=HOST, born_time_ms=1), names)
    assert REFUSAL_CODES[refused.value.refusal] == ResponseCode.SYSTEM_ERROR


def accepted(now_ms: int, names: dict[str, str], **settings: object) -> Deferred | None:
    """Where a message waits that was accepted at NOW, by a broker that takes no more of them at
    that later time.
    """
    delivery = ExpectedDelivery()
    delivery.congested = None
    placer = DelayRewriter(timer_settings(**settings), lambda: now_ms, delivery)
    message = MessageRecord(
        b"T", b"x", born_host=HOST, born_time_ms=1, queue_id=3, properties=properties.encode(names)
    )
    return placer.rewrite_accepted(message, names)


def test_a_message_that_was_accepted_waits_although_its_slot_is_full_or_may_not_be_so_far_away_any_more() -> (
    None
):
    names = {"TIMER_DELIVER_MS": str(NOW + 5_000)}
    topic, _, stored = found(accepted(NOW + 1_000, names, timer_max_delay_sec=1))
    assert (topic, stored["TIMER_OUT_MS"]) == (
        "rmq_sys_wheel_timer",
        str(slot_of(NOW + 5_000, 1000)),
    )
    assert found(accepted(NOW, {"DELAY": "3"}))[:2] == ("SCHEDULE_TOPIC_XXXX", 2)


def test_a_message_that_was_accepted_comes_at_once_when_its_time_is_over_or_there_is_no_timer_any_more() -> (
    None
):
    names = {"TIMER_DELIVER_MS": str(NOW + 5_000)}
    assert accepted(NOW + 5_000, names) is None
    assert accepted(NOW + 5_000, {**names, "TIMER_DEL_UNIQKEY": "id"}) is None
    assert accepted(NOW, names, timer_wheel_enable=False) is None


# -- what is delivered


def same(ours: MessageRecord, theirs: StoredMessage) -> None:
    again = theirs.to_message()
    assert properties.parse(bytes(ours.properties)) == properties.parse(bytes(again.properties))
    assert len(ours.properties) == len(
        properties.closed(bytes(again.properties))
    )  # 4.9 leaves the last end mark out
    again.properties = ours.properties
    assert ours == again


def origin(records: tuple[GoldenRecord, ...], copy: GoldenRecord, topic: str) -> StoredMessage:
    before = [
        each
        for each in records
        if each.topic == topic
        and each.unique_key == copy.unique_key
        and each.log_offset < copy.log_offset
    ]
    return before[-1].message


@pytest.mark.parametrize(
    "folder", ["store-4.9.8/clean/store", "store-5.5.0/clean/store", "store-5.5.0/timer/store"]
)
def test_the_copy_of_a_delayed_message_is_that_of_the_original(folder: str) -> None:
    records = golden_stores.records(folder)
    copies = [
        each
        for each in records
        if each.topic != "SCHEDULE_TOPIC_XXXX"
        and each.message.properties().get("DELAY", "0") != "0"
    ]
    copies = [each for each in copies if "REAL_TOPIC" in each.message.properties()]
    assert copies
    for copy in copies:
        same(delivered(origin(records, copy, "SCHEDULE_TOPIC_XXXX")), copy.message)


def test_the_copy_of_a_timed_message_is_that_of_the_original() -> None:
    records = golden_stores.records("store-5.5.0/timer/store")
    copies = [each for each in records if "TIMER_DEQUEUE_MS" in each.message.properties()]
    assert len(copies) > 2
    for copy in copies:
        names = copy.message.properties()
        before = origin(records, copy, "rmq_sys_wheel_timer")
        same(
            fired(
                before,
                before.properties(),
                int(names["TIMER_ENQUEUE_MS"]),
                int(names["TIMER_DEQUEUE_MS"]),
            ),
            copy.message,
        )


def test_a_rolled_message_waits_once_more_and_keeps_its_time() -> None:
    (before,) = (
        each.message
        for each in golden_stores.records("store-5.5.0/timer/store")
        if each.keys == "t-roll"
    )
    again = rolled(before, before.properties(), 5_000, 6_000, 7_000)
    names = properties.parse(bytes(again.properties))
    assert (again.topic, again.queue_id) == (b"rmq_sys_wheel_timer", 0)
    assert {
        name: value for name, value in names.items() if before.properties().get(name) != value
    } == {
        "TIMER_ROLL_TIMES": "1",
        "TIMER_ENQUEUE_MS": "5000",
        "TIMER_DEQUEUE_MS": "6000",
        "TIMER_DELIVER_MS": "7000",
    }


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"REAL_TOPIC": "T"},
        {"REAL_TOPIC": "T", "REAL_QID": "x"},
        {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
    ],
)
def test_a_message_that_does_not_say_where_it_belongs_is_not_delivered(
    names: dict[str, str],
) -> None:
    stored = golden_stores.records("store-5.5.0/timer/store")[0].message._replace(
        raw_properties=properties.encode(names)
    )
    with pytest.raises(InvalidMessageError):
        delivered(stored)
