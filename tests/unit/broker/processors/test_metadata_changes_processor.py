"""GET_METADATA_CHANGES: what is returned for which positions, in pages of a bounded size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from orbitmq.broker.processors.metadata_changes import UNITS_MAX, MetadataChangesProcessor
from orbitmq.broker.wiring.components import BrokerComponents
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.metadata_changes import (
    POSITION_FIELDS,
    GetMetadataChangesResponseHeader,
)
from orbitmq.testing.manual_clock import ManualClock
from support.broker.slave import loaded
from support.remoting.channels import Peers, answered_now


class Asker:
    """A slave that sends positions."""

    def __init__(self, broker: BrokerComponents) -> None:
        self.broker = broker
        self.processor = MetadataChangesProcessor(
            metadata=broker.metadata,
            delay=broker.delay,
            locks=broker.locks,
            store=broker.store,
            clock=broker.clock,
            random=Random(1),
        )
        self.header = GetMetadataChangesResponseHeader(source="", log_end=0, has_more=False)
        self._channel = Peers().connect()

    def __call__(self, **fields: str) -> dict[str, Any]:
        request = RemotingCommand(RequestCode.GET_METADATA_CHANGES, ext_fields=fields)
        handler = self.processor.handlers()[RequestCode.GET_METADATA_CHANGES]
        response = answered_now(handler, self._channel, request)
        assert response is not None
        self.header = GetMetadataChangesResponseHeader.from_fields(response.ext_fields)
        found: dict[str, Any] = fastjson.loads(response.body or b"")
        return found

    def positions(self, found: dict[str, Any]) -> dict[str, str]:
        """The fields of a slave that has what it was sent."""
        numbers = {f"{name}Position": str(found[name]["number"]) for name in found}
        return {"source": self.header.source, **numbers}


def run(tmp_path: Path, scenario: Callable[[Asker], None], **keys: str) -> None:
    async def main() -> None:
        async with loaded(tmp_path, ManualClock(), **keys) as broker:
            scenario(Asker(broker))

    asyncio.run(main())


def test_a_new_slave_gets_all_tables_whole(tmp_path: Path) -> None:
    def scenario(ask: Asker) -> None:
        ask.broker.metadata.topics.update(TopicConfig("T", 3, 3))
        found = ask()
        assert set(found) == set(POSITION_FIELDS)
        rows = {row["config"]["topicName"]: row for row in found["topics"]["rows"]}
        assert rows["T"]["config"]["readQueueNums"] == 3
        assert found["topics"]["whole"] == ask.broker.metadata.topics.changes.number
        assert not found["topics"]["more"]
        assert ask.header.log_end == ask.broker.store.log.end_offset
        assert not ask.header.has_more

    run(tmp_path, scenario)


def test_a_slave_that_has_everything_gets_numbers_and_versions_only(tmp_path: Path) -> None:
    def scenario(ask: Asker) -> None:
        first = ask()
        found = ask(**ask.positions(first))
        assert found["topics"] == {
            "number": first["topics"]["number"],
            "dataVersion": ask.broker.metadata.topics.data_version.to_json(),
        }
        assert all(set(found[name]) <= {"number", "dataVersion"} for name in found)

    run(tmp_path, scenario)


def test_a_slave_gets_what_changed_and_what_was_removed(tmp_path: Path) -> None:
    def scenario(ask: Asker) -> None:
        topics = ask.broker.metadata.topics
        topics.update(TopicConfig("Old"), TopicConfig("Same"))
        positions = ask.positions(ask())
        topics.update(TopicConfig("New"))
        topics.delete("Old")
        found = ask(**positions)["topics"]
        assert [row["config"]["topicName"] for row in found["rows"]] == ["New"]
        assert found["removed"] == ["Old"]
        assert found["whole"] == 0

    run(tmp_path, scenario)


def test_positions_of_another_run_do_not_count(tmp_path: Path) -> None:
    def scenario(ask: Asker) -> None:
        positions = ask.positions(ask())
        found = ask(**positions | {"source": "another"})
        assert found["topics"]["whole"] > 0

    run(tmp_path, scenario)


@pytest.mark.parametrize("position", ["nonsense", "-1", "99999999", "0", ""])
def test_a_position_that_does_not_exist_stands_for_nothing(tmp_path: Path, position: str) -> None:
    def scenario(ask: Asker) -> None:
        positions = ask.positions(ask())
        found = ask(**positions | {"topicsPosition": position})
        assert found["topics"]["whole"] > 0
        assert set(found["groups"]) == {"number", "dataVersion"}

    run(tmp_path, scenario)


def test_a_large_table_comes_in_pages_that_continue(tmp_path: Path) -> None:
    def scenario(ask: Asker) -> None:
        topics = ask.broker.metadata.topics
        topics.update(*(TopicConfig(f"T{number}") for number in range(2 * UNITS_MAX)))
        names: set[str] = set()
        found, pages = ask(), 1
        begun = found["topics"]["whole"]
        assert "groups" not in found  # no room for them yet
        while True:
            names |= {row["config"]["topicName"] for row in found["topics"]["rows"]}
            if not found["topics"]["more"]:
                break
            assert ask.header.has_more
            fields = ask.positions(found)
            fields["topicsPosition"] += f"/{begun}"
            found, pages = ask(**fields), pages + 1
        assert names == set(topics.table)
        assert pages == 3
        assert found["groups"]["whole"] > 0
        assert not ask.header.has_more

    run(tmp_path, scenario)


def test_wide_rows_fill_a_page_sooner(tmp_path: Path) -> None:
    def scenario(ask: Asker) -> None:
        offsets = ask.broker.metadata.offsets
        for group in range(4):
            for queue_id in range(8 * UNITS_MAX // 2):
                offsets.commit(f"g{group}", "T", queue_id, 1)
        found = ask()["consumerOffsets"]
        assert len(found["rows"]) == 2
        assert found["more"]

    run(tmp_path, scenario)


def test_without_a_timer_its_tables_are_missing(tmp_path: Path) -> None:
    def scenario(ask: Asker) -> None:
        assert set(POSITION_FIELDS) - set(ask()) == {"timerMetrics", "timerCheckPoint"}

    run(tmp_path, scenario, timerWheelEnable="false")
