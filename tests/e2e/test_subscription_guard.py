"""`subscriptionConflict`: a consumer that wants other messages than its group is shown or kept out,
and hears why.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from orbitmq import Admin, ClientSettings, Message, Producer, PushConsumer
from orbitmq.testing import LocalCluster
from support.client.library import FROM_FIRST
from support.common.waiting import until

COUNT = 40


@pytest.mark.parametrize("rule", ["refuse", "warn"])
def test_a_consumer_that_wants_something_else_does_not_take_messages_away_from_its_group(
    rule: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(mq: LocalCluster) -> None:
        def settings(name: str) -> ClientSettings:
            return ClientSettings(
                name_servers=mq.name_server, timeout_ms=20_000, instance_name=name, heartbeat_ms=200
            )

        seen: Counter[bytes] = Counter()
        first = PushConsumer(
            settings("first"), "g", lambda message: seen.update([message.body]), settings=FROM_FIRST
        )
        first.subscribe("T")
        stranger = PushConsumer(
            settings("stranger"),
            "g",
            lambda message: seen.update([message.body]),
            settings=FROM_FIRST,
        )
        stranger.subscribe("T", "x")
        async with Admin(settings("admin")) as admin, Producer(settings("p")) as producer, first:
            await stranger.start()
            connections = await admin.groups.connections("g")
            assert len(connections.members) == (1 if rule == "refuse" else 2)
            (conflict,) = connections.conflicts
            assert ("is kept out" in conflict) is (rule == "refuse")
            assert "TAG '*' by" in conflict
            assert "TAG 'x' by" in conflict
            if rule == "refuse":
                for number in range(COUNT):
                    await producer.send(Message("T", b"%d" % number, "y"))
                await until(lambda: len(seen) == COUNT)
                assert set(seen.values()) == {1}
                assert "is kept out: members of group g subscribe differently" in caplog.text
            await stranger.close()

            async def agree() -> bool:
                return not (await admin.groups.connections("g")).conflicts

            await until(agree, "no conflict is left")

    async def main() -> None:
        async with (
            asyncio.timeout(60),
            LocalCluster(topics={"T": 4}, broker={"subscriptionConflict": rule}) as mq,
        ):
            await scenario(mq)

    asyncio.run(main())
