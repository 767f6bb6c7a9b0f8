"""How failures reach the user of a Python data source: as one sentence.

Data sources run in Python workers, and Spark hands on whatever ends one, with its whole traceback, unless the worker's environment says
that it should be hidden. A worker lives no longer than the first error it tells, so what is set for ours hides nobody else's.
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


class DataLost(OrbitError):
    """Messages that were to be read are not there any more; the error says which, why, and how to go on without them."""


@contextmanager
def told_plainly() -> Iterator[None]:
    """Let an error of ours that ends this worker be told in its own words alone."""
    try:
        yield
    except OrbitError:
        os.environ[_HIDES_TRACEBACK] = "1"
        raise


def plainly(call: Callable[P, T]) -> Callable[P, T]:
    """The same for a whole function."""

    @wraps(call)
    def told(*args: P.args, **kwargs: P.kwargs) -> T:
        with told_plainly():
            return call(*args, **kwargs)

    return told
