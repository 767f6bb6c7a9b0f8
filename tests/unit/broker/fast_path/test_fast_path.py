"""The fast path serves sends and pulls as the general path would, and leaves to it whatever is not
plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.common.errors import WriteFailedError
from orbitmq.message import batch
from orbitmq.message.message_type import MessageType
from orbitmq.message.record import RecordLimits
from orbitmq.protocol import frame
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.store.config import FlushMode
from orbitmq.store.flush.group_commit import Outcome
from orbitmq.store.message_store import MessageStore
from support.broker.two_paths import (
    PROPERTIES,
    PULL,
    SEND,
    UNIQUE,
    PathRoom,
    TwoRooms,
    json_header,
    raw_frame,
    request,
)
from support.common.golden_data import frames

V2, BATCH, PULLED = (
    int(RequestCode.SEND_MESSAGE_V2),
    int(RequestCode.SEND_BATCH_MESSAGE),
    int(RequestCode.PULL_MESSAGE),
)
BINARY = pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[TwoRooms]:
    made = TwoRooms(tmp_path)
    yield made
    made.close()


@pytest.fixture
def sync_rooms(tmp_path: Path) -> Iterator[TwoRooms]:
    made = TwoRooms(tmp_path, flush_mode=FlushMode.SYNC)
    yield made
    made.close()


def batch_body(*bodies: bytes, raw: bytes = UNIQUE.encode()) -> bytes:
    return batch.encode(batch.BatchItem(number, body, raw) for number, body in enumerate(bodies))


def counted_commits(rooms: TwoRooms, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each commit of the log of the broker with the fast path."""
    commits: list[int] = []
    commit = rooms.fast.store.log.commit

    def counted() -> None:
        commits.append(1)
        commit()

    monkeypatch.setattr(rooms.fast.store.log, "commit", counted)
    return commits


def failing_commit(store: MessageStore) -> Callable[[], None]:
    """What a commit does when the disk is full."""

    def fails() -> None:
        store.log.discard()
        raise WriteFailedError("the disk is full")

    return fails


# -- sends


@BINARY
def test_a_plain_send_is_stored_and_answered_without_the_general_way(
    rooms: TwoRooms, binary: bool
) -> None:
    (answer,) = rooms.sent([request(V2, SEND, b"hello", binary=binary)])
    assert answer.code == 0
    assert answer.ext_fields is not None
    assert answer.ext_fields["queueOffset"] == "0"
    assert answer.ext_fields["transactionId"] == "AC110001000018B4AAC2147F4BAF0000"
    assert (rooms.fast.general, rooms.plain.general) == ([], [V2])


@BINARY
def test_the_sends_of_a_turn_are_written_by_one_commit_and_counted_at_once(
    rooms: TwoRooms, binary: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = counted_commits(rooms, monkeypatch)
    of_queue = [SEND | {"e": str(queue)} for queue in (0, 1, 0, 3)]
    first = b"".join(
        request(V2, fields, b"x" * 50, binary=binary, opaque=number)
        for number, fields in enumerate(of_queue)
    )
    second = b"".join(
        request(V2, fields, b"y", binary=binary, opaque=number)
        for number, fields in enumerate(of_queue, 10)
    )
    answers = rooms.turn((0, first), (1, second))
    assert [len(answers[number][0]) for number in (0, 1, 2)] == [4, 4, 0]
    assert commits == [1]
    assert rooms.fast.totals.calls == 1
    assert rooms.fast.general == []


@BINARY
@pytest.mark.parametrize("code", [BATCH, V2])
def test_a_batch_is_stored_one_behind_the_other(rooms: TwoRooms, code: int, binary: bool) -> None:
    (answer,) = rooms.sent(
        [request(code, {**SEND, "m": "true"}, batch_body(b"one", b"two", b""), binary=binary)]
    )
    assert answer.ext_fields is not None
    assert len(answer.ext_fields["msgId"].split(",")) == 3
    (answer,) = rooms.sent(
        [request(code, {**SEND, "m": "TRUE"}, batch_body(b"three"), binary=binary)]
    )
    assert answer.ext_fields is not None
    assert answer.ext_fields["queueOffset"] == "3"
    assert rooms.fast.general == []


@BINARY
def test_the_header_says_what_a_batch_is_not_the_code(rooms: TwoRooms, binary: bool) -> None:
    (answer,) = rooms.sent([request(BATCH, SEND, batch_body(b"one", b"two"), binary=binary)])
    assert answer.ext_fields is not None
    assert "," not in answer.ext_fields["msgId"]
    assert rooms.fast.general == []


@BINARY
def test_a_batch_without_a_key_gets_none(rooms: TwoRooms, binary: bool) -> None:
    (answer,) = rooms.sent(
        [request(BATCH, {**SEND, "i": "", "m": "true"}, batch_body(b"one", b"two"), binary=binary)]
    )
    assert answer.ext_fields is not None
    assert "transactionId" not in answer.ext_fields
    assert rooms.fast.general == []


def test_files_roll_in_the_middle_of_a_turn(rooms: TwoRooms) -> None:
    for _ in range(3):
        rooms.sent([request(V2, SEND, b"x" * 900, opaque=number) for number in range(12)])
        rooms.sent(
            [
                request(
                    BATCH, {**SEND, "m": "true"}, batch_body(b"x" * 300, b"y" * 700), opaque=number
                )
                for number in range(9)
            ]
        )
    assert len(list((rooms.fast.folder / "commitlog").iterdir())) > 10
    assert rooms.fast.general == []


def test_a_batch_that_is_full_is_written_before_the_turn_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = TwoRooms(tmp_path, batch_size_max=1500)
    commits = counted_commits(rooms, monkeypatch)
    rooms.sent([request(V2, SEND, b"x" * 500, opaque=number) for number in range(10)])
    assert 3 <= len(commits) <= 5
    rooms.close()


ODD: dict[str, dict[str, str]] = {
    "a topic that must be created": {"b": "New"},
    "a topic that may not be sent to": {"b": "SCHEDULE_TOPIC_XXXX"},
    "a retry topic": {"b": "%RETRY%g"},
    "no topic": {"b": ""},
    "a queue that is not there": {"e": "4"},
    "any queue": {"e": "-1"},
    "a number that is none": {"f": "x"},
    "a number that does not fit": {"h": "99999999999"},
    "a message for later": {"i": PROPERTIES + "TIMER_DELAY_SEC\x013\x02"},
    "a prepared message by its flag": {"f": "4"},
    "an inner batch": {"f": "128"},
    "a popped message": {"i": "POP_CK\x01x\x02" + PROPERTIES},
    "no unique key": {"i": "TAGS\x01a\x02"},
    "a unique key to be escaped": {"i": 'UNIQ_KEY\x01"\x02'},
    "a unique key that is empty": {"i": "UNIQ_KEY\x01\x02"},
    "properties that are too long": {"i": UNIQUE + "a\x01" + "x" * 33_000},
    "an escaped topic": {"b": "T\n"},
}


@BINARY
@pytest.mark.parametrize("changes", ODD.values(), ids=ODD.keys())
def test_a_send_that_is_not_plain_goes_the_general_way(
    rooms: TwoRooms, changes: dict[str, str], binary: bool
) -> None:
    plain = (
        request(V2, SEND, b"before", opaque=1, binary=binary),
        request(V2, SEND, b"after", opaque=3, binary=binary),
    )
    answers = rooms.sent(
        [plain[0], request(V2, SEND | changes, b"odd", opaque=2, binary=binary), plain[1]]
    )
    assert [answer.opaque for answer in answers] == [1, 2, 3]
    assert rooms.fast.general == [V2]


def test_sends_to_a_new_topic_go_the_general_way_until_it_is_saved(rooms: TwoRooms) -> None:
    news = [request(V2, SEND | {"b": "New"}, b"%d" % number, opaque=number) for number in range(4)]
    assert len(rooms.sent(news[:2])) == 2
    assert rooms.fast.general == [V2] * 2
    assert len(rooms.sent(news[2:])) == 2
    assert rooms.fast.general == [V2] * 2


def test_a_field_that_is_missing_goes_the_general_way(rooms: TwoRooms) -> None:
    for name in SEND:
        rooms.sent([request(V2, {key: value for key, value in SEND.items() if key != name})])
    assert rooms.fast.general == [V2] * 9, (
        "all but j, k, m and n must be there; without i there is no unique key"
    )


def test_a_body_that_is_too_long_goes_the_general_way(rooms: TwoRooms) -> None:
    (answer,) = rooms.sent([request(V2, SEND, b"x" * 2049)])
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert rooms.fast.general == [V2]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        batch_body(b"a") + b"x",
        batch_body(b"a")[:-1],
        batch_body(b"a" * 2049),
        batch_body(*[b"a" * 1000] * 5),
        b"\xff" * 40,
    ],
    ids=["empty", "short", "more", "less", "one too long", "too long together", "nonsense"],
)
def test_a_batch_that_is_none_goes_the_general_way(rooms: TwoRooms, body: bytes) -> None:
    (answer,) = rooms.sent([request(BATCH, {**SEND, "m": "true"}, body)])
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert rooms.fast.general == [BATCH]


@pytest.mark.parametrize(
    "header",
    [
        json_header(V2, SEND | {"b": None}, opaque=1),
        json_header(V2, SEND | {"e": 1}, opaque=1),
        json_header(V2, SEND, opaque=1).replace(b",", b", ", 3),
        json_header(V2, SEND, opaque=1, remark="\u00e9"),
        json_header(V2, SEND, opaque=1, more={}),
        json_header(V2, SEND, opaque=1).replace(b'"b":"T"', b'"b":"U","b":"T"'),
        json_header(V2, SEND, opaque=1).replace(b'"b":"T"', b'"b":"\xff"'),
        json_header(V2, SEND, opaque=1).replace(b"TagA", b"\\ud83d"),
        json_header(V2, SEND, opaque=1).replace(b"TagA", b"\\x41"),
        json_header(V2, SEND, opaque=1).replace(b"TagA", b"\x03"),
        json_header(V2, SEND, opaque=1)[:-1],
        b"{}",
        b"",
    ],
)
def test_an_odd_json_header_is_read_by_the_general_decoder(rooms: TwoRooms, header: bytes) -> None:
    rooms.turn(raw_frame(header, b"hello"))
    assert rooms.fast.general == rooms.plain.general


@pytest.mark.parametrize(
    "header",
    [
        json_header(
            V2,
            SEND,
            opaque=1,
            language="GO",
            version=100,
            flag=0,
            remark="",
            serializeTypeCurrentRPC="JSON",
        ),
        json_header(V2, SEND | {"z": "unknown", "queueId": "x"}, opaque=-5),
        json_header(
            V2,
            SEND | {"i": PROPERTIES + 'name\x01\u00e9\u4e2d\U0001f600/\t\b\f\n\r"\\\x02'},
            opaque=1,
        ),
        json_header(V2, SEND, opaque=1).replace(b"TagA", "\u00e9\u4e2d\U0001f600".encode()),
        json_header(V2, SEND | {"i": "broken\x02" + PROPERTIES + "\x01\x02 \x02end\x01"}, opaque=1),
        json_header(
            V2, SEND | {"i": "UNIQ_KEY\x01first\x02" + PROPERTIES + "WAIT\x01false"}, opaque=1
        ),
    ],
    ids=["all members", "unknown fields", "escapes", "utf-8", "broken properties", "twice"],
)
def test_what_real_clients_may_write_is_understood(rooms: TwoRooms, header: bytes) -> None:
    answers = rooms.turn(raw_frame(header, b"hello"))
    assert len(answers[0][0]) == 1
    assert rooms.fast.general in ([], [V2])


def test_escapes_of_properties_do_not_cost_the_fast_path(rooms: TwoRooms) -> None:
    text = PROPERTIES + 'name\x01\u00e9\u4e2d\U0001f600/\t\b\f\n\r"\\\x02'
    rooms.turn(raw_frame(json_header(V2, SEND | {"i": text}, opaque=1), b"hello"))
    assert rooms.fast.general == []


def test_a_send_that_nobody_waits_for_is_stored_without_an_answer(rooms: TwoRooms) -> None:
    assert (
        rooms.sent(
            [request(V2, SEND, b"x", flag=2), request(BATCH, SEND, batch_body(b"y"), flag=2)]
        )
        == []
    )
    assert rooms.fast.general == []


def test_a_send_that_nobody_waits_for_is_not_answered_when_the_disk_has_it(tmp_path: Path) -> None:
    room = PathRoom(tmp_path, fast=True, flush_mode=FlushMode.SYNC)
    room.turn((0, request(V2, SEND, b"x", flag=2)))
    room.store.flushing.flush_log()
    assert room.answers()[0] == ([], None)
    assert room.totals.sums["put", "T", MessageType.NORMAL] == 1
    room.close()


def test_a_frame_that_comes_in_pieces_is_taken_when_it_is_whole(rooms: TwoRooms) -> None:
    data = request(V2, SEND, b"hello") + request(V2, SEND, b"there", opaque=2)
    seen = []
    for at in range(0, len(data), 7):
        seen += rooms.turn(data[at : at + 7])[0][0]
    assert [opaque for opaque, _ in seen] == [1, 2]
    assert rooms.fast.general == []


def test_an_answer_is_not_mistaken_for_a_request(rooms: TwoRooms) -> None:
    assert rooms.sent([request(V2, SEND, b"x", flag=1)]) == []
    assert rooms.fast.totals.calls == 0


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\3abc",
        b"\xff\xff\xff\xff" + b"x" * 20,
        b"\0\0\0\x20\2\0\0\4" + b"x" * 28,
        b"\0\0\0\x20\0\0\0\x7f" + b"x" * 28,
    ],
)
def test_a_frame_that_cannot_be_right_closes_its_connection_and_no_other(
    rooms: TwoRooms, data: bytes
) -> None:
    answers = rooms.turn((0, request(V2, SEND, b"x") + data), (1, request(V2, SEND, b"y")))
    assert answers[0][1] is not None
    assert [len(answers[number][0]) for number in (0, 1)] == [
        1,
        1,
    ], "what came before is stored and answered"


# -- what others change


def test_a_topic_that_changed_is_looked_at_again(rooms: TwoRooms) -> None:
    in_queue_3 = request(V2, SEND | {"e": "3"}, b"x")
    assert rooms.sent([in_queue_3])[0].code == 0
    for room in rooms.both:
        room.topics.update(TopicConfig("T", 2, 2))
    assert rooms.sent([in_queue_3])[0].code == ResponseCode.INVALID_PARAMETER
    for room in rooms.both:
        room.topics.update(TopicConfig("T", 8, 8))
    assert rooms.sent([in_queue_3])[0].code == 0
    for room in rooms.both:
        room.topics.delete("T")
        room.store.delete_topic("T")
    answers = rooms.sent(
        [request(V2, SEND | {"c": "none"}, b"x"), request(V2, SEND, b"x", opaque=2)]
    )
    assert [answer.code for answer in answers] == [ResponseCode.TOPIC_NOT_EXIST, 0]


def test_settings_that_changed_are_looked_at_again(rooms: TwoRooms) -> None:
    rooms.sent([request(V2, SEND, b"x")])
    for room in rooms.both:
        settings: Any = room.settings
        settings.region_id, settings.trace_on, settings.broker_cluster_name = (
            'Region "2"',
            False,
            "Other",
        )
    (answer,) = rooms.sent([request(V2, SEND, b"x")])
    assert answer.ext_fields is not None
    assert (answer.ext_fields["MSG_REGION"], answer.ext_fields["TRACE_ON"]) == (
        'Region "2"',
        "false",
    )
    assert rooms.fast.general == []
    for room in rooms.both:
        room.settings.broker_permission = 0
    rooms.sent([request(V2, SEND, b"x"), request(PULLED, PULL | {"sysFlag": "4"}, opaque=2)])
    assert rooms.fast.general == [V2, PULLED]
    for room in rooms.both:
        room.settings.broker_permission = 6
        room.settings.start_accept_send_request_time_stamp = room.clock.now_ms() + 1
    assert rooms.sent([request(V2, SEND, b"x")])[0].code == ResponseCode.SYSTEM_ERROR


def test_what_stands_before_the_handlers_stands_before_the_fast_path(rooms: TwoRooms) -> None:
    for room in rooms.both:
        room.endpoint.dispatcher.drain()
    answers = rooms.sent(
        [request(V2, SEND, b"x"), request(PULLED, PULL | {"sysFlag": "4"}, opaque=2)]
    )
    assert [answer.code for answer in answers] == [ResponseCode.GO_AWAY] * 2


def test_bytes_that_come_outside_of_turns_are_left_alone(rooms: TwoRooms) -> None:
    for room in rooms.both:
        room.channels[0].is_tls = True
    rooms.sent([request(V2, SEND, b"x")])
    assert rooms.fast.general == [V2]


def test_a_peer_without_an_address_is_left_to_the_general_way(rooms: TwoRooms) -> None:
    for room in rooms.both:
        room.channels[0].remote_address = "unknown:0"
    assert rooms.sent([request(V2, SEND, b"x")])[0].code == ResponseCode.SYSTEM_ERROR
    assert rooms.fast.general == [V2]


# -- when the disk does not take it


def test_sends_are_answered_when_the_disk_has_them(
    sync_rooms: TwoRooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends = [request(V2, SEND, b"x", opaque=number) for number in range(3)]
    sends.append(request(V2, SEND | {"i": UNIQUE + "WAIT\x01false\x02"}, b"x", opaque=3))
    fast = sync_rooms.fast
    waiting = []
    when_durable = fast.store.flushing.when_durable
    with monkeypatch.context() as patched:
        patched.setattr(fast.store.flushing, "when_durable", lambda *ticket: waiting.append(ticket))
        fast.turn((0, b"".join(sends)))
    assert [opaque for opaque, _ in fast.answers()[0][0]] == [3]
    assert len(waiting) == 1, "one ticket for the turn"
    for ticket in waiting:
        when_durable(*ticket)
    fast.store.flushing.flush_log()
    assert [opaque for opaque, _ in fast.answers()[0][0]] == [0, 1, 2]
    sync_rooms.plain.turn((0, b"".join(sends)))
    sync_rooms.plain.store.flushing.flush_log()
    assert sync_rooms.plain.answers()[0][1] is None
    assert sync_rooms.sent(sends) != []


@BINARY
def test_a_disk_that_is_late_or_fails_is_told_as_the_general_way_tells_it(
    sync_rooms: TwoRooms, binary: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends = b"".join(request(V2, SEND, b"x", opaque=number, binary=binary) for number in range(3))
    for outcome in Outcome:
        told = []
        for room in sync_rooms.both:
            monkeypatch.setattr(
                room.store,
                "when_durable",
                lambda _, waiter, _count, outcome=outcome: waiter(outcome),
            )
            room.turn((0, sends))
            told.append(room.answers())
        assert told[0] == told[1]
        assert len(told[0][0][0]) == 3


@BINARY
def test_a_failed_commit_answers_every_send_of_the_turn_and_counts_none(
    rooms: TwoRooms, binary: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends = b"".join(request(V2, SEND, b"x", opaque=number, binary=binary) for number in range(3))
    assert rooms.turn(sends)

    with monkeypatch.context() as patched:
        for room in rooms.both:
            patched.setattr(room.store.log, "commit", failing_commit(room.store))
        answers = rooms.turn((0, sends), (1, sends))
    assert [len(answers[number][0]) for number in (0, 1)] == [3, 3]
    assert all(b"TRACE_ON" in data and b"msgId" not in data for _, data in answers[0][0]), (
        "they say where, and of no message"
    )
    assert rooms.sent([sends])[0].code == 0, "and the next turn is a new one"
    assert rooms.fast.general == []


def test_a_general_send_amid_the_turn_neither_loses_nor_reorders_what_was_pending(
    rooms: TwoRooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = [
        request(
            V2,
            SEND | ({"i": "TAGS\x01a\x02"} if number % 3 == 2 else {}),
            b"%d" % number,
            opaque=number,
        )
        for number in range(9)
    ]
    rooms.turn((0, b"".join(mixed)), (1, b"".join(mixed)))
    assert rooms.fast.general == [V2] * 6
    commit, fails = rooms.fast.store.log.commit, failing_commit(rooms.fast.store)
    outcomes = iter((commit, fails, commit, commit, commit, commit))
    with monkeypatch.context() as patched:
        patched.setattr(rooms.fast.store.log, "commit", lambda: next(outcomes)())
        rooms.fast.turn((0, b"".join(mixed)))
    codes = [data[8:].split(b",")[0] for _, data in rooms.fast.answers()[0][0]]
    assert codes == [b'{"code":0'] * 2 + [b'{"code":14'] + [b'{"code":0'] * 6, (
        "only the general one, whose commit failed"
    )
    for number, frames_of_one in enumerate(mixed):
        with monkeypatch.context() as patched:
            if number == 2:
                patched.setattr(rooms.plain.store.log, "commit", failing_commit(rooms.plain.store))
            rooms.plain.turn((0, frames_of_one))
    rooms.plain.answers()


def test_a_store_that_takes_nothing_is_the_general_ways_to_tell(rooms: TwoRooms) -> None:
    for room in rooms.both:
        room.store.log._become_read_only(OSError("broken"))
    (answer,) = rooms.sent([request(V2, SEND, b"x")])
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert rooms.fast.general == [V2]


# -- golden frames


@pytest.mark.parametrize("folder", sorted({each.name.partition("/")[0] for each in frames()}))
def test_what_real_clients_sent_is_served_alike(tmp_path: Path, folder: str) -> None:
    rooms = TwoRooms(tmp_path, limits=RecordLimits(), commit_log_file_size=1 << 20)
    taken = 0
    for golden in frames():
        if (
            not golden.is_request
            or golden.request_code not in (V2, BATCH, PULLED)
            or not golden.name.startswith(folder + "/")
        ):
            continue
        fields = frame.decode_one(golden.frame).ext_fields or {}
        topic = fields.get("b") or fields["topic"]
        for room in rooms.both:
            if not room.topics.is_system(topic) and not topic.startswith("%"):
                room.topics.update(TopicConfig(topic, 16, 16))
                room.loop.run()
        served = len(rooms.fast.general)
        rooms.turn(golden.frame)
        taken += len(rooms.fast.general) == served
    assert taken >= 5 or not rooms.plain.general, taken
    rooms.close()
