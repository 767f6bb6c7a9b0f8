"""Consumers and producers against dictionaries: heartbeats, closed connections and silence in any
order.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq.broker.clients.consumers import Change, Consumers
from orbitmq.broker.clients.producers import Producers
from orbitmq.broker.clients.registry import SILENCE_MS_MAX
from orbitmq.protocol.bodies.clients import ConsumerData
from orbitmq.protocol.bodies.subscriptions import MessageModel, SubscriptionData
from orbitmq.remoting.channel import Channel
from support.remoting.channels import Peers, client

ALL_GROUPS = ["g", "h", "i"]
ALL_TOPICS = ["T", "U", "V"]
ALL_IDS = ["a", "b", "c"]
GROUPS = st.sampled_from(ALL_GROUPS)
PASSED_MS = st.sampled_from([1, SILENCE_MS_MAX // 2])
IDS = st.sampled_from(ALL_IDS)
CHANNELS = [Peers().connect() for _ in range(4)]
SUBSCRIPTIONS = st.dictionaries(st.sampled_from(ALL_TOPICS), st.integers(1, 4))


class Group:
    """What the model knows of a consumer group."""

    def __init__(self) -> None:
        self.members: dict[Channel, tuple[str, int]] = {}
        self.versions: dict[str, int] = {}
        self.quiet = False


class ConsumersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.consumers = Consumers()
        self.model: dict[str, Group] = {}
        self.now_ms = 0

    def told(self, name: str, group: Group, changed: bool) -> Change:
        return Change(name, list(group.members) if changed and not group.quiet else [])

    @rule(
        name=GROUPS,
        channel=st.sampled_from(CHANNELS),
        client_id=IDS,
        wanted=st.none() | SUBSCRIPTIONS,
        model=st.sampled_from(MessageModel),
        notifies=st.booleans(),
    )
    def beat(
        self,
        name: str,
        channel: Channel,
        client_id: str,
        wanted: dict[str, int] | None,
        model: MessageModel,
        notifies: bool,
    ) -> None:
        group = self.model.setdefault(name, Group())
        changed = channel not in group.members
        group.members[channel] = (client_id, self.now_ms)
        group.quiet = model is MessageModel.BROADCASTING or not notifies
        if wanted is not None:
            changed |= wanted.keys() != group.versions.keys()
            group.versions = {
                topic: max(version, group.versions.get(topic, 0))
                for topic, version in wanted.items()
            }
        subscriptions = tuple(
            SubscriptionData(topic, "*", version) for topic, version in (wanted or {}).items()
        )
        data = ConsumerData(name, message_model=model, subscriptions=subscriptions)
        change = self.consumers.register(
            channel,
            client(client_id),
            data,
            self.now_ms,
            keep_subscriptions=wanted is None,
            notifies=notifies,
        )
        assert change == self.told(name, group, changed)

    def gone(self, name: str, channel: Channel) -> Change:
        group = self.model.get(name)
        if group is None or channel not in group.members:
            return Change(name, [])
        del group.members[channel]
        if not group.members:
            del self.model[name]
        return self.told(name, group, changed=True)

    @rule(name=GROUPS, channel=st.sampled_from(CHANNELS))
    def unregister(self, name: str, channel: Channel) -> None:
        assert self.consumers.unregister(name, channel) == self.gone(name, channel)

    @rule(channel=st.sampled_from(CHANNELS))
    def close(self, channel: Channel) -> None:
        names = [name for name, group in self.model.items() if channel in group.members]
        assert sorted(self.consumers.on_close(channel)) == sorted(
            self.gone(name, channel) for name in names
        )

    @rule(passed_ms=PASSED_MS)
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule()
    def scan(self) -> None:
        silent = [
            (name, channel)
            for name, group in self.model.items()
            for channel, (_, heard_ms) in group.members.items()
            if self.now_ms - heard_ms > SILENCE_MS_MAX
        ]
        changes = {name: self.gone(name, channel) for name, channel in silent}
        expired = list(self.consumers.scan(self.now_ms))
        assert {(each.change.group, each.channel) for each in expired} == set(silent)
        assert len(expired) == len(silent)
        assert {each.change.group: each.change for each in expired} == changes, (
            "the last change of each group"
        )

    @invariant()
    def the_groups_are_those_of_the_model(self) -> None:
        assert {group.name for group in self.consumers} == self.model.keys()
        for name, group in self.model.items():
            found = self.consumers.find(name)
            assert found is not None
            assert [
                (member.channel, member.info.client_id) for member in found.members.values()
            ] == [(channel, client_id) for channel, (client_id, _) in group.members.items()]
            assert {
                topic: wanted.sub_version for topic, wanted in found.subscriptions.items()
            } == group.versions
        for topic in ALL_TOPICS:
            assert set(self.consumers.groups_of_topic(topic)) == {
                name for name, group in self.model.items() if topic in group.versions
            }


class ProducersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.producers = Producers()
        self.model: dict[tuple[str, Channel], tuple[str, int]] = {}
        self.now_ms = 0

    @rule(name=GROUPS, channel=st.sampled_from(CHANNELS), client_id=IDS)
    def beat(self, name: str, channel: Channel, client_id: str) -> None:
        assert self.producers.register(name, channel, client(client_id), self.now_ms) == (
            (name, channel) not in self.model
        )
        self.model[name, channel] = (client_id, self.now_ms)

    @rule(name=GROUPS, channel=st.sampled_from(CHANNELS))
    def unregister(self, name: str, channel: Channel) -> None:
        assert self.producers.unregister(name, channel) == (
            self.model.pop((name, channel), None) is not None
        )

    @rule(channel=st.sampled_from(CHANNELS))
    def close(self, channel: Channel) -> None:
        assert sorted(self.producers.on_close(channel)) == sorted(
            group for group, member in self.model if member is channel
        )
        self.model = {key: value for key, value in self.model.items() if key[1] is not channel}

    @rule(passed_ms=PASSED_MS)
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule()
    def scan(self) -> None:
        silent = [
            key
            for key, (_, heard_ms) in self.model.items()
            if self.now_ms - heard_ms > SILENCE_MS_MAX
        ]
        assert set(self.producers.scan(self.now_ms)) == {channel for _, channel in silent}
        for key in silent:
            del self.model[key]

    @invariant()
    def the_members_are_those_of_the_model(self) -> None:
        assert {
            (group, member.channel): (member.info.client_id, member.heard_ms)
            for group, members in self.producers.groups().items()
            for member in members
        } == self.model
        assert set(self.producers) == {name for name, _ in self.model}

    @invariant()
    def a_client_is_found_on_one_of_its_connections(self) -> None:
        for client_id in ALL_IDS:
            its = {
                channel
                for (_, channel), (known_id, _) in self.model.items()
                if known_id == client_id
            }
            found = self.producers.channel_of_client(client_id)
            assert found in its if its else found is None


TestConsumers = ConsumersMachine.TestCase
TestConsumers.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestProducers = ProducersMachine.TestCase
TestProducers.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
