"""Whatever clients send, in whatever JSON or bytes: a broker with the fast path answers and stores
the same as one without.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.common.errors import InvalidMessageError
from orbitmq.message import batch
from orbitmq.message.tags import java_hash
from orbitmq.protocol.bodies.clients import ConsumerData
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.bodies.subscriptions import MessageModel, SubscriptionData
from orbitmq.protocol.header_binary import KEY_MAX
from orbitmq.store.config import FlushMode
from support.broker.two_paths import END, PROPERTIES, PULL, SEND, UNIQUE, Bytes, TwoRooms, raw_frame
from support.remoting.channels import client

TOPICS = st.sampled_from(
    ["T", "T", "T", "U", "New", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "", "\u00e9", "T" * 130]
)
NUMBERS = st.sampled_from(
    [
        "0",
        "1",
        "2",
        "3",
        "4",
        "-1",
        "07",
        "+1",
        "",
        "x",
        "2147483647",
        "2147483648",
        "1" * 19,
        "\u0661",
        " 1",
        "1.0",
    ]
)
FLAGS = st.sampled_from(
    ["0", "0", "1", "2", "4", "8", "12", "16", "32", "48", "64", "128", "256", "-1"]
)
NAMES = st.sampled_from(
    [
        "UNIQ_KEY",
        "WAIT",
        "TAGS",
        "KEYS",
        "DELAY",
        "TIMER_DELAY_MS",
        "TIMER_DELIVER_MS",
        "TIMER_OUT_MS",
        "TRAN_MSG",
        "PGROUP",
        "REAL_TOPIC",
        "TRANSACTION_CHECK_TIMES",
        "__transactionId__",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "POP_CK",
        "POP_CKX",
        "INNER_NUM",
        "__CRC32#",
        "n",
        "",
        "\u00e9",
    ]
)
SOON_MS = (
    1_700_000_123_456  # so much later than the rooms' clocks that it is no more than some days
)
VALUES = st.sampled_from(
    [
        "",
        "0",
        "1",
        "3",
        str(SOON_MS),
        "true",
        "false",
        "TagA",
        "a b",
        '"',
        "\\",
        "\u00e9\U0001f600",
        "\ud83d",
        "\x01",
        "\t\n",
        "K" * 40,
    ]
)
PIECES = st.builds(
    lambda name, mark, value, end: name + mark + value + end,
    NAMES,
    st.sampled_from(["\x01", "\x01", ""]),
    VALUES,
    st.sampled_from(["\x02", "\x02", ""]),
)
WAITING = st.sampled_from(
    [
        "TRAN_MSG\x01true\x02PGROUP\x01producers\x02",
        "TRAN_MSG\x01true\x02PGROUP\x01producers\x02",
        "DELAY\x011\x02",
        f"TIMER_DELIVER_MS\x01{SOON_MS}\x02",
    ]
)
TEXTS = st.one_of(
    st.just(PROPERTIES),
    WAITING.map(lambda text: UNIQUE + text),
    st.tuples(WAITING, PIECES).map(lambda pair: pair[1] + pair[0] + UNIQUE),
    st.lists(PIECES, max_size=3).map("".join),
    st.lists(PIECES, min_size=1, max_size=3).map(lambda pieces: UNIQUE + "".join(pieces)),
    st.lists(PIECES, min_size=1, max_size=3).map(lambda pieces: UNIQUE + "".join(pieces)),
)
QUEUES = st.sampled_from(["0", "1", "2", "3"])
BOOLEANS = st.sampled_from(["true", "false", "TRUE", "", "x"])


def changed(
    fields: dict[str, str], values: dict[str, st.SearchStrategy[str]]
) -> st.SearchStrategy[dict[str, str]]:
    """The fields with some of them otherwise, missing or in another order."""

    @st.composite
    def made(draw: st.DrawFn) -> dict[str, str]:
        result = dict(fields)
        for name in draw(
            st.lists(
                st.sampled_from(sorted(values)), max_size=draw(st.sampled_from([0, 0, 1, 2, 3]))
            )
        ):
            result[name] = draw(values[name])
        for name in (
            draw(st.lists(st.sampled_from(sorted(fields)), max_size=1))
            if draw(st.integers(0, 9)) == 0
            else ()
        ):
            result.pop(name, None)
        names = (
            draw(st.permutations(sorted(result))) if draw(st.integers(0, 4)) == 0 else list(result)
        )
        return {name: result[name] for name in names}

    return made()


SENDS = changed(
    SEND,
    {
        "b": TOPICS,
        "d": NUMBERS,
        "f": FLAGS,
        "g": NUMBERS,
        "h": NUMBERS,
        "j": NUMBERS,
        "m": BOOLEANS,
        "z": VALUES,
    },
)
PULLS = changed(
    PULL,
    {
        "topic": TOPICS,
        "consumerGroup": st.sampled_from(["g", "h", "", "\u00e9"]),
        "queueOffset": NUMBERS,
        "maxMsgNums": NUMBERS,
        "sysFlag": st.sampled_from(["0", "1", "2", "3", "4", "5", "6", "7", "12"]),
        "commitOffset": NUMBERS,
        "subscription": st.sampled_from(["*", "", "TagA", "TagA || TagB", "||"]),
        "expressionType": st.sampled_from(["TAG", "", "SQL92"]),
    },
)
ENDS = changed(
    END,
    {
        "producerGroup": st.sampled_from(["producers", "others", ""]),
        "tranStateTableOffset": NUMBERS,
        "commitLogOffset": NUMBERS,
        "commitOrRollback": st.sampled_from(["8", "8", "12", "0", "4", "x", ""]),
        "fromTransactionCheck": BOOLEANS,
        "transactionId": st.sampled_from(["", "another"]),
    },
)
BODIES = st.one_of(st.binary(max_size=80), st.integers(0, 2100).map(bytes))
BATCHES = st.lists(st.tuples(st.integers(-5, 5), BODIES, TEXTS), max_size=4)


@st.composite
def batch_bodies(draw: st.DrawFn) -> bytes:
    items = [
        batch.BatchItem(flag, body, text.encode("utf-8", "replace"))
        for flag, body, text in draw(BATCHES)
    ]
    try:
        body = batch.encode(items)
    except InvalidMessageError:
        return b""
    cut = draw(st.integers(0, 9))
    return body[: len(body) - cut] if cut < 3 else body


@st.composite
def json_headers(
    draw: st.DrawFn, code: int, fields: dict[str, str], opaque: int, flag: int
) -> bytes:
    """As a client may write it, and now and then as none would."""
    members: dict[str, Any] = {
        "code": code,
        "extFields": fields,
        "flag": flag,
        "language": "JAVA",
        "opaque": opaque,
    }
    members |= {"serializeTypeCurrentRPC": "JSON", "version": draw(st.sampled_from([513, 100, 0]))}
    oddness = draw(st.integers(0, 30))
    if oddness == 1:
        members = {name: members[name] for name in draw(st.permutations(sorted(members)))}
    elif oddness == 2:
        members["remark"] = draw(VALUES)
    elif oddness == 3:
        members["extFields"] = {
            name: int(value) if value.isascii() and value.isdigit() else value
            for name, value in fields.items()
        }
    elif oddness == 4:
        members["extFields"] = {**fields, draw(st.sampled_from(sorted(fields))): None}
    elif oddness == 5:
        members["more"] = draw(st.sampled_from([1, [], {}, None, "x"]))
    elif oddness == 6:
        members["version"] = "513"
    ascii_only = draw(st.booleans())
    text = json.dumps(
        members, ensure_ascii=ascii_only, separators=(", ", ": ") if oddness == 7 else (",", ":")
    )
    header = text.encode("utf-8", "surrogatepass")
    if oddness == 8:
        at = draw(st.integers(0, len(header)))
        header = (
            header[:at]
            + draw(st.binary(min_size=1, max_size=3))
            + header[at + draw(st.integers(0, 3)) :]
        )
    elif oddness == 9:
        header = header.replace(b'"b":', b'"b":"U","b":', 1)
    elif oddness == 10:
        header = header.replace(b'"T"', b'"\\u0054"', 1)
    return header


@st.composite
def binary_headers(
    draw: st.DrawFn, code: int, fields: dict[str, str], opaque: int, flag: int
) -> bytes:
    block = b""
    for name, value in fields.items():
        raw = value.encode("utf-8", draw(st.sampled_from(["replace", "surrogatepass"])))
        assert len(name) <= KEY_MAX
        block += len(name).to_bytes(2, "big") + name.encode() + len(raw).to_bytes(4, "big") + raw
    head = (
        code.to_bytes(2, "big")
        + b"\0"
        + (513).to_bytes(2, "big")
        + opaque.to_bytes(4, "big", signed=True)
        + flag.to_bytes(4, "big")
    )
    header = head + (0).to_bytes(4, "big") + len(block).to_bytes(4, "big") + block
    if draw(st.integers(0, 20)) == 0:
        at = draw(st.integers(0, len(header)))
        header = (
            header[:at]
            + draw(st.binary(min_size=1, max_size=3))
            + header[at + draw(st.integers(0, 3)) :]
        )
    return header


@st.composite
def frames(
    draw: st.DrawFn, code: int, fields: dict[str, str], body: bytes, opaque: int, flag: int
) -> bytes:
    is_binary = draw(st.booleans())
    make = binary_headers if is_binary else json_headers
    data = raw_frame(draw(make(code, fields, opaque, flag)), body, int(is_binary))
    if draw(st.integers(0, 60)) == 0:
        at = draw(st.integers(0, 7))
        data = data[:at] + draw(st.binary(min_size=1, max_size=1)) + data[at + 1 :]
    return data


@st.composite
def send_turns(draw: st.DrawFn, *, with_oneway: bool) -> list[Bytes]:
    turn = []
    for opaque in range(draw(st.integers(1, 5))):
        code = draw(st.sampled_from([310, 310, 310, 320, 10]))
        fields = {**draw(SENDS), "e": draw(st.one_of(QUEUES, QUEUES, NUMBERS)), "i": draw(TEXTS)}
        is_batch = code == 320 or fields.get("m") == "true"
        body = draw(batch_bodies() if is_batch and draw(st.integers(0, 5)) else BODIES)
        flag = draw(st.sampled_from([0, 0, 0, 2, 1] if with_oneway else [0, 0, 0, 1]))
        turn.append((draw(st.integers(0, 2)), draw(frames(code, fields, body, opaque, flag))))
    return turn


@st.composite
def pull_turns(draw: st.DrawFn) -> list[Bytes]:
    flag = draw(st.sampled_from([0, 0, 0, 1]))
    fields = {
        **draw(PULLS),
        "queueId": draw(QUEUES),
        "subVersion": draw(st.sampled_from(["0", "1", "2"])),
    }
    return [
        (draw(st.integers(0, 2)), draw(frames(11, fields, b"", draw(st.integers(-9, 9)), flag)))
    ]


@st.composite
def end_turns(draw: st.DrawFn, rooms: TwoRooms) -> list[Bytes]:
    """Words about half messages that wait, or did, some of them said twice, or wrong."""
    for room in rooms.both:
        room.transactions.follow()
    known = [(half.root, half.log_offset) for half in rooms.plain.transactions.pending] or [(0, 0)]
    turn = []
    for opaque in range(draw(st.integers(1, 4))):
        root, log_offset = draw(st.sampled_from(known))
        fields = {**END, "tranStateTableOffset": str(root), "commitLogOffset": str(log_offset)}
        fields["commitOrRollback"] = draw(st.sampled_from(["8", "8", "12"]))
        if draw(st.integers(0, 3)) == 0:
            odd = draw(ENDS)
            fields = {
                name: odd.get(name, "") if odd.get(name) != END[name] else fields[name]
                for name in fields
                if name in odd
            }
        turn.append(
            (
                draw(st.integers(0, 2)),
                draw(frames(37, fields, b"", opaque, draw(st.sampled_from([0, 0, 2])))),
            )
        )
    return turn


CHANGES = st.sampled_from(
    [
        "fewer queues",
        "more queues",
        "delete",
        "tag",
        "all",
        "offline",
        "forbid",
        "allow",
        "permission",
        "time",
        "reset",
    ]
)


def change(rooms: TwoRooms, what: str) -> None:
    """Let something happen to both that requests have to notice."""
    for room in rooms.both:
        if what == "fewer queues":
            room.topics.update(TopicConfig("T", 2, 1))
        elif what == "more queues":
            room.topics.update(TopicConfig("T", 4, 4, filter_type="MULTI_TAG"))
        elif what == "delete" and room.topics.find("T") is not None:
            room.topics.delete("T")
            room.store.delete_topic("T")
        elif what in ("tag", "all"):
            version = room.clock.now_ms() % 3
            tags = (
                ("TagA", version, ("TagA",), (java_hash("TagA"),))
                if what == "tag"
                else ("*", version)
            )
            data = ConsumerData(
                "g",
                message_model=MessageModel.CLUSTERING,
                subscriptions=(SubscriptionData("T", *tags),),
            )
            room.consumers.register(room.channels[2], client("c"), data, room.clock.monotonic_ms())
        elif what == "offline":
            room.consumers.on_close(room.channels[2])
        elif what in ("forbid", "allow"):
            room.groups.set_readable("g", "T", what == "allow")
        elif what == "permission":
            room.settings.broker_permission ^= 2
        elif what == "time":
            room.clock.advance_ms(777)
            room.pull_service.expire()
        elif what == "reset":
            room.offsets.assign_reset("g", "T", 1, 2)


def end_waits(rooms: TwoRooms) -> None:
    """Let no pull wait: the general path answers one with the first message that comes, the fast path
    with all that come in one turn.
    """
    for room in rooms.both:
        room.clock.advance_ms(20_000)
        room.pull_service.expire()
        assert len(room.hold) == 0


@pytest.mark.parametrize("mode", list(FlushMode))
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_both_ways_answer_and_store_the_same(mode: FlushMode, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rooms = TwoRooms(Path(folder), flush_mode=mode)
        try:
            for room in rooms.both:
                room.topics.update(TopicConfig("U", 1, 3))
            change(rooms, data.draw(CHANGES))
            turns = send_turns(
                with_oneway=mode is FlushMode.ASYNC
            )  # a one-way that waits for the disk is another test's
            for _ in range(data.draw(st.integers(2, 12))):
                step = data.draw(
                    st.one_of(turns, turns, pull_turns(), pull_turns(), end_turns(rooms), CHANGES)
                )
                if isinstance(step, str):
                    change(rooms, step)
                else:
                    if len(step) > 1:
                        end_waits(rooms)
                    rooms.turn(*step)
        finally:
            rooms.close()
