"""Histories of messages: what is counted, and that each kind of fault is found and named."""

from __future__ import annotations

import json

import pytest

from orbitmq.common.errors import InvalidStateError
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.testing.histories import EXAMPLES_MAX, MessageHistory, MessageReport, MessageTally

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-a", 1)


def acknowledged(history: MessageHistory, *messages: str, first: int = 0) -> None:
    """Send messages one after the other, to consecutive offsets."""
    for offset, message in enumerate(messages, first):
        history.attempt(message, QUEUE).acknowledged(QUEUE, offset)


def delivered(history: MessageHistory, *messages: str, first: int = 0, reader: str = "") -> None:
    for offset, message in enumerate(messages, first):
        history.deliver(message, QUEUE, offset, reader=reader)


def faults(history: MessageHistory) -> dict[str, int]:
    return history.check().totals.faults()


def test_a_history_in_which_all_arrives_in_order_is_clean() -> None:
    history = MessageHistory()
    acknowledged(history, "a", "b", "c")
    delivered(history, "a", "b", "c")
    report = history.check()
    assert report.is_clean
    assert report.totals == MessageTally(attempted=3, acknowledged=3, delivered=3)
    assert report.queues == {QUEUE: report.totals}
    assert report.examples == {}


def test_nothing_happened_is_clean() -> None:
    assert MessageHistory().check().totals == MessageTally()


def test_an_indeterminate_message_may_be_delivered_or_not() -> None:
    history = MessageHistory()
    for message in ("a", "b"):
        history.attempt(message, QUEUE).indeterminate()
    history.attempt("without outcome", QUEUE)
    delivered(history, "b")
    assert history.check().totals == MessageTally(attempted=3, indeterminate=3, delivered=1)


def test_a_late_reply_decides_an_indeterminate_send_and_no_other() -> None:
    history = MessageHistory()
    send = history.attempt("a", QUEUE)
    send.indeterminate()
    send.acknowledged(QUEUE, 0)
    assert history.check().totals.acknowledged == 1
    with pytest.raises(InvalidStateError, match="a is acknowledged already"):
        send.refused()


def test_an_acknowledged_message_that_is_not_delivered_is_lost() -> None:
    history = MessageHistory()
    acknowledged(history, "a", "b")
    delivered(history, "a")
    report = history.check()
    assert report.totals.faults() == {"lost": 1}
    assert report.examples == {
        "lost": [
            "b was acknowledged at orders/broker-a/0@1; reader '' lacks it; delivered from there:"
            " nothing"
        ]
    }


def test_without_any_reader_all_that_was_acknowledged_is_lost() -> None:
    history = MessageHistory()
    acknowledged(history, "a", "b")
    assert faults(history) == {"lost": 2}


def test_a_message_at_another_offset_than_acknowledged_is_lost() -> None:
    history = MessageHistory()
    acknowledged(history, "a")
    delivered(history, "a", first=1)
    assert faults(history) == {"lost": 1}


def test_of_two_messages_that_were_acknowledged_at_one_offset_one_is_lost() -> None:
    history = MessageHistory()
    acknowledged(history, "a")
    acknowledged(history, "b")
    delivered(history, "b")
    assert faults(history) == {"lost": 1}


def test_a_delivered_message_that_is_replaced_is_lost_even_if_it_was_not_acknowledged() -> None:
    history = MessageHistory()
    for message in ("a", "b"):
        history.attempt(message, QUEUE).indeterminate()
    delivered(history, "a", reader="before")
    delivered(history, "b", reader="after")
    assert faults(history) == {"lost": 1}


def test_only_readers_that_read_to_the_end_must_have_everything() -> None:
    history = MessageHistory()
    acknowledged(history, "a", "b")
    delivered(history, "a", reader="killed")
    delivered(history, "a", "b", reader="final")
    assert history.check(readers=["final"]).is_clean
    assert faults(history) == {"lost": 1}


def test_a_message_that_a_reader_gets_again_is_duplicated_and_another_reader_may_get_it() -> None:
    history = MessageHistory()
    acknowledged(history, "a", "b")
    delivered(history, "a", "b", reader="first")
    delivered(history, "a", "b", reader="second")
    assert history.check().is_clean
    delivered(history, "a", reader="first")
    assert faults(history) == {"duplicated": 1}


def test_a_retry_that_is_stored_twice_is_duplicated() -> None:
    history = MessageHistory()
    history.attempt("a", QUEUE).indeterminate()
    history.attempt("a", OTHER).acknowledged(OTHER, 0)
    history.deliver("a", QUEUE, 0)
    history.deliver("a", OTHER, 0)
    assert faults(history) == {"duplicated": 1}


def test_a_retry_that_is_deduplicated_is_stored_when_it_was_first_sent() -> None:
    history = MessageHistory()
    first = history.attempt("a", QUEUE)
    acknowledged(history, "b", first=1)
    retry = history.attempt("a", QUEUE)
    first.acknowledged(QUEUE, 0)
    retry.acknowledged(QUEUE, 0)
    delivered(history, "a", "b")
    assert history.check().is_clean


def test_a_delivery_behind_one_of_a_higher_offset_is_reordered() -> None:
    history = MessageHistory()
    acknowledged(history, "a", "b")
    delivered(history, "b", first=1)
    delivered(history, "a", first=0)
    assert faults(history) == {"reordered": 1}


def test_a_message_before_one_that_was_acknowledged_before_its_send_is_reordered() -> None:
    history = MessageHistory()
    acknowledged(history, "a", first=1)
    acknowledged(history, "b", first=0)
    delivered(history, "b", "a")
    report = history.check()
    assert report.totals.faults() == {"reordered": 1}
    assert report.examples["reordered"][0].startswith("b at orders/broker-a/0@0 is stored before a")


def test_concurrent_sends_may_be_stored_in_any_order() -> None:
    history = MessageHistory()
    first, second = history.attempt("a", QUEUE), history.attempt("b", QUEUE)
    first.acknowledged(QUEUE, 1)
    second.acknowledged(QUEUE, 0)
    delivered(history, "b", "a")
    assert history.check().is_clean


def test_a_message_that_was_never_sent_is_a_phantom() -> None:
    history = MessageHistory()
    delivered(history, "a", reader="one")
    delivered(history, "a", reader="two")
    assert faults(history) == {"phantom": 1}


def test_a_refused_message_that_is_delivered_is_a_phantom() -> None:
    history = MessageHistory()
    history.attempt("a", QUEUE).refused()
    delivered(history, "a")
    assert history.check().totals == MessageTally(attempted=1, delivered=1, phantom=1)


def test_a_message_in_a_queue_to_which_it_was_not_sent_is_a_phantom() -> None:
    history = MessageHistory()
    history.attempt("a", OTHER).indeterminate()
    delivered(history, "a")
    assert faults(history) == {"phantom": 1}


def test_a_message_that_is_delivered_before_its_send_began_is_a_phantom() -> None:
    history = MessageHistory()
    delivered(history, "a")
    history.attempt("a", QUEUE)
    assert faults(history) == {"phantom": 1}


def test_a_send_to_a_topic_counts_in_the_queue_where_it_is_found() -> None:
    history = MessageHistory()
    history.attempt("acknowledged", "orders").acknowledged(OTHER, 0)
    history.attempt("found", "orders")
    history.attempt("gone", "orders")
    history.deliver("acknowledged", OTHER, 0)
    history.deliver("found", QUEUE, 0)
    report = history.check()
    assert report.is_clean
    assert {queue: tally.attempted for queue, tally in report.queues.items()} == {
        OTHER: 1,
        QUEUE: 1,
        MessageQueue("orders", "", -1): 1,
    }


def test_faults_are_counted_by_queue() -> None:
    history = MessageHistory()
    history.attempt("a", QUEUE).acknowledged(QUEUE, 0)
    history.attempt("b", OTHER).acknowledged(OTHER, 0)
    history.deliver("b", OTHER, 0)
    history.deliver("b", OTHER, 0)
    report = history.check()
    assert report.queues[QUEUE].faults() == {"lost": 1}
    assert report.queues[OTHER].faults() == {"duplicated": 1}


def test_the_line_is_json_with_the_totals_and_the_first_faults() -> None:
    history = MessageHistory()
    acknowledged(history, *(f"m{number}" for number in range(EXAMPLES_MAX + 3)))
    line = history.check().line(campaign="kill", seed=7)
    assert "\n" not in line
    found = json.loads(line)
    assert (found["campaign"], found["seed"], found["attempted"]) == ("kill", 7, EXAMPLES_MAX + 3)
    assert found["faulty_queues"] == {"orders/broker-a/0": {"lost": EXAMPLES_MAX + 3}}
    assert len(found["examples"]["lost"]) == EXAMPLES_MAX
    assert json.loads(MessageReport().line())["lost"] == 0
