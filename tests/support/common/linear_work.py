"""Shows that work grows with the size of its input, and not faster: CPU time of one size beside
that of sixteen times as much.
"""

from __future__ import annotations

import time
from collections.abc import Callable

GROWTH = 16  # linear work takes so many times as long, quadratic work 256 times
_GROWTH_MAX = 4 * GROWTH  # generous: caches, garbage collection, a busy machine
_NOISE_S = 0.005
_ROUNDS = 3


def cpu_s(work: Callable[[], object]) -> float:
    """The CPU time of this thread that a call takes, the least of a few."""
    taken = []
    for _ in range(_ROUNDS):
        begin = time.thread_time()
        work()
        taken.append(time.thread_time() - begin)
    return min(taken)


def assert_linear(work_of: Callable[[int], Callable[[], object]], size: int) -> None:
    """That `work_of(size)` is work in proportion to the size; `work_of` itself, which makes the
    input, is not counted.
    """
    small, large = cpu_s(work_of(size)), cpu_s(work_of(GROWTH * size))
    assert large <= _GROWTH_MAX * (small + _NOISE_S / GROWTH), (
        f"{size}: {small:.6f} s, {GROWTH * size}: {large:.6f} s"
    )


def outcome(call: Callable[[], object], *refusals: type[Exception]) -> Callable[[], object]:
    """The call, for which it is as good to be refused."""

    def called() -> object:
        try:
            return call()
        except refusals as refused:
            return refused

    return called
