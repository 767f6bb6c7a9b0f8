"""Requests of operators about topics, with the real tables and a small store."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.processors.admin_replies import wanted_page
from orbitmq.broker.processors.topics import TopicProcessor
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from support.broker.listeners import Unheard
from support.broker.settings import broker_settings
from support.broker.socketless import BROKER, BrokerRoom, body_of
from support.remoting.channels import sent

NEW = {
    "topic": "New",
    "defaultTopic": "TBW102",
    "readQueueNums": 3,
    "writeQueueNums": 5,
    "perm": 4,
    "topicFilterType": "MULTI_TAG",
    "order": "true",
    "topicSysFlag": 1,
    "attributes": "+message.type=FIFO",
}
CREATE, CREATE_LIST = RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
DELETE, GET, GET_ALL = (
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_ALL_TOPIC_CONFIG,
)
STATS = RequestCode.GET_TOPIC_STATS_INFO


@pytest.fixture
def deleted() -> list[str]:
    return []


@pytest.fixture
def topics(room: BrokerRoom, deleted: list[str]) -> TopicProcessor:
    return TopicProcessor(
        room.settings,
        topics=room.topics,
        offsets=room.offsets,
        store=room.store,
        when_saved=room.topics_file.when_saved,
        put_tps=lambda topic: 1.5 if topic == "T" else 0.0,
        deleted=deleted.append,
        listener=Unheard(),
    )


# --- 17 and 18


def test_a_topic_is_created_as_it_is_asked_for_and_told_to_name_servers(
    room: BrokerRoom, topics: TopicProcessor
) -> None:
    answer = room.ask(topics, CREATE, NEW)
    assert (answer.code, answer.remark, answer.ext_fields, answer.body) == (
        0,
        "not set any response code",
        None,
        None,
    )
    assert room.topics.find("New") == TopicConfig(
        "New", 3, 5, 4, "MULTI_TAG", 1, True, {"message.type": "FIFO"}
    )
    assert room.registered == ["T", "New"]


def test_a_change_is_answered_when_it_is_on_disk(room: BrokerRoom, topics: TopicProcessor) -> None:
    room.worker.holds = True
    assert room.begin(topics, CREATE, NEW) is None
    room.worker.work()
    room.loop.run()
    assert sent(room.channel) == []
    assert b'"New"' not in room.topics_file.path.read_bytes()
    room.worker.holds = False
    while room.worker.work():
        room.loop.run()
    (answer,) = sent(room.channel)
    assert (answer.code, answer.opaque, answer.is_response) == (0, 7, True)
    assert b'"New"' in room.topics_file.path.read_bytes()


def test_a_change_that_cannot_be_saved_is_answered_so(
    room: BrokerRoom, topics: TopicProcessor
) -> None:
    room.topics_file.path.unlink()
    room.topics_file.path.mkdir()
    answer = room.ask(topics, CREATE, NEW)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "could not be saved" in (answer.remark or "")


def test_a_change_that_nobody_waits_for_is_not_answered(
    room: BrokerRoom, topics: TopicProcessor
) -> None:
    assert room.begin(topics, CREATE, NEW, flag=2) is None
    room.loop.run()
    assert (sent(room.channel), room.topics.find("New") is not None) == ([], True)


def test_the_same_topic_again_is_no_change(room: BrokerRoom, topics: TopicProcessor) -> None:
    fields = {name: value for name, value in NEW.items() if name != "attributes"}
    room.ask(topics, CREATE, fields)
    before = room.state()
    assert room.ask(topics, CREATE, fields).code == 0
    assert room.state() == before


def test_topics_of_a_list_are_created_together(room: BrokerRoom, topics: TopicProcessor) -> None:
    wanted = [
        {"topicName": "A"},
        {
            "topicName": "B",
            "readQueueNums": 2,
            "order": True,
            "attributes": {"+message.type": "FIFO"},
        },
    ]
    answer = room.ask(topics, CREATE_LIST, body={"topicConfigList": wanted})
    assert (answer.code, answer.remark) == (0, "not set any response code")
    assert room.topics.find("A") == TopicConfig("A")
    assert room.topics.find("B") == TopicConfig(
        "B", 2, order=True, attributes={"message.type": "FIFO"}
    )
    assert room.ask(topics, CREATE_LIST, body={"topicConfigList": []}).code == 0


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        ({"topic": ""}, 29, "The specified topic is blank."),
        ({"topic": "a b"}, 29, "The specified topic: a b, contains illegal characters"),
        (
            {"topic": "x" * 128},
            29,
            f"The specified topic: {'x' * 128}, is longer than topic max length: 127",
        ),
        ({"topic": "TBW102"}, 29, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "rmq_sys_x"}, 29, "The topic[rmq_sys_x] is conflict with system topic."),
        ({"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
        ({"attributes": "+bad=x"}, 1, "unsupported key: bad"),
        ({"attributes": "bad"}, 1, "delete attribute format is wrong: bad"),
        (
            {"attributes": "-message.type"},
            1,
            "only add attribute is supported while creating topic",
        ),
        ({"topicFilterType": "WRONG"}, 1, "topicFilterType = [WRONG] value invalid"),
        ({"readQueueNums": -3}, 29, "readQueueNums=-3"),
        ({"writeQueueNums": 1 << 30}, 29, "writeQueueNums=1073741824"),
        ({"perm": 99}, 29, "perm=99"),
        ({"perm": -1}, 29, "perm=-1"),
        ({"readQueueNums": "x"}, 1, "the field readQueueNums"),
        *(
            ({name: None}, 1, f"the field {name}")
            for name in ("topic", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")
        ),
    ],
)
def test_a_topic_that_cannot_be_is_refused_and_nothing_changes(
    room: BrokerRoom, topics: TopicProcessor, change: dict[str, Any], code: int, remark: str
) -> None:
    fields = {name: value for name, value in {**NEW, **change}.items() if value is not None}
    refused = room.refusal(topics, CREATE, fields)
    assert (refused.code, refused.remark[: len(remark)]) == (code, remark)


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"", 1, "request 18 has no body"),
        (b"[1", 1, "the body of request 18 cannot be read"),
        (b"[]", 1, "the body of request 18 cannot be read"),
        (b"\xff", 1, "the body of request 18 cannot be read"),
        ({"topicConfigList": 3}, 1, "the body of request 18 cannot be read"),
        ({"topicConfigList": [None]}, 1, "the body of request 18 cannot be read"),
        (
            {"topicConfigList": [{"topicName": "A"}, {"topicName": "a b"}]},
            29,
            "The specified topic: a b",
        ),
        ({"topicConfigList": [{"topicName": "A"}, {}]}, 29, "The specified topic is blank."),
        (
            {"topicConfigList": [{"topicName": "A"}, {"topicName": "B", "readQueueNums": "x"}]},
            1,
            "the body of request 18 cannot be read",
        ),
        (
            {"topicConfigList": [{"topicName": "A"}, {"topicName": "B", "perm": 1000}]},
            29,
            "perm=1000",
        ),
        (
            {
                "topicConfigList": [
                    {"topicName": "A"},
                    {"topicName": "B", "attributes": {"+no": "1"}},
                ]
            },
            1,
            "unsupported key: no",
        ),
    ],
)
def test_of_a_list_with_one_bad_topic_none_is_created(
    room: BrokerRoom, topics: TopicProcessor, body: Any, code: int, remark: str
) -> None:
    refused = room.refusal(topics, CREATE_LIST, body=body)
    assert (refused.code, refused.remark[: len(remark)]) == (code, remark)


# --- 215


def test_a_topic_is_deleted_with_its_queues_its_offsets_and_its_pop_retry_topics(
    room: BrokerRoom, topics: TopicProcessor, deleted: list[str]
) -> None:
    for name in ("%RETRY%g_T", "%RETRY%g+T", "%RETRY%g"):
        room.topics.for_send_back(name, 1, 6)
    room.put()
    room.put(topic="Other")
    room.offsets.commit("g", "T", 0, 1)
    room.offsets.commit("g", "Other", 0, 1)
    answer = room.ask(topics, DELETE, {"topic": "T"})
    assert (answer.code, answer.remark, answer.body) == (0, None, None)
    assert [
        topic for topic in ("T", "%RETRY%g_T", "%RETRY%g+T", "%RETRY%g") if room.topics.find(topic)
    ] == ["%RETRY%g"]
    assert (room.store.queues.max_offset("T", 0), room.store.queues.max_offset("Other", 0)) == (
        0,
        1,
    )
    assert room.offsets.topics_of("g") == {"Other"}
    assert deleted == ["T", "%RETRY%g+T", "%RETRY%g_T"]
    assert b'"T"' not in room.topics_file.path.read_bytes()


def test_a_topic_that_is_made_again_begins_with_nothing(
    room: BrokerRoom, topics: TopicProcessor
) -> None:
    folder = room.config_folder.parent / "store" / "consumequeue"
    for _ in range(3):
        room.put()
    room.offsets.commit("g", "T", 0, 3)
    room.store.flush()
    assert list((folder / "T").rglob("*"))
    room.ask(topics, DELETE, {"topic": "T"})
    assert not (folder / "T").exists()
    room.topics.update(TopicConfig("T", 4, 4))
    assert room.put(b"new").queue_offset == 0
    assert (
        room.store.queues.min_offset("T", 0),
        room.store.queues.max_offset("T", 0),
        room.offsets.query("g", "T", 0),
    ) == (0, 1, None)


def test_pop_retry_topics_stay_when_the_configuration_says_so(
    room: BrokerRoom, topics: TopicProcessor
) -> None:
    room.settings.clear_retry_topic_when_delete_topic = False
    room.topics.for_send_back("%RETRY%g+T", 1, 6)
    room.offsets.commit("g", "T", 0, 1)
    room.ask(topics, DELETE, {"topic": "T"})
    assert room.topics.find("%RETRY%g+T") is not None


@pytest.mark.parametrize("topic", ["nope", "a b", "../../etc"])
def test_deleting_a_topic_that_is_not_there_changes_nothing(
    room: BrokerRoom, topics: TopicProcessor, topic: str
) -> None:
    before = room.state()
    assert room.ask(topics, DELETE, {"topic": topic}).code == 0
    assert room.state() == before


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": ""}, 29, "The specified topic is blank."),
        ({"topic": "  "}, 29, "The specified topic is blank."),
        ({"topic": "TBW102"}, 29, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "rmq_sys_x"}, 29, "The topic[rmq_sys_x] is conflict with system topic."),
        ({}, 1, "the field topic"),
    ],
)
def test_topics_that_the_broker_needs_are_not_deleted(
    room: BrokerRoom, topics: TopicProcessor, fields: dict[str, str], code: int, remark: str
) -> None:
    refused = room.refusal(topics, DELETE, fields)
    assert (refused.code, refused.remark[: len(remark)]) == (code, remark)


# --- 306, 316, 329


def test_queues_of_topics_that_are_no_more_are_cleaned_and_no_others(
    room: BrokerRoom, topics: TopicProcessor, deleted: list[str]
) -> None:
    for topic in ("T", "gone", "SCHEDULE_TOPIC_XXXX", "%LMQ%light"):
        room.put(topic=topic)
    assert room.ask(topics, RequestCode.CLEAN_UNUSED_TOPIC).code == 0
    left = {key.topic for key in room.store.queues.plain}
    assert (left, deleted) == ({"T", "SCHEDULE_TOPIC_XXXX", "%LMQ%light"}, ["gone"])


def test_expired_queues_and_files_are_left_to_the_store(
    room: BrokerRoom, topics: TopicProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(room.store.retention, "clean_unused_queues", lambda: asked.append("queues"))
    monkeypatch.setattr(room.store.retention, "delete_expired_now", lambda: asked.append("log"))
    assert room.ask(topics, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == 0
    assert room.ask(topics, RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
    assert asked == ["queues", "log"]


# --- 21, 351, 305


def test_all_topics_are_told_at_once_to_those_who_know_no_pages(
    room: BrokerRoom, topics: TopicProcessor
) -> None:
    answer = room.ask(topics, GET_ALL)
    assert answer.ext_fields == {"totalTopicNum": str(len(room.topics))}
    body = body_of(answer)
    assert body["topicConfigTable"] == {topic.name: topic.to_json() for topic in room.topics}
    assert body["dataVersion"] == room.topics.data_version.to_json()
    assert body["mappingDataVersion"]["counter"] == 0
    assert (body["topicQueueMappingDetailMap"], body["topicQueueMappingInfoMap"]) == ({}, {})


def test_pages_go_on_as_long_as_the_topics_are_the_same(
    room: BrokerRoom, topics: TopicProcessor
) -> None:
    names = sorted(room.topics.table)
    version = fastjson.dumps(room.topics.data_version.to_json()).decode()

    def page(**fields: object) -> list[str]:
        return list(body_of(room.ask(topics, GET_ALL, fields))["topicConfigTable"])

    assert page(topicSeq=0, maxTopicNum=3) == names[:3]
    assert page(topicSeq=3, maxTopicNum=2, dataVersion=version) == names[3:5]
    assert page(topicSeq=900, maxTopicNum=2, dataVersion=version) == []
    for other in ("", "garbage", '{"counter":1,"stateVersion":0,"timestamp":1}', "[]"):
        assert page(topicSeq=3, maxTopicNum=2, dataVersion=other) == names[:2]
    assert page(topicSeq=-1, maxTopicNum=2) == names[:2]
    room.settings.split_metadata_size = 4
    assert page(topicSeq=0, maxTopicNum=1000) == names[:4]
    assert page(topicSeq=0) == names[:4]


@given(total=st.integers(0, 60), asked=st.none() | st.integers(1, 100), most=st.integers(1, 20))
def test_whoever_follows_the_pages_gets_everything_once(
    total: int, asked: int | None, most: int
) -> None:
    settings, version = broker_settings(), DataVersion(counter=3, timestamp=5)
    settings.split_metadata_size = most
    text, got = fastjson.dumps(version.to_json()).decode(), list[int]()
    while len(got) < total:
        page = wanted_page(settings, len(got), asked, text, version)
        assert page is not None
        got += range(total)[page.begin : page.begin + page.size]
    assert got == list(range(total))


@pytest.mark.parametrize(
    "fields",
    [{"maxTopicNum": 2}, {"topicSeq": 0, "maxTopicNum": 0}, {"topicSeq": 0, "maxTopicNum": -1}],
)
def test_a_page_that_cannot_be_is_refused(
    room: BrokerRoom, topics: TopicProcessor, fields: dict[str, int]
) -> None:
    assert room.refusal(topics, GET_ALL, fields).code == ResponseCode.SYSTEM_ERROR


def test_a_page_before_the_first_is_refused(room: BrokerRoom, topics: TopicProcessor) -> None:
    version = fastjson.dumps(room.topics.data_version.to_json()).decode()
    refused = room.refusal(topics, GET_ALL, {"topicSeq": -1, "dataVersion": version})
    assert (refused.code, "no page begins at -1" in refused.remark) == (1, True)


def test_one_topic_is_told_as_it_is(room: BrokerRoom, topics: TopicProcessor) -> None:
    answer = room.ask(topics, GET, {"topic": "T", "lo": "true"})
    assert (
        answer.body
        == b'{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T",'
        b'"topicSysFlag":0,"writeQueueNums":4}'
    )
    refused = room.refusal(topics, GET, {"topic": "nope"})
    assert (refused.code, refused.remark) == (
        17,
        "No topic in this broker. topic: nope; create it, or ask another broker",
    )
    assert room.refusal(topics, GET, {}).code == 1


def test_the_broker_tells_its_own_topics(room: BrokerRoom, topics: TopicProcessor) -> None:
    told = body_of(room.ask(topics, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))
    assert set(told) == {"topicList"}
    assert set(told["topicList"]) >= {"TBW102", "SELF_TEST_TOPIC", "DefaultCluster", BROKER}


# --- 202


def test_the_ends_of_all_queues_of_a_topic_are_told(
    room: BrokerRoom, topics: TopicProcessor
) -> None:
    room.put(queue_id=1)
    room.put(queue_id=1)
    room.topics.update(TopicConfig("T", 1, 3))
    body = body_of(room.ask(topics, STATS, {"topic": "T"}))
    empty = {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
    assert body == {
        "offsetTable": {
            "T:0": empty,
            "T:1": {"lastUpdateTimestamp": room.clock.now_ms(), "maxOffset": 2, "minOffset": 0},
            "T:2": empty,
        },
        "topicPutTps": 1.5,
    }


def test_queues_of_a_topic_are_written_as_objects_that_are_keys(
    room: BrokerRoom, topics: TopicProcessor
) -> None:
    room.topics.update(TopicConfig("One", 1, 1))
    assert (
        room.ask(topics, STATS, {"topic": "One"}).body
        == b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"One"}:'
        b'{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}},"topicPutTps":0.0}'
    )


def test_there_are_no_ends_of_a_topic_that_is_not_there(
    room: BrokerRoom, topics: TopicProcessor
) -> None:
    refused = room.refusal(topics, STATS, {"topic": "nope"})
    assert (refused.code, refused.remark) == (17, "topic[nope] not exist; send to it, or create it")
    assert room.refusal(topics, STATS, {}).code == 1
