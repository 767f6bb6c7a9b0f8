"""Members of one group that subscribe differently: found, told, and turned away if that is
wanted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.clients.subscription_conflicts import KINDS_MAX, Wish, Wishes, wish_of
from orbitmq.broker.config.guard_keys import SubscriptionConflict
from orbitmq.broker.consume.membership import ClientRules, MembershipService
from orbitmq.broker.consume.pending_pulls import LongPollingConfig, PendingPulls
from orbitmq.broker.processors.client_lists import ClientListProcessor
from orbitmq.broker.processors.clients import ClientProcessor, notify_member
from orbitmq.common.errors import Refusal, RefusedError
from orbitmq.protocol.bodies.subscriptions import SQL92, SubscriptionData
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel
from support.broker.listeners import Unheard
from support.broker.socketless import BrokerRoom, body_of
from support.remoting.channels import InlineSlices, NoAccess, Peers


class Room(BrokerRoom):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.membership = MembershipService(
            ClientRules(),
            producers=self.producers,
            consumers=self.consumers,
            locks=QueueLocks(),
            pending=PendingPulls(LongPollingConfig()),
            groups=self.groups,
            topics=self.topics,
            filters=self.known_filters,
            clock=self.clock,
            listener=Unheard(),
            slices=InlineSlices(),
            notify=notify_member,
        )
        self.clients = ClientProcessor(self.membership, NoAccess())
        self.lists = ClientListProcessor(
            "broker-a",
            producers=self.producers,
            consumers=self.consumers,
            groups=self.groups,
            topics=self.topics,
            record_at=self.store.reads.record_at,
            clock=self.clock,
            conflicts=self.membership.conflicts,
        )

    def watch(self, rule: SubscriptionConflict) -> None:
        self.membership.rules = ClientRules(subscription_conflict=rule)

    def beat(
        self, channel: Channel, client_id: str, groups: dict[str, dict[str, str]], **members: Any
    ) -> RemotingCommand:
        """A heartbeat of a client that subscribes topics by expressions, group by group, and
        produces for `p`.
        """
        data = [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [
                    {"topic": topic, "subString": text, "subVersion": 1}
                    for topic, text in topics.items()
                ],
            }
            for group, topics in groups.items()
        ]
        body = {
            "clientID": client_id,
            "consumerDataSet": data,
            "producerDataSet": [{"groupName": "p"}],
            **members,
        }
        self.channel = channel
        answer = self.begin(self.clients, RequestCode.HEART_BEAT, None, body)
        assert answer is not None
        return answer

    def conflicts(self, group: str = "g") -> list[str]:
        """What operators are told."""
        answer = self.ask(
            self.lists, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}
        )
        told: list[str] = body_of(answer).get("subscriptionConflicts", [])
        return told


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path)
    yield room
    room.close()


def conflicts_of(subscriptions: list[SubscriptionData]) -> list[str]:
    """What clients 0, 1, 2 … do not agree on that subscribe one topic each."""
    wishes, peers = Wishes(), Peers()
    for number, each in enumerate(subscriptions):
        assert wishes.put(peers.connect(), str(number), wish_of([each]))
    return wishes.conflicts()


def test_only_what_is_meant_differently_is_a_conflict() -> None:
    same = [
        *(SubscriptionData("T", text) for text in ("a || b", "b||a", "a||b||a", "a || b || ")),
        SubscriptionData("T", "a || b", expression_type=None),
    ]
    assert conflicts_of(same) == []
    other = [
        SubscriptionData("T", "a"),
        SubscriptionData("T", "a || b"),
        SubscriptionData("T", "a", expression_type=SQL92),
    ]
    assert conflicts_of(other) == ["T: TAG 'a' by 0; TAG 'a || b' by 1; SQL92 'a' by 2"]


def test_operators_see_conflicts_as_long_as_they_last_and_the_log_says_each_once(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = room.peers.connect(), room.peers.connect()
    room.beat(one, "c1", {"g": {"T": "a"}})
    assert room.conflicts() == []
    for _ in range(3):
        room.beat(two, "c2", {"g": {"T": "b", "U": "*"}})
        room.beat(one, "c1", {"g": {"T": "a"}})
    assert room.conflicts() == [
        "T: TAG 'a' by c1; TAG 'b' by c2",
        "U: not subscribed by c1; TAG '*' by c2",
    ]
    assert caplog.text.count("subscriptions_differ group=g") == 1
    room.beat(one, "c1", {"g": {"T": "b"}})
    assert caplog.text.count("subscriptions_differ group=g") == 2
    room.membership.on_close(two)
    assert room.conflicts() == []


def test_a_client_that_connects_anew_is_in_no_conflict_with_itself(room: Room) -> None:
    old, new = room.peers.connect(), room.peers.connect()
    room.watch(SubscriptionConflict.REFUSE)
    room.beat(old, "c1", {"g": {"T": "a"}})
    room.beat(new, "c1", {"g": {"T": "b"}})
    assert room.conflicts() == []


def test_off_says_nothing(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    room.watch(SubscriptionConflict.OFF)
    room.beat(room.peers.connect(), "c1", {"g": {"T": "a"}})
    room.beat(room.peers.connect(), "c2", {"g": {"T": "b"}})
    assert (room.conflicts(), "subscriptions_differ" in caplog.text) == ([], False)


def test_refuse_keeps_a_newcomer_out_of_the_group_alone_and_says_why(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = room.peers.connect(), room.peers.connect()
    room.watch(SubscriptionConflict.REFUSE)
    room.beat(one, "c1", {"g": {"T": "a"}})
    for _ in range(2):
        with pytest.raises(RefusedError) as refused:
            room.beat(two, "c2", {"g": {"T": "b"}, "h": {"T": "b"}})
        assert refused.value.refusal is Refusal.NO_PERMISSION
        assert (
            str(refused.value)
            == "client c2 is kept out: members of group g subscribe differently: T: TAG 'a' by c1;"
            " TAG 'b' by c2. Members of one group must have identical subscriptions, or they miss"
            " messages: give the others a group of their own (subscriptionConflict=refuse)"
        )
    assert caplog.text.count("consumer_refused group=g client=c2") == 1
    assert room.conflicts() == [str(refused.value)]
    group, other = room.consumers.find("g"), room.consumers.find("h")
    assert group is not None
    assert other is not None
    assert (group.client_ids, other.client_ids, group.subscriptions["T"].sub_string) == (
        ["c1"],
        ["c2"],
        "a",
    )
    assert two in room.producers.members("p")
    room.beat(two, "c2", {"g": {"T": "a"}})
    assert (group.client_ids, room.conflicts()) == (["c1", "c2"], [])


def test_refuse_leaves_members_alone_that_differed_before_it_was_wanted(room: Room) -> None:
    one, two, three = (room.peers.connect() for _ in range(3))
    room.beat(one, "c1", {"g": {"T": "a"}})
    room.beat(two, "c2", {"g": {"T": "b"}})
    room.watch(SubscriptionConflict.REFUSE)
    for channel, client_id, text in ((one, "c1", "a"), (two, "c2", "b")):
        assert room.beat(channel, client_id, {"g": {"T": text}}).code == ResponseCode.SUCCESS
    with pytest.raises(RefusedError):
        room.beat(two, "c2", {"g": {"T": "c"}})
    with pytest.raises(RefusedError):
        room.beat(three, "c3", {"g": {"T": "a"}})
    room.membership.on_close(two)
    assert room.beat(three, "c3", {"g": {"T": "a"}}).code == ResponseCode.SUCCESS


def test_a_client_that_is_kept_out_of_many_groups_hears_why_for_some(room: Room) -> None:
    room.watch(SubscriptionConflict.REFUSE)
    room.beat(room.peers.connect(), "c1", {f"g{number}": {"T": "a"} for number in range(100)})
    with pytest.raises(RefusedError) as refused:
        room.beat(room.peers.connect(), "c2", {f"g{number}": {"T": "b"} for number in range(100)})
    assert str(refused.value).endswith("; and so for 90 other groups")
    assert str(refused.value).count("is kept out") == 10


def test_a_heartbeat_that_leaves_its_subscriptions_out_is_no_newcomer(room: Room) -> None:
    one = room.peers.connect()
    room.watch(SubscriptionConflict.REFUSE)
    room.beat(one, "c1", {"g": {"T": "a"}}, heartbeatFingerprint=7)
    assert (
        room.beat(one, "c1", {"g": {}}, heartbeatFingerprint=7, withoutSub=True).code
        == ResponseCode.SUCCESS
    )
    assert room.conflicts() == []


WANTED: list[Wish] = [
    wish_of([SubscriptionData(topic, "*") for topic in topics]) for topics in ("", "T", "U", "TU")
]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.none() | st.sampled_from(WANTED)),
        max_size=30,
    )
)
def test_a_client_counts_as_it_is_on_its_newest_connection(
    steps: list[tuple[int, str, Wish | None]],
) -> None:
    channels = [Peers().connect() for _ in range(4)]
    wishes = Wishes()
    said: dict[int, tuple[str, Wish]] = {}  # in the order of the connections of a client
    for number, client_id, wish in steps:
        if wish is None:
            assert wishes.remove(channels[number]) == (said.pop(number, None) is not None)
        else:
            known = said.get(number)
            assert wishes.put(channels[number], client_id, wish) == (known != (client_id, wish))
            if known is not None and known[0] != client_id:
                del said[number]
            said[number] = (client_id, wish)
        newest = dict(said.values())
        assert bool(wishes.conflicts()) == (len({frozenset(each) for each in newest.values()}) > 1)
        for wish_of_a in WANTED:
            others = {frozenset(each) for name, each in newest.items() if name != "a"}
            is_fine = newest.get("a") == wish_of_a or others <= {frozenset(wish_of_a)}
            assert bool(wishes.conflicts_with("a", wish_of_a)) != is_fine


def test_of_a_crowd_that_does_not_agree_only_some_are_compared() -> None:
    found = conflicts_of([SubscriptionData("T", str(number)) for number in range(1000)])
    assert len(found) == 1
    assert found[0].count(" by ") == KINDS_MAX


def test_what_is_said_of_a_crowd_that_does_not_agree_has_a_limit() -> None:
    wishes = Wishes()
    for number in range(KINDS_MAX):
        wish = wish_of(
            SubscriptionData(f"Topic{topic}", f"{number} {'x' * 1_000}") for topic in range(1_000)
        )
        wishes.put(Peers().connect(), f"{number} {'y' * 1_000}", wish)
    found = wishes.conflicts()
    assert sum(map(len, found)) < 5_000
    assert found[-1].endswith("… and maybe others")
