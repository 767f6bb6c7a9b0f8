"""A kernel behind guards gets frames that were checked and no others, and has nothing pending when
others are served.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from orbitmq.access.accounts import PERMISSIONS, Account, Accounts
from orbitmq.access.audit import Audit
from orbitmq.access.guards import guard_of_accounts
from orbitmq.access.requests import Resource
from orbitmq.broker.fast_path.authorization import AuthorizingFastPath
from orbitmq.protocol import frame
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand, SerializeType
from orbitmq.protocol.frame import FrameLimits
from orbitmq.protocol.headers.named_resources import ResourceKind
from orbitmq.protocol.signature import SigningKey
from support.access.people import ALICE, signed

ACCOUNTS = Accounts(
    {
        ALICE.access_key: Account(
            access_key=ALICE.access_key,
            secret_key=ALICE.secret_key,
            topic_permission=PERMISSIONS["PUB"],
        )
    },
    (),
)


class Kernel:
    """Takes sends, but for those to the topic Odd; `pending` until the turn ends."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.pending = 0

    def try_handle(self, link: Any, buffer: bytearray, start: int, end: int) -> int:
        while start < end:
            stop = frame.frame_end(buffer, start, end, FrameLimits())
            assert stop, "whole frames only"
            request = frame.decode(buffer, start, stop)
            fields = request.ext_fields or {}
            topic = fields["topic"] if request.code == RequestCode.END_TRANSACTION else fields["b"]
            if topic == "Odd":
                return start
            self.taken.append(topic)
            self.pending += 1
            start = stop
        return start

    def end_of_iteration(self) -> None:
        self.pending = 0

    def before_send(self) -> None:
        pass


def taken(
    *requests: RemotingCommand, is_tls: bool = False, rest: bytes = b""
) -> tuple[list[str], int, bool]:
    """What the kernel took, how many frames that were, and whether something is pending."""
    kernel = Kernel()
    frames = [frame.encode(request) for request in requests]
    link: Any = SimpleNamespace(
        channel=SimpleNamespace(remote_address="10.0.0.1:1", is_tls=is_tls), may_receive=True
    )
    data = bytearray(b"".join(frames) + rest)
    stop = AuthorizingFastPath(
        kernel, [guard_of_accounts(lambda: ACCOUNTS, Audit(lambda: 0))], FrameLimits()
    ).try_handle(link, data, 0, len(data))
    ends = [sum(map(len, frames[:count])) for count in range(len(frames) + 1)]
    return kernel.taken, ends.index(stop), kernel.pending > 0


def send(topic: str) -> RemotingCommand:
    return signed(
        RemotingCommand(
            RequestCode.SEND_MESSAGE_V2, ext_fields={"a": "p", "b": topic}, body=b"body"
        ),
        ALICE,
    )


def test_what_is_allowed_is_taken_and_waits_for_the_end_of_the_turn() -> None:
    assert taken(send("A"), send("B"), send("C")) == (["A", "B", "C"], 3, True)
    assert taken(send("A"), rest=frame.encode(send("B"))[:-1]) == (["A"], 1, True)


def test_what_is_not_allowed_or_not_known_is_left_with_nothing_pending() -> None:
    unsigned = RemotingCommand(
        RequestCode.SEND_MESSAGE_V2, ext_fields={"a": "p", "b": "B"}, body=b"body"
    )
    changed = send("B")
    changed.body = b"other"
    other = signed(RemotingCommand(RequestCode.GET_MAX_OFFSET, ext_fields={"b": "B"}), ALICE)
    for left in (unsigned, changed, other, send("Odd")):
        assert taken(send("A"), left, send("C")) == (["A"], 1, False)
    assert taken(send("A"), is_tls=True) == ([], 0, False)


def test_whatever_the_kernel_leaves_each_frame_is_checked_some_times_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signs: list[int] = []
    sign = SigningKey.sign

    def counted(self: SigningKey, content: bytes | memoryview) -> bytes:
        signs.append(len(content))
        return sign(self, content)

    monkeypatch.setattr(SigningKey, "sign", counted)
    for topics in (["A"] * 200, ["Odd"] * 200, ["A", "Odd"] * 100, (["A"] * 15 + ["Odd"]) * 12):
        kernel = Kernel()
        fast_path = AuthorizingFastPath(
            kernel, [guard_of_accounts(lambda: ACCOUNTS, Audit(lambda: 0))], FrameLimits()
        )
        link: Any = SimpleNamespace(
            channel=SimpleNamespace(remote_address="10.0.0.1:1", is_tls=False), may_receive=True
        )
        data = bytearray(b"".join(frame.encode(send(topic)) for topic in topics))
        signs.clear()
        at = 0
        while at < len(data):
            at = fast_path.try_handle(link, data, at, len(data))
            if at < len(data):  # the general path serves the next one
                at = frame.frame_end(data, at, len(data), FrameLimits())
        assert kernel.taken == [topic for topic in topics if topic != "Odd"]
        assert len(topics) <= len(signs) <= 3 * len(topics)


class Rules:
    """Guards whose accounts change; `checks` counts what was looked at as a whole."""

    def __init__(self) -> None:
        self.checks = 0
        self.accounts = ACCOUNTS
        guard = self.guard = guard_of_accounts(lambda: self.accounts, Audit(lambda: 0))
        lets_pass = guard.lets_pass

        def counted(remote_address: str, request: RemotingCommand) -> bool:
            self.checks += 1
            return lets_pass(remote_address, request)

        guard.lets_pass = counted  # type: ignore[method-assign]
        self.kernel = Kernel()
        self.halves: dict[tuple[int, int], str] = {}  # topics by place
        self.fast_path = AuthorizingFastPath(
            self.kernel,
            [guard],
            FrameLimits(),
            lambda root, log_offset: self.halves.get((root, log_offset)),
        )

    def take(self, request: RemotingCommand, peer: str = "10.0.0.1:1") -> bool:
        data = bytearray(frame.encode(request))
        link: Any = SimpleNamespace(
            channel=SimpleNamespace(remote_address=peer, is_tls=False), may_receive=True
        )
        return bool(self.fast_path.try_handle(link, data, 0, len(data)) == len(data))


def test_of_what_was_allowed_before_only_the_signature_is_checked() -> None:
    rules = Rules()
    for kind in SerializeType:
        before = rules.checks
        for number in range(3):
            body = b"body %d" % number
            fields = {
                "a": "p",
                "b": f"T{kind}",
                "i": "k\x01" + "\u00e9\U0001f600" * number + "\x02",
                "z": str(number),
            }
            if number == 0 and kind is SerializeType.ROCKETMQ:
                fields["SecurityToken"] = "lent"
            request = RemotingCommand(
                RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=body, serialize_type=kind
            )
            assert rules.take(signed(request, ALICE))
            request.body = body + b"!"
            assert not rules.take(request), "it is not what was signed"
        assert rules.checks - before <= 2


def test_another_topic_key_or_host_is_checked_by_itself() -> None:
    rules = Rules()
    assert rules.take(send("A"))
    assert rules.take(send("B"))
    assert rules.take(send("A"), peer="10.0.0.2:1")
    assert rules.checks == 3
    stranger = send("A")
    assert stranger.ext_fields is not None
    stranger.ext_fields["AccessKey"] = "nobody"
    assert not rules.take(stranger)
    assert rules.take(send("A"), peer="10.0.0.1:99"), "another port is the same host"
    assert rules.checks == 4


def test_a_rule_that_changes_counts_from_the_next_request_on() -> None:
    rules = Rules()
    assert rules.take(send("A"))
    assert not rules.take(RemotingCommand(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)), (
        "others are served in the same turn"
    )
    denied = Account(
        access_key=ALICE.access_key,
        secret_key=ALICE.secret_key,
        topic_permission=PERMISSIONS["DENY"],
    )
    rules.accounts = Accounts({ALICE.access_key: denied}, ())
    assert not rules.take(send("A"))
    rules.fast_path.end_of_iteration()
    other = Account(
        access_key=ALICE.access_key,
        secret_key="another-secret",
        topic_permission=PERMISSIONS["PUB"],
    )
    rules.accounts = Accounts({ALICE.access_key: other}, ())
    assert not rules.take(send("A"))
    rules.accounts = ACCOUNTS
    assert rules.take(send("A"))
    rules.fast_path.end_of_iteration()
    rules.accounts = Accounts({ALICE.access_key: denied}, ())
    assert not rules.take(send("A")), "files were loaded between two turns"


def test_a_field_that_stands_twice_is_for_the_decoder() -> None:
    rules = Rules()
    assert rules.take(send("A"))
    data = frame.encode(send("A"))
    header = data[8 : 8 + int.from_bytes(data[5:8], "big")].replace(b'"a":', b'"a":"x","a":', 1)
    twice = frame.decode_one(
        (4 + len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + b"body"
    )
    assert rules.take(twice), "the last one counts, and it was signed"
    buffer = bytearray(
        (4 + len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + b"body"
    )
    link: Any = SimpleNamespace(
        channel=SimpleNamespace(remote_address="10.0.0.1:1", is_tls=False), may_receive=True
    )
    before = rules.checks
    assert rules.fast_path.try_handle(link, buffer, 0, len(buffer)) == len(buffer)
    assert rules.checks == before + 1


def test_who_needs_no_signature_is_known_too() -> None:
    rules = Rules()
    rules.accounts = Accounts({}, (lambda host: host == "10.0.0.9",))
    unsigned = RemotingCommand(
        RequestCode.SEND_MESSAGE_V2, ext_fields={"a": "p", "b": "T"}, body=b"body"
    )
    assert [rules.take(unsigned, peer="10.0.0.9:1") for _ in range(3)] == [True] * 3
    assert not rules.take(unsigned)
    assert rules.checks == 2


def ended(root: int, log_offset: int, topic: str = "A") -> RemotingCommand:
    fields = {
        "producerGroup": "p",
        "tranStateTableOffset": str(root),
        "commitLogOffset": str(log_offset),
        "commitOrRollback": "8",
    }
    return signed(
        RemotingCommand(
            RequestCode.END_TRANSACTION, ext_fields={**fields, "msgId": "m", "topic": topic}
        ),
        ALICE,
    )


def test_ends_of_transactions_are_remembered_by_the_topic_of_the_half_message_whatever_they_say() -> (
    None
):
    rules = Rules()
    topics = {100: "A", 200: "A", 300: "Secret"}
    rules.halves = {(number, place): topic for number, (place, topic) in enumerate(topics.items())}
    owned = {Resource(ResourceKind.TOPIC, "Secret"): PERMISSIONS["DENY"]}
    account = Account(
        access_key=ALICE.access_key,
        secret_key=ALICE.secret_key,
        topic_permission=PERMISSIONS["PUB"],
        permissions=owned,
    )
    rules.accounts = Accounts({ALICE.access_key: account}, (), topics.get)
    assert rules.take(ended(0, 100))
    assert rules.take(ended(1, 200))
    assert rules.checks == 1
    for forged in (ended(2, 300), ended(0, 300), ended(7, 300)):
        assert not rules.take(forged), "its half message is of another topic"
    assert rules.checks == 4
    changed = ended(1, 200)
    assert changed.ext_fields is not None
    changed.ext_fields["commitOrRollback"] = "12"
    assert not rules.take(changed), "it is not what was signed"
    assert rules.take(ended(7, 100)), "the place is that of a half message of the topic"
    assert rules.checks == 5, "one that is not known is looked at as a whole"
