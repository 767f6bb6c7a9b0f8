"""Consumers: members of groups, the one table of subscriptions they share, and who hears of a
change.
"""

from __future__ import annotations

import pytest

from orbitmq.broker.clients.consumers import Change, ConsumerGroup, Consumers
from orbitmq.broker.clients.registry import SILENCE_MS_MAX, Peer
from orbitmq.protocol.bodies.clients import ConsumerData
from orbitmq.protocol.bodies.subscriptions import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from orbitmq.remoting.channel import Channel
from support.remoting.channels import Peers, client

peers = Peers()


class Room:
    """Consumers, and clients that beat."""

    def __init__(self) -> None:
        self.consumers = Consumers()

    def beat(
        self,
        channel: Channel,
        *subscriptions: SubscriptionData,
        group: str = "g",
        client_id: str | None = None,
        now_ms: int = 0,
        model: MessageModel = MessageModel.CLUSTERING,
        keep: bool = False,
        notifies: bool = True,
    ) -> list[Peer]:
        data = ConsumerData(
            group,
            ConsumeType.CONSUME_PASSIVELY,
            model,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscriptions,
        )
        info = client(client_id or f"at {channel.remote_address}")
        change = self.consumers.register(
            channel, info, data, now_ms, keep_subscriptions=keep, notifies=notifies
        )
        assert change.group == group
        return change.notify

    @property
    def group(self) -> ConsumerGroup:
        group = self.consumers.find("g")
        assert group is not None
        return group


@pytest.fixture
def room() -> Room:
    return Room()


def topic(name: str, version: int = 1, expression: str = "*") -> SubscriptionData:
    return SubscriptionData(name, expression, version)


def test_a_new_member_is_told_to_all_and_its_next_heartbeat_to_nobody(room: Room) -> None:
    a, b = peers.connect(), peers.connect()
    assert room.beat(a, topic("T")) == [a]
    assert room.beat(a, topic("T")) == []
    assert room.beat(b, topic("T")) == [a, b]
    assert room.group.client_ids == [f"at {a.remote_address}", f"at {b.remote_address}"]


def test_a_group_is_how_its_last_heartbeat_says(room: Room) -> None:
    room.beat(peers.connect(), topic("T"))
    group = room.group
    assert (group.consume_type, group.message_model) == (
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
    )
    assert group.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    room.beat(peers.connect(), topic("T"), model=MessageModel.BROADCASTING)
    assert group.message_model is MessageModel.BROADCASTING


@pytest.mark.parametrize("quiet", [{"model": MessageModel.BROADCASTING}, {"notifies": False}])
def test_nobody_is_told_when_the_group_broadcasts_or_wants_no_notices(
    room: Room, quiet: dict[str, MessageModel]
) -> None:
    a, b = peers.connect(), peers.connect()
    assert room.beat(a, topic("T"), **quiet) == []  # type: ignore[arg-type]
    assert room.beat(b, topic("U"), **quiet) == []  # type: ignore[arg-type]
    assert room.consumers.unregister("g", b) == Change("g", [])
    assert list(room.consumers.on_close(a)) == [Change("g", [])]


def test_topics_come_and_go_with_each_full_heartbeat_and_that_is_a_change(room: Room) -> None:
    a = peers.connect()
    room.beat(a, topic("T"), topic("U"))
    assert room.beat(a, topic("U")) == [a]
    assert list(room.group.subscriptions) == ["U"]
    assert room.beat(a, topic("U"), topic("V")) == [a]
    assert list(room.group.subscriptions) == ["U", "V"]


def test_a_larger_version_replaces_a_subscription_quietly_and_others_do_not(room: Room) -> None:
    a = peers.connect()
    room.beat(a, topic("T", 5, "old"))
    for version in (4, 5):
        assert room.beat(a, topic("T", version, "late")) == []
        assert room.group.subscriptions["T"] == topic("T", 5, "old")
    assert room.beat(a, topic("T", 6, "new")) == []
    assert room.group.subscriptions["T"] == topic("T", 6, "new")


def test_of_two_subscriptions_of_one_topic_in_a_heartbeat_the_larger_version_counts(
    room: Room,
) -> None:
    room.beat(peers.connect(), topic("T", 2, "b"), topic("T", 1, "a"))
    assert room.group.subscriptions == {"T": topic("T", 2, "b")}


def test_a_heartbeat_without_subscriptions_keeps_them(room: Room) -> None:
    a, b = peers.connect(), peers.connect()
    room.beat(a, topic("T"))
    assert room.beat(a, keep=True) == []
    assert room.beat(b, keep=True) == [a, b]
    assert list(room.group.subscriptions) == ["T"]


def test_a_connection_whose_client_takes_another_id_stays_one_member(room: Room) -> None:
    a = peers.connect()
    room.beat(a, client_id="before")
    assert room.beat(a, client_id="after") == []
    assert room.group.client_ids == ["after"]
    assert room.group.member("before") is None
    member = room.group.member("after")
    assert member is not None
    assert member.channel is a


def test_those_who_stay_hear_of_one_who_leaves_once(room: Room) -> None:
    a, b = peers.connect(), peers.connect()
    room.beat(a, topic("T"))
    room.beat(b, topic("T"))
    assert room.consumers.unregister("g", a) == Change("g", [b])
    assert room.consumers.unregister("g", a) == Change("g", [])
    assert room.consumers.unregister("gx", a) == Change("gx", [])


def test_a_group_goes_with_its_last_member_and_forgets_its_subscriptions(room: Room) -> None:
    a = peers.connect()
    room.beat(a, topic("T"))
    assert room.consumers.groups_of_topic("T") == ["g"]
    assert list(room.consumers.on_close(a)) == [Change("g", [])]
    assert room.consumers.find("g") is None
    assert (len(room.consumers), list(room.consumers), room.consumers.groups_of_topic("T")) == (
        0,
        [],
        [],
    )
    room.beat(a, topic("U"))
    assert list(room.group.subscriptions) == ["U"]


def test_a_closed_connection_leaves_all_its_groups(room: Room) -> None:
    a, b = peers.connect(), peers.connect()
    for group in ("g", "h"):
        room.beat(a, topic("T"), group=group)
        room.beat(b, topic("T"), group=group)
    assert list(room.consumers.on_close(a)) == [Change("g", [b]), Change("h", [b])]
    assert list(room.consumers.on_close(a)) == []


def test_members_expire_after_two_minutes_of_silence_and_the_others_hear_of_it_once(
    room: Room,
) -> None:
    a, b, c = (peers.connect() for _ in range(3))
    for channel in (a, b):
        room.beat(channel, topic("T"))
    room.beat(c, topic("T"), now_ms=1)
    assert list(room.consumers.scan(SILENCE_MS_MAX)) == []
    assert list(room.consumers.scan(SILENCE_MS_MAX + 1)) == [
        (a, Change("g", [b, c])),
        (b, Change("g", [c])),
    ]
    assert list(room.group.members) == [c]


def test_groups_of_a_topic_are_those_that_subscribe_it_now(room: Room) -> None:
    a = peers.connect()
    room.beat(a, topic("T"), group="g")
    room.beat(a, topic("T"), topic("U"), group="h")
    assert room.consumers.groups_of_topic("T") == ["g", "h"]
    room.beat(a, topic("U"), group="h")
    assert room.consumers.groups_of_topic("T") == ["g"]


def test_members_that_subscribe_differently_are_found_and_logged_when_they_begin_to(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = peers.connect(), peers.connect()
    room.beat(a, topic("T", 1, "x"), topic("U"), client_id="ca")
    room.beat(b, topic("T", 2, "x"), topic("U"), client_id="cb")
    assert room.group.conflicts == []
    assert "subscriptions_differ" not in caplog.text
    room.beat(b, topic("T", 3, "y"), client_id="cb")
    assert room.group.conflicts == [
        "T: TAG 'x' by ca; TAG 'y' by cb",
        "U: TAG '*' by ca; not subscribed by cb",
    ]
    assert caplog.text.count("subscriptions_differ group=g") == 1
    room.beat(b, topic("T", 3, "y"), client_id="cb")
    room.beat(b, keep=True, client_id="cb")
    assert caplog.text.count("subscriptions_differ") == 1
    list(room.consumers.on_close(a))
    assert room.group.conflicts == []
