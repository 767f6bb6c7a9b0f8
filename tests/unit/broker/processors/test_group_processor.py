"""Requests of operators about consumer groups, with the real tables."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.broker.metadata.consume_modes import RequestModes
from orbitmq.broker.metadata.groups import GroupRules
from orbitmq.broker.metadata.persistent_file import ConfigFile
from orbitmq.broker.processors.groups import GroupProcessor
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from support.broker.listeners import Unheard
from support.broker.socketless import BrokerRoom, body_of
from support.remoting.channels import sent

UPDATE, UPDATE_LIST = (
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
)
DELETE, GET, GET_ALL = (
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
)
FORBID, SET_MODE, MODES = (
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
)
LEFT_BY_AN_ORIGINAL = b"""{
	"messageRequestModeMap":{
		"T":{
			"g":{
				"consumerGroup":"g",
				"mode":"POP",
				"popShareQueueNum":3,
				"topic":"T"
			},
			"h":{
				"consumerGroup":"h",
				"popShareQueueNum":0,
				"topic":"T"
			}
		}
	}
}"""


@pytest.fixture
def deleted() -> list[str]:
    return []


@pytest.fixture
def modes(room: BrokerRoom) -> RequestModes:
    file = room.config_folder / "messageRequestMode.json"
    file.write_bytes(LEFT_BY_AN_ORIGINAL)
    modes = RequestModes(ConfigFile(file, room.worker, room.loop))
    modes.load()
    return modes


@pytest.fixture
def groups(room: BrokerRoom, modes: RequestModes, deleted: list[str]) -> GroupProcessor:
    return GroupProcessor(
        room.settings,
        groups=room.groups,
        topics=room.topics,
        offsets=room.offsets,
        modes=modes,
        when_saved=room.groups_file.when_saved,
        deleted=deleted.append,
        listener=Unheard(),
    )


# --- 200 and 225


def test_a_group_is_created_and_changed_as_it_is_asked_for(
    room: BrokerRoom, groups: GroupProcessor
) -> None:
    wanted = {"groupName": "new", "retryMaxTimes": 3, "attributes": {"+priority.factor": "100"}}
    answer = room.ask(groups, UPDATE, body=wanted)
    assert (answer.code, answer.remark, answer.ext_fields, answer.body) == (0, None, None, None)
    assert room.groups.table["new"] == GroupConfig(
        "new", retry_max_times=3, attributes={"priority.factor": "100"}
    )
    room.ask(
        groups,
        UPDATE,
        body={"groupName": "new", "consumeEnable": False, "attributes": {"-priority.factor": ""}},
    )
    assert room.groups.table["new"] == GroupConfig("new", consume_enable=False)
    assert b'"new"' in room.groups_file.path.read_bytes()


def test_a_change_of_a_group_is_answered_when_it_is_on_disk(
    room: BrokerRoom, groups: GroupProcessor
) -> None:
    room.worker.holds = True
    assert room.begin(groups, UPDATE, body={"groupName": "new"}) is None
    assert sent(room.channel) == []
    room.worker.holds = False
    while room.worker.work():
        room.loop.run()
    assert [answer.code for answer in sent(room.channel)] == [0]


def test_groups_of_a_list_are_created_together(room: BrokerRoom, groups: GroupProcessor) -> None:
    assert (
        room.ask(
            groups, UPDATE_LIST, body={"groupConfigList": [{"groupName": "a"}, {"groupName": "b"}]}
        ).code
        == 0
    )
    assert {"a", "b"} <= room.groups.table.keys()
    assert room.ask(groups, UPDATE_LIST, body={"groupConfigList": []}).code == 0


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"", 1, "request 200 has no body"),
        (b"{bad", 1, "the body of request 200 cannot be read"),
        (b"[]", 1, "the body of request 200 cannot be read"),
        (b"null", 1, "the body of request 200 cannot be read"),
        ({}, 29, "The specified group is blank."),
        ({"groupName": "a b"}, 29, "The specified group: a b, contains illegal characters"),
        (
            {"groupName": "x" * 121},
            29,
            f"The specified group: {'x' * 121}, is longer than group max length: 120",
        ),
        ({"groupName": "new", "retryMaxTimes": "x"}, 1, "the body of request 200 cannot be read"),
        (
            {"groupName": "new", "retryMaxTimes": 1 << 40},
            1,
            "the body of request 200 cannot be read",
        ),
        ({"groupName": ["new"]}, 1, "the body of request 200 cannot be read"),
        ({"groupName": "new", "attributes": {"+nope": "1"}}, 1, "unsupported key: nope"),
        (
            {"groupName": "new", "attributes": {"+priority.factor": "101"}},
            1,
            "value is not in range(0, 100)",
        ),
        (
            {"groupName": "new", "attributes": {"priority.factor": "1"}},
            1,
            "only add attribute is supported while creating topic",
        ),
    ],
)
def test_a_group_that_cannot_be_is_refused_and_nothing_changes(
    room: BrokerRoom, groups: GroupProcessor, body: Any, code: int, remark: str
) -> None:
    refused = room.refusal(groups, UPDATE, body=body)
    assert (refused.code, refused.remark[: len(remark)]) == (code, remark)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 1),
        (b"[", 1),
        ({"groupConfigList": {}}, 1),
        ({"groupConfigList": [{"groupName": "a"}, {"groupName": "a b"}]}, 29),
        (
            {
                "groupConfigList": [
                    {"groupName": "a"},
                    {"groupName": "b", "attributes": {"+nope": "1"}},
                ]
            },
            1,
        ),
        ({"groupConfigList": [{"groupName": "a"}, 3]}, 1),
    ],
)
def test_of_a_list_with_one_bad_group_none_is_created(
    room: BrokerRoom, groups: GroupProcessor, body: Any, code: int
) -> None:
    assert room.refusal(groups, UPDATE_LIST, body=body).code == code


# --- 207


@pytest.mark.parametrize("field", ["cleanOffset", "removeOffset"])
def test_a_group_is_deleted_and_its_offsets_when_asked_so(
    room: BrokerRoom, groups: GroupProcessor, deleted: list[str], field: str
) -> None:
    room.offsets.commit("g", "T", 0, 5)
    answer = room.ask(groups, DELETE, {"groupName": "g"})
    assert (answer.code, answer.remark) == (0, None)
    assert "g" not in room.groups
    assert room.offsets.query("g", "T", 0) == 5
    room.ask(groups, DELETE, {"groupName": "g", field: "true"})
    assert room.offsets.query("g", "T", 0) is None
    assert deleted == ["g", "g"]


def test_deleting_a_group_that_is_not_there_changes_nothing(
    room: BrokerRoom, groups: GroupProcessor
) -> None:
    before = room.state()
    for name in ("nope", "", "a b"):
        assert room.ask(groups, DELETE, {"groupName": name, "cleanOffset": "true"}).code == 0
    assert room.state() == before
    assert room.refusal(groups, DELETE, {}).code == 1


# --- 353


def test_a_group_is_forbidden_to_read_a_topic_and_allowed_again(
    room: BrokerRoom, groups: GroupProcessor
) -> None:
    fields = {"group": "g", "topic": "T"}
    answer = room.ask(groups, FORBID, fields)
    assert (answer.code, answer.remark, answer.body) == (
        0,
        "",
        b'{"group":"g","readable":true,"topic":"T"}',
    )
    assert (
        room.ask(groups, FORBID, {**fields, "readable": "false"}).body
        == b'{"group":"g","readable":false,"topic":"T"}'
    )
    assert not room.groups.is_readable("g", "T")
    assert room.ask(groups, FORBID, fields).body == b'{"group":"g","readable":false,"topic":"T"}'
    assert body_of(room.ask(groups, GET_ALL))["forbiddenTable"] == {"g": {"T": 4}}
    assert (
        room.ask(groups, FORBID, {**fields, "readable": "true"}).body
        == b'{"group":"g","readable":true,"topic":"T"}'
    )
    assert body_of(room.ask(groups, GET_ALL))["forbiddenTable"] == {}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "T"}, 1),
        ({"group": "g"}, 1),
        ({"group": "a b", "topic": "T", "readable": "false"}, 29),
        ({"group": "g", "topic": "a b", "readable": "false"}, 29),
        ({"group": "", "topic": "T", "readable": "false"}, 29),
    ],
)
def test_what_is_no_group_or_topic_is_not_forbidden(
    room: BrokerRoom, groups: GroupProcessor, fields: dict[str, str], code: int
) -> None:
    assert room.refusal(groups, FORBID, fields).code == code


# --- 201, 352, 402


def test_all_groups_are_told_at_once_or_in_pages(room: BrokerRoom, groups: GroupProcessor) -> None:
    names = sorted(room.groups.table)
    version = fastjson.dumps(room.groups.data_version.to_json()).decode()

    def page(**fields: object) -> list[str]:
        answer = room.ask(groups, GET_ALL, fields)
        assert answer.ext_fields == {"totalGroupNum": str(len(names))}
        return list(body_of(answer)["subscriptionGroupTable"])

    assert page() == names
    assert page(groupSeq=0, maxGroupNum=2) == names[:2]
    assert page(groupSeq=2, maxGroupNum=2) == names[:2]
    assert page(groupSeq=2, maxGroupNum=2, dataVersion=version) == names[2:4]
    assert page(groupSeq=900, maxGroupNum=2, dataVersion=version) == []
    body = body_of(room.ask(groups, GET_ALL))
    assert body["subscriptionGroupTable"]["g"] == GroupConfig("g").to_json()
    assert body["dataVersion"] == room.groups.data_version.to_json()


@pytest.mark.parametrize(
    "fields",
    [{"maxGroupNum": 2}, {"groupSeq": 0, "maxGroupNum": 0}, {"groupSeq": 0, "maxGroupNum": -1}],
)
def test_a_page_of_groups_that_cannot_be_is_refused(
    room: BrokerRoom, groups: GroupProcessor, fields: dict[str, int]
) -> None:
    assert room.refusal(groups, GET_ALL, fields).code == ResponseCode.SYSTEM_ERROR


def test_a_group_is_told_and_comes_to_be_where_groups_do(
    room: BrokerRoom, groups: GroupProcessor
) -> None:
    assert body_of(room.ask(groups, GET, {"group": "g"})) == GroupConfig("g").to_json()
    assert body_of(room.ask(groups, GET, {"group": "fresh"})) == GroupConfig("fresh").to_json()
    assert "fresh" in room.groups
    for name in ("a b", ""):
        refused = room.refusal(groups, GET, {"group": name})
        assert (refused.code, refused.remark[:23]) == (26, "No group in this broker")
    room.groups.rules = GroupRules(auto_create=False)
    assert room.refusal(groups, GET, {"group": "fresher"}).code == 26
    assert room.refusal(groups, GET, {}).code == 1


def test_what_is_forbidden_to_groups_that_are_not_there_is_told_with_all_groups_alone(
    room: BrokerRoom, groups: GroupProcessor
) -> None:
    room.ask(groups, FORBID, {"group": "nobody", "topic": "T", "readable": "false"})
    assert body_of(room.ask(groups, GET_ALL))["forbiddenTable"] == {"nobody": {"T": 4}}
    assert (
        body_of(room.ask(groups, GET_ALL, {"groupSeq": 0, "maxGroupNum": 1000}))["forbiddenTable"]
        == {}
    )


# --- 401 and 402


def test_a_group_is_set_to_pull_a_topic_and_that_is_kept(
    room: BrokerRoom, groups: GroupProcessor
) -> None:
    assert room.ask(groups, MODES).body == b"".join(LEFT_BY_AN_ORIGINAL.split())
    answer = room.ask(
        groups,
        SET_MODE,
        body={"topic": "T", "consumerGroup": "g", "mode": "PULL", "popShareQueueNum": -1},
    )
    assert (answer.code, answer.remark, answer.body) == (0, None, None)
    assert (
        room.ask(
            groups, SET_MODE, body={"topic": "T", "consumerGroup": "fresh", "mode": "PULL"}
        ).code
        == 0
    )
    assert "fresh" in room.groups
    told = body_of(room.ask(groups, MODES))["messageRequestModeMap"]
    assert told["T"]["g"] == {
        "consumerGroup": "g",
        "mode": "PULL",
        "popShareQueueNum": -1,
        "topic": "T",
    }
    assert (told["T"].keys(), told["T"]["h"].get("mode")) == ({"g", "h", "fresh"}, None)
    assert (
        fastjson.loads((room.config_folder / "messageRequestMode.json").read_bytes())[
            "messageRequestModeMap"
        ]
        == told
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"mode": "POP"}, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
        ({"mode": "X"}, 1),
        ({"mode": None}, 1),
        ({"topic": None}, 1),
        ({"consumerGroup": None}, 1),
        ({"popShareQueueNum": "x"}, 1),
        ({"topic": "nope"}, 17),
        ({"topic": ""}, 17),
        ({"topic": "%RETRY%g"}, 16),
        ({"consumerGroup": "a b"}, 26),
        ({"consumerGroup": ""}, 26),
    ],
)
def test_a_mode_that_cannot_be_is_refused(
    room: BrokerRoom, groups: GroupProcessor, change: dict[str, Any], code: int
) -> None:
    wanted = {"topic": "T", "consumerGroup": "g", "mode": "PULL", **change}
    before = room.ask(groups, MODES).body
    assert room.refusal(groups, SET_MODE, body=wanted).code == code
    assert room.ask(groups, MODES).body == before


@pytest.mark.parametrize("body", [None, b"", b"null", b"[", b"[]"])
def test_a_mode_without_a_body_is_refused(
    room: BrokerRoom, groups: GroupProcessor, body: bytes | None
) -> None:
    assert room.refusal(groups, SET_MODE, body=body).code == 1
