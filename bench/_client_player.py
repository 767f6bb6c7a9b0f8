"""Shared code of the measured clients: orders arrive as lines of JSON, results are returned the
same way.

A client is a process that knows one library. For each order it creates a producer or a consumer and
closes it afterwards. Counts and CPU time are the difference of two samples of the running work, so
they include neither start nor end. Knows no library; `tests/interop/java/ClientLoad.java` speaks
the same protocol.
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
SEND_TIMEOUT_MS = 10_000  # on a busy machine sends are late, not lost
FIRST_WITHIN_S = 30.0  # until the first message arrives
LOOK_EVERY_S = 0.02

Report = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Order:
    """An order to send for some seconds or, with a group, to consume what is there."""

    topic: str
    seconds: float
    settle_s: float = 0.0  # warm-up before the measured seconds
    callers: int = 1  # concurrent senders, each with one request at a time
    batch: int = 1  # messages per request
    group: str = ""  # consumer group, if any
    messages: int = 0  # number of messages available to consume


class Look(NamedTuple):
    """A sample of the work done and the resources used so far."""

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
    """Counts completed messages and failed sends; each caller has its own counter."""

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
    """Send from this many threads for the ordered time; failed sends are counted. The first send,
    before they start, must succeed.
    """
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
    """Measure from the first message on, until the time is over or no message is left."""
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
    """Execute the orders on standard input until it ends."""
    for line in iter(sys.stdin.readline, ""):
        try:
            answer: dict[str, object] = {**obey(Order(**json.loads(line)))}
        except Exception as problem:
            traceback.print_exc()
            answer = {"problem": f"{type(problem).__name__}: {problem}"}
        print(json.dumps(answer), flush=True)
    os._exit(0)  # the exit of some libraries waits for their timers
