"""Full collections look at what is new, cycles that were set aside go when everything is looked at."""

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


@pytest.mark.usefixtures("collector")
def test_everything_is_looked_at_when_much_more_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_collections, "_GROWTH_MIN", 1_000)
    limit = 2 * gc.get_freeze_count() + 100_000
    nodes: weakref.WeakSet[Node] = weakref.WeakSet()
    for _ in range(limit // 10_000 + 20):
        some = [Node() for _ in range(10_000)]
        nodes.update(some)
        gc.collect()
        del some
        assert len(nodes) < limit


def test_afterwards_the_collector_is_as_it_was() -> None:
    before, threshold = list(gc.callbacks), gc.get_threshold()
    short_collections.begin()
    short_collections.begin()
    short_collections.end()
    assert (gc.callbacks, gc.get_threshold(), gc.get_freeze_count()) == (before, threshold, 0)
