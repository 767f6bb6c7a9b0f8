"""Messages that come later, and recalls, good and bad, as raw frames to the original 5.5.0 and to
ours: the answers are the same.
"""

from __future__ import annotations

import base64
import time

import pytest

from interop.broker_conversation import BrokerConversation
from interop.broker_pair import MISSING, OWN_ID, TOPIC, Row, ask_all, row, sent
from interop.frames import Answer, Request
from support.common.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven")]

WORDS = "the original answers with an exception that ours does not run into"
HOUR_MS = 3_600_000
ID = "0A000001000000000000000000000001"


def later(number: int, **names: str) -> Row:
    """A send with these properties."""
    content = {"UNIQ_KEY": f"0A0000010000000000000000000000{number:02d}", **names}
    asked = sent(
        number, properties="".join(f"{name}\x01{value}\x02" for name, value in content.items())
    )
    return asked._replace(deviation=None)


def recall(handle: str, topic: str = "T", **more: str) -> Row:
    return row(370, {"topic": topic, "recallHandle": handle, "producerGroup": "p", **more})


def handle(
    topic: str = "T", broker: str = "broker-a", after_ms: int | str = HOUR_MS, version: str = "v1"
) -> str:
    at = int(time.time() * 1000) + after_ms if isinstance(after_ms, int) else after_ms
    return base64.urlsafe_b64encode(f"{version} {topic} {broker} {at} {ID}".encode()).decode()


def each(both: BrokerConversation, asked: Row) -> tuple[Answer, Answer]:
    """What the original and ours say, each for itself."""
    original, ours = (
        connection.ask(Request(asked.code, asked.fields, asked.body))
        for connection in both.on("main")
    )
    return original, ours


def test_both_answer_the_same_to_sends_that_come_later(both_brokers: BrokerConversation) -> None:
    stored = [
        later(1, DELAY="18"),
        later(2, DELAY="99"),
        later(3, TIMER_DELAY_SEC="3600"),
        later(4, TIMER_DELIVER_MS="1"),
    ]
    ask_all(both_brokers, [row(17, TOPIC), *(each._replace(deviation=OWN_ID) for each in stored)])

    def same_offsets() -> bool:
        original, ours = (answer.json()["offsetTable"] for answer in each(both_brokers, row(45)))
        return original == ours and list(original.values()) == [0]

    def same_metrics() -> bool:
        original, ours = (answer.json()["timingCount"] for answer in each(both_brokers, row(61)))
        return (
            [(topic, ours[topic]["count"]) for topic in ours]
            == [(topic, original[topic]["count"]) for topic in original]
            == [("T", 1)]
        )

    wait_until(same_offsets, "both tell the same of level 18")
    wait_until(same_metrics, "both tell the same of the timer")
    ask_all(both_brokers, [later(11, DELAY="x")._replace(deviation=WORDS)])


@pytest.mark.parametrize(
    "names",
    [
        {"TIMER_DELAY_SEC": "259201"},
        {"TIMER_DELAY_MS": "259201000"},
        {"TIMER_DELIVER_MS": "9000000000000"},
        {"TIMER_DELIVER_MS": "x"},
        {"TIMER_DELAY_MS": "1.5"},
        {"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "id"},
    ],
)
def test_both_refuse_times_that_cannot_be_used_and_ours_says_why(
    both_brokers: BrokerConversation, names: dict[str, str]
) -> None:
    ask_all(both_brokers, [row(17, TOPIC)])
    original, ours = each(both_brokers, later(1, **names))
    assert (original.code, ours.code) == (13, 13)
    assert original.remark is not None
    assert ours.remark is not None
    assert ours.remark.startswith(original.remark + ": property TIMER_")


def test_both_answer_the_same_to_recalls(both_brokers: BrokerConversation) -> None:
    good = handle()
    ask_all(
        both_brokers,
        [
            row(17, TOPIC),
            recall(good),
            row(25, None, b"recallMessageEnable=true\n"),
            recall(good, "no such topic"),
            recall(good, "Other"),
            row(17, {**TOPIC, "topic": "Other"}),
            recall(good, "Other"),
            recall("x"),
            recall(""),
            recall(handle(version="v2")),
            recall(base64.urlsafe_b64encode(b"v1 T broker-a 1").decode()),
            recall(handle(broker="broker-x")),
            recall(handle(after_ms=-1000)),
            recall(handle(after_ms="soon"))._replace(
                deviation="a time that is none: ours says that the handle is none"
            ),
            recall(handle(after_ms=80 * HOUR_MS)),
            row(370, {"topic": "T", "producerGroup": "p"}, deviation=MISSING),
            row(370, {"recallHandle": good, "producerGroup": "p"}),
            later(1, TIMER_DELAY_SEC="3600")._replace(deviation=OWN_ID),
            recall(good),
            row(370, {"topic": "T", "recallHandle": good}),
        ],
    )
