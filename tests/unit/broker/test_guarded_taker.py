"""A kernel behind guards gets single frames that were checked, and has nothing pending when others are served."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from access_room import ALICE, signed
from orbitmq.access.accounts import PERMISSIONS, Account, Accounts
from orbitmq.access.guards import guard_of_accounts
from orbitmq.broker.guarded_taker import GuardedTaker
from orbitmq.protocol import frame
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.frame import FrameLimits

ACCOUNTS = Accounts(
    {ALICE.access_key: Account(access_key=ALICE.access_key, secret_key=ALICE.secret_key, topic_permission=PERMISSIONS["PUB"])}, ()
)


class Kernel:
    """Takes sends, but for those to the topic Odd; `pending` until the turn ends."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.pending = 0

    def take(self, link: Any, buffer: bytearray, start: int, end: int) -> int:
        request = frame.decode(buffer, start, end)
        assert frame.frame_end(buffer, start, end, FrameLimits()) == end, "one frame at a time"
        topic = (request.ext_fields or {})["b"]
        if topic == "Odd":
            return start
        self.taken.append(topic)
        self.pending += 1
        return end

    def end_turn(self) -> None:
        self.pending = 0


def taken(*requests: RemotingCommand, is_tls: bool = False, rest: bytes = b"") -> tuple[list[str], int, bool]:
    """What the kernel took, how many frames that were, and whether something is pending."""
    kernel = Kernel()
    frames = [frame.encode(request) for request in requests]
    link: Any = SimpleNamespace(channel=SimpleNamespace(remote_address="10.0.0.1:1", is_tls=is_tls), reading=True)
    data = bytearray(b"".join(frames) + rest)
    stop = GuardedTaker(kernel, [guard_of_accounts(lambda: ACCOUNTS)], FrameLimits()).take(link, data, 0, len(data))
    ends = [sum(map(len, frames[:count])) for count in range(len(frames) + 1)]
    return kernel.taken, ends.index(stop), kernel.pending > 0


def send(topic: str) -> RemotingCommand:
    return signed(RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields={"a": "p", "b": topic}, body=b"body"), ALICE)


def test_what_is_allowed_is_taken_and_waits_for_the_end_of_the_turn() -> None:
    assert taken(send("A"), send("B"), send("C")) == (["A", "B", "C"], 3, True)
    assert taken(send("A"), rest=frame.encode(send("B"))[:-1]) == (["A"], 1, True)


def test_what_is_not_allowed_or_not_known_is_left_with_nothing_pending() -> None:
    unsigned = RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields={"a": "p", "b": "B"}, body=b"body")
    changed = send("B")
    changed.body = b"other"
    other = signed(RemotingCommand(RequestCode.GET_MAX_OFFSET, ext_fields={"b": "B"}), ALICE)
    for left in (unsigned, changed, other, send("Odd")):
        assert taken(send("A"), left, send("C")) == (["A"], 1, False)
    assert taken(send("A"), is_tls=True) == ([], 0, False)
