"""Kills processes of Spark from inside at points that a test names. Python imports this module at
start-up if its folder is on the path.

`FAULTS` is a list of `point@occurrence=victim`: when the point is reached for that time, the victim
is SIGKILLed. Victims are `worker`, which is this process, and `driver`: Spark's Java, the command
that started it, and this process. In the folder `FAULT_MARKS` all processes together count how
often a point was reached, so that nothing is killed twice.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar


def come_to(point: str) -> None:
    """Kill the victim if a test requests it at this point and occurrence."""
    for fault in filter(None, os.environ.get("FAULTS", "").split(",")):
        place, victim = fault.split("=")
        name, occurrence = place.split("@")
        if name == point and _count(point) == int(occurrence):
            if victim == "driver":
                os.killpg(os.getpgid(_java()), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)


def _count(point: str) -> int:
    for number in itertools.count(1):
        try:
            (Path(os.environ["FAULT_MARKS"]) / f"{point}-{number}").mkdir()
        except FileExistsError:
            continue
        return number
    raise AssertionError("numbers do not end")


def _java() -> int:
    """Return the Java that is a parent or grandparent of this process."""
    pid = os.getppid()
    while (status := Path(f"/proc/{pid}/status").read_text().splitlines())[0].split()[1] != "java":
        pid = next(int(line.split()[1]) for line in status if line.startswith("PPid:"))
    return pid


def _before(method: Callable[..., Any], point: str) -> Callable[..., Any]:
    @wraps(method)
    def wrapped(*args: Any) -> Any:
        come_to(point)
        return method(*args)

    return wrapped


def _after(method: Callable[..., Any], point: str) -> Callable[..., Any]:
    @wraps(method)
    def wrapped(*args: Any) -> Any:
        result = method(*args)
        come_to(point)
        return result

    return wrapped


def _within_results(
    method: Callable[..., Iterator[Any]], point: str
) -> Callable[..., Iterator[Any]]:
    """Reach the point after each result."""

    @wraps(method)
    def wrapped(*args: Any) -> Iterator[Any]:
        for each in method(*args):
            yield each
            come_to(point)

    return wrapped


def _in_reader(module: ModuleType) -> None:
    reader = module.StreamReader
    for name in ("latestOffset", "partitions"):
        setattr(reader, name, _after(getattr(reader, name), name))
    reader.commit = _after(reader.commit, "sourceCommit")
    reader.read = _within_results(reader.read, "read")


def _in_writer(module: ModuleType) -> None:
    writer = module.StreamWriter
    writer.write = _after(writer.write, "write")
    writer.commit = _after(_before(writer.commit, "beforeSinkCommit"), "afterSinkCommit")


def _in_transaction_log(module: ModuleType) -> None:
    log = module.TransactionLog
    log.decide = _after(log.decide, "decided")
    log.finish = _before(log.finish, "beforeDone")


def _in_staging(module: ModuleType) -> None:
    sender = module.StagingSender
    sender._commit = _before(sender._commit, "amongEnds")


class _Finder(MetaPathFinder):
    """Instruments modules when they are imported."""

    _changes: ClassVar = {
        "orbitmq.spark.source.stream_reader": _in_reader,
        "orbitmq.spark.sink.stream_writer": _in_writer,
        "orbitmq.spark.sink.transaction_log": _in_transaction_log,
        "orbitmq.spark.sink.staging": _in_staging,
    }

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if (
            fullname not in self._changes
            or (spec := PathFinder.find_spec(fullname, path)) is None
            or spec.loader is None
        ):
            return None
        loader, change = spec.loader, self._changes[fullname]
        execute = loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            change(module)

        loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


if os.environ.get("FAULTS"):
    sys.meta_path.insert(0, _Finder())
