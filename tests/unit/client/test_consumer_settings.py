"""What consumers refuse when they are made, told what to subscribe, or asked for messages: names and numbers that cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from orbitmq import ClientSettings, LitePullConsumer, PullConsumer, PushConsumer, WrongCall

CLUSTER = ClientSettings(name_servers="127.0.0.1:9876", namespace="shop")
MAKERS: list[Callable[[str], object]] = [
    lambda group: PushConsumer(CLUSTER, group, print),
    lambda group: LitePullConsumer(CLUSTER, group),
    lambda group: PullConsumer(CLUSTER, group),
]


async def made(make: Callable[[], object]) -> object:
    return make()


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(("group", "why"), [("", "letters"), ("a b/..!", "letters"), ("g" * 120, "has 125 characters")])
def test_a_group_that_no_broker_takes_is_refused(make: Callable[[str], object], group: str, why: str) -> None:
    with pytest.raises(WrongCall, match=rf"cannot be the name of a group: .*{why}"):
        asyncio.run(made(lambda: make(group)))


@pytest.mark.parametrize(
    ("topic", "why"), [("", "letters"), ("a b", "letters"), ("orders\n", "letters"), ("t" * 127, "has 132 characters")]
)
def test_a_topic_that_no_broker_takes_is_refused(topic: str, why: str) -> None:
    async def subscribe() -> None:
        consumer = PushConsumer(CLUSTER, "g" * 115, print)
        consumer.subscribe("orders")
        with pytest.raises(WrongCall, match=rf"cannot be the name of a topic: .*{why}"):
            consumer.subscribe(topic)

    asyncio.run(subscribe())
