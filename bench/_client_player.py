"""What the clients that are measured have in common: an order comes as one line of JSON, what came of it goes back as one.

A client is a process of its own that knows one library. For each order it makes a producer or a consumer, and ends it after. Counts and CPU
time are taken by two looks at the running work, so neither start nor end is in them. Knows no library; `tests/interop/java/ClientLoad.java`
speaks the same.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

BODY = b"x" * 256
SEND_TIMEOUT_MS = 10_000  # a machine that is busy makes sends late, not lost
FIRST_WITHIN_S = 30.0  # for the first message to arrive
LOOK_EVERY_S = 0.02

Report = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Order:
    """Send for some seconds, or, with a group, consume what is there."""

    topic: str
    seconds: float
    settle_s: float = 0.0  # of work before the measured seconds
    callers: int = 1  # that send side by side, each one request after the other
    batch: int = 1  # messages in each request
    group: str = ""  # to consume in, from the first message on
    messages: int = 0  # that are there to be consumed


class Look(NamedTuple):
    """What was done and used up to some moment."""

    messages: int
    failed: int
    at_s: float
    cpu_s: float

    def until(self, end: Look) -> Report:
        return {
            "messages": end.messages - self.messages,
            "failed": end.failed - self.failed,
            "seconds": end.at_s - self.at_s,
            "cpu_seconds": end.cpu_s - self.cpu_s,
        }


class Work:
    """Messages that the callers are through with, and sends that failed; each caller counts in a place of its own."""

    def __init__(self, callers: int = 1) -> None:
        self.counts = [0] * callers
        self.failed = [0] * callers
        self.is_over = False

    def look(self) -> Look:
        return Look(sum(self.counts), sum(self.failed), time.perf_counter(), time.process_time())

    @property
    def has_begun(self) -> bool:
        return any(self.counts)


def send_by_threads(order: Order, send: Callable[[], object]) -> Report:
    """Let that many threads send for as long as the order says; sends that fail are counted. The first, before they start, may not fail."""
    work = Work(order.callers)

    def caller(number: int) -> None:
        while not work.is_over:
            try:
                send()
                work.counts[number] += order.batch
            except Exception:
                work.failed[number] += 1

    send()
    threads = [threading.Thread(target=caller, args=(number,)) for number in range(order.callers)]
    for thread in threads:
        thread.start()
    time.sleep(order.settle_s)
    begin = work.look()
    time.sleep(order.seconds)
    end = work.look()
    work.is_over = True
    for thread in threads:
        thread.join()
    return begin.until(end)


def watch_consumption(order: Order, work: Work) -> Report:
    """From the first message on, until the time is over or nothing is left."""
    deadline_s = time.perf_counter() + FIRST_WITHIN_S
    while not work.has_begun:
        if time.perf_counter() > deadline_s:
            raise TimeoutError(f"no message of {order.topic} within {FIRST_WITHIN_S:g} s")
        time.sleep(LOOK_EVERY_S)
    begin = end = work.look()
    while end.at_s < begin.at_s + order.seconds and end.messages < order.messages:
        time.sleep(LOOK_EVERY_S)
        end = work.look()
    return begin.until(end)


def obey_orders(obey: Callable[[Order], Report]) -> None:
    """Obey every order of standard input, and end with it."""
    for line in iter(sys.stdin.readline, ""):
        try:
            answer: dict[str, object] = {**obey(Order(**json.loads(line)))}
        except Exception as problem:
            traceback.print_exc()
            answer = {"problem": f"{type(problem).__name__}: {problem}"}
        print(json.dumps(answer), flush=True)
    os._exit(0)  # the end of some libraries waits for their timers
