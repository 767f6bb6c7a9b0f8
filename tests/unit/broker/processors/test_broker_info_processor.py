"""The broker as a whole: its configuration, what it does now, what it counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.observability.runtime_info import RuntimeInfo, readable_size
from orbitmq.broker.observability.stats import StatName, Stats
from orbitmq.broker.observability.store_stats import StoreStats, Totals
from orbitmq.broker.observability.watermarks import WaterMark
from orbitmq.broker.processors.broker_info import BrokerInfoProcessor
from orbitmq.protocol import fastjson
from orbitmq.protocol.codes import RequestCode
from support.broker.socketless import BrokerRoom, body_of

UPDATE, GET = RequestCode.UPDATE_BROKER_CONFIG, RequestCode.GET_BROKER_CONFIG
INFO, VIEW, HA = (
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.VIEW_BROKER_STATS_DATA,
    RequestCode.GET_BROKER_HA_STATUS,
)
READ_MODE = RequestCode.SET_COMMITLOG_READ_MODE


class InfoRoom(BrokerRoom):
    """A room with the whole configuration and the figures of a broker."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.config = BrokerConfig(
            broker_name="broker-a",
            broker_ip1="127.0.0.1",
            store_path_root_dir=str(folder / "store"),
        )
        self.stats = Stats(self.clock.monotonic_ms())
        store_stats = StoreStats(self.clock.now_ms(), lambda: Totals(3, 1))
        self.calls: list[str] = []
        self.marks: dict[str, WaterMark] = defaultdict(lambda: WaterMark(0, 0))
        self.processor = BrokerInfoProcessor(
            self.config,
            info=RuntimeInfo(
                self.config, self.store, store_stats, self.clock, self.marks.__getitem__, dict
            ),
            stats=self.stats,
            store=self.store,
            clock=self.clock,
            updated=lambda: self.calls.append("updated"),
            permission_changed=lambda: self.calls.append("permission changed"),
        )


@pytest.fixture
def room(tmp_path: Path) -> Iterator[InfoRoom]:
    room = InfoRoom(tmp_path)
    yield room
    room.close()


# --- 25 and 26


def test_an_update_is_in_effect_with_its_answer_and_kept(room: InfoRoom) -> None:
    answer = room.ask(room.processor, UPDATE, body=b"defaultQueryMaxNum=33\n")
    assert (answer.code, answer.remark, answer.body) == (0, None, None)
    assert (room.config.default_query_max_num, room.calls) == (33, ["updated"])
    assert "defaultQueryMaxNum=33" in Path(room.config.broker_config_path).read_text()


def test_name_servers_hear_when_the_permission_of_the_broker_changed(room: InfoRoom) -> None:
    room.ask(room.processor, UPDATE, body=b"brokerPermission=6\n")
    assert room.calls == ["updated"]
    room.ask(room.processor, UPDATE, body=b"brokerPermission=4\n")
    assert room.calls == ["updated", "updated", "permission changed"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"brokerConfigPath=x\n", 16),
        (b"rocketmqHome=x", 16),
        (b"configBlackList=a", 16),
        (b"defaultQueryMaxNum=40\nrocketmqHome=x", 16),
        (b"brokerName=other", 16),
        (b"\\u12", 1),
        (b"defaultQueryMaxNum=x\n", 1),
        (b"defaultQueryMaxNum=-1\n", 1),
        (b"autoCreateTopicEnable=maybe", 1),
        (b"brokerPermission=4\ndefaultQueryMaxNum=x\n", 1),
    ],
)
def test_an_update_that_cannot_be_is_refused_and_changes_nothing(
    room: InfoRoom, body: bytes, code: int
) -> None:
    before = room.ask(room.processor, GET)
    refused = room.refusal(room.processor, UPDATE, body=body)
    assert (refused.code, room.calls) == (code, [])
    after = room.ask(room.processor, GET)
    assert (after.body, after.ext_fields) == (before.body, before.ext_fields)


def test_an_update_of_nothing_changes_nothing(room: InfoRoom) -> None:
    assert room.ask(room.processor, UPDATE).code == 0
    assert room.calls == []


def test_the_configuration_is_told_sorted_with_a_version_that_grows(room: InfoRoom) -> None:
    def version() -> dict[str, int]:
        fields = room.ask(room.processor, GET).ext_fields
        assert fields is not None
        return dict(fastjson.loads(fields["version"]))

    first = version()
    assert (first["counter"], first["stateVersion"], first["timestamp"]) == (
        0,
        0,
        room.clock.now_ms(),
    )
    room.clock.advance_ms(5)
    room.ask(room.processor, UPDATE, body=b"defaultQueryMaxNum=33")
    assert version() == {"counter": 1, "stateVersion": 0, "timestamp": room.clock.now_ms()}
    lines = (room.ask(room.processor, GET).body or b"").decode().splitlines()
    assert lines == sorted(lines)
    assert {"brokerName=broker-a", "defaultQueryMaxNum=33"} <= set(lines)


# --- 28

POOLS = ("send", "pull", "litePull", "query", "ack")
NAMES = {
    *(
        "bootTimestamp",
        "runtime",
        "brokerActive",
        "brokerVersion",
        "brokerVersionDesc",
        "startAcceptSendRequestTimeStamp",
        "pageCacheLockTimeMills",
    ),
    *(
        "putMessageEntireTimeMax",
        "putMessageTimesTotal",
        "putMessageFailedTimes",
        "putMessageSizeTotal",
        "putMessageDistributeTime",
    ),
    *(
        "putMessageAverageSize",
        "getMessageEntireTimeMax",
        "putLatency99",
        "putLatency999",
        "dispatchMaxBuffer",
        "dispatchBehindBytes",
    ),
    *(
        "putTps",
        "getFoundTps",
        "getMissTps",
        "getTotalTps",
        "getTransferredTps",
        "getTransferedTps",
    ),
    *(
        f"msg{what}Total{when}"
        for what in ("Put", "Get")
        for when in ("YesterdayMorning", "TodayMorning", "TodayNow")
    ),
    *(
        "commitLogDiskRatio",
        "consumeQueueDiskRatio",
        "commitLogDirCapacity",
        "commitLogMinOffset",
        "commitLogMaxOffset",
    ),
    *("earliestMessageTimeStamp", "remainTransientStoreBufferNumbs", "remainHowManyDataToFlush"),
    *(
        "timerReadBehind",
        "timerOffsetBehind",
        "timerCongestNum",
        "timerEnqueueTps",
        "timerDequeueTps",
    ),
    *(
        f"{pool}ThreadPoolQueue{what}"
        for pool in POOLS
        for what in ("Size", "Capacity", "HeadWaitTimeMills")
    ),
    *("EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity"),
}


def test_what_the_broker_does_now_is_told_under_every_name_of_the_original(room: InfoRoom) -> None:
    first_ms = room.put().store_time_ms
    table = body_of(room.ask(room.processor, INFO))["table"]
    log_folder = room.store.config.log_folders()[0]
    assert table.keys() == NAMES | {f"commitLogDiskRatio_{log_folder}"}
    assert table["commitLogMaxOffset"] == str(room.store.log.end_offset)
    assert table["earliestMessageTimeStamp"] == str(first_ms)
    assert (table["brokerVersionDesc"], table["brokerActive"]) == ("V5_5_0", "true")
    assert (
        table["sendThreadPoolQueueCapacity"],
        table["EndTransactionThreadPoolQueueCapacity"],
    ) == ("10000", "100000")
    assert 0 <= float(table["commitLogDiskRatio"]) <= 1
    assert table["commitLogDiskRatio"] == table[f"commitLogDiskRatio_{log_folder}"]
    assert table["remainHowManyDataToFlush"].endswith(" B")


def test_the_queues_of_the_original_are_told_by_their_water_marks(room: InfoRoom) -> None:
    room.marks |= {"send": WaterMark(3, 70), "lite_pull": WaterMark(0, 20)}
    table = body_of(room.ask(room.processor, INFO))["table"]
    names = [
        f"{pool}ThreadPoolQueue{what}"
        for pool in ("send", "litePull", "pull")
        for what in ("Size", "HeadWaitTimeMills")
    ]
    assert [table[name] for name in names] == ["3", "70", "0", "20", "0", "0"]


def test_an_empty_store_has_no_first_message(room: InfoRoom) -> None:
    table = body_of(room.ask(room.processor, INFO))["table"]
    assert (table["earliestMessageTimeStamp"], table["commitLogMaxOffset"]) == ("-1", "0")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (252 << 30, "252.0 GiB"),
        (3 << 60, "3.0 EiB"),
    ],
)
def test_sizes_are_told_as_people_read_them(size: int, text: str) -> None:
    assert readable_size(size) == text


# --- 315 and 907


def test_one_statistic_is_told_over_three_spans(room: InfoRoom) -> None:
    room.stats.counter(StatName.TOPIC_PUT_NUMS, "T").add(6, 6)
    room.stats.tick(10_000)
    body = body_of(room.ask(room.processor, VIEW, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"}))
    assert body["statsMinute"] == {"avgpt": 1.0, "sum": 6, "tps": 0.6}
    assert body["statsDay"] == body["statsHour"] == {"avgpt": 0.0, "sum": 0, "tps": 0.0}


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        (
            {"statsName": "TOPIC_PUT_NUMS", "statsKey": "nope"},
            "The stats <TOPIC_PUT_NUMS> <nope> not exist",
        ),
        ({"statsName": "NOPE", "statsKey": "T"}, "The stats <NOPE> <T> not exist"),
        ({"statsName": "TOPIC_PUT_NUMS"}, "the field statsKey"),
        ({"statsKey": "T"}, "the field statsName"),
        (None, "the field statsName"),
    ],
)
def test_a_statistic_that_is_not_there_is_refused(
    room: InfoRoom, fields: dict[str, str] | None, remark: str
) -> None:
    refused = room.refusal(room.processor, VIEW, fields)
    assert (refused.code, refused.remark[: len(remark)]) == (1, remark)


def test_a_master_that_nobody_follows_says_so(room: InfoRoom) -> None:
    room.put()
    assert room.ask(room.processor, HA).body == (
        b'{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,"masterFlushOffset":0,"maxOffset":0,'
        b'"transferredByteInSecond":0},"haConnectionInfo":[],"inSyncSlaveNums":0,"master":true,"masterCommitLogMaxOffset":%d}'
        % room.store.log.end_offset
    )


def test_epochs_are_for_brokers_with_a_controller(room: InfoRoom) -> None:
    refused = room.refusal(room.processor, RequestCode.GET_BROKER_EPOCH_CACHE)
    assert (refused.code, refused.remark[:36]) == (1, "this request only for controllerMode")


# --- 2004


@pytest.mark.parametrize(("mode", "reads_ahead"), [("0", True), ("1", False)])
def test_the_read_mode_of_the_log_is_a_key_of_the_configuration(
    room: InfoRoom, mode: str, reads_ahead: bool
) -> None:
    answer = room.ask(room.processor, READ_MODE, {"READ_AHEAD_MODE": mode})
    assert (answer.code, answer.remark) == (
        0,
        f"set commitlog readahead mode success, mode: {mode}",
    )
    assert (room.config.data_read_ahead_enable, room.calls) == (reads_ahead, ["updated"])


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        (None, 1, "param error"),
        ({}, 1, "failed"),
        ({"READ_AHEAD_MODE": "x"}, 1, "failed"),
        ({"READ_AHEAD_MODE": ""}, 1, "failed"),
        ({"READ_AHEAD_MODE": "2"}, 29, "param value error"),
        ({"READ_AHEAD_MODE": "-1"}, 29, "param value error"),
    ],
)
def test_a_read_mode_that_is_none_is_refused(
    room: InfoRoom, fields: dict[str, str] | None, code: int, remark: str
) -> None:
    refused = room.refusal(room.processor, READ_MODE, fields)
    assert (refused.code, room.calls) == (code, [])
    assert refused.remark.startswith(f"set commitlog readahead mode {remark}")


# --- 354, 355


def test_there_is_nothing_to_compare_with_rocksdb(room: InfoRoom) -> None:
    assert body_of(room.ask(room.processor, RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS)) == {
        "checkStatus": 2
    }


@pytest.mark.parametrize("kinds", ["", "topics", "TOPICS; subscriptionGroups;;consumerOffsets"])
def test_tables_are_exported_at_any_time(room: InfoRoom, kinds: str) -> None:
    answer = room.ask(
        room.processor, RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, {"configType": kinds}
    )
    assert (answer.code, answer.remark) == (0, "export done.")


@pytest.mark.parametrize(
    ("fields", "says"),
    [({"configType": "topics;x"}, "Unknown config type: x"), (None, "configType")],
)
def test_a_table_that_is_none_is_not_exported(
    room: InfoRoom, fields: dict[str, str] | None, says: str
) -> None:
    refused = room.refusal(room.processor, RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, fields)
    assert (refused.code, says in refused.remark) == (1, True)
