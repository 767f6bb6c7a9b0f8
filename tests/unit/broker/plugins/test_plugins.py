"""Validators, hooks and store plug-ins of installed packages: when they are called, what they may
refuse, what their mistakes cost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.broker.plugins.interfaces import SendAttempt, SendResult
from orbitmq.broker.plugins.store import plugged
from orbitmq.common.errors import ConfigurationError
from orbitmq.message import batch, properties
from orbitmq.message.batch import BatchItem
from orbitmq.message.record import decode_all
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import FLAG_ONEWAY
from orbitmq.store.config import FlushMode
from support.broker.plugins import (
    CONSUMES,
    PARTS,
    RPC,
    SENDS,
    STORES,
    V2,
    VALIDATOR,
    Room,
    heard,
    names_heard,
    parts,
)
from support.broker.two_paths import PULL, SEND
from support.common.installed_packages import install, site_packages

PULLS_AT_ONCE = PULL | {"sysFlag": "4"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    with site_packages(tmp_path / "site") as site:
        yield site


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.ERROR):
        yield caplog


# ---------------------------------------------------------------- around requests


def test_validators_come_first_then_rpc_hooks_then_the_handler(tmp_path: Path, site: Path) -> None:
    install(site, "parts_package", VALIDATOR + RPC + SENDS, PARTS)
    room = Room(tmp_path)
    room.send()
    assert names_heard() == [
        "validate",
        "rpc before",
        "first before",
        "second before",
        "first after",
        "second after",
        "rpc after",
    ]
    assert not room.dispatcher.is_direct(V2), "the fast path would not ask the validator"
    room.close()


@pytest.mark.parametrize(
    ("part", "name"), [("validate", "access validator guard"), ("rpc before", "RPC hook trace")]
)
def test_what_a_validator_or_hook_refuses_is_not_done(
    tmp_path: Path, site: Path, part: str, name: str
) -> None:
    install(site, "parts_package", VALIDATOR + RPC + SENDS, PARTS)
    room = Room(tmp_path)
    parts().PROBLEMS[part] = parts().RequestRefusedError(
        ResponseCode.NO_PERMISSION, "not you; ask the operator"
    )
    for code, fields in (
        (V2, SEND),
        (RequestCode.PULL_MESSAGE, PULL),
        (RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}),
    ):
        answer = room.asked(code, fields)
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            "not you; ask the operator",
        )
    assert room.send(flag=FLAG_ONEWAY) is None
    assert room.bodies == []
    assert "first before" not in names_heard()
    parts().PROBLEMS[part] = ValueError("one and one")
    answer = room.asked(V2, SEND)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (
        answer.remark
        == f"the {name} failed, see the server's log (plug_in_failed); fix or uninstall the"
        " package that offers it"
    )
    assert room.bodies == []
    room.close()


# ---------------------------------------------------------------- sends


def test_a_send_hook_hears_what_is_sent_and_what_came_of_it(tmp_path: Path, site: Path) -> None:
    install(site, "parts_package", SENDS, PARTS)
    room = Room(tmp_path)
    room.send(b"four")
    answer = room.send(b"more")
    assert answer is not None
    _, _, _, _, before, _, after, _ = heard()
    attempt, result = after[1:]
    assert before[1] is attempt
    assert attempt == SendAttempt(
        producer_group="producers",
        topic="T",
        queue_id=1,
        born_host=room.channel.remote_address,
        properties=properties.parse(SEND["i"]),
        body_size=4,
        is_batch=False,
    )
    assert result == SendResult(
        code=0,
        remark=None,
        message_ids=((answer.ext_fields or {})["msgId"],),
        queue_id=1,
        queue_offset=1,
        cost_ms=0,
    )
    room.close()


@pytest.mark.parametrize("flag", [0, FLAG_ONEWAY])
def test_a_send_that_waits_for_the_disk_is_told_when_the_disk_has_it(
    tmp_path: Path, site: Path, flag: int
) -> None:
    install(site, "parts_package", SENDS, PARTS)
    room = Room(tmp_path, flush_mode=FlushMode.SYNC)
    assert room.send(flag=flag) is None
    assert names_heard() == ["first before", "second before"]
    room.clock.advance_ms(30)
    room.store.flush()
    room.store.tick()
    assert (room.answer() is None) == (flag == FLAG_ONEWAY)
    assert [
        (name, result.code, len(result.message_ids), result.cost_ms) for name, _, result in heard()
    ] == [
        ("first after", 0, 1, 30),
        ("second after", 0, 1, 30),
    ]
    room.close()


def test_a_one_way_send_is_stored_told_and_not_answered(tmp_path: Path, site: Path) -> None:
    install(site, "parts_package", SENDS, PARTS)
    room = Room(tmp_path)
    assert room.send(b"x", FLAG_ONEWAY) is None
    assert room.bodies == [b"x"]
    assert names_heard() == ["first before", "second before", "first after", "second after"]
    room.close()


def test_a_batch_is_one_send_with_an_id_for_each_message(tmp_path: Path, site: Path) -> None:
    install(site, "parts_package", SENDS, PARTS)
    room = Room(tmp_path)
    body = batch.encode([BatchItem(0, b"one", b""), BatchItem(0, b"two", b"")])
    room.send()
    heard()
    room.request(RequestCode.SEND_BATCH_MESSAGE, SEND | {"m": "true"}, body)
    attempt, result = heard()[2][1:]
    assert (attempt.is_batch, attempt.body_size) == (True, len(body))
    assert (len(set(result.message_ids)), result.queue_offset) == (2, 1)
    room.close()


def test_a_send_that_the_broker_refuses_is_told_too(tmp_path: Path, site: Path) -> None:
    install(site, "parts_package", SENDS, PARTS)
    room = Room(tmp_path)
    answer = room.asked(V2, SEND | {"e": "9"})
    result = heard()[-1][2]
    assert (
        (result.code, result.remark)
        == (answer.code, answer.remark)
        == (ResponseCode.INVALID_PARAMETER, answer.remark)
    )
    assert (result.message_ids, result.queue_id, result.queue_offset) == ((), None, None)
    room.close()


def test_what_a_send_hook_refuses_is_not_stored_and_makes_no_topic(
    tmp_path: Path, site: Path
) -> None:
    install(site, "parts_package", SENDS, PARTS)
    room = Room(tmp_path)
    parts().PROBLEMS["first before"] = parts().RequestRefusedError(
        ResponseCode.MESSAGE_ILLEGAL, "without a key; set KEYS"
    )
    before = room.state()
    answer = room.asked(V2, SEND | {"b": "New"})
    assert (answer.code, answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, "without a key; set KEYS")
    parts().PROBLEMS["first before"] = ZeroDivisionError()
    answer = room.asked(V2, SEND | {"b": "New"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith("the send hook audit failed, see the server's log")
    assert room.send(flag=FLAG_ONEWAY) is None
    assert names_heard() == ["first before"] * 3, "neither later hooks nor `after` hear of it"
    assert (room.state(), room.bodies) == (before, [])
    room.close()


def test_a_send_hook_that_fails_afterwards_changes_nothing(
    tmp_path: Path, site: Path, quiet: pytest.LogCaptureFixture
) -> None:
    install(site, "parts_package", SENDS, PARTS)
    room = Room(tmp_path)
    parts().PROBLEMS["first after"] = ValueError("one and one")
    assert room.asked(V2, SEND).code == ResponseCode.SUCCESS
    assert names_heard()[-2:] == ["first after", "second after"]
    assert [record.getMessage() for record in quiet.records] == [
        "plug_in_failed name='send hook audit'"
    ]
    room.close()


# ---------------------------------------------------------------- pulls


def test_a_consume_hook_hears_what_is_found_at_once_or_after_a_wait(
    tmp_path: Path, site: Path, quiet: pytest.LogCaptureFixture
) -> None:
    install(site, "parts_package", CONSUMES, PARTS)
    room = Room(tmp_path)
    assert room.asked(RequestCode.PULL_MESSAGE, PULLS_AT_ONCE).code == ResponseCode.PULL_NOT_FOUND
    assert room.request(RequestCode.PULL_MESSAGE, PULL | {"sysFlag": "6"}) is None
    assert heard() == []
    room.put(b"at last", queue_id=1)
    parts().PROBLEMS["delivered"] = ValueError("one and one")
    assert room.answer() is not None
    answer = room.asked(RequestCode.PULL_MESSAGE, PULLS_AT_ONCE)
    assert [message.body for message in decode_all(answer.body or b"")] == [b"at last"], (
        "a hook that fails changes nothing"
    )
    first, second = (delivery for _, delivery in heard())
    assert first == second
    assert (first.consumer_group, first.topic, first.queue_id, first.offset, first.next_offset) == (
        "g",
        "T",
        1,
        0,
        1,
    )
    assert (first.message_count, first.size, first.client_address) == (
        1,
        len(answer.body or b""),
        room.channel.remote_address,
    )
    assert [record.getMessage() for record in quiet.records] == [
        "plug_in_failed name='consume hook bill'"
    ]
    room.close()


@pytest.mark.parametrize(
    ("points", "direct"),
    [
        ("", {V2, 11}),
        (SENDS, {11}),
        (CONSUMES, {V2}),
        (SENDS + CONSUMES, set()),
        (VALIDATOR, set()),
        (RPC, set()),
    ],
)
def test_the_fast_path_leaves_alone_what_somebody_has_to_hear_of(
    tmp_path: Path, site: Path, points: str, direct: set[int]
) -> None:
    install(site, "parts_package", points, PARTS)
    room = Room(tmp_path)
    is_direct = room.hooks.unheard(room.dispatcher.is_direct)
    assert {code for code in (V2, 11) if is_direct(code)} == direct
    assert is_direct(V2) == is_direct(RequestCode.SEND_BATCH_MESSAGE)
    room.close()


# ---------------------------------------------------------------- the store


def test_messages_pass_store_plug_ins_from_the_first_to_the_last(
    tmp_path: Path, site: Path
) -> None:
    install(site, "parts_package", STORES, PARTS)
    room = Room(tmp_path, " b, a")
    room.send(b"sent-")
    assert room.bodies == [b"sent-outerinner"]
    body = batch.encode([BatchItem(0, b"one", b""), BatchItem(0, b"two", b"")])
    assert (
        room.asked(RequestCode.SEND_BATCH_MESSAGE, SEND | {"m": "true"}, body).code
        == ResponseCode.SUCCESS
    )
    assert names_heard() == [
        "inner append",
        "outer append",
        "inner append_batch",
        "outer append_batch",
    ]
    room.close()


def test_all_that_gives_messages_out_asks_the_plug_in(tmp_path: Path, site: Path) -> None:
    install(site, "parts_package", STORES, PARTS)
    room = Room(tmp_path, "b")
    offset = room.put(b"hidden", queue_id=1, KEYS="k").offset
    assert (
        room.asked(RequestCode.PULL_MESSAGE, PULLS_AT_ONCE).code
        == ResponseCode.PULL_RETRY_IMMEDIATELY
    )
    assert (
        room.asked(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)}).code
        == ResponseCode.SYSTEM_ERROR
    )
    query = {
        "topic": "T",
        "key": "k",
        "maxNum": "9",
        "beginTimestamp": "0",
        "endTimestamp": str(1 << 62),
    }
    assert room.asked(RequestCode.QUERY_MESSAGE, query).code == ResponseCode.QUERY_NOT_FOUND
    assert names_heard() == ["outer get", "outer record_at", "outer query"]
    parts().PROBLEMS["outer get"] = ValueError("one and one")
    answer = room.asked(RequestCode.PULL_MESSAGE, PULLS_AT_ONCE)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith(
        "the store plug-in b failed, see the server's log (plug_in_failed); fix"
    )
    room.close()


@pytest.mark.parametrize("code", [V2, RequestCode.SEND_BATCH_MESSAGE])
def test_a_plug_in_that_fails_after_it_appended_stores_nothing(
    tmp_path: Path, site: Path, code: int
) -> None:
    install(site, "parts_package", STORES, PARTS)
    room = Room(tmp_path, "a")
    problem = "inner append" if code == V2 else "inner append_batch"
    body = b"lost" if code == V2 else batch.encode([BatchItem(0, b"lost", b"")])
    expected = {
        ValueError("one and one"): (
            ResponseCode.SYSTEM_ERROR,
            "the store plug-in a failed, see the server's log (plug_in_failed); fix",
        ),
        parts().InvalidMessageError("too long; cut it"): (
            ResponseCode.MESSAGE_ILLEGAL,
            "too long; cut it",
        ),
        parts().RequestRefusedError(ResponseCode.NO_PERMISSION, "not you"): (
            ResponseCode.NO_PERMISSION,
            "not you",
        ),
    }
    for parts().PROBLEMS[problem], (result, remark) in expected.items():
        answer = room.asked(code, SEND | ({} if code == V2 else {"m": "true"}), body)
        assert (answer.code, (answer.remark or "")[: len(remark)]) == (result, remark)
    parts().PROBLEMS.clear()
    answer = room.asked(V2, SEND, b"kept-")
    assert (answer.ext_fields or {})["queueOffset"] == "0"
    assert room.bodies == [b"kept-inner"]
    room.close()


def test_a_name_that_is_not_installed_is_refused_and_those_that_are_are_listed(
    tmp_path: Path, site: Path
) -> None:
    room = Room(tmp_path)
    with pytest.raises(
        ConfigurationError,
        match=r"messageStorePlugIn=x cannot be used: x is not an installed store plug-in. Installed are: none;",
    ):
        plugged(room.store, "x")
    install(site, "parts_package", STORES, PARTS)
    with pytest.raises(
        ConfigurationError,
        match=r"Installed are: a \(parts_package:InnerStore\), b \(parts_package:Store\), bad",
    ):
        plugged(room.store, "b,org.apache.rocketmq.Store")
    with pytest.raises(
        ConfigurationError,
        match=(
            r"the store plug-in bad \(.*\) .* has no append and no append_batch and no reads; fix"
        ),
    ):
        plugged(room.store, "bad")
    install(site, "same_name", "[orbitmq.store_plugins]\na = same_name:Store", PARTS)
    with pytest.raises(
        ConfigurationError, match="a is offered by 2 packages: uninstall all but one"
    ):
        plugged(room.store, "a")
    assert plugged(room.store, "") is room.store
    room.close()
