"""Topics: which a broker has from the start, how others come to be and change, and the file that
follows them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.metadata.attributes import TOPIC_ATTRIBUTES, parse_changes
from orbitmq.broker.metadata.persistent_file import ConfigFile
from orbitmq.broker.metadata.topic_names import check_group, check_topic
from orbitmq.broker.metadata.topics import TopicRules, Topics
from orbitmq.common.errors import CorruptFileError, RefusedError
from orbitmq.common.slices import finish
from orbitmq.common.topic_names import FORBIDDEN_TO_SEND
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig
from orbitmq.protocol.bodies.topics import (
    decode_topic_file,
    decode_topic_list,
    encode_all_topics,
    encode_topic_file,
)
from orbitmq.protocol.codes import REFUSAL_CODES, ResponseCode
from orbitmq.testing.manual_clock import ManualClock
from support.broker.manual_worker import InlineWorker, ManualLoop
from support.store import golden_stores

NOW_MS = 1_800_000_000_000


class Room:
    """Topics of broker-a in DefaultCluster, in a folder that outlives them."""

    def __init__(self, folder: Path, **rules: Any) -> None:
        self.path = folder / "topics.json"
        self.loop = ManualLoop()
        self.clock = ManualClock(NOW_MS)
        self.registered: list[list[str]] = []
        self.state_version = 0
        self.topics = Topics(
            TopicRules(broker_name="broker-a", **rules),
            ConfigFile(self.path, InlineWorker(), self.loop),
            self.clock,
            lambda names: self.registered.append(list(names)),
            state_version=lambda: self.state_version,
        )
        self.topics.load()


RoomMaker = Callable[..., Room]


@pytest.fixture
def rooms(tmp_path: Path) -> RoomMaker:
    return lambda **rules: Room(tmp_path, **rules)


@pytest.fixture
def room(rooms: RoomMaker) -> Room:
    return rooms()


def sent(
    topics: Topics,
    topic: str,
    default_topic: str = "TBW102",
    queues: int = 4,
    *,
    unit_mode: bool = False,
) -> TopicConfig | None:
    return topics.for_send(topic, default_topic, queues, unit_mode=unit_mode)


# --- from the start

# What a 5.5.0 broker named broker-a answered to GET_ALL_TOPIC_CONFIG and
# GET_SYSTEM_TOPIC_LIST_FROM_BROKER on an empty store.
OF_A_NEW_BROKER = {
    "SCHEDULE_TOPIC_XXXX": (18, 6),
    "SELF_TEST_TOPIC": (1, 6),
    "rmq_sys_wheel_timer": (1, 6),
    "DefaultCluster": (16, 7),
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": (1, 6),
    "DefaultCluster_REPLY_TOPIC": (1, 6),
    "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
    "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
    "broker-a": (1, 7),
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": (1, 6),
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
    "TBW102": (8, 7),
    "BenchmarkTest": (1024, 6),
    "OFFSET_MOVED_EVENT": (1, 6),
}
NAMED_ONLY = {"TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC"}


def test_a_new_broker_has_the_topics_that_the_original_has(room: Room) -> None:
    topics = room.topics
    assert {topic.name: (topic.read_queue_nums, topic.perm) for topic in topics} == OF_A_NEW_BROKER
    assert all(topic.read_queue_nums == topic.write_queue_nums for topic in topics)
    assert topics.system_topics == set(OF_A_NEW_BROKER) | NAMED_ONLY
    assert topics.data_version == DataVersion(0, NOW_MS, 0)
    assert not room.path.exists(), "the file is written with the first change"


def test_switches_take_topics_and_permissions_away(rooms: RoomMaker) -> None:
    topics = rooms(
        auto_create=False,
        cluster_topic_enable=False,
        broker_topic_enable=False,
        timer_wheel_enable=False,
        trace_topic_enable=True,
    ).topics
    assert topics.find("TBW102") is None
    assert topics.find("rmq_sys_wheel_timer") is None
    assert topics.find("RMQ_SYS_TRACE_TOPIC") == TopicConfig("RMQ_SYS_TRACE_TOPIC", 1, 1)
    assert {topic.name for topic in topics if topic.perm == 1} == {
        "DefaultCluster",
        "broker-a",
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a",
    }
    assert topics.is_system("TBW102")
    assert topics.is_system("rmq_sys_anything")
    assert not topics.is_system("orders")


# --- for sending


def test_an_unknown_topic_is_created_after_the_default_topic_saved_and_registered(
    room: Room,
) -> None:
    room.clock.advance_ms(5)
    created = sent(room.topics, "T")
    assert created == TopicConfig("T", 4, 4, 6)
    assert room.topics.find("T") is created is sent(room.topics, "T", queues=7)
    assert room.registered == [["T"]]
    assert room.topics.data_version == DataVersion(1, NOW_MS + 5, 0)
    room.loop.run()
    assert decode_topic_file(room.path.read_bytes())[0]["T"] == created


@pytest.mark.parametrize(
    ("default_topic", "queues", "expected"),
    [
        ("TBW102", 99, TopicConfig("T", 8, 8, 6)),
        ("TBW102", -3, TopicConfig("T", 0, 0, 6)),
        ("DefaultCluster", 99, TopicConfig("T", 16, 16, 6)),
        ("broker-a", 4, TopicConfig("T", 1, 1, 6)),
        ("rmq_sys_SYNC_BROKER_MEMBER_broker-a", 4, TopicConfig("T", 1, 1, 0)),
        ("BenchmarkTest", 4, None),
        ("unknown", 4, None),
    ],
)
def test_it_gets_at_most_the_queues_of_the_default_topic_and_its_permission(
    room: Room, default_topic: str, queues: int, expected: TopicConfig | None
) -> None:
    assert sent(room.topics, "T", default_topic, queues) == expected
    assert room.topics.find("T") == expected


def test_without_auto_create_only_a_retry_topic_is_created(rooms: RoomMaker) -> None:
    sent(rooms().topics, "x")
    room = rooms(auto_create=False)
    assert sent(room.topics, "T") is None
    assert sent(room.topics, "%RETRY%g") == TopicConfig("%RETRY%g", 1, 1, 6)


def test_auto_create_that_was_on_in_an_earlier_run_leaves_nothing_to_inherit(
    rooms: RoomMaker,
) -> None:
    before = rooms()
    sent(before.topics, "x")
    before.loop.run()
    topics = rooms(auto_create=False).topics
    assert topics.find("TBW102") == TopicConfig("TBW102", 8, 8, 7)
    assert sent(topics, "T") is None
    assert topics.find("TBW102") == TopicConfig("TBW102", 8, 8, 6)
    assert topics.data_version.counter == 1


def test_unit_mode_marks_the_topic(room: Room) -> None:
    assert sent(room.topics, "T", unit_mode=True) == TopicConfig("T", 4, 4, 6, sys_flag=1)
    assert sent(room.topics, "%RETRY%g", unit_mode=True) == TopicConfig(
        "%RETRY%g", 4, 4, 6, sys_flag=2
    )
    assert sent(room.topics, "%RETRY%h", "none", unit_mode=True) == TopicConfig(
        "%RETRY%h", 1, 1, 6, sys_flag=2
    )


def test_a_topic_for_sending_back_is_created_once_and_follows_the_order(room: Room) -> None:
    created = room.topics.for_send_back("%RETRY%g", 2, 6, sys_flag=2)
    assert created == TopicConfig("%RETRY%g", 2, 2, 6, sys_flag=2)
    assert room.topics.for_send_back("%RETRY%g", 9, 4) is created
    assert room.topics.for_send_back("%RETRY%g", 2, 6, order=True).order
    assert room.topics.data_version.counter == 2
    assert room.registered == [["%RETRY%g"]]


# --- by administrators


def update(topics: Topics, name: str, attributes: str = "", **members: Any) -> list[str]:
    return topics.update(TopicConfig(name, 4, 4, attributes=parse_changes(attributes), **members))


def test_an_update_creates_changes_and_is_silent_when_nothing_changes(room: Room) -> None:
    assert update(room.topics, "T") == ["T"]
    assert update(room.topics, "T") == []
    assert update(room.topics, "T", order=True) == ["T"]
    assert room.registered == [["T"], ["T"]]
    assert room.topics.data_version.counter == 2


def test_the_version_carries_the_state_of_the_store(room: Room) -> None:
    room.state_version = 7
    update(room.topics, "T")
    assert room.topics.data_version == DataVersion(1, NOW_MS, 7)


def test_attributes_are_added_changed_and_removed(room: Room) -> None:
    update(room.topics, "T", "+message.type=FIFO,+queue.type=BatchCQ,+reserve.time=5")
    assert dict(room.topics.find("T").attributes) == {  # type: ignore[union-attr]
        "message.type": "FIFO",
        "queue.type": "BatchCQ",
        "reserve.time": "5",
    }
    update(room.topics, "T", "+message.type=NORMAL,-reserve.time,+lite.topic.expiration=-1")
    expected = {"message.type": "NORMAL", "queue.type": "BatchCQ", "lite.topic.expiration": "-1"}
    assert dict(room.topics.find("T").attributes) == expected  # type: ignore[union-attr]
    assert update(room.topics, "T") == [], "attributes that are not named stay"


# Remarks of a 5.5.0 broker, up to the value that some end with.
REFUSED_CHANGES = [
    (
        "new",
        "-message.type",
        1,
        "only add attribute is supported while creating topic. key: message.type",
    ),
    ("new", "message.type=NORMAL", 1, "add/alter attribute format is wrong: message.type"),
    ("new", "message.type", 1, "delete attribute format is wrong: message.type"),
    ("new", "+message.type=BAD", 1, "value is not in set: ["),
    ("new", "+nope=1", 1, "unsupported key: nope"),
    ("new", "+=x", 1, "kv string format wrong."),
    ("new", "+a+b=x", 1, "kv string format wrong."),
    ("new", "+a-b=x", 1, "kv string format wrong."),
    ("new", "+message.type=", 1, "add/alter attribute format is wrong: +message.type has no value"),
    ("new", "+message.type=NORMAL,+message.type=FIFO", 1, "key duplication: +message.type"),
    ("new", "+reserve.time=x", 1, 'For input string: "x"'),
    ("new", "+reserve.time=99999999999999999999", 1, 'For input string: "99999999999999999999"'),
    ("new", "+reserve.time=-2", 1, "value is not in range(-1, 9223372036854775807)"),
    ("new", "+lite.topic.expiration=43201", 1, "value is not in range(-1, 43200)"),
    ("new", "+message.type=MIXED", 29, "MIXED message type is not supported."),
    ("old", "-message.type", 1, "attempt to delete a nonexistent key: message.type"),
    (
        "old",
        "+queue.type=SimpleCQ",
        1,
        "attempt to update an unchangeable attribute. key: queue.type",
    ),
    ("old", "-queue.type", 1, "attempt to update an unchangeable attribute. key: queue.type"),
    (
        "old",
        "+cleanup.policy=DELETE",
        1,
        "attempt to update an unchangeable attribute. key: cleanup.policy",
    ),
    ("old", "+reserve.time=1,-reserve.time", 1, "alter duplication key. key: reserve.time"),
    ("old", "*x-y", 1, "kv string format wrong."),
]


@pytest.mark.parametrize(("topic", "attributes", "code", "remark"), REFUSED_CHANGES)
def test_a_change_of_attributes_that_breaks_a_rule_is_refused_as_the_original_does(
    room: Room, topic: str, attributes: str, code: int, remark: str
) -> None:
    update(room.topics, "old", "+queue.type=BatchCQ")
    before = room.topics.encode()
    with pytest.raises(RefusedError) as refused:
        update(room.topics, topic, attributes)
    assert REFUSAL_CODES[refused.value.refusal] == code
    assert refused.value.remark.startswith(remark)
    assert room.topics.encode() == before


@pytest.mark.parametrize(
    ("attributes", "remark"),
    [
        (
            "+cleanup.policy=COMPACTION",
            (
                "cleanup.policy=COMPACTION is refused: compaction is not supported: old messages"
                " are deleted"
            ),
        ),
        (
            "+message.type=PRIORITY",
            (
                "message.type=PRIORITY is refused: priorities require pop consumption,"
                " which is not supported"
            ),
        ),
        (
            "+message.type=LITE",
            "message.type=LITE is refused: lite topics are not supported; omit the attribute",
        ),
        (
            "+lite.topic.expiration=5",
            "lite.topic.expiration=5 is refused: lite topics are not supported",
        ),
    ],
)
def test_an_attribute_that_would_do_nothing_is_refused_with_the_reason(
    room: Room, attributes: str, remark: str
) -> None:
    before = room.topics.encode()
    with pytest.raises(RefusedError) as refused:
        update(room.topics, "T", attributes)
    assert REFUSAL_CODES[refused.value.refusal] == ResponseCode.SYSTEM_ERROR
    assert refused.value.remark.startswith(remark)
    assert room.topics.encode() == before


def test_every_attribute_of_a_topic_has_its_effect_or_a_value_that_changes_nothing(
    room: Room,
) -> None:
    update(
        room.topics,
        "T",
        "+queue.type=SimpleCQ,+cleanup.policy=DELETE,+message.type=NORMAL,+reserve.time=1,+lite.topic.expiration=-1",
    )
    assert set(room.topics.find("T").attributes) == set(TOPIC_ATTRIBUTES)  # type: ignore[union-attr]
    assert room.topics.reserve_ms() == {"T": 3_600_000}


def test_a_file_of_the_original_with_attributes_that_do_nothing_is_read_and_each_is_told(
    rooms: RoomMaker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    attributes = {
        "cleanup.policy": "COMPACTION",
        "lite.topic.expiration": "5",
        "reserve.time": "soon",
        "of.5.9": "x",
        "queue.type": "BatchCQ",
    }
    written = encode_topic_file({"T": TopicConfig("T", attributes=attributes)}, DataVersion())
    (tmp_path / "topics.json").write_bytes(written)
    with caplog.at_level(logging.WARNING):
        room = rooms()
    assert dict(room.topics.find("T").attributes) == attributes  # type: ignore[union-attr]
    told = [record.getMessage() for record in caplog.records]
    assert [line.partition(" why=")[0] for line in told] == [
        "attribute_without_effect topic=T attribute=cleanup.policy value=COMPACTION",
        "attribute_without_effect topic=T attribute=lite.topic.expiration value=5",
        "attribute_without_effect topic=T attribute=reserve.time value=soon",
        "attribute_without_effect topic=T attribute=of.5.9 value=x",
    ]
    assert "compaction is not supported" in told[0]
    assert room.topics.reserve_ms() == {}


def test_odd_spellings_that_the_original_takes_are_taken(rooms: RoomMaker) -> None:
    room = rooms(mixed_message_type_enable=True)
    for text in (",,", "", "+message.type=NORMAL=B", "+reserve.time=+3", "+message.type=MIXED"):
        update(room.topics, "T", text)
    assert dict(room.topics.find("T").attributes) == {"message.type": "MIXED", "reserve.time": "+3"}  # type: ignore[union-attr]


def test_a_list_is_taken_as_a_whole_or_not_at_all(room: Room) -> None:
    body = b'{"topicConfigList":[{"topicName":"A","attributes":{"+message.type":"FIFO"}},{"topicName":"B"},{"topicName":"A"}]}'
    assert room.topics.update(*finish(decode_topic_list(body))) == ["A", "B"]
    assert room.topics.find("A") == TopicConfig("A", attributes={"message.type": "FIFO"})
    assert room.registered == [["A", "B"]]
    before = room.topics.encode()
    with pytest.raises(RefusedError, match=r"key: message\.type"):
        room.topics.update(TopicConfig("C"), TopicConfig("D", attributes={"message.type": "FIFO"}))
    assert room.topics.encode() == before


LONG = "x" * 127


@pytest.mark.parametrize("name", ["T", "a|b%c_d-E9", LONG, "%RETRY%" + "x" * 248, "%DLQ%g"])
def test_a_name_within_the_rules_is_taken(name: str) -> None:
    check_topic(name)


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("", "The specified topic is blank."),
        (" \t", "The specified topic is blank."),
        (
            "a b",
            (
                "The specified topic: a b, contains illegal characters, allowing only"
                " ^[%|a-zA-Z0-9_-]+$; the first is ' '"
            ),
        ),
        (
            "abé",
            (
                "The specified topic: abé, contains illegal characters, allowing only"
                " ^[%|a-zA-Z0-9_-]+$; the first is 'é'"
            ),
        ),
        ("a\n", "The specified topic: a\n, contains illegal characters"),
        (LONG + "x", f"The specified topic: {LONG}x, is longer than topic max length: 127"),
        (
            "%RETRY%" + "x" * 249,
            "The specified topic is DLQ or Retry topic: %RETRY%"
            + "x" * 249
            + ", and it's longer than topic max length: 255",
        ),
    ],
)
def test_another_name_is_refused_with_the_remark_of_the_original_and_what_is_wrong(
    name: str, remark: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        check_topic(name)
    assert REFUSAL_CODES[refused.value.refusal] == 29
    assert refused.value.remark.startswith(remark)


def test_group_names_follow_the_same_rules_and_are_shorter() -> None:
    check_group("x" * 120)
    for name, remark in [
        ("", "The specified group is blank."),
        ("a.b", "The specified group: a.b, contains"),
        ("x" * 121, "max length: 120"),
    ]:
        with pytest.raises(RefusedError) as refused:
            check_group(name)
        assert remark in refused.value.remark


@pytest.mark.parametrize(
    "topic",
    ["TBW102", "rmq_sys_x", "broker-a", "RMQ_SYS_TRACE_TOPIC", "DefaultCluster_REPLY_TOPIC"],
)
def test_topics_of_the_broker_itself_cannot_be_changed_or_deleted_unless_that_is_allowed(
    rooms: RoomMaker, topic: str
) -> None:
    for act in (lambda topics: update(topics, topic), lambda topics: topics.delete(topic)):
        with pytest.raises(
            RefusedError, match=f"The topic.{topic}. is conflict with system topic."
        ) as refused:
            act(rooms().topics)
        assert REFUSAL_CODES[refused.value.refusal] == 29
    assert update(rooms(protect_system_topics=False).topics, topic) == [topic]


def test_nobody_may_send_to_the_topics_that_only_the_broker_writes() -> None:
    assert sorted(FORBIDDEN_TO_SEND) == [
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "SELF_TEST_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "rmq_sys_wheel_timer",
    ]


def test_a_deleted_topic_is_gone_and_an_unknown_one_changes_nothing(room: Room) -> None:
    update(room.topics, "T")
    assert room.topics.delete("T")
    assert room.topics.find("T") is None
    version = room.topics.data_version
    assert version.counter == 2
    assert not room.topics.delete("T")
    assert room.topics.data_version == version
    with pytest.raises(RefusedError, match=r"The specified topic is blank\."):
        room.topics.delete(" ")


def test_topics_that_a_name_server_calls_ordered_are_marked_once(room: Room) -> None:
    update(room.topics, "A")
    update(room.topics, "B")
    room.topics.mark_ordered(["A", "B", "unknown"])
    assert {topic.name for topic in room.topics if topic.order} == {"A", "B"}
    assert room.topics.data_version.counter == 3
    room.topics.mark_ordered(["A"])
    assert room.topics.data_version.counter == 3


def test_a_page_is_a_part_of_the_sorted_names(room: Room) -> None:
    names = sorted(OF_A_NEW_BROKER)
    assert list(room.topics.page(0, 4)) == names[:4]
    assert list(room.topics.page(4, 100)) == names[4:]
    assert room.topics.page(99, 4) == {}


# --- the file


def golden_files(name: str, archive: str) -> Sequence[tuple[str, bytes]]:
    return [
        (f"{folder}/{path}", data)
        for folder in golden_stores.folders()
        if folder.startswith(archive)
        for path, data in golden_stores.content(folder, "config").items()
        if path.removesuffix(".bak") == name
    ]


def test_a_golden_file_of_5_5_0_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    files = golden_files("topics.json", "store-5.5.0")
    assert len(files) == 26
    for name, data in files:
        (tmp_path / "topics.json").write_bytes(data)
        # With this broker's own topics among those of the file, nothing is added to it.
        topics = Topics(
            TopicRules(
                broker_name="golden-broker",
                cluster_name="GoldenCluster",
                timer_wheel_enable=b"rmq_sys_wheel_timer" in data,
            ),
            ConfigFile(tmp_path / "topics.json", InlineWorker(), ManualLoop()),
            ManualClock(),
            lambda _names: None,
        )
        topics.load()
        assert topics.encode() == data, name


def test_a_golden_file_of_4_9_is_read_and_what_it_lacks_is_added(tmp_path: Path) -> None:
    for name, data in golden_files("topics.json", "store-4.9.8"):
        (tmp_path / "topics.json").write_bytes(data)
        topics = Room(tmp_path).topics
        assert "tiny" in name or topics.find("GoldenA") == TopicConfig("GoldenA", 4, 4, 6)
        assert topics.find("RMQ_SYS_TRANS_OP_HALF_TOPIC") == TopicConfig(
            "RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, 1
        )
        assert topics.data_version.counter > 0
        assert topics.data_version.state_version == 0


def test_unknown_members_are_dropped_and_a_missing_version_is_that_of_the_start(
    tmp_path: Path,
) -> None:
    (tmp_path / "topics.json").write_bytes(
        b'{"new":1,"topicConfigTable":{"T":{"topicName":"T","readQueueNums":3,"later":[{}]},"U":{}}}'
    )
    topics = Room(tmp_path).topics
    assert topics.find("T") == TopicConfig("T", 3, 16)
    assert topics.find("U") == TopicConfig("U")
    assert topics.data_version == DataVersion(0, NOW_MS, 0)
    assert b"later" not in topics.encode()


@pytest.mark.parametrize(
    "damaged", [b"", b"{", b"{}", b'{"topicConfigTable":[]}', b'{"topicConfigTable":{"T":7}}']
)
def test_a_damaged_file_is_replaced_by_its_backup_and_two_damaged_ones_are_told(
    rooms: RoomMaker, damaged: bytes
) -> None:
    room = rooms()
    for name in ("A", "B"):
        update(room.topics, name)
        room.loop.run()
    room.path.write_bytes(damaged)
    topics = rooms().topics
    assert topics.find("A") is not None
    assert topics.find("B") is None
    room.path.write_bytes(b"{")
    room.path.with_name("topics.json.bak").write_bytes(b"{")
    with pytest.raises(CorruptFileError):
        rooms()


def test_the_answer_to_a_slave_has_the_members_of_the_original(room: Room) -> None:
    topics = {"T": TopicConfig("T", 1, 1)}
    assert (
        finish(encode_all_topics(topics, DataVersion(1, 2, 3), DataVersion()))
        == b'{"dataVersion":{"counter":1,"stateVersion":3,"timestamp":2},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":0},'
        b'"topicConfigTable":{"T":{"attributes":{},"order":false,"perm":6,"readQueueNums":1,"topicFilterType":"SINGLE_TAG","topicName":"T",'
        b'"topicSysFlag":0,"writeQueueNums":1}},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}'
    )


def test_what_is_created_and_deleted_is_in_the_log(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        sent(room.topics, "T")
        room.topics.delete("T")
        sent(room.topics, "U", "nothing")
    assert [record.getMessage().split(" ")[0] for record in caplog.records] == [
        "topic_changed",
        "topic_deleted",
        "topic_not_created",
    ]


@pytest.mark.parametrize("attributes", [{}, {"a": 'é"\n'}, {"a": "1", "b": ""}])
def test_the_file_that_is_put_together_by_hand_is_what_the_writer_of_json_gives(
    attributes: dict[str, str],
) -> None:
    odd = TopicConfig('é"\n', 1, 2, 3, "MULTI_TAG", 4, True, attributes)
    for topics in ({}, {"T": odd}, {"T": TopicConfig("T"), "U": odd}):
        assert encode_topic_file(topics, DataVersion(1, 2, 3)) == fastjson.dumps_pretty(
            {
                "dataVersion": DataVersion(1, 2, 3).to_json(),
                "topicConfigTable": {name: topic.to_json() for name, topic in topics.items()},
            }
        )


class Messages:
    """A log without messages, that grows."""

    def __init__(self) -> None:
        self.end = 0

    def has_messages(self, topic: str) -> bool:
        return False

    def log_end(self) -> int:
        self.end += 1
        return self.end


def test_where_lives_ended_is_known_of_the_last_topics_that_were_deleted_and_of_all_that_came_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "topics.json"
    topics = Topics(
        TopicRules(broker_name="a"),
        ConfigFile(path, InlineWorker(), ManualLoop()),
        ManualClock(NOW_MS),
        lambda _: None,
        messages=Messages(),
    )
    topics.load()
    names = [f"T{number}" for number in range(1_500)]
    topics.update(*(TopicConfig(name, 1, 1) for name in names))
    for name in names[:1_400]:
        topics.delete(name)
    topics.update(TopicConfig("T700", 1, 1), TopicConfig("T0", 1, 1))
    for name in names[1_400:]:
        topics.delete(name)
    ended = [name for name in names if name not in topics.table and topics.begin_of(name)]
    assert 998 <= len(ended) <= 1_000
    assert ended[-1] == "T1499"
    assert (
        topics.begin_of("T0")
        > topics.begin_of("T1399")
        > topics.begin_of("T501")
        > 0
        == topics.begin_of("T499")
    )
    told = decode_topic_file(topics.encode()).beginnings
    assert set(told) == {"T0", "T700"}, "the file has no lives that ended"
