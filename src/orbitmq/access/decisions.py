"""What a guard says when it lets nobody pass: who asked for what, and why not."""

from __future__ import annotations

from orbitmq.common.errors import OrbitError


class Denied(OrbitError):
    """A request that is not allowed. `who` is the name that it gave, `resource` what it was about; None: it came to neither."""

    def __init__(self, why: str, *, who: str | None = None, resource: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.who = who
        self.resource = resource
