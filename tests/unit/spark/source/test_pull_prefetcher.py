"""Tests prefetching: a range is read once and in order, whatever the size and order of replies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.spark.source.pull_prefetcher import COUNT_MAX, WINDOW_MAX, PlannedPull, PullPrefetcher


def offsets_of(body: bytes, begin: int, end: int) -> list[int]:
    """Return the offsets in a fake body."""
    return [offset for text in body.split() if begin <= (offset := int(text)) < end]


def body_of(offsets: list[int]) -> bytes:
    return " ".join(map(str, offsets)).encode()


class Queue:
    """Reply like a broker: from the offset on, up to the requested count and the broker's limit."""

    def __init__(self, messages: set[int], first: int, end: int, sizes: list[int]) -> None:
        self.messages, self.first, self.end, self.sizes = messages, first, end, sizes
        self.answers = 0

    def answer(self, offset: int, count: int) -> tuple[bytes, int]:
        assert 0 < count <= COUNT_MAX
        if offset < self.first:
            return b"", self.first
        at_once = self.sizes[self.answers % len(self.sizes)]
        self.answers += 1
        found: list[int] = []
        while offset < self.end and len(found) < min(count, at_once):
            if offset in self.messages:
                found.append(offset)
            offset += 1
        return body_of(found), offset


@st.composite
def queues(draw: st.DrawFn) -> tuple[Queue, int, int]:
    first = draw(st.integers(0, 60))
    end = first + draw(st.integers(1, 400))
    holes = draw(st.sets(st.integers(first, end), max_size=30))
    begin = draw(st.integers(0, end - 1))
    stop = draw(st.integers(begin, end))
    sizes = draw(st.lists(st.integers(1, 64), min_size=1, max_size=5))
    return Queue(set(range(first, end)) - holes, first, end, sizes), begin, stop


@given(
    queues(),
    st.booleans(),
    st.randoms(use_true_random=False),
    st.lists(st.integers(0, 40), max_size=3),
)
def test_a_range_is_read_once_and_in_order_whatever_comes_when(
    case: tuple[Queue, int, int], is_dense: bool, order: object, breaks: list[int]
) -> None:
    queue, begin, end = case
    plan = PullPrefetcher(begin, end, is_dense=is_dense)
    sent: list[PlannedPull] = []
    found: list[int] = []
    reached = begin
    steps = 0
    while not plan.is_done:
        steps += 1
        assert steps < 10_000
        while (ask := plan.next_pull()) is not None:
            sent.append(ask)
        assert 0 < len(sent) <= (WINDOW_MAX if is_dense else 1)
        if steps in breaks:  # the connection
            sent.clear()
            plan.restart()
            continue
        ask = sent.pop(order.randrange(len(sent)))  # type: ignore[attr-defined]
        if steps % 7 == 0:
            plan.on_failure(ask)
            continue
        body, next_offset = queue.answer(ask.begin, ask.count)
        received = bytearray(body)
        plan.on_reply(ask, memoryview(received), next_offset)
        while (piece := plan.take()) is not None:
            assert reached <= piece.begin <= piece.end <= end
            reached = piece.end
            found += offsets_of(bytes(piece.body), piece.begin, piece.end)
        plan.copy_pending()
        received[:] = bytes(len(received))  # the next replies reuse the memory
    assert plan.next_pull() is None
    assert found == [offset for offset in range(begin, end) if offset in queue.messages]


def test_the_first_answer_shows_how_far_apart_the_next_pulls_begin() -> None:
    plan = PullPrefetcher(0, 10_000, is_dense=True)
    first = plan.next_pull()
    assert first is not None
    assert plan.next_pull() is None
    plan.on_reply(first, b"32 messages", 32)
    asks = [plan.next_pull() for _ in range(WINDOW_MAX)]
    assert [(ask.begin, ask.end) for ask in asks if ask] == [
        (32 * number, 32 * number + 32) for number in range(1, WINDOW_MAX + 1)
    ]
    assert plan.next_pull() is None


def test_a_broker_that_gives_more_at_once_is_asked_for_more() -> None:
    plan = PullPrefetcher(0, 100_000, is_dense=True)
    ask = plan.next_pull()
    assert ask is not None
    plan.on_reply(ask, b"large messages", 4)
    for _ in range(60):
        ask = plan.next_pull()
        assert ask is not None
        plan.on_reply(ask, b"small ones", ask.begin + min(ask.count, 500))
        plan.take()
    ask = plan.next_pull()
    assert ask is not None
    assert ask.end - ask.begin > 400


def test_fewer_pulls_are_on_their_way_when_messages_are_large() -> None:
    plan = PullPrefetcher(0, 1_000, is_dense=True)
    ask = plan.next_pull()
    assert ask is not None
    plan.on_reply(ask, bytes(1 << 20), 1)
    asks = [plan.next_pull() for _ in range(5)]
    assert [ask is not None for ask in asks] == [True, True, True, True, False]


def test_a_long_hole_is_stepped_over_at_once() -> None:
    plan = PullPrefetcher(0, 1_000_000, is_dense=True)
    ask = plan.next_pull()
    assert ask is not None
    plan.on_reply(ask, b"", 999_990)
    ask = plan.next_pull()
    assert ask is not None
    assert ask.begin == 999_990


def test_filtered_messages_are_asked_for_one_pull_after_the_other() -> None:
    plan = PullPrefetcher(0, 1_000, is_dense=False)
    ask = plan.next_pull()
    assert ask is not None
    plan.on_reply(ask, b"few", 500)
    assert plan.next_pull() is not None
    assert plan.next_pull() is None
