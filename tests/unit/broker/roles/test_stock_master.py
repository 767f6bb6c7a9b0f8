"""A slave and a master that answers only Apache's requests, and not always well: the order of
requests, periods, pages, and answers that must not remove anything.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.roles import slave_sync
from orbitmq.broker.roles.slave_sync import MasterKind
from orbitmq.common.clock import SystemClock
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import RequestDispatcher
from orbitmq.testing.manual_clock import ManualClock
from support.broker.slave import Slave, slave
from support.remoting.peers import address, run, serving

VERSION = {"counter": 5, "stateVersion": 0, "timestamp": 1_700_000_000_001}
GROUP = {"groupName": "g", "retryMaxTimes": 3}
ORDER = [21, 43, 45, 201, 402, 61, 60]


def topic(name: str, queues: int = 4) -> dict[str, Any]:
    return {"topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}


class Master:
    """Answers as it is told; `answers` has a body, or a code of refusal, for each request."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.leaves: Callable[[], object] = lambda: None  # called when topics are asked for
        self.topics = {name: topic(name) for name in ("T1", "T2", "T3")}
        self.version = dict(VERSION)
        self.has_pages = True
        self.page_size = 2_000
        self.total: int | None = None  # what it says, if that is not true
        self.changes_after: int | None = None  # pages, then the version is another one
        self.answers: dict[int, Any] = {
            43: {"offsetTable": {"T1@g": {"0": 7}}, "dataVersion": VERSION},
            45: {"offsetTable": {"2": 9}, "dataVersion": VERSION},
            201: {"subscriptionGroupTable": {"g": GROUP}, "dataVersion": VERSION},
            402: {"messageRequestModeMap": {"T1": {"g": {"mode": "POP", "popShareQueueNum": 2}}}},
            61: {"timingCount": {"T1": {"count": 4, "timeStamp": 8}}, "dataVersion": VERSION},
            60: b"".join(n.to_bytes(8, "big") for n in (1_700_000_005_000, 1, 2, 3, 0, 9, 4)),
        }

    def answer(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        if request.code == RequestCode.GET_METADATA_CHANGES:
            return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported")
        self.asked.append(request.code)
        if request.code == RequestCode.GET_ALL_TOPIC_CONFIG:
            self.leaves()
        if request.code == 21 and 21 not in self.answers:
            return self._topics_page(request)
        found = self.answers.get(request.code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        if isinstance(found, int):
            return request.reply(found, "refused")
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        return request.reply(ResponseCode.SUCCESS, body=body)

    def _topics_page(self, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields or {}
        if self.changes_after is not None:
            self.changes_after -= 1
            if self.changes_after < 0:
                self.version["counter"] += 1
        is_same = fields.get("dataVersion") == json.dumps(self.version, separators=(",", ":"))
        seq = int(fields["topicSeq"]) if is_same else 0
        size = min(self.page_size, int(fields["maxTopicNum"])) if self.has_pages else 2_000
        names = sorted(self.topics)[seq : seq + size]
        table = {name: self.topics[name] for name in names}
        body = {"topicConfigTable": table, "dataVersion": self.version}
        answer = request.reply(ResponseCode.SUCCESS, body=json.dumps(body).encode())
        if self.has_pages:
            total = len(self.topics) if self.total is None else self.total
            answer.ext_fields = {"totalTopicNum": str(total)}
        return answer


@asynccontextmanager
async def pair(
    folder: Path, clock: ManualClock | None = None
) -> AsyncIterator[tuple[Master, Slave]]:
    """A master of that kind, and its slave."""
    master, dispatcher = Master(), RequestDispatcher(SystemClock())
    dispatcher.register_default(lambda channel, request: master.answer(channel, request))
    async with (
        serving(dispatcher=dispatcher) as server,
        slave(folder, address(server), clock) as follower,
    ):
        yield master, follower


def own_topics(follower: Slave) -> set[str]:
    topics = follower.components.metadata.topics
    return {name for name in topics.table if not topics.is_system(name)}


def test_all_tables_are_taken_over_in_apaches_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (master, follower):
            await follower.tick()
            assert follower.sync.kind is MasterKind.STOCK
            assert master.asked == ORDER
            own, delay = follower.components.metadata, follower.components.delay
            assert own_topics(follower) == {"T1", "T2", "T3"}
            assert own.topics.data_version.to_json() == VERSION
            assert own.offsets.of("g", "T1") == {0: 7}
            assert own.offsets.data_version.to_json() == VERSION
            group = own.groups.table["g"]
            assert group.retry_max_times == 3
            assert own.groups.data_version.to_json() == VERSION
            assert delay.levels.content().offsets == {2: 9}
            mode = own.modes.find("T1", "g")
            assert mode is not None
            assert mode.mode == "POP"
            assert delay.timed is not None
            assert delay.timed.files.metrics.counts["T1"].waiting == 4
            check = delay.timed.files.check
            assert (check.read_time_ms, check.master_queue_offset) == (1_700_000_005_000, 3)
            assert (check.version_time_ms, check.version_counter) == (9, 4)

    run(scenario)


def test_tables_are_asked_for_every_ten_seconds_and_the_check_point_each_time(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with pair(tmp_path, clock) as (master, follower):
            await follower.tick()
            for _ in range(3):
                master.asked.clear()
                clock.advance_ms(slave_sync.STOCK_PERIOD_MS)
                await follower.tick()
                assert master.asked == [60]
            master.asked.clear()
            clock.advance_ms(slave_sync.STOCK_PERIOD_MS)
            await follower.tick()
            assert master.asked == ORDER

    run(scenario)


def test_what_is_missing_at_the_master_is_deleted_with_its_queues_and_offsets(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with pair(tmp_path, clock) as (master, follower):
            await follower.tick()
            own = follower.components.metadata
            own.offsets.commit("g", "T2", 0, 3)
            del master.topics["T2"]
            master.topics["T3"] = topic("T3", 9)
            master.version["counter"] = 6
            master.answers[402] = {"messageRequestModeMap": {}}
            clock.advance_ms(slave_sync.STOCK_TABLES_PERIOD_MS)
            await follower.tick()
            assert own_topics(follower) == {"T1", "T3"}
            changed = own.topics.find("T3")
            assert changed is not None
            assert changed.read_queue_nums == 9
            assert follower.deleted == ["T2"]
            assert own.offsets.of("g", "T2") == {}
            assert own.modes.find("T1", "g") is None
            assert "SCHEDULE_TOPIC_XXXX" in own.topics.table

    run(scenario)


@pytest.mark.parametrize("page_size", [1, 2, 3])
def test_topics_come_in_pages(tmp_path: Path, page_size: int) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (master, follower):
            master.page_size = page_size
            await follower.tick()
            assert own_topics(follower) == {"T1", "T2", "T3"}
            assert master.asked.count(21) == -(-3 // page_size)

    run(scenario)


def test_a_master_without_pages_sends_all_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (master, follower):
            master.has_pages = False
            await follower.tick()
            assert own_topics(follower) == {"T1", "T2", "T3"}
            assert master.asked.count(21) == 1

    run(scenario)


def test_a_table_that_changes_while_its_pages_are_read_begins_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (master, follower):
            master.page_size = 2
            master.changes_after = 1
            await follower.sync.run_once()
            assert follower.sync.problem is not None
            assert "changed while their pages were read" in follower.sync.problem
            assert own_topics(follower) == set()
            master.changes_after = None
            await follower.tick()
            assert own_topics(follower) == {"T1", "T2", "T3"}

    run(scenario)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="no body"),
        pytest.param(b"not JSON", id="no JSON"),
        pytest.param({}, id="no table"),
        pytest.param({"dataVersion": VERSION}, id="a version alone"),
        pytest.param({"topicConfigTable": {}, "dataVersion": VERSION}, id="empty"),
        pytest.param({"topicConfigTable": {"T9": topic("T9")}}, id="no version"),
        pytest.param({"topicConfigTable": [], "dataVersion": VERSION}, id="a list"),
        pytest.param(1, id="an error"),
    ],
)
def test_topics_stay_if_the_answer_is_empty_or_unreadable(tmp_path: Path, answer: Any) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with pair(tmp_path, clock) as (master, follower):
            await follower.tick()
            master.answers[21] = answer
            master.answers[43] = {"offsetTable": {"T1@g": {"0": 8}}, "dataVersion": VERSION}
            clock.advance_ms(slave_sync.STOCK_TABLES_PERIOD_MS)
            await follower.sync.run_once()
            assert own_topics(follower) == {"T1", "T2", "T3"}
            assert follower.deleted == []
            assert follower.sync.problem is not None
            assert follower.sync.problem.startswith("topics: ")
            assert follower.components.metadata.offsets.of("g", "T1") == {0: 8}

    run(scenario)


@pytest.mark.parametrize("total", [1, 3, 100])
def test_topics_stay_if_the_pages_are_not_all_of_them(tmp_path: Path, total: int) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with pair(tmp_path, clock) as (master, follower):
            await follower.tick()
            del master.topics["T3"]
            master.version["counter"] = 9
            master.total = total
            clock.advance_ms(slave_sync.STOCK_TABLES_PERIOD_MS)
            await follower.sync.run_once()
            assert own_topics(follower) == {"T1", "T2", "T3"}
            assert follower.sync.problem is not None
            assert "nothing was removed" in follower.sync.problem

    run(scenario)


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (43, {}),
        (45, {}),
        (201, {"subscriptionGroupTable": {}, "dataVersion": VERSION}),
        (201, {"dataVersion": VERSION}),
        (402, {}),
        (61, {"dataVersion": VERSION}),
        (60, b"short"),
        (60, b"\xff" * 56),
    ],
)
def test_other_tables_stay_too_and_the_rest_is_taken_over(
    tmp_path: Path, code: int, answer: Any
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with pair(tmp_path, clock) as (master, follower):
            await follower.tick()
            own = follower.components.metadata
            master.answers[code] = answer
            master.topics["T4"] = topic("T4")
            master.version["counter"] = 6
            clock.advance_ms(slave_sync.STOCK_TABLES_PERIOD_MS)
            await follower.sync.run_once()
            assert follower.sync.problem is not None
            assert master.asked == ORDER * 2
            assert "T4" in own_topics(follower)
            assert own.offsets.of("g", "T1") == {0: 7}
            assert "g" in own.groups
            assert own.modes.find("T1", "g") is not None
            assert follower.components.delay.levels.content().offsets == {2: 9}

    run(scenario)


def test_a_master_of_4_9_has_no_modes_and_no_timer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (master, follower):
            for code in (402, 61, 60):
                master.answers[code] = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            master.answers[43] = {"offsetTable": {"T1@g": {"0": 7}}}
            master.answers[45] = {"offsetTable": {}}
            await follower.tick()
            assert follower.components.metadata.offsets.of("g", "T1") == {0: 7}

    run(scenario)


def test_offsets_of_groups_that_the_master_does_not_list_stay(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (_, follower):
            offsets = follower.components.metadata.offsets
            offsets.commit("other", "T1", 0, 3)
            offsets.commit("g", "T1", 5, 3)
            await follower.tick()
            assert offsets.of("other", "T1") == {0: 3}
            assert offsets.of("g", "T1") == {0: 7}

    run(scenario)


def test_a_table_of_the_same_version_is_not_taken_over_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with pair(tmp_path, clock) as (_, follower):
            await follower.tick()
            number = follower.components.metadata.topics.changes.number
            clock.advance_ms(slave_sync.STOCK_TABLES_PERIOD_MS)
            await follower.tick()
            assert follower.components.metadata.topics.changes.number == number
            follower.components.metadata.topics.update(TopicConfig("Own"))
            clock.advance_ms(slave_sync.STOCK_TABLES_PERIOD_MS)
            await follower.tick()
            assert own_topics(follower) == {"T1", "T2", "T3"}

    run(scenario)


def test_an_answer_of_a_master_that_is_no_more_is_not_applied(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (master, follower):
            master.leaves = lambda: setattr(follower, "master", None)
            await follower.sync.run_once()
            assert own_topics(follower) == set()
            await follower.sync.run_once()
            assert follower.sync.problem is None

    run(scenario)
