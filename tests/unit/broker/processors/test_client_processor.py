"""Requests of and about clients, with the groups and topics of a broker, and peers whose bytes are
looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from orbitmq.broker.clients.consumers import Consumers
from orbitmq.broker.clients.producers import Producers
from orbitmq.broker.clients.queue_locks import LOCK_MS_MAX, QueueLocks
from orbitmq.broker.clients.registry import SILENCE_MS_MAX
from orbitmq.broker.consume.membership import ClientRules, MembershipService
from orbitmq.broker.consume.pending_pulls import PendingPull, PendingPulls
from orbitmq.broker.metadata.bloom import Bloom
from orbitmq.broker.metadata.consumer_filters import ConsumerFilters
from orbitmq.broker.metadata.groups import GroupRules, Groups
from orbitmq.broker.metadata.persistent_file import ConfigFile
from orbitmq.broker.metadata.topics import TopicRules, Topics
from orbitmq.broker.processors.client_lists import ClientListProcessor
from orbitmq.broker.processors.clients import ClientProcessor, notify_member
from orbitmq.common.errors import RequestRefusedError
from orbitmq.message.message_id import offset_id
from orbitmq.protocol import fastjson, frame
from orbitmq.protocol.bodies import clients as bodies
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import TOPIC_UNIT_SUB, TopicConfig
from orbitmq.protocol.bodies.subscriptions import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.types import QueueKey, QueueOffset
from orbitmq.testing.manual_clock import ManualClock
from support.broker.listeners import Unheard
from support.broker.manual_worker import InlineWorker, ManualLoop
from support.broker.socketless import refusals
from support.common import golden_data
from support.remoting.channels import (
    InlineSlices,
    Link,
    NoAccess,
    Peers,
    answered_now,
    client,
    sent,
)

RECORD, RECORD_OFFSET = b"the stored bytes", 4096
RECORD_ID = offset_id(b"\x7f\x00\x00\x01\x00\x00\x2a\x9f", RECORD_OFFSET)


class Room:
    """A broker's clients, and what they live on."""

    def __init__(self, folder: Path, *, auto_create_groups: bool = True, **rules: Any) -> None:
        self.clock = ManualClock()
        self.peers = Peers(self.clock)
        self.producers, self.consumers, self.locks, self.hold = (
            Producers(),
            Consumers(),
            QueueLocks(),
            PendingPulls(),
        )
        loop, worker = ManualLoop(), InlineWorker()
        self.groups = Groups(
            GroupRules(auto_create=auto_create_groups),
            ConfigFile(folder / "groups", worker, loop),
            self.clock,
        )
        self.topics = Topics(
            TopicRules(broker_name="broker-a"),
            ConfigFile(folder / "topics", worker, loop),
            self.clock,
            lambda _: None,
        )
        self.filters = ConsumerFilters(
            Bloom.of(20, 32), ConfigFile(folder / "filters", worker, loop), self.clock, 86_400_000
        )
        for table in (self.groups, self.topics, self.filters):
            table.load()
        self.service = MembershipService(
            ClientRules(**rules),
            producers=self.producers,
            consumers=self.consumers,
            locks=self.locks,
            pending=self.hold,
            groups=self.groups,
            topics=self.topics,
            filters=self.filters,
            clock=self.clock,
            listener=Unheard(),
            slices=InlineSlices(),
            notify=notify_member,
        )
        self.processor = ClientProcessor(self.service, NoAccess())
        self.lists = ClientListProcessor(
            "broker-a",
            producers=self.producers,
            consumers=self.consumers,
            groups=self.groups,
            topics=self.topics,
            record_at=lambda offset: RECORD if offset == RECORD_OFFSET else None,
            clock=self.clock,
            conflicts=self.service.conflicts,
        )

    def handler(self, code: int) -> Handler:
        return {**self.processor.handlers(), **self.lists.handlers()}[code]

    def ask(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """What the handler of a request that is answered at once says."""
        answer = answered_now(self.handler(request.code), channel, request)
        assert answer is not None
        return answer

    def beat(
        self,
        channel: Channel,
        *consumers: bodies.ConsumerData,
        producers: tuple[str, ...] = (),
        **members: Any,
    ) -> bool:
        """A heartbeat; whether the answer wants a full one next."""
        client_id = members.pop("client_id", f"at {channel.remote_address}")
        heartbeat = bodies.HeartbeatData(client_id, producers, consumers, **members)
        request = RemotingCommand(
            RequestCode.HEART_BEAT, body=heartbeat.encode(), language=LanguageCode.JAVA
        )
        answer = self.ask(channel, request)
        assert (answer.code, answer.remark, answer.body) == (ResponseCode.SUCCESS, None, None)
        assert answer.ext_fields is not None
        assert answer.ext_fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
        return answer.ext_fields["IS_SUB_CHANGE"] == "true"

    def refusal(self, channel: Channel, request: RemotingCommand) -> RequestRefusedError:
        with refusals() as refused:
            self.ask(channel, request)
        return refused[0]


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def consumer(group: str = "g", *topics: str, **members: Any) -> bodies.ConsumerData:
    subscriptions = tuple(SubscriptionData(topic, "*", 1) for topic in topics or ("T",))
    members = {
        "message_model": MessageModel.CLUSTERING,
        "consume_type": ConsumeType.CONSUME_PASSIVELY,
    } | members
    return bodies.ConsumerData(
        group,
        subscriptions=subscriptions,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        **members,
    )


def held_by(channel: Channel) -> PendingPull:
    return PendingPull(
        connection=channel,
        request=None,
        size=100,
        offset=QueueOffset(0),
        suspend_ms=15_000,
        wanted=None,
        resume=lambda _pull: None,
    )


def notified(channel: Channel) -> list[str]:
    """The groups that a peer was told to rebalance."""
    groups = []
    for command in sent(channel):
        assert (command.code, command.is_oneway, command.body) == (
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            True,
            None,
        )
        assert command.ext_fields is not None
        groups.append(command.ext_fields["consumerGroup"])
    return groups


# --- heartbeats


def test_a_heartbeat_makes_its_client_a_member_of_all_its_groups_and_tells_them(room: Room) -> None:
    a, b = room.peers.connect(), room.peers.connect()
    room.beat(a, consumer("g"), consumer("h"), producers=("p",))
    assert notified(a) == ["g", "h"]
    room.beat(b, consumer("g"))
    assert (notified(a), notified(b)) == (["g"], ["g"])
    room.beat(b, consumer("g"))
    assert (notified(a), notified(b)) == ([], [])
    assert list(room.producers) == ["p"]


def test_an_ordinary_heartbeat_is_one_slice(room: Room) -> None:
    heartbeat = bodies.HeartbeatData("c", ("p", "q"), (consumer("g", "T", "U"), consumer("h")))
    request = RemotingCommand(RequestCode.HEART_BEAT, body=heartbeat.encode())
    assert list(room.processor.heartbeat(room.peers.connect(), request)) == []


def test_a_heartbeat_makes_the_group_and_its_retry_topic(room: Room) -> None:
    room.beat(room.peers.connect(), consumer("g"), consumer("unit", unit_mode=True))
    assert room.topics.find("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1, 6)
    assert room.topics.find("%RETRY%unit") == TopicConfig(
        "%RETRY%unit", 1, 1, 6, sys_flag=TOPIC_UNIT_SUB
    )
    assert "g" in room.groups


def test_the_retry_topic_is_as_the_group_wants_it_and_ordered_when_one_of_its_topics_is(
    room: Room,
) -> None:
    room.groups.update(GroupConfig("g", retry_queue_nums=3))
    room.topics.update(TopicConfig("Ordered", order=True))
    room.beat(room.peers.connect(), consumer("g", "T", "Ordered"), fingerprint=5)
    ordered = TopicConfig("%RETRY%g", 3, 3, 6, order=True)
    assert room.topics.find("%RETRY%g") == ordered
    room.beat(
        room.peers.connect(),
        replace(consumer("g"), subscriptions=()),
        fingerprint=5,
        without_sub=True,
    )
    assert room.topics.find("%RETRY%g") == ordered


def test_a_group_that_may_not_be_created_is_passed_over(tmp_path: Path) -> None:
    room = Room(tmp_path, auto_create_groups=False)
    channel = room.peers.connect()
    room.beat(channel, consumer("g"), producers=("p",))
    assert room.consumers.find("g") is None
    assert room.topics.find("%RETRY%g") is None
    assert (list(room.producers), sent(channel)) == (["p"], [])


def test_pull_consumers_are_passed_over_when_the_broker_rejects_them(tmp_path: Path) -> None:
    room = Room(tmp_path, reject_pull_consumers=True)
    room.beat(
        room.peers.connect(),
        consumer("pull", consume_type=ConsumeType.CONSUME_ACTIVELY),
        consumer("push"),
    )
    assert [group.name for group in room.consumers] == ["push"]


def test_nobody_is_told_when_group_or_broker_want_no_notices(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    by_group, by_broker = (
        Room(tmp_path / "a"),
        Room(tmp_path / "b", notify_consumer_ids_changed=False),
    )
    by_group.groups.update(GroupConfig("g", notify_consumer_ids_changed_enable=False))
    for room in (by_group, by_broker):
        channel = room.peers.connect()
        room.beat(channel, consumer("g"))
        assert notified(channel) == []


def test_a_member_that_takes_nothing_more_does_not_keep_the_others_from_being_told(
    room: Room,
) -> None:
    stuck, ready = room.peers.connect(), room.peers.connect()
    room.beat(stuck, consumer("g"))
    notified(stuck)
    assert isinstance(stuck.link, Link)
    stuck.link.reading = False
    room.beat(ready, consumer("g"))
    assert (notified(stuck), notified(ready)) == ([], ["g"])


def test_the_second_form_wants_a_full_heartbeat_when_the_fingerprint_of_a_group_changed(
    room: Room,
) -> None:
    channel = room.peers.connect()
    assert not room.beat(channel, consumer("g"), fingerprint=77)
    assert not room.beat(channel, consumer("g"), fingerprint=77, without_sub=True)
    assert room.beat(channel, consumer("g"), fingerprint=78)
    assert not room.beat(channel, consumer("g"), fingerprint=78)
    assert room.beat(channel, consumer("g"), fingerprint=0)
    assert room.beat(channel, consumer("g"), fingerprint=78)
    assert room.beat(channel, consumer("new"), consumer("g"), fingerprint=79)


def test_subscriptions_that_were_left_out_are_those_that_are_known(room: Room) -> None:
    channel = room.peers.connect()
    room.beat(channel, consumer("g", "T", "U"), fingerprint=77)
    room.beat(channel, replace(consumer("g"), subscriptions=()), fingerprint=77, without_sub=True)
    group = room.consumers.find("g")
    assert group is not None
    assert list(group.subscriptions) == ["T", "U"]


def test_a_broker_that_was_started_anew_asks_for_the_subscriptions_that_a_client_left_out(
    room: Room,
) -> None:
    channel, short = room.peers.connect(), replace(consumer("g"), subscriptions=())
    assert room.beat(channel, short, fingerprint=77, without_sub=True)
    assert not room.beat(channel, consumer("g"), fingerprint=77)
    assert not room.beat(channel, short, fingerprint=77, without_sub=True)


def test_only_the_second_form_may_leave_subscriptions_out(room: Room) -> None:
    channel = room.peers.connect()
    room.beat(channel, consumer("g", "T"))
    room.beat(channel, consumer("g", "U"), fingerprint=0, without_sub=True)
    assert room.consumers.groups_of_topic("U") == ["g"]


def test_golden_heartbeats_are_answered_as_the_real_broker_did(room: Room) -> None:
    captured = golden_data.files("frames")
    for number in range(1, 25):
        request, response = (
            frame.decode_one(captured[f"frames-5.5.0/000034-HEART_BEAT-client-{number}.{kind}.bin"])
            for kind in ("req", "resp-code0")
        )
        assert room.ask(room.peers.connect(), request).ext_fields == response.ext_fields, number


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"{nope",
        b"{}",
        b'{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{}]}',
    ],
)
def test_a_heartbeat_that_cannot_be_read_is_refused_and_changes_nothing(
    room: Room, body: bytes | None
) -> None:
    refused = room.refusal(room.peers.connect(), RemotingCommand(RequestCode.HEART_BEAT, body=body))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "request 34" in refused.remark
    assert (len(room.producers), len(room.consumers)) == (0, 0)


# --- leaving


def test_a_client_that_unregisters_leaves_the_groups_it_names_and_the_others_hear_of_it(
    room: Room,
) -> None:
    a, b = room.peers.connect(), room.peers.connect()
    for channel in (a, b):
        room.beat(channel, consumer("g"), producers=("p", "q"))
    sent(a), sent(b)
    fields = {"clientID": "x", "producerGroup": "p", "consumerGroup": "g"}
    answer = room.ask(a, RemotingCommand(RequestCode.UNREGISTER_CLIENT, ext_fields=fields))
    assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, {})
    assert (notified(a), notified(b)) == ([], ["g"])
    assert (list(room.producers.members("p")), list(room.producers.members("q"))) == ([b], [a, b])


def test_a_disconnect_ends_everything_of_a_client_but_its_queue_locks(room: Room) -> None:
    a, b = room.peers.connect(), room.peers.connect()
    for channel in (a, b):
        room.beat(channel, consumer("g"), producers=("p",))
        room.hold.hold(QueueKey("T", 0), held_by(channel), 0)
    queue = bodies.MessageQueue("T", "broker-a", 0)
    room.locks.lock("g", [queue], f"at {a.remote_address}", 0)
    sent(b)
    room.service.on_close(a)
    assert notified(b) == ["g"]
    assert list(room.producers.members("p")) == [b]
    group = room.consumers.find("g")
    assert group is not None
    assert list(group.members) == [b]
    assert [
        pull.connection for pull in room.hold.on_arrival(QueueKey("T", 0), QueueOffset(1), 0)
    ] == [b]
    assert room.locks.holder("g", queue, 0) == f"at {a.remote_address}"


def test_a_silent_client_is_disconnected_and_the_others_hear_of_it(room: Room) -> None:
    silent, lively = room.peers.connect(), room.peers.connect()
    room.beat(silent, consumer("g"), producers=("p",))
    room.locks.lock("g", [bodies.MessageQueue("T", "broker-a", 0)], "x", 0)
    room.clock.advance_ms(1)
    room.beat(lively, consumer("g"))
    sent(lively)
    room.clock.advance_ms(SILENCE_MS_MAX - 1)
    room.service.scan()
    assert [channel.close_reason for channel in (silent, lively)] == [None, None]
    room.clock.advance_ms(1)
    room.service.scan()
    assert [channel.close_reason is None for channel in (silent, lively)] == [False, True]
    assert notified(lively) == ["g"]
    assert (len(room.producers), len(room.locks)) == (0, 0)


# --- who is connected


def test_the_lists_of_clients_are_those_of_a_real_broker(room: Room) -> None:
    channel = room.peers.connect()
    heartbeat = (
        b'{"clientID":"c1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY",'
        b'"groupName":"g1","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[2598919,65,66,-5,2598920],'
        b'"expressionType":"TAG","subString":"TagA||TagB","subVersion":1,"tagsSet":["TagA","a","y","z","TagB"],"topic":"Tags"}],'
        b'"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"p1"}],"withoutSub":false}'
    )
    room.ask(
        channel, RemotingCommand(RequestCode.HEART_BEAT, body=heartbeat, language=LanguageCode.JAVA)
    )
    heard_ms = room.clock.now_ms()
    room.clock.advance_ms(1234)

    def body(code: RequestCode, **fields: str) -> bytes | None:
        answer = room.ask(channel, RemotingCommand(code, ext_fields=fields))
        assert answer.code == ResponseCode.SUCCESS
        return answer.body

    address = channel.remote_address.encode()
    connection = (
        b'{"clientAddr":"' + address + b'","clientId":"c1","language":"JAVA","version":513}'
    )
    assert (
        body(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g1")
        == b'{"consumerIdList":["c1"]}'
    )
    assert (
        body(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="p1")
        == b'{"connectionSet":[' + connection + b"]}"
    )
    assert body(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g1") == (
        b'{"connectionSet":['
        + connection
        + b'],"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY",'
        b'"messageModel":"CLUSTERING","subscriptionTable":{"Tags":{"classFilterMode":false,"codeSet":[2598919,65,66,-5,2598920],'
        b'"expressionType":"TAG","subString":"TagA||TagB","subVersion":1,"tagsSet":["TagA","a","y","z","TagB"],"topic":"Tags"}}}'
    )
    assert (
        body(RequestCode.GET_ALL_PRODUCER_INFO)
        == b'{"data":{"p1":[{"clientId":"c1","language":"JAVA","lastUpdateTimestamp":%d,"remoteIP":"/%s","version":513}]}}'
        % (
            heard_ms,
            address,
        )
    )


@pytest.mark.parametrize(
    ("code", "fields", "refusal"),
    [
        (
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            {"consumerGroup": "g"},
            (206, "the consumer group[g] not online: start a consumer of it, or check the name"),
        ),
        (
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            {"producerGroup": "p"},
            (1, "the producer group[p] not exist: no producer of it is online"),
        ),
    ],
)
def test_a_group_that_is_not_online_is_refused_as_by_a_real_broker(
    room: Room, code: RequestCode, fields: dict[str, str], refusal: tuple[int, str]
) -> None:
    refused = room.refusal(room.peers.connect(), RemotingCommand(code, ext_fields=fields))
    assert (refused.code, refused.remark) == refusal


def test_a_group_without_consumers_has_no_list_of_them(room: Room) -> None:
    answer = room.ask(
        room.peers.connect(),
        RemotingCommand(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext_fields={"consumerGroup": "g"}),
    )
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "no consumer for this group, g: none is online",
    )
    assert (answer.ext_fields, answer.body) == ({}, None)


# --- locks and expressions


def test_queues_are_locked_for_one_client_until_it_unlocks_them_or_its_time_is_over(
    room: Room,
) -> None:
    channel = room.peers.connect()
    room.topics.update(TopicConfig("T"))
    queues = tuple(bodies.MessageQueue("T", "broker-a", queue_id) for queue_id in range(2))

    def lock(client_id: str) -> tuple[bodies.MessageQueue, ...]:
        request = RemotingCommand(
            RequestCode.LOCK_BATCH_MQ, body=bodies.LockBatchBody("g", client_id, queues).encode()
        )
        answer = room.ask(channel, request)
        assert answer.body is not None
        return tuple(bodies.decode_locked_queues(answer.body))

    assert (lock("a"), lock("b")) == (queues, ())
    unlock = bodies.LockBatchBody("g", "a", queues[:1]).encode()
    assert (
        room.ask(channel, RemotingCommand(RequestCode.UNLOCK_BATCH_MQ, body=unlock)).code
        == ResponseCode.SUCCESS
    )
    assert lock("b") == queues[:1]
    room.clock.advance_ms(LOCK_MS_MAX + 1)
    assert lock("b") == queues
    assert "request 41" in room.refusal(channel, RemotingCommand(RequestCode.LOCK_BATCH_MQ)).remark


def check(kind: str | None, expression: str | None) -> RemotingCommand:
    subscription = SubscriptionData("T", expression, expression_type=kind).to_json()
    return RemotingCommand(
        RequestCode.CHECK_CLIENT_CONFIG,
        body=fastjson.dumps({"clientId": "c", "subscriptionData": subscription}),
    )


def test_an_expression_is_checked_before_it_is_used(tmp_path: Path) -> None:
    room = Room(tmp_path, enable_property_filter=True)
    channel = room.peers.connect()
    for request in (
        check("TAG", "||"),
        check("", "||"),
        check("SQL92", "a > 1"),
        RemotingCommand(RequestCode.CHECK_CLIENT_CONFIG),
    ):
        answer = room.ask(channel, request)
        assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, None)
    refused = room.refusal(channel, check("SQL92", "a > and"))
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert refused.remark.startswith(
        "the SQL92 expression 'a > and' cannot be used: at column 5: found `AND`, expected a"
        " property,"
    )


@pytest.mark.parametrize(
    ("expression", "limit"),
    [
        ("-" * 20_000 + "1 < a", "NESTING_MAX=100"),
        ("a = 1 OR " * 10_000 + "a = 1", "CHARS_MAX=65536"),
        ("a IN ('" + "','".join(["x"] * 5_000) + "')", "WORDS_MAX=4096"),
        ("-(" * 30 + "a" + " BETWEEN 1 AND 2)" * 30 + " = 1", "COST_MAX=8192"),
    ],
)
def test_an_expression_that_would_hold_the_broker_is_refused_by_a_limit_that_is_named(
    tmp_path: Path, expression: str, limit: str
) -> None:
    room = Room(tmp_path, enable_property_filter=True)
    refused = room.refusal(room.peers.connect(), check("SQL92", expression))
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert limit in refused.remark
    assert len(refused.remark) < 1_500, "it is not repeated"


def test_expressions_over_properties_are_refused_when_the_broker_does_not_filter_by_them(
    room: Room,
) -> None:
    refused = room.refusal(room.peers.connect(), check("SQL92", "a > 1"))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "enablePropertyFilter" in refused.remark


# --- questions to a client


def call(
    room: Room, code: RequestCode, fields: dict[str, str], then: Callable[[], None]
) -> RemotingCommand | RequestRefusedError:
    """Ask through a handler that waits for a client; `then` is done while it does."""

    async def scenario() -> RemotingCommand | RequestRefusedError:
        handler = cast(
            "Callable[[Channel, RemotingCommand], Awaitable[RemotingCommand]]", room.handler(code)
        )
        asked = asyncio.ensure_future(
            handler(room.peers.connect(), RemotingCommand(code, ext_fields=fields))
        )
        await asyncio.sleep(0)
        then()
        try:
            return await asked
        except RequestRefusedError as refused:
            return refused

    return asyncio.run(scenario())


def test_a_consumer_is_asked_of_itself_without_the_signature_of_who_asks_and_its_answer_passed_on_as_it_is(
    room: Room,
) -> None:
    channel = room.peers.connect()
    room.beat(channel, consumer("g"), client_id="c")
    sent(channel)
    fields = {"consumerGroup": "g", "clientId": "c", "jstackEnable": "true"}
    signature = {"AccessKey": "operator", "Signature": "of these values", "SecurityToken": "token"}
    body = b'{"mqTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"commitOffset":5}}}'

    def then() -> None:
        (question,) = sent(channel)
        assert (question.code, question.ext_fields, question.is_oneway) == (
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            fields,
            False,
        )
        room.peers.answer(
            channel, question.reply(ResponseCode.SUCCESS, "not set any response code", body=body)
        )

    answer = call(room, RequestCode.GET_CONSUMER_RUNNING_INFO, {**fields, **signature}, then)
    assert isinstance(answer, RemotingCommand)
    assert (answer.code, answer.remark, answer.body) == (
        ResponseCode.SUCCESS,
        "not set any response code",
        body,
    )


def test_a_message_is_given_to_a_consumer_with_what_the_broker_knows_of_it(room: Room) -> None:
    channel = room.peers.connect()
    room.topics.update(TopicConfig("T", sys_flag=2))
    room.beat(channel, consumer("g"), client_id="c")
    sent(channel)
    fields = {"consumerGroup": "g", "clientId": "c", "msgId": RECORD_ID, "topic": "T", "ReqT": "0"}

    def then() -> None:
        (question,) = sent(channel)
        assert question.ext_fields == {
            **fields,
            "brokerName": "broker-a",
            "topicSysFlag": "2",
            "groupSysFlag": "0",
        }
        assert question.body == RECORD
        room.peers.answer(
            channel, question.reply(ResponseCode.SUCCESS, body=b'{"consumeResult":"CR_SUCCESS"}')
        )

    answer = call(
        room,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        {**fields, "AccessKey": "operator", "Signature": "s"},
        then,
    )
    assert isinstance(answer, RemotingCommand)
    assert answer.body == b'{"consumeResult":"CR_SUCCESS"}'


@pytest.mark.parametrize(
    ("message_id", "why"),
    [("xx", "offset id"), (None, "offset id"), (offset_id(bytes(8), 77), "nothing was consumed")],
)
def test_a_message_that_is_not_there_is_given_to_nobody(
    room: Room, message_id: str | None, why: str
) -> None:
    channel = room.peers.connect()
    room.beat(channel, consumer("g"), client_id="c")
    sent(channel)
    fields = {"consumerGroup": "g", "clientId": "c"} | (
        {} if message_id is None else {"msgId": message_id}
    )
    refused = call(room, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, lambda: None)
    assert isinstance(refused, RequestRefusedError)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert why in refused.remark
    assert sent(channel) == []


def running_info(
    room: Room, then: Callable[[], None] = lambda: None, client_id: str = "c"
) -> RequestRefusedError:
    refused = call(
        room,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        {"consumerGroup": "g", "clientId": client_id},
        then,
    )
    assert isinstance(refused, RequestRefusedError)
    return refused


def test_a_question_to_one_who_is_not_online_is_refused_with_those_who_are(room: Room) -> None:
    refused = running_info(room)
    assert (refused.code, refused.remark) == (
        1,
        "The Consumer <g> <c> not online; no member of the group is online",
    )
    room.beat(room.peers.connect(), consumer("g"), client_id="other")
    assert running_info(room).remark == "The Consumer <g> <c> not online; members online: other"


def test_a_question_to_a_client_that_does_not_know_it_is_refused(room: Room) -> None:
    room.consumers.register(room.peers.connect(), client("c", version=61), consumer("g"), 0)
    refused = running_info(room)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "V3_1_7" in refused.remark


def test_a_question_that_is_not_answered_in_time_says_which_client_and_what_to_do(
    room: Room,
) -> None:
    channel = room.peers.connect()
    room.beat(channel, consumer("g"), client_id="c")

    def time_passes() -> None:
        room.clock.advance_ms(11_000)
        room.peers.endpoint.sweep()

    refused = running_info(room, time_passes)
    assert refused.code == ResponseCode.CONSUME_MSG_TIMEOUT
    for said in ("<g> <c> Timeout", "10000 ms", channel.remote_address, "look at its log"):
        assert said in refused.remark


def test_a_question_to_a_client_that_disconnects_is_refused(room: Room) -> None:
    channel = room.peers.connect()
    room.beat(channel, consumer("g"), client_id="c")
    refused = running_info(room, lambda: room.peers.endpoint.closed(channel, None))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "invoke consumer <g> <c>" in refused.remark


def test_an_ordinary_heartbeat_is_done_in_its_first_slice(room: Room) -> None:
    data = bodies.HeartbeatData("c", ("p1", "p2"), (consumer("g"), consumer("h")))
    work = room.processor.heartbeat(
        room.peers.connect(), RemotingCommand(RequestCode.HEART_BEAT, body=data.encode())
    )
    with pytest.raises(StopIteration):
        next(work)
    assert (len(room.consumers), len(room.producers)) == (2, 2)
