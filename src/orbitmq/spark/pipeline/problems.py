"""What Spark says of its troubles, in one sentence: without the plan, the stack and the codes that come with it.

Knows texts only. An error of ours that was raised in one of Spark's Python workers comes back as a text too, and is told in its own words.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from orbitmq.common.errors import ConfigurationError, OrbitError

_CONDITION: Final = re.compile(r"\[[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*\] ")
_END: Final = re.compile(r"\s*(?:SQLSTATE: \w+|;\s*line \d+ pos \d+|\n\s*={2,3} (?:SQL|Streaming Query) =|\nJVM stack|\n\s*at [a-z]+\.)")
_OWN: Final = re.compile(r"orbitmq\.[a-z_.]+\.[A-Z]\w+: ")
_STREAM: Final = re.compile(r"terminated with exception: ", re.IGNORECASE)
_SOURCE: Final = re.compile(r"streaming data source perform (?:initialOffset|latestOffset|planPartitions|prepareForTriggerAvailableNow)")
_POSITION: Final = re.compile(r"\(line (\d+), pos (\d+)\)")
_SENTENCE: Final = re.compile(r"(?<=[.?!]) (?=[A-Z])")
_LENGTH_MAX: Final = 600
SLOW_TRIES_MAX: Final = 6
T = TypeVar("T")

# Loggers that write what is raised as well, with its stack, to the terminal.
for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j.clientserver"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class PipelineFailed(OrbitError):
    """A pipeline that cannot go on; the error says which part of it, and why."""


def sentence(error: BaseException | str) -> str:
    """What happened, in a line."""
    text = str(error).strip()
    if own := list(_OWN.finditer(text)):
        return _shortened(_END.split(text[own[-1].end() :], maxsplit=1)[0])
    if isinstance(error, OrbitError):
        return text
    for beginning in (_CONDITION, _STREAM):  # an error may be wrapped in others: what is told last came first
        if wrapped := list(beginning.finditer(text)):
            text = text[wrapped[-1].end() :]
    where = _POSITION.search(text)
    found = _shortened(_END.split(text, maxsplit=1)[0])
    return " ".join(_SENTENCE.split(found)[:2]).rstrip(".") + (f" (line {where[1]}, position {int(where[2]) + 1} of it)" if where else "")


def of_spark() -> tuple[type[Exception], ...]:
    """What Spark raises."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def is_of_source(error: BaseException) -> bool:
    """Whether a query has failed where it asked its source how far to read."""
    return _SOURCE.search(str(error)) is not None


def is_too_slow(error: BaseException) -> bool:
    """Whether nothing is wrong but that a Python took too long to come up: Spark gives it ten seconds, be the machine as busy as it may."""
    return "failed to connect back" in str(error)


def patiently(call: Callable[[], T]) -> T:
    """The result of what may be tried again, when it is only slow."""
    for _ in range(SLOW_TRIES_MAX - 1):
        try:
            return call()
        except of_spark() as error:
            if not is_too_slow(error):
                raise
    return call()


@contextmanager
def told_at(place: str, part: str) -> Iterator[None]:
    """Tell what is wrong with a part of a pipeline by its name and line."""
    caught: tuple[type[Exception], ...] = (*of_spark(), ConfigurationError)
    try:
        yield
    except caught as error:
        raise ConfigurationError(f"{place}: {part}: {sentence(error)}") from error


def _shortened(text: str) -> str:
    line = " ".join(text.split()).rstrip(".; ")
    return line if len(line) <= _LENGTH_MAX else f"{line[:_LENGTH_MAX]}…"
