"""The change log: keys in the order of their last change, pages that continue, and removed keys
that are forgotten.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.common.change_log import ChangeLog, Position

ALL = 1_000


def follow(log: ChangeLog[str], table: set[str], position: Position, page: int) -> set[str] | None:
    """Return the keys that changed after a position, asked for in pages; None if the table was sent
    whole.
    """
    keys: set[str] = set()
    while position.number != log.number:
        changed = log.since(position, page)
        if changed.is_whole:
            return None
        keys.update(key for key, _ in changed.keys)
        position = Position(changed.keys[-1].number)
    return keys


def test_keys_come_in_the_order_of_their_last_change() -> None:
    log = ChangeLog[str]()
    log.put_all(["a", "b", "c"])
    log.put("a")
    changed = log.since(Position(), ALL)
    assert changed.is_whole
    assert [key for key, _ in changed.keys] == ["b", "c", "a"]
    assert [key for key, _ in log.since(Position(3), ALL).keys] == ["c", "a"]
    assert log.since(Position(log.number), ALL).keys == []
    assert not log.since(Position(log.number), ALL).is_whole


def test_a_new_log_sends_the_whole_of_nothing() -> None:
    changed = ChangeLog[str]().since(Position(), ALL)
    assert changed.is_whole
    assert changed.keys == []


def test_a_position_of_the_future_gets_the_whole_table() -> None:
    log = ChangeLog[str]()
    log.put("a")
    assert log.since(Position(99), ALL).is_whole


def test_a_follower_behind_a_forgotten_removal_gets_the_whole_table() -> None:
    log = ChangeLog[str](removed_max=1)
    log.put_all(["a", "b", "c"])
    before = Position(log.number)
    log.remove("a")
    assert [key for key, _ in log.since(before, ALL).keys] == ["a"]
    log.remove("b")
    assert log.since(before, ALL).is_whole
    assert [key for key, _ in log.since(Position(), ALL).keys] == ["c", "b"]


def test_a_whole_table_continues_behind_removals_from_before_it_began() -> None:
    log = ChangeLog[str](removed_max=1)
    log.put_all(["a", "b", "c", "d"])
    log.remove("c", "d")
    begun = log.number
    first = log.since(Position(), 1)
    assert first.is_whole
    position = Position(first.keys[0].number, begun)
    assert not log.since(position, ALL).is_whole
    log.remove("b")  # the removal of d is forgotten now, which was before
    assert not log.since(position, ALL).is_whole
    log.remove("a")  # and now that of b, which may have been sent
    assert log.since(position, ALL).is_whole


def test_changes_of_a_master_are_not_counted_as_own() -> None:
    log = ChangeLog[str]()
    log.put("a")
    log.remove("b")
    assert log.own_changes == 2
    number = log.number
    log.take_over(["c"], ["a"])
    assert log.own_changes == 2
    assert log.number == number + 2


@given(
    steps=st.lists(st.tuples(st.booleans(), st.sampled_from("abcdef")), max_size=30),
    seen=st.integers(0, 30),
    page=st.integers(1, 4),
    removed_max=st.integers(1, 5),
)
def test_a_follower_gets_exactly_what_changed_after_its_position(
    steps: list[tuple[bool, str]], seen: int, page: int, removed_max: int
) -> None:
    log = ChangeLog[str](removed_max)
    table: set[str] = set()
    position, since = Position(log.number), list[str]()
    for number, (is_put, key) in enumerate(steps):
        if is_put:
            table.add(key)
            log.put(key)
        elif key in table:
            table.remove(key)
            log.remove(key)
        else:
            continue
        if number < seen:
            position, since = Position(log.number), []
        else:
            since.append(key)
    found = follow(log, table, position, page)
    if found is None:
        removed = {key for is_put, key in steps if not is_put}
        assert len(removed) > removed_max or position.number == 0
    else:
        assert found == set(since)
