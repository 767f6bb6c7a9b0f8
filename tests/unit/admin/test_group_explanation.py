"""Explanations why a queue of a group progresses or not: every rule."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from orbitmq.admin.explanation import ConsumptionState, GroupView, QueueExplanation, explain
from orbitmq.admin.group_values import GroupConnections, GroupMember, GroupQueue
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.running_info import ConsumerRunningInfo, QueueProgress
from orbitmq.protocol.bodies.subscriptions import MessageModel, SubscriptionData

NOW_MS = 1_700_000_000_000
QUEUE = MessageQueue("T", "broker-a", 0)
WANTED = SubscriptionData("T")
MEMBER = GroupMember("client-1", "10.0.0.1:4000", "PYTHON", "V5_5_0", ("broker-a",))
PULLS = QueueProgress(commit_offset=5, last_pull_ms=NOW_MS - 1_000, last_lock_ms=NOW_MS - 1_000)
ONLINE = GroupConnections(
    members=(MEMBER,),
    subscriptions={"T": WANTED},
    consume_type=None,
    message_model=MessageModel.CLUSTERING,
    consume_from_where=None,
    unreachable={},
)
OFFLINE = replace(ONLINE, members=(), subscriptions={}, message_model=None)


def at(consumed: int, end: int) -> dict[MessageQueue, GroupQueue]:
    return {
        QUEUE: GroupQueue(
            queue=QUEUE,
            broker_offset=end,
            consumer_offset=consumed,
            pull_offset=consumed,
            last_consumed_ms=0,
        )
    }


def running(
    progress: QueueProgress | None = PULLS, *, topic: str = "T", **properties: str
) -> dict[str, ConsumerRunningInfo | str]:
    queues = {} if progress is None else {QUEUE: progress}
    return {
        "client-1": ConsumerRunningInfo(
            queues=queues, subscriptions=(SubscriptionData(topic),), properties=properties
        )
    }


def view(**changes: Any) -> GroupView:
    """A group with one idle member that owns one queue and consumed 5 of its 9 messages."""
    usual: dict[str, Any] = {
        "group": "g",
        "now_ms": NOW_MS,
        "seconds": 2.0,
        "configs": {"broker-a": GroupConfig("g")},
        "connections": ONLINE,
        "before": at(5, 9),
        "now": at(5, 9),
        "routed": frozenset({QUEUE}),
        "running": running(),
    }
    return GroupView(**(usual | changes))


def only(**changes: Any) -> QueueExplanation:
    (found,) = explain(view(**changes))
    return found


CASES: list[tuple[ConsumptionState, str, dict[str, Any]]] = [
    (ConsumptionState.DONE, "everything is consumed", {"now": at(9, 9)}),
    (
        ConsumptionState.DONE,
        "no member is online",
        {"now": at(9, 9), "connections": OFFLINE, "running": {}},
    ),
    (ConsumptionState.MOVES, "3 were consumed within 2 s", {"now": at(8, 9)}),
    (
        ConsumptionState.MOVES,
        "the member is at 7",
        {"running": running(replace(PULLS, commit_offset=7))},
    ),
    (
        ConsumptionState.FALLS_BEHIND,
        "3 were consumed within 2 s, but the lag grew by 7",
        {"now": at(8, 19)},
    ),
    (
        ConsumptionState.FALLS_BEHIND,
        "nothing was consumed within 2 s, and the lag grew by 10",
        {"now": at(5, 19)},
    ),
    (
        ConsumptionState.NO_MEMBER,
        "no member of the group is connected",
        {"connections": OFFLINE, "running": {}},
    ),
    (
        ConsumptionState.UNREACHABLE,
        "refused; the state of its queues is unknown",
        {"connections": replace(ONLINE, unreachable={"broker-a": "refused"}), "now": {}},
    ),
    (
        ConsumptionState.FORBIDDEN,
        "set its consumeEnable to true",
        {"configs": {"broker-a": GroupConfig("g", consume_enable=False)}},
    ),
    (
        ConsumptionState.NO_SUBSCRIPTION,
        "the members subscribe to nothing",
        {"connections": replace(ONLINE, subscriptions={})},
    ),
    (
        ConsumptionState.NO_SUBSCRIPTION,
        "client-1 does not subscribe to T, but others do",
        {"running": running(None, topic="U")},
    ),
    (
        ConsumptionState.BROADCAST,
        "stores its own offsets",
        {"connections": replace(ONLINE, message_model=MessageModel.BROADCASTING)},
    ),
    (ConsumptionState.NO_OWNER, "no member owns it", {"running": running(None)}),
    (
        ConsumptionState.NO_OWNER,
        "no member owns it",
        {"running": running(replace(PULLS, is_dropped=True))},
    ),
    (
        ConsumptionState.SILENT,
        "client-1: too old to say",
        {"running": {"client-1": "too old to say"}},
    ),
    (
        ConsumptionState.PAUSED,
        "its application has suspended it",
        {"running": running(suspended="true")},
    ),
    (ConsumptionState.NOT_LOCKED, "has no lock", {"running": running(PROP_CONSUMEORDERLY="true")}),
    (
        ConsumptionState.NOT_LOCKED,
        "has no lock",
        {
            "running": running(
                replace(PULLS, is_locked=True, last_lock_ms=NOW_MS - 40_000),
                PROP_CONSUMEORDERLY="true",
            )
        },
    ),
    (
        ConsumptionState.CACHE_FULL,
        "holds 1000 messages not yet consumed, the limit is 1000",
        {"running": running(replace(PULLS, cached_count=1000))},
    ),
    (
        ConsumptionState.CACHE_FULL,
        "holds 8 messages .* the limit is 8 .*30 s ago",
        {
            "running": running(
                replace(PULLS, cached_count=8, last_consume_ms=NOW_MS - 30_000),
                pullThresholdForQueue="8",
            )
        },
    ),
    (
        ConsumptionState.CACHE_FULL,
        "holds 100 MiB",
        {"running": running(replace(PULLS, cached_count=1, cached_bytes=100 << 20))},
    ),
    (
        ConsumptionState.CACHE_FULL,
        "holds 2000 messages between",
        {
            "running": running(
                replace(PULLS, cached_count=2, cached_first_offset=5, cached_last_offset=2005)
            )
        },
    ),
    (
        ConsumptionState.NOT_PULLING,
        "its last pull was 60 s ago",
        {"running": running(replace(PULLS, last_pull_ms=NOW_MS - 60_000))},
    ),
    (
        ConsumptionState.SLOW,
        "the listener has 4 messages but finished none",
        {"running": running(replace(PULLS, cached_count=4))},
    ),
    (ConsumptionState.WAITS, "has received nothing yet", {}),
]


@pytest.mark.parametrize(
    ("state", "words", "changes"),
    CASES,
    ids=[f"{state.name}-{number}" for number, (state, _, _) in enumerate(CASES)],
)
def test_a_queue_is_explained_by_what_was_told(
    state: ConsumptionState, words: str, changes: dict[str, Any]
) -> None:
    found = only(**changes)
    assert found.state is state
    assert re.search(words, found.why), found.why


def test_every_state_has_a_case() -> None:
    assert {state for state, _, _ in CASES} == set(ConsumptionState)


def test_a_queue_tells_its_lag_and_its_owner_where_they_are_known() -> None:
    assert (only().lag, only().owner) == (4, "client-1")
    gone = only(
        connections=replace(ONLINE, unreachable={"broker-a": "refused"}), now={}, running={}
    )
    assert (gone.lag, gone.owner) == (None, None)


def test_queues_come_in_order_whether_the_route_or_the_broker_tells_them() -> None:
    other = MessageQueue("T", "broker-b", 1)
    assert [each.queue for each in explain(view(routed=frozenset({other})))] == [QUEUE, other]
