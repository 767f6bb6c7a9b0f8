"""Consumers reject invalid names and numbers on construction, on subscribe, and on poll."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from orbitmq import (
    CacheLimits,
    ClientSettings,
    ConfigurationError,
    ConsumerSettings,
    InvalidStateError,
    LitePullConsumer,
    LitePullSettings,
    MessageQueue,
    PullConsumer,
    PushConsumer,
)

CLUSTER = ClientSettings(name_servers="127.0.0.1:9876", namespace="shop")
MAKERS: list[Callable[[str], object]] = [
    lambda group: PushConsumer(CLUSTER, group, print),
    lambda group: LitePullConsumer(CLUSTER, group),
    lambda group: PullConsumer(CLUSTER, group),
]


async def made(make: Callable[[], object]) -> object:
    return make()


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("group", "why"), [("", "letters"), ("a b/..!", "letters"), ("g" * 120, "has 125 characters")]
)
def test_a_group_that_no_broker_takes_is_refused(
    make: Callable[[str], object], group: str, why: str
) -> None:
    with pytest.raises(InvalidStateError, match=rf"is not a valid group name: .*{why}"):
        asyncio.run(made(lambda: make(group)))


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("", "letters"),
        ("a b", "letters"),
        ("orders\n", "letters"),
        ("t" * 127, "has 132 characters"),
    ],
)
def test_a_topic_that_no_broker_takes_is_refused(topic: str, why: str) -> None:
    async def subscribe() -> None:
        consumer = PushConsumer(CLUSTER, "g" * 115, print)
        consumer.subscribe("orders")
        with pytest.raises(InvalidStateError, match=rf"is not a valid topic name: .*{why}"):
            consumer.subscribe(topic)

    asyncio.run(subscribe())


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: ConsumerSettings(concurrency=0), "ConsumerSettings: concurrency=0"),
        (lambda: ConsumerSettings(pull_count=0), "pull_count=0"),
        (lambda: ConsumerSettings(pull_count=-1), "pull_count=-1"),
        (lambda: ConsumerSettings(max_attempts=-2), "max_attempts=-2"),
        (lambda: ConsumerSettings(retry_pause_ms=-1), "retry_pause_ms=-1"),
        (lambda: ConsumerSettings(limits=CacheLimits(count_max=0)), "CacheLimits: count_max=0"),
        (lambda: LitePullSettings(pull_count=0), "LitePullSettings: pull_count=0"),
        (lambda: LitePullSettings(cached_count_max=-5), "cached_count_max=-5"),
    ],
)
def test_a_number_that_cannot_be_is_refused_by_the_name_of_its_setting(
    make: Callable[[], object], name: str
) -> None:
    with pytest.raises(ConfigurationError, match=name):
        make()


def test_who_asks_for_no_message_is_told_so() -> None:
    async def ask() -> None:
        with pytest.raises(InvalidStateError, match="count_max is 0"):
            await LitePullConsumer(CLUSTER, "g").poll(count_max=0)
        with pytest.raises(InvalidStateError, match="count_max is -1"):
            await PullConsumer(CLUSTER, "g").pull(MessageQueue("T", "broker-a", 0), 0, count_max=-1)

    asyncio.run(ask())
