"""The services of a broker without sockets: what a test does not name is there and does nothing."""

from __future__ import annotations

from random import Random
from typing import Any

from orbitmq.broker.processors.write_replies import WriteReplies
from orbitmq.broker.produce.durable_replies import DurableReplies
from orbitmq.broker.produce.send_listener import SendListener
from orbitmq.broker.produce.service import SendService
from support.broker.socketless import BrokerRoom
from support.store.logs import HOST


def send_service(room: BrokerRoom, listener: SendListener, **parts: Any) -> SendService:
    """A service of sends on the room's store, with these parts."""
    usual: dict[str, Any] = {
        "settings": room.settings,
        "topics": room.topics,
        "groups": room.groups,
        "store": room.store,
        "messages": room.store,
        "store_host": HOST,
        "now_ms": room.clock.now_ms,
        "new_unique_key": lambda: "NEW-KEY",
        "listener": listener,
        "random": Random(1),
        "busy": lambda: None,
        "window": None,
        "is_undone": lambda _offset: False,
        "is_in_order": lambda _group: False,
        "rewriters": (),
        "quick_rewriters": {},
    }
    return SendService(**usual | parts)


def write_replies(room: BrokerRoom, listener: SendListener) -> WriteReplies:
    return WriteReplies(DurableReplies(room.store, room.topics), listener)


class ExpectedDelivery:
    """A delivery of delayed messages that only notes what it has to expect."""

    def __init__(self) -> None:
        self.expected: list[int] = []  # due times
        self.congested: set[int] | None = set()  # slots; None: all of them

    def expect_level(self, due_ms: int) -> None:
        self.expected.append(due_ms)

    def expect_timed(self, due_ms: int) -> None:
        self.expected.append(due_ms)

    def is_congested(self, slot_ms: int) -> bool:
        return self.congested is None or slot_ms in self.congested
