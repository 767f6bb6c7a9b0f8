"""Condenses Spark's errors to one sentence, without plan, stack trace and error class.

Works on text only. An OrbitMQ error raised in a Spark worker also comes back as text, and is
reported in its own words.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from orbitmq.common.errors import ConfigurationError, OrbitError

_CONDITION: Final = re.compile(r"\[[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*\] ")
_END: Final = re.compile(
    r"\s*(?:SQLSTATE: \w+|;\s*line \d+ pos \d+|\n\s*={2,3} (?:SQL|Streaming Query) =|\nJVM"
    r" stack|\n\s*at [a-z]+\.)"
)
_OWN: Final = re.compile(r"orbitmq\.[a-z_.]+\.[A-Z]\w+: ")
_STREAM: Final = re.compile(r"terminated with exception: ", re.IGNORECASE)
_SOURCE: Final = re.compile(
    r"streaming data source perform"
    r" (?:initialOffset|latestOffset|planPartitions|prepareForTriggerAvailableNow)"
)
_POSITION: Final = re.compile(r"\(line (\d+), pos (\d+)\)")
_SENTENCE: Final = re.compile(r"(?<=[.?!]) (?=[A-Z])")
_LENGTH_MAX: Final = 600
SLOW_TRIES_MAX: Final = 6
T = TypeVar("T")

# These loggers also print raised errors, with their stack traces.
for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j.clientserver"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class PipelineFailedError(OrbitError):
    """A pipeline cannot go on; the error says which part failed and why."""


def summarize_error(error: BaseException | str) -> str:
    """Return what happened, in one line."""
    text = str(error).strip()
    if own := list(_OWN.finditer(text)):
        return _shortened(_END.split(text[own[-1].end() :], maxsplit=1)[0])
    if isinstance(error, OrbitError):
        return text
    for beginning in (_CONDITION, _STREAM):  # the innermost of wrapped errors comes last
        if wrapped := list(beginning.finditer(text)):
            text = text[wrapped[-1].end() :]
    where = _POSITION.search(text)
    found = _shortened(_END.split(text, maxsplit=1)[0])
    return " ".join(_SENTENCE.split(found)[:2]).rstrip(".") + (
        f" (line {where[1]}, position {int(where[2]) + 1} of it)" if where else ""
    )


def spark_error_types() -> tuple[type[Exception], ...]:
    """Return the types of errors that Spark raises."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def is_source_error(error: BaseException) -> bool:
    """Return whether a query failed while its source planned a batch."""
    return _SOURCE.search(str(error)) is not None


def is_slow_start(error: BaseException) -> bool:
    """Return whether a Python worker only took too long to start: Spark allows ten seconds, however
    busy the machine is.
    """
    return "failed to connect back" in str(error)


def retry_slow_start(call: Callable[[], T]) -> T:
    """Run an idempotent call, again if only the start of a Python worker was too slow."""
    for _ in range(SLOW_TRIES_MAX - 1):
        try:
            return call()
        except spark_error_types() as error:
            if not is_slow_start(error):
                raise
    return call()


@contextmanager
def located_errors(place: str, part: str) -> Iterator[None]:
    """Re-raise errors of Spark or of the configuration with the name and the line of a pipeline
    part.
    """
    caught: tuple[type[Exception], ...] = (*spark_error_types(), ConfigurationError)
    try:
        yield
    except caught as error:
        raise ConfigurationError(f"{place}: {part}: {summarize_error(error)}") from error


def _shortened(text: str) -> str:
    line = " ".join(text.split()).rstrip(".; ")
    return line if len(line) <= _LENGTH_MAX else f"{line[:_LENGTH_MAX]}…"
