"""Refusals of services that need more on the wire than a code and a remark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from orbitmq.common.errors import RefusedError, RequestRefusedError
from orbitmq.protocol.codes import REFUSAL_CODES


@contextmanager
def with_fields(fields: Callable[[], Mapping[str, str]]) -> Iterator[None]:
    """Add header fields to a refusal that is raised inside."""
    try:
        yield
    except RefusedError as refused:
        code = REFUSAL_CODES[refused.refusal]
        raise RequestRefusedError(code, refused.remark, fields()) from refused
    except RequestRefusedError as refused:  # of a plug-in
        refused.fields = fields()
        raise
