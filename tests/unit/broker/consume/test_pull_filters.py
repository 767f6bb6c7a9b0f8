"""Pulls by SQL92 expressions: what they bring, what they wait for, what is refused, and what bits
in ext files are good for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.clients.registry import ClientInfo
from orbitmq.broker.consume.filters import bit_maps, resolver
from orbitmq.broker.consume.filters.message_filters import ExpressionFilter
from orbitmq.broker.consume.pending_pulls import PendingPulls
from orbitmq.broker.consume.service import PullService
from orbitmq.broker.processors.pull import PullProcessor
from orbitmq.common.slices import finish
from orbitmq.message.record import decode_all
from orbitmq.message.record_read import RecordCursor
from orbitmq.protocol.bodies.clients import ConsumerData
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.bodies.subscriptions import MessageModel, SubscriptionData
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.consume_queue_ext import ExtUnit
from support.broker.socketless import BrokerRoom
from support.broker.two_paths import Totals
from support.remoting.channels import InlineSlices, sent

PULL = RequestCode.PULL_MESSAGE
SUSPEND, SUBSCRIPTION = 2, 4


class Room(BrokerRoom):
    def __init__(self, folder: Path, **store_settings: Any) -> None:
        super().__init__(folder, **store_settings)
        self.settings.enable_property_filter = True
        self.hold = PendingPulls()
        self.pull_service = PullService(
            settings=self.settings,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            consumers=self.consumers,
            reads=self.store.reads,
            pending=self.hold,
            clock=self.clock,
            listener=Totals(),
            filters=self.filters,
            record_of=self.store.reads.record_of,
            slices=InlineSlices(),
        )
        self.pulls = PullProcessor(self.pull_service, found=None)
        self.store.dispatcher.add_listener(self.pull_service.arrived)

    def subscribe(
        self, expression: str, version: int = 1, group: str = "g", topic: str = "T"
    ) -> None:
        """A member of a group that sends heartbeats with an expression."""
        subscriptions = (
            SubscriptionData(topic, expression, version, expression_type="SQL92"),
            SubscriptionData(f"%RETRY%{group}", "*", 1),
        )
        data = ConsumerData(
            group, message_model=MessageModel.CLUSTERING, subscriptions=subscriptions
        )
        self.consumers.register(
            self.peers.connect(),
            ClientInfo("c", LanguageCode.JAVA, 513),
            data,
            self.clock.monotonic_ms(),
        )
        finish(self.known_filters.heard(group, subscriptions))

    def pull(self, **changes: Any) -> list[bytes]:
        """The bodies that a pull of the group brings."""
        answer = self.ask(self.pulls, PULL, fields(**changes))
        return bodies(answer)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path)
    yield room
    room.close()


def fields(**changes: Any) -> dict[str, Any]:
    header: dict[str, Any] = {
        "consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 0, "commitOffset": 0,
        "suspendTimeoutMillis": 15_000, "subVersion": 1,
    }  # fmt: skip
    return {**header, **changes}


def own(expression: str, kind: str = "SQL92", **changes: Any) -> dict[str, Any]:
    """What a pull says that brings its expression."""
    return {"sysFlag": SUBSCRIPTION, "subscription": expression, "expressionType": kind, **changes}


def bodies(answer: RemotingCommand) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS, answer
    return [message.body for message in decode_all(answer.body or b"")]


def next_offset(answer: RemotingCommand) -> int:
    return int((answer.ext_fields or {})["nextBeginOffset"])


def test_a_pull_brings_what_its_own_expression_is_true_of(room: Room) -> None:
    for number in range(6):
        room.put(b"%d" % number, a=str(number), TAGS="red" if number % 2 else "blue")
    room.put(b"none")
    assert room.pull(**own("a > 1 AND TAGS = 'red'")) == [b"3", b"5"]
    assert room.pull(**own("a IS NULL")) == [b"none"]
    nothing = room.ask(room.pulls, PULL, fields(**own("a > 100")))
    assert (nothing.code, nothing.remark, next_offset(nothing)) == (
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        "NO_MATCHED_MESSAGE",
        7,
    )


def test_a_message_that_cannot_be_compared_is_passed_over(room: Room) -> None:
    for text in ("5", "five", "6.5", "7"):
        room.put(text.encode(), a=text)
    assert room.pull(**own("a >= 5")) == [b"5", b"7"]


def test_a_pull_brings_what_the_expression_of_its_group_is_true_of(room: Room) -> None:
    for number in range(4):
        room.put(b"%d" % number, a=str(number))
    room.subscribe("a >= 2", 5)
    assert room.pull(subVersion=5) == [b"2", b"3"]
    room.subscribe("a < 1", 6)
    assert room.pull(subVersion=5) == [b"0"]


@pytest.mark.parametrize(
    ("expression", "kind", "remark"),
    [
        (
            "a > > 1",
            "SQL92",
            (
                "the SQL92 expression 'a > > 1' cannot be used: at column 5: found `>`, expected a"
                " property"
            ),
        ),
        (
            "a > 1",
            "WRONG",
            "the WRONG expression 'a > 1' cannot be used: expression type WRONG is not supported",
        ),
    ],
)
def test_a_pull_with_an_expression_that_cannot_be_used_is_refused(
    room: Room, expression: str, kind: str, remark: str
) -> None:
    room.put(a="2")
    refused = room.refusal(room.pulls, PULL, fields(**own(expression, kind)))
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert refused.remark.startswith(
        f"parse the consumer's subscription failed: of topic T {remark}"
    )


def test_expressions_are_refused_where_they_are_not_enabled(room: Room) -> None:
    room.settings.enable_property_filter = False
    room.subscribe("a > 1")
    for changes in (own("a > 1"), own("a > > 1"), {}):
        refused = room.refusal(room.pulls, PULL, fields(**changes))
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert refused.remark.startswith(
            "The broker does not support consumer to filter message by SQL92: set"
            " enablePropertyFilter=true"
        )


def test_a_filter_that_is_not_known_or_not_the_latest_is_waited_for(room: Room) -> None:
    room.subscribe("a > > 1", 5)
    refused = room.refusal(room.pulls, PULL, fields())
    assert refused.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert "at column 5: found `>`" in refused.remark
    room.subscribe("a > 1", 6)
    known = room.known_filters.find("T", "g")
    assert known is not None
    room.known_filters._put(known._replace(data=known.data._replace(client_version=5)))
    refused = room.refusal(room.pulls, PULL, fields(subVersion=6))
    assert refused.code == ResponseCode.FILTER_DATA_NOT_LATEST
    assert "known is version 5 of g" in refused.remark


def test_a_pull_that_waits_is_answered_by_a_message_that_it_wants_and_by_no_other(
    room: Room,
) -> None:
    waits = fields(**own("a > 2"), queueOffset=0) | {"sysFlag": SUSPEND | SUBSCRIPTION}
    assert room.begin(room.pulls, PULL, waits) is None
    for text in ("1", "x", "2"):
        room.put(text.encode(), a=text)
    room.put(b"no property")
    assert (len(room.hold), sent(room.channel)) == (1, [])
    room.put(b"3", a="3")
    (answer,) = sent(room.channel)
    assert (bodies(answer), next_offset(answer), len(room.hold)) == ([b"3"], 5, 0)


def test_a_pull_that_nothing_came_for_is_told_after_a_while_where_to_go_on(room: Room) -> None:
    assert (
        room.begin(room.pulls, PULL, fields(**own("a > 2")) | {"sysFlag": SUSPEND | SUBSCRIPTION})
        is None
    )
    room.put(a="1")
    room.clock.advance_ms(5_000)
    room.pull_service.expire()
    (answer,) = sent(room.channel)
    assert (answer.code, next_offset(answer)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 1)


def test_messages_that_come_again_all_come_unless_they_are_to_be_filtered_once_more(
    room: Room,
) -> None:
    room.topics.update(TopicConfig("%RETRY%g", 1, 1))
    room.subscribe("a > 2")
    for text, topic in (("1", "T"), ("3", "T"), ("0", "U")):
        room.put(text.encode(), topic="%RETRY%g", a=text, RETRY_TOPIC=topic)
    room.put(b"without", topic="%RETRY%g", a="0")
    assert room.pull(topic="%RETRY%g") == [b"1", b"3", b"0", b"without"]
    room.settings.filter_support_retry = True
    assert room.pull(topic="%RETRY%g") == [b"3", b"0", b"without"]


# -- bits


def units(room: Room) -> list[ExtUnit | None]:
    queue = room.store.queues.plain.find("T", 0)
    assert isinstance(queue, ConsumeQueue)
    entries = (queue.get(offset) for offset in range(queue.max_offset))  # type: ignore[arg-type]
    return [queue.ext_unit(entry.tags_code) for entry in entries if entry is not None]


@pytest.fixture
def ext_room(tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path, queue_ext_file_size=4096)
    room.settings.enable_calc_filter_bit_map = True
    yield room
    room.close()


def test_dispatch_keeps_which_filters_a_message_passed(ext_room: Room) -> None:
    bloom = ext_room.known_filters.bloom
    ext_room.put(a="1")
    ext_room.subscribe("a > 1", group="high")
    ext_room.subscribe("a < 3", group="low")
    for value in ("1", "2", "3", "x"):
        ext_room.put(a=value)
    ext_room.settings.enable_calc_filter_bit_map = False
    ext_room.put(a="1")
    high, low = bloom.positions("high#T"), bloom.positions("low#T")
    found = [None if unit is None else unit.bits for unit in units(ext_room)]
    assert found == [
        b"",
        bloom.map_of(low),
        bloom.map_of([*high, *low]),
        bloom.map_of(high),
        bloom.map_of([]),
        b"",
    ]


def test_where_filters_are_too_many_for_one_message_the_bits_of_the_rest_are_set(
    ext_room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bit_maps, "FILTER_WORK_MAX", 1_000)
    bloom = ext_room.known_filters.bloom
    for number in range(5):
        ext_room.subscribe("a > 1", group=f"g{number}")
    ext_room.put(b"unwanted", a="1")
    (unit,) = units(ext_room)
    assert unit is not None
    assert not set(bloom.positions("g0#T")) <= {
        place for place in range(bloom.bit_count) if unit.bits[place // 8] >> place % 8 & 1
    }
    assert all(unit.bits[place // 8] >> place % 8 & 1 for place in bloom.positions("g4#T"))


def test_bits_let_pulls_pass_over_messages_without_reading_them(
    ext_room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def is_read(record: RecordCursor) -> bool:
        read.append(record.size)
        return True

    def noting(*arguments: Any) -> ExpressionFilter:
        made = ExpressionFilter(*arguments)
        made.matches_record = is_read
        return made

    monkeypatch.setattr(resolver, "ExpressionFilter", noting)
    ext_room.put(b"before", a="1")
    ext_room.subscribe("a > 1")
    for value in ("1", "2", "1", "3"):
        ext_room.put(value.encode(), a=value)
    assert ext_room.pull() == [b"before", b"2", b"3"]
    assert len(read) == 3


def test_bits_count_from_the_birth_of_the_filter_on_and_only_in_maps_of_its_size(
    ext_room: Room,
) -> None:
    ext_room.subscribe("a > 1")
    known = ext_room.known_filters.find("T", "g")
    assert known is not None
    chosen = ExpressionFilter(known.expression, known.data)
    bloom, born_ms = ext_room.known_filters.bloom, known.data.born_time_ms
    hit, miss = bloom.map_of(bloom.positions("g#T")), bloom.map_of([])
    assert chosen.matches_entry(0, ExtUnit(0, born_ms + 1, hit))
    assert not chosen.matches_entry(0, ExtUnit(0, born_ms + 1, miss))
    assert chosen.matches_entry(0, ExtUnit(0, born_ms, miss))
    assert chosen.matches_entry(0, ExtUnit(0, born_ms + 1, miss + b"\0"))
    assert chosen.matches_entry(0, ExtUnit(0, born_ms + 1, b""))
    assert chosen.matches_entry(0, None)
    assert ExpressionFilter(known.expression).matches_entry(0, ExtUnit(0, born_ms + 1, miss))
