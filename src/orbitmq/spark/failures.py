"""How failures in a Python data source reach the user: as one sentence, without a traceback.

Data sources run in Python workers. Spark forwards the error that ends a worker with its whole
traceback, unless the worker's environment says to hide it. A worker ends with the first error it
reports, so setting the variable for an OrbitMQ error hides no other traceback.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from orbitmq.common.errors import OrbitError

P = ParamSpec("P")
T = TypeVar("T")
_HIDES_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"


class DataLossError(OrbitError):
    """Messages in the requested range no longer exist. The error says which and why, and how to go
    on without them.
    """


@contextmanager
def tracebacks_hidden() -> Iterator[None]:
    """Hide the traceback of an OrbitMQ error that leaves the block and ends this worker."""
    try:
        yield
    except OrbitError:
        os.environ[_HIDES_TRACEBACK] = "1"
        raise


def hide_traceback(call: Callable[P, T]) -> Callable[P, T]:
    """Decorator: hide the traceback of an OrbitMQ error that leaves the function."""

    @wraps(call)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        with tracebacks_hidden():
            return call(*args, **kwargs)

    return wrapped
