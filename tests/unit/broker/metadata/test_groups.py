"""Consumer groups: which there are from the start, how others come to be and change, and the file
that follows them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.metadata.attributes import GROUP_ATTRIBUTES
from orbitmq.broker.metadata.groups import GroupRules, Groups
from orbitmq.broker.metadata.persistent_file import ConfigFile
from orbitmq.common.errors import CorruptFileError, ProtocolError, RefusedError
from orbitmq.common.slices import finish
from orbitmq.common.topic_names import PREDEFINED_GROUPS
from orbitmq.protocol.bodies.groups import (
    CustomizedRetry,
    ExponentialRetry,
    GroupConfig,
    GroupRetryPolicy,
    GroupTable,
    SimpleSubscription,
    decode_group_list,
    encode_group_forbidden,
)
from orbitmq.protocol.bodies.nameserver import DataVersion
from orbitmq.protocol.codes import REFUSAL_CODES, ResponseCode
from orbitmq.testing.manual_clock import ManualClock
from support.broker.manual_worker import InlineWorker, ManualLoop
from support.store import golden_stores

NOW_MS = 1_800_000_000_000


class Room:
    """Groups in a folder that outlives them."""

    def __init__(self, folder: Path, **rules: Any) -> None:
        self.path = folder / "subscriptionGroup.json"
        self.loop = ManualLoop()
        self.clock = ManualClock(NOW_MS)
        self.groups = Groups(
            GroupRules(**rules),
            ConfigFile(self.path, InlineWorker(), self.loop),
            self.clock,
            state_version=lambda: 3,
        )
        self.groups.load()

    def again(self) -> Groups:
        """The groups after the changes were saved and the broker started anew."""
        self.loop.run()
        return Room(self.path.parent).groups


RoomMaker = Callable[..., Room]


@pytest.fixture
def rooms(tmp_path: Path) -> RoomMaker:
    return lambda **rules: Room(tmp_path, **rules)


@pytest.fixture
def room(rooms: RoomMaker) -> Room:
    return rooms()


def test_a_new_broker_has_the_groups_of_the_original_with_its_defaults(room: Room) -> None:
    assert {group.name for group in room.groups} == set(PREDEFINED_GROUPS)
    assert len(room.groups) == 8
    # What a 5.5.0 broker answered for one of them.
    assert (
        room.groups.table["CID_ONSAPI_PULL"].encode()
        == b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
        b'"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"CID_ONSAPI_PULL","groupRetryPolicy":{"type":"CUSTOMIZED"},'
        b'"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
    )
    assert room.groups.data_version == DataVersion(0, NOW_MS, 0)


def test_an_unknown_group_is_created_when_it_is_looked_up_and_saved(room: Room) -> None:
    assert "g" not in room.groups
    assert room.groups.find("g") == GroupConfig("g")
    assert room.groups.data_version == DataVersion(1, NOW_MS, 3)
    assert room.groups.find("g") is room.groups.find("g")
    assert room.groups.data_version.counter == 1
    assert "g" in room.again()


@pytest.mark.parametrize("name", ["", " ", "a.b", "g!", "x" * 121])
def test_a_group_whose_name_breaks_the_rules_is_not_created(room: Room, name: str) -> None:
    assert room.groups.find(name) is None
    assert len(room.groups) == 8


def test_without_auto_create_only_system_groups_are_created_unless_that_is_off_too(
    rooms: RoomMaker,
) -> None:
    room = rooms(auto_create=False)
    assert room.groups.find("g") is None
    assert room.groups.find("CID_RMQ_SYS_x") == GroupConfig("CID_RMQ_SYS_x")
    room.groups.rules = GroupRules(auto_create=False, system_groups_enable=False)
    assert room.groups.find("CID_RMQ_SYS_y") is None
    assert room.groups.find("TOOLS_CONSUMER") is not None


def test_an_update_replaces_everything_but_attributes_which_it_changes(room: Room) -> None:
    room.groups.update(GroupConfig("g", retry_max_times=3, attributes={"+priority.factor": "100"}))
    room.groups.update(GroupConfig("g", consume_enable=False))
    expected = GroupConfig("g", consume_enable=False, attributes={"priority.factor": "100"})
    assert room.groups.find("g") == expected
    assert room.groups.data_version.counter == 2
    assert room.again().find("g") == expected


# Remarks of a 5.5.0 broker, without the name of the Java exception that it puts before them.
@pytest.mark.parametrize(
    ("config", "code", "remark"),
    [
        (GroupConfig(""), 29, "The specified group is blank."),
        (GroupConfig("a b"), 29, "The specified group: a b, contains illegal characters"),
        (
            GroupConfig("x" * 121),
            29,
            f"The specified group: {'x' * 121}, is longer than group max length: 120",
        ),
        (
            GroupConfig("g", attributes={"+priority.factor": "101"}),
            1,
            "value is not in range(0, 100)",
        ),
        (
            GroupConfig("g", attributes={"priority.factor": "1"}),
            1,
            "wrong format key: priority.factor",
        ),
        (
            GroupConfig("h", attributes={"-priority.factor": ""}),
            1,
            "only add attribute is supported while creating topic.",
        ),
        (GroupConfig("h", attributes={"+nope": "1"}), 1, "unsupported key: nope"),
        (
            GroupConfig("h", attributes={"+lite.sub.model": "X"}),
            1,
            "value is not in set: [Shared, Exclusive]",
        ),
        (
            GroupConfig("h", attributes={"+lite.sub.reset.offset.exclusive": "X"}),
            1,
            "boolean attribute format is wrong.",
        ),
        (
            GroupConfig("h", attributes={"+lite.sub.client.max.event.cnt": "9"}),
            1,
            "value is not in range(10, 9223372036854775807)",
        ),
        (
            GroupConfig("h", attributes={"+lite.sub.client.quota": "-2"}),
            1,
            "value is not in range(-1, 9223372036854775807)",
        ),
    ],
)
def test_an_update_that_breaks_a_rule_is_refused_and_changes_nothing(
    room: Room, config: GroupConfig, code: int, remark: str
) -> None:
    room.groups.update(GroupConfig("g", attributes={"+lite.sub.client.quota": "2000"}))
    before = room.groups.encode()
    with pytest.raises(RefusedError) as refused:
        room.groups.update(GroupConfig("first of the list"[:5]), config)
    assert REFUSAL_CODES[refused.value.refusal] == code
    assert refused.value.remark.startswith(remark)
    assert room.groups.encode() == before


# One value of each attribute that the original takes: those that would do nothing here, and those
# that change nothing anywhere.
UNSERVED = {
    "priority.factor": "50",
    "lite.bind.topic": "T",
    "lite.sub.model": "Exclusive",
    "lite.sub.reset.offset.exclusive": "true",
    "lite.sub.reset.offset.unsubscribe": "true",
    "lite.sub.client.quota": "5",
    "lite.sub.client.max.event.cnt": "20",
    "lite.sub.wildcard": "w",
}
DEFAULTS = {
    "priority.factor": "100",
    "lite.sub.model": "Shared",
    "lite.sub.reset.offset.exclusive": "false",
    "lite.sub.reset.offset.unsubscribe": "false",
    "lite.sub.client.quota": "2000",
}


def test_an_attribute_that_would_do_nothing_is_refused_with_the_reason_and_its_default_is_taken(
    room: Room,
) -> None:
    assert set(UNSERVED) == set(GROUP_ATTRIBUTES)
    before = room.groups.encode()
    for name, value in UNSERVED.items():
        with pytest.raises(RefusedError) as refused:
            room.groups.update(GroupConfig("g", attributes={f"+{name}": value}))
        assert REFUSAL_CODES[refused.value.refusal] == ResponseCode.SYSTEM_ERROR
        assert refused.value.remark.startswith(f"{name}={value} is refused: ")
        assert "not supported" in refused.value.remark
    assert room.groups.encode() == before
    room.groups.update(
        GroupConfig("g", attributes={f"+{name}": value for name, value in DEFAULTS.items()})
    )
    assert room.groups.table["g"].attributes == DEFAULTS


def test_a_file_of_the_original_with_attributes_that_do_nothing_is_read_and_each_is_told_and_can_be_removed(
    rooms: RoomMaker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = GroupTable(
        {"g": GroupConfig("g", attributes=UNSERVED), "h": GroupConfig("h", attributes=DEFAULTS)},
        {},
        DataVersion(),
    )
    (tmp_path / "subscriptionGroup.json").write_bytes(written.encode(pretty=True))
    with caplog.at_level(logging.WARNING):
        groups = rooms().groups
    assert groups.table["g"].attributes == UNSERVED
    told = [record.getMessage() for record in caplog.records]
    assert [line.partition(" why=")[0] for line in told] == [
        f"attribute_without_effect group=g attribute={name} value={value}"
        for name, value in UNSERVED.items()
    ]
    groups.update(GroupConfig("g", attributes={f"-{name}": "" for name in UNSERVED}))
    assert groups.table["g"].attributes == {}


def test_a_deleted_group_is_gone_with_what_was_forbidden_to_it(room: Room) -> None:
    room.groups.find("g")
    room.groups.set_readable("g", "T", readable=False)
    assert room.groups.delete("g")
    assert not room.groups.delete("g")
    assert "g" not in room.groups
    assert room.groups.is_readable("g", "T")
    assert room.groups.data_version.counter == 3
    assert room.groups.delete("TOOLS_CONSUMER")
    assert room.again().find("TOOLS_CONSUMER") == GroupConfig("TOOLS_CONSUMER"), (
        "the next start has it again"
    )


def test_reading_is_forbidden_and_allowed_topic_by_topic_and_that_survives_a_restart(
    room: Room,
) -> None:
    groups = room.groups
    for topic in ("A", "B"):
        groups.set_readable("g", topic, readable=False)
    groups.set_readable("unknown", "T", readable=False)
    assert (groups.forbidden("g", "A"), groups.forbidden("g", "C"), groups.forbidden("h", "A")) == (
        4,
        0,
        0,
    )
    counter = groups.data_version.counter
    groups.set_readable("g", "A", readable=False)
    assert groups.data_version.counter == counter, "nothing changed"
    groups.set_readable("g", "A", readable=True)
    assert groups.data_version.counter == counter + 1
    again = room.again()
    assert again.is_readable("g", "A")
    assert not again.is_readable("g", "B")
    again.set_readable("g", "B", readable=True)
    assert b'"forbiddenTable":{\n\t\t"unknown":{\n\t\t\t"T":4\n\t\t}\n\t}' in again.encode()
    assert (
        encode_group_forbidden("g", "T", readable=True)
        == b'{"group":"g","readable":true,"topic":"T"}'
    )


def test_a_page_is_a_part_of_the_sorted_names_with_what_is_forbidden_to_them(room: Room) -> None:
    room.groups.set_readable("CID_ONSAPI_OWNER", "T", readable=False)
    room.groups.set_readable("TOOLS_CONSUMER", "T", readable=False)
    page = room.groups.page(1, 3)
    assert list(page.groups) == sorted(PREDEFINED_GROUPS)[1:4]
    assert page.forbidden == {"CID_ONSAPI_OWNER": {"T": 4}}
    assert GroupTable.decode(page.encode()) == page


def test_all_that_a_group_can_say_is_read_written_and_read_again() -> None:
    # As a 5.5.0 broker answered it.
    body = (
        b'{"attributes":{},"brokerId":3,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
        b'"consumeMessageOrderly":true,"consumeTimeoutMinute":15,"groupName":"G4","groupRetryPolicy":{"exponentialRetryPolicy":'
        b'{"initial":1,"max":2,"multiplier":3},"type":"EXPONENTIAL"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,'
        b'"retryMaxTimes":16,"retryQueueNums":1,"subscriptionDataSet":[{"expression":"*","expressionType":"TAG","topic":"B","version":5},'
        b'{"expression":"*","expressionType":"TAG","topic":"T","version":5}],"whichBrokerWhenConsumeSlowly":1}'
    )
    config = GroupConfig.decode(body)
    assert config.retry_policy == GroupRetryPolicy("EXPONENTIAL", ExponentialRetry(1, 2, 3))
    assert config.subscriptions is not None
    assert config.subscriptions[1] == SimpleSubscription("T", "TAG", "*", 5)
    assert config.encode() == body


@pytest.mark.parametrize(
    ("sent", "policy"),
    [
        (
            '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1,2,3]}}',
            GroupRetryPolicy("CUSTOMIZED", None, CustomizedRetry((1, 2, 3))),
        ),
        (
            '{"type":"EXPONENTIAL","exponentialRetryPolicy":{}}',
            GroupRetryPolicy("EXPONENTIAL", ExponentialRetry()),
        ),
        ('{"type":"EXPONENTIAL"}', GroupRetryPolicy("EXPONENTIAL")),
        ('{"type":"OTHER"}', GroupRetryPolicy(None)),
        ("{}", GroupRetryPolicy()),
        ("null", None),
    ],
)
def test_a_retry_policy_is_read_as_the_original_reads_it(
    sent: str, policy: GroupRetryPolicy | None
) -> None:
    config = GroupConfig.decode(
        b'{"groupName":"g","unknown":5,"groupRetryPolicy":%s}' % sent.encode()
    )
    assert config == GroupConfig("g", retry_policy=policy)


def test_redeliveries_wait_as_the_policy_says() -> None:
    default = GroupConfig("g")
    assert [default.retry_delay_ms(times) for times in (-1, 0, 1, 2, 14, 15, 16, 99)] == [
        *(10_000, 10_000, 30_000, 60_000),
        *(3_600_000, 7_200_000, 7_200_000, 7_200_000),
    ]
    exponential = GroupConfig("g", retry_policy=GroupRetryPolicy("EXPONENTIAL", ExponentialRetry()))
    assert [exponential.retry_delay_ms(times) for times in (-1, 0, 1, 2, 10, 11, 99)] == [
        *(5_000, 5_000, 10_000, 20_000),
        *(5_120_000, 7_200_000, 7_200_000),
    ]
    listed = GroupRetryPolicy("CUSTOMIZED", None, CustomizedRetry((1, 2, 3, 4)))
    assert [listed.delay_ms(times) for times in (0, 1, 9)] == [3, 4, 4]
    assert GroupRetryPolicy("EXPONENTIAL").delay_ms(0) == 10_000
    assert GroupConfig("g", retry_policy=None).retry_delay_ms(0) == 10_000


def test_a_list_of_groups_is_taken_as_a_whole(room: Room) -> None:
    room.groups.update(
        *finish(
            decode_group_list(
                b'{"groupConfigList":[{"groupName":"a"},{"groupName":"b","retryQueueNums":4}]}'
            )
        )
    )
    assert room.groups.find("b") == GroupConfig("b", retry_queue_nums=4)
    assert room.groups.data_version.counter == 1
    room.groups.update()
    assert room.groups.data_version.counter == 1


@pytest.mark.parametrize(
    "body",
    [
        b"nonsense",
        b"[]",
        b'{"retryMaxTimes":"x"}',
        b'{"groupRetryPolicy":3}',
        b'{"subscriptionDataSet":{}}',
    ],
)
def test_a_body_that_is_no_group_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        GroupConfig.decode(body)


def golden_files(archive: str) -> list[tuple[str, bytes]]:
    return [
        (f"{folder}/{path}", data)
        for folder in golden_stores.folders()
        if folder.startswith(archive)
        for path, data in golden_stores.content(folder, "config").items()
        if path.removesuffix(".bak") == "subscriptionGroup.json"
    ]


def test_a_golden_file_of_5_5_0_is_written_again_byte_for_byte(
    rooms: RoomMaker, tmp_path: Path
) -> None:
    files = golden_files("store-5.5.0")
    assert len(files) == 26
    for name, data in files:
        (tmp_path / "subscriptionGroup.json").write_bytes(data)
        assert rooms().groups.encode() == data, name


def test_a_golden_file_of_4_9_is_read_and_what_it_lacks_has_its_default(
    rooms: RoomMaker, tmp_path: Path
) -> None:
    files = golden_files("store-4.9.8")
    assert files
    for _, data in files:
        (tmp_path / "subscriptionGroup.json").write_bytes(data)
        groups = rooms().groups
        assert groups.table["CID_ONSAPI_PULL"] == GroupConfig("CID_ONSAPI_PULL")
        assert groups.data_version.state_version == 0
        assert groups.data_version.timestamp < NOW_MS


@pytest.mark.parametrize("damaged", [b"", b"{", b"{}", b'{"subscriptionGroupTable":{"g":[]}}'])
def test_a_damaged_file_is_replaced_by_its_backup_and_two_damaged_ones_are_told(
    rooms: RoomMaker, damaged: bytes
) -> None:
    room = rooms()
    for name in ("a", "b"):
        room.groups.find(name)
        room.loop.run()
    room.path.write_bytes(damaged)
    groups = rooms().groups
    assert ("a" in groups, "b" in groups) == (True, False)
    room.path.write_bytes(b"{")
    room.path.with_name("subscriptionGroup.json.bak").write_bytes(b"{")
    with pytest.raises(CorruptFileError):
        rooms()
