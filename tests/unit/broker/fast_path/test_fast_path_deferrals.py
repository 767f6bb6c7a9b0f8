"""The fast path takes messages that wait, and ends transactions, as the general path would; it leaves
to it what takes more than a look.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.common.errors import WriteFailedError
from orbitmq.message.message_id import parse_offset_id
from orbitmq.message.property_rules import RESERVED_PREFIXES, RULES, Need, rule_of
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.store.config import FlushMode
from support.broker.two_paths import END, PROPERTIES, SEND, UNIQUE, TwoRooms, request

V2, ENDED = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.END_TRANSACTION)
BINARY = pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
NOW_MS = 1_700_000_000_000  # by the rooms' clocks
HALF = "TRAN_MSG\x01true\x02PGROUP\x01producers\x02"
LATER = f"TIMER_DELIVER_MS\x01{NOW_MS + 1500}\x02"
WAITING = {
    "by its level": {"i": PROPERTIES + "DELAY\x011\x02"},
    "by a level that stands before its key": {"i": "DELAY\x012\x02" + PROPERTIES},
    "by a level above the highest": {"i": "A\x01b\x02DELAY\x0199\x02" + UNIQUE},
    "for its time": {"i": PROPERTIES + LATER},
    "for its time, the last property open": {"i": PROPERTIES + LATER[:-1]},
    "for its transaction": {"i": PROPERTIES + HALF},
    "for its transaction, which its flag says too": {"i": HALF + PROPERTIES, "f": "4"},
}
ODD = {
    "a level that is none": {"i": PROPERTIES + "DELAY\x010\x02"},
    "a level that is no number": {"i": PROPERTIES + "DELAY\x01x\x02"},
    "a level twice": {"i": PROPERTIES + "DELAY\x011\x02DELAY\x012\x02"},
    "a level and a time": {"i": PROPERTIES + "DELAY\x011\x02" + LATER},
    "a time that has come": {"i": f"{PROPERTIES}TIMER_DELIVER_MS\x01{NOW_MS}\x02"},
    "a time too far away": {"i": f"{PROPERTIES}TIMER_DELIVER_MS\x01{NOW_MS * 2}\x02"},
    "a time with more digits than fit": {
        "i": PROPERTIES + "TIMER_DELIVER_MS\x01" + "1" * 20 + "\x02"
    },
    "a message that takes another back": {"i": PROPERTIES + LATER + "TIMER_DEL_UNIQKEY\x01k\x02"},
    "a transaction that is none": {"i": PROPERTIES + "TRAN_MSG\x01false\x02"},
    "a transaction in capitals": {"i": PROPERTIES + "TRAN_MSG\x01TRUE\x02"},
    "a delayed message of a transaction": {"i": PROPERTIES + HALF + "DELAY\x011\x02"},
    "a message that was committed, flagged so": {"i": PROPERTIES + HALF, "f": "8"},
    "what only the broker writes": {"i": PROPERTIES + HALF + "REAL_TOPIC\x01U\x02"},
    "the id that only the broker writes": {"i": PROPERTIES + HALF + "__transactionId__\x01U\x02"},
    "a message that was consumed before": {"i": PROPERTIES + HALF, "j": "1"},
    "properties that leave no room for copies": {"i": UNIQUE + HALF + "a\x01" + "x" * 32_400},
}


@pytest.fixture(params=[FlushMode.ASYNC, FlushMode.SYNC])
def rooms(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TwoRooms]:
    made = TwoRooms(tmp_path, flush_mode=request.param)
    yield made
    made.close()


def halves(rooms: TwoRooms, count: int) -> list[dict[str, str]]:
    """What ends so many half messages, which are stored."""
    sends = [
        request(V2, SEND | {"i": PROPERTIES + HALF}, b"%d" % number, opaque=number)
        for number in range(count)
    ]
    return [end_of(answer) for answer in rooms.sent(sends)]


def end_of(answer: RemotingCommand, kind: int = 8) -> dict[str, str]:
    fields = answer.ext_fields or {}
    log_offset = parse_offset_id(fields["msgId"]).log_offset
    return END | {
        "tranStateTableOffset": fields["queueOffset"],
        "commitLogOffset": str(log_offset),
        "commitOrRollback": str(kind),
    }


@BINARY
@pytest.mark.parametrize("changes", WAITING.values(), ids=WAITING.keys())
def test_a_message_that_waits_is_stored_without_the_general_way(
    rooms: TwoRooms, changes: dict[str, str], binary: bool
) -> None:
    plain = request(V2, SEND, b"plain", opaque=1, binary=binary)
    answers = rooms.sent(
        [plain, request(V2, SEND | changes, b"waits", opaque=2, binary=binary), plain]
    )
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 3
    assert rooms.fast.general == []
    assert rooms.fast.store.queues.max_offset("T", 1) == 2


@pytest.mark.parametrize("changes", ODD.values(), ids=ODD.keys())
def test_a_message_of_which_more_is_to_be_known_goes_the_general_way(
    rooms: TwoRooms, changes: dict[str, str]
) -> None:
    rooms.sent([request(V2, SEND | changes, b"odd", opaque=2)])
    assert rooms.fast.general == [V2]


def test_without_a_timer_wheel_or_room_in_its_slot_the_general_way_refuses(rooms: TwoRooms) -> None:
    for room in rooms.both:
        room.delivery.congested = None
    (answer,) = rooms.sent([request(V2, SEND | {"i": PROPERTIES + LATER}, b"later")])
    assert "flow control" in (answer.remark or "")
    for room in rooms.both:
        room.settings.timer_wheel_enable = False
    (answer,) = rooms.sent([request(V2, SEND | {"i": PROPERTIES + LATER}, b"later")])
    assert "timerWheelEnable" in (answer.remark or "")
    assert rooms.fast.general == [V2, V2]


def test_who_expects_messages_hears_of_those_that_the_fast_path_took(rooms: TwoRooms) -> None:
    rooms.sent(
        [
            request(V2, SEND | {"i": PROPERTIES + kind}, b"later")
            for kind in ("DELAY\x012\x02", LATER)
        ]
    )
    assert rooms.fast.delivery.expected == [NOW_MS + 5000, NOW_MS + 1500]


def test_transactions_that_are_not_wanted_are_refused(rooms: TwoRooms) -> None:
    for room in rooms.both:
        room.settings.reject_transaction_message = True
    (answer,) = rooms.sent([request(V2, SEND | {"i": PROPERTIES + HALF}, b"half")])
    assert answer.code == ResponseCode.NO_PERMISSION


@BINARY
def test_transactions_end_without_the_general_way(rooms: TwoRooms, binary: bool) -> None:
    first, second, third = halves(rooms, 3)
    ends = [
        first,
        second | {"commitOrRollback": "12"},
        {name: value for name, value in third.items() if name != "transactionId"},
    ]
    answers = rooms.sent(
        [request(ENDED, end, opaque=number, binary=binary) for number, end in enumerate(ends)]
    )
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 3
    assert rooms.fast.general == []
    assert not len(rooms.fast.transactions.pending)
    assert rooms.fast.store.queues.max_offset("T", 1) == 2


def test_a_half_message_may_end_in_the_turn_of_others(rooms: TwoRooms) -> None:
    (first,) = halves(rooms, 1)
    answers = rooms.turn(
        (1, request(V2, SEND | {"i": PROPERTIES + HALF}, b"half", opaque=1)),
        (0, request(ENDED, first, opaque=2)),
        (2, request(V2, SEND, b"plain", opaque=3)),
    )
    assert [len(answered) for answered, _ in answers.values()] == [1, 1, 1]
    assert rooms.fast.general == []
    assert [half.root for half in rooms.fast.transactions.pending] != [0]


def test_of_two_words_in_one_turn_the_first_counts(rooms: TwoRooms) -> None:
    (end,) = halves(rooms, 1)
    answers = rooms.sent(
        [request(ENDED, end, opaque=1), request(ENDED, end | {"commitOrRollback": "12"}, opaque=2)]
    )
    assert [answer.code for answer in answers] == [
        ResponseCode.SUCCESS,
        ResponseCode.TRANSACTION_FAILED,
    ]
    assert rooms.fast.general == [ENDED]


@pytest.mark.parametrize(
    "changes",
    [
        {"producerGroup": "others"},
        {"tranStateTableOffset": "7"},
        {"commitLogOffset": "7"},
        {"commitLogOffset": "x"},
        {"commitOrRollback": "0"},
        {"commitOrRollback": "3"},
        {"transactionId": "another"},
    ],
)
def test_a_word_that_does_not_fit_its_half_message_goes_the_general_way(
    rooms: TwoRooms, changes: dict[str, str]
) -> None:
    (end,) = halves(rooms, 1)
    rooms.sent([request(ENDED, end | changes)])
    assert rooms.fast.general == [ENDED]
    rooms.fast.transactions.follow()
    assert len(rooms.fast.transactions.pending) == 1


def test_a_message_to_come_later_is_committed_by_the_general_way(rooms: TwoRooms) -> None:
    (answer,) = rooms.sent(
        [request(V2, SEND | {"i": PROPERTIES + HALF + "DELAY\x011\x02"}, b"half")]
    )
    rooms.sent([request(ENDED, end_of(answer))])
    assert rooms.fast.general == [V2, ENDED]
    assert rooms.fast.store.queues.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 1


def test_a_transaction_whose_end_the_disk_does_not_take_is_still_pending(
    rooms: TwoRooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    (end,) = halves(rooms, 1)

    def full() -> None:
        raise WriteFailedError("the disk is full")

    with monkeypatch.context() as patched:
        for room in rooms.both:
            patched.setattr(room.store, "commit", full)
            room.turn((0, request(ENDED, end)))
            room.store.log.discard()
            ((_, answered),) = room.answers()[0][0]
            assert b"the disk is full" in answered
            assert len(room.transactions.pending) == 1
    (answer,) = rooms.sent([request(ENDED, end)])
    assert answer.code == ResponseCode.SUCCESS
    assert not len(rooms.fast.transactions.pending)
    refusals = [key for key in rooms.fast.totals.sums if key[0] == "refused"]
    assert sum(rooms.fast.totals.sums.pop(key) for key in refusals) == 2, (
        "both records: a disk that is full costs more than sends"
    )


@pytest.mark.parametrize(
    "name",
    [
        *(name for name, rule in RULES.items() if rule.need is not Need.DEFER),
        *(prefix + "NEW" for prefix in RESERVED_PREFIXES),
        "colour",
        "DELAYED",
        "T",
    ],
)
def test_the_general_path_gets_what_the_table_of_properties_says_and_nothing_else(
    tmp_path: Path, name: str
) -> None:
    rooms = TwoRooms(tmp_path)
    own = UNIQUE if name == "UNIQ_KEY" else f"{name}\x011\x02{UNIQUE}"
    rooms.sent([request(V2, SEND | {"i": own}, b"body", opaque=1)])
    assert (rooms.fast.general == [V2]) == (rule_of(name).need is Need.GENERAL)
    rooms.close()
