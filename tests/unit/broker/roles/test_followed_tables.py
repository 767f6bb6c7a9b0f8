"""A copy of a master's table: whole, by changes, in pages, and never emptied by mistake."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.broker.roles.followed_tables import OwnTable, TableCopy, ValueCopy
from orbitmq.common.change_log import ChangeLog, Position
from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import Slices, finish
from orbitmq.protocol.bodies.metadata_rows import OFFSETS, OffsetsRow
from orbitmq.protocol.bodies.nameserver import DataVersion


class Table:
    """A table of offsets, and a copy that fills it."""

    def __init__(self, *, may_be_empty: bool = True, **rows: int) -> None:
        self.rows = {key: {0: offset} for key, offset in rows.items()}
        self.version: DataVersion | None = None
        self.changes = ChangeLog[str]()
        self.takes = 0
        self.copy = TableCopy(
            OwnTable(
                codec=OFFSETS,
                changes=self.changes,
                all_keys=lambda: list(self.rows),
                version=lambda: self.version,
                take_over=self._take_over,
                may_be_empty=may_be_empty,
            )
        )

    def _take_over(
        self, rows: list[OffsetsRow], removed: list[str], version: DataVersion | None
    ) -> Slices[None]:
        self.takes += 1
        assert len(removed) == len(set(removed))
        for key in removed:
            self.rows.pop(key, None)
        self.rows |= {row.key: dict(row.offsets) for row in rows}
        self.version = version or self.version
        self.changes.take_over([row.key for row in rows], removed)
        yield from ()

    def apply(
        self, number: int, *removed: str, whole: int = 0, more: bool = False, **rows: int
    ) -> None:
        members: dict[str, Any] = {
            "number": number,
            "whole": whole,
            "more": more,
            "rows": [{"key": key, "offsets": {"0": offset}} for key, offset in rows.items()],
            "removed": list(removed),
        }
        finish(self.copy.apply(members))


def test_a_whole_table_removes_what_the_master_does_not_have() -> None:
    table = Table(mine=1, a=1)
    assert table.copy.position() == Position()
    table.apply(7, whole=6, a=2, b=3)
    assert table.rows == {"a": {0: 2}, "b": {0: 3}}
    assert table.copy.position() == Position(7)


def test_nothing_is_removed_before_the_last_page() -> None:
    table = Table(mine=1)
    table.apply(3, whole=9, more=True, a=1)
    assert table.rows == {"mine": {0: 1}, "a": {0: 1}}
    assert table.copy.position() == Position(3, 9)
    table.apply(5, more=True, b=2)
    assert table.copy.position() == Position(5, 9)
    table.apply(9, "a", c=3)
    assert table.rows == {"b": {0: 2}, "c": {0: 3}}
    assert table.copy.position() == Position(9)


def test_a_whole_table_that_begins_again_forgets_the_pages_before() -> None:
    table = Table()
    table.apply(3, whole=9, more=True, old=1)
    table.apply(12, whole=12, a=1)
    assert table.rows == {"a": {0: 1}}


def test_an_empty_table_is_refused_if_every_master_has_rows() -> None:
    table = Table(may_be_empty=False, mine=1)
    with pytest.raises(ProtocolError, match="sent no consumerOffsets"):
        table.apply(7, whole=7)
    assert table.rows == {"mine": {0: 1}}
    assert table.copy.position() == Position()


def test_an_empty_table_is_taken_over_if_it_may_be_empty() -> None:
    table = Table(mine=1)
    table.apply(1, whole=1)
    assert table.rows == {}


def test_a_part_is_refused_if_all_was_asked_for() -> None:
    table = Table(mine=1)
    with pytest.raises(ProtocolError, match="a part was sent"):
        table.apply(7, a=1)
    assert table.rows == {"mine": {0: 1}}


def test_a_malformed_page_changes_nothing() -> None:
    table = Table(mine=1)
    with pytest.raises(ProtocolError):
        finish(table.copy.apply({"number": 5, "whole": 5}))
    assert table.rows == {"mine": {0: 1}}
    assert table.copy.position() == Position()


def test_a_change_of_its_own_makes_it_ask_for_all() -> None:
    table = Table()
    table.apply(7, whole=7, a=1)
    table.changes.put("a")
    assert table.copy.position() == Position()


def test_a_page_without_changes_is_not_applied_but_for_a_new_version() -> None:
    table = Table()
    table.apply(7, whole=7, a=1)
    version = DataVersion(counter=4)
    finish(table.copy.apply({"number": 7}))
    assert table.takes == 1
    finish(table.copy.apply({"number": 7, "dataVersion": version.to_json()}))
    assert (table.takes, table.version) == (2, version)
    finish(table.copy.apply({"number": 7, "dataVersion": version.to_json()}))
    assert table.takes == 2


def test_a_value_is_held_once_for_each_number() -> None:
    held: list[int] = []
    copy = ValueCopy[int]("v", lambda members: members, held.append)
    finish(copy.apply((3, 30)))
    assert copy.position() == Position(3)
    finish(copy.apply((3, None)))
    assert held == [30]
    copy.forget()
    assert copy.position() == Position()
