"""Full collections look at what is new, cycles that were set aside go when everything is
looked at.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from orbitmq.common import short_collections


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def collector() -> Iterator[None]:
    short_collections.begin()
    yield
    short_collections.end()


@pytest.mark.usefixtures("collector")
def test_what_survived_a_full_collection_is_not_looked_at_again() -> None:
    kept = [Node() for _ in range(100)]
    gc.collect()
    assert gc.get_freeze_count() > 0
    assert not [each for each in gc.get_objects() if isinstance(each, Node)], "it is set aside"
    assert len(kept) == 100


@pytest.mark.usefixtures("collector")
def test_a_cycle_that_was_set_aside_goes_when_everything_is_looked_at() -> None:
    node = Node()
    gc.collect()
    gone = weakref.ref(node)
    del node
    gc.collect()
    assert gone() is not None
    short_collections.look_at_all()
    gc.collect()
    assert gone() is None


def frozen_until(limit: int) -> int:
    """Freeze cycles and drop them until there are `limit` of them, or some were collected. Returns
    how many were left.
    """
    nodes: weakref.WeakSet[Node] = weakref.WeakSet()
    while len(nodes) < limit:
        before = len(nodes)
        some = [Node() for _ in range(10_000)]
        nodes.update(some)
        gc.collect()
        del some
        if len(nodes) < before:
            break
    return len(nodes)


@pytest.mark.slow
@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("is_idle", [True, False])
def test_everything_is_looked_at_in_an_idle_moment_when_much_more_is_set_aside(
    monkeypatch: pytest.MonkeyPatch, is_idle: bool
) -> None:
    monkeypatch.setattr(short_collections, "_GROWTH_MIN", 1_000)
    monkeypatch.setattr(short_collections._SetAside, "was_idle", lambda _self: is_idle)
    node = Node()
    gone = weakref.ref(node)
    del node
    limit = 2 * gc.get_freeze_count() + 20_000
    assert frozen_until(limit) >= limit, "nothing is collected while requests are served"
    before = gc.get_freeze_count()
    short_collections.collect_when_idle()
    assert (gc.get_freeze_count() < before // 2) == is_idle
    assert gone() is None or not is_idle


@pytest.mark.slow
@pytest.mark.usefixtures("collector")
def test_a_process_that_is_never_idle_looks_at_everything_before_memory_runs_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(short_collections, "_GROWTH_MIN", 1_000)
    limit = 10 * gc.get_freeze_count() + 100_000
    assert frozen_until(limit) < limit


def test_afterwards_the_collector_is_as_it_was() -> None:
    before, threshold = list(gc.callbacks), gc.get_threshold()
    short_collections.begin()
    short_collections.begin()
    short_collections.end()
    assert (gc.callbacks, gc.get_threshold(), gc.get_freeze_count()) == (before, threshold, 0)
