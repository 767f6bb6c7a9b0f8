"""Why a member has no queue of a topic, in words that say what to do."""

from __future__ import annotations

import asyncio

import pytest

from group_room import TOPIC, Brokers, Member


@pytest.mark.parametrize(
    ("queue_count", "others", "why"),
    [
        (0, [], "topic T may not be read: none of its queues has the permission, which an operator can give (perm 6)"),
        (1, ["a"], "topic T has 1 queues for 2 members: some get none; add queues"),
        (4, [], None),
    ],
)
def test_it_says_why_it_has_no_queue(queue_count: int, others: list[str], why: str | None) -> None:
    async def scenario() -> None:
        brokers = Brokers(("broker-a",))
        brokers.queue_counts["broker-a"] = queue_count
        brokers.known["broker-a"].update(others)
        member = Member(brokers, "z")
        await member.membership.start()
        assert await member.membership.why_no_queue(TOPIC) == why
        await member.membership.stop()

    asyncio.run(scenario())
