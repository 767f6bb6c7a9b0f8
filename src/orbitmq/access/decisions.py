"""The error of a denied request: who asked for what, and why it was denied."""

from __future__ import annotations

from orbitmq.common.errors import OrbitError


class AccessDeniedError(OrbitError):
    """A request that is not allowed. `who` is the name it gave, `resource` what it named; None if
    unknown.
    """

    def __init__(self, why: str, *, who: str | None = None, resource: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.who = who
        self.resource = resource
