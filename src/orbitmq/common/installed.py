"""Plug-ins of other installed packages, found by entry points: one mechanism for hooks, validators
and plug-ins alike.

An entry point names a class or function; calling it yields the plug-in. A plug-in that cannot be
loaded, or lacks a required member, stops the start: otherwise it would seem to be in force.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from orbitmq.common.errors import ConfigurationError
from orbitmq.common.service import describe

log = logging.getLogger(__name__)

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Installed(Generic[Part]):
    """A plug-in of another package and the label that logs and errors use for it."""

    label: str
    part: Part


@dataclass(frozen=True, slots=True)
class PartGroup(Generic[Part]):
    """A group of entry points: the kind of its plug-ins and the members each must have."""

    name: str
    kind: str
    members: tuple[str, ...]

    def installed(self) -> list[Installed[Part]]:
        """Return every installed plug-in, ordered by name."""
        return [self.load(point) for point in self.offered()]

    def offered(self) -> list[EntryPoint]:
        return sorted(entry_points(group=self.name), key=lambda point: (point.name, point.value))

    def load(self, point: EntryPoint, *arguments: object) -> Installed[Part]:
        """Return the plug-in that an entry point yields for these arguments; raise
        ConfigurationError if it cannot.
        """
        try:
            part = point.load()(*arguments)
        except Exception as problem:
            raise self._unusable(point, describe(problem)) from problem
        missing = [member for member in self.members if not hasattr(part, member)]
        if missing:
            raise self._unusable(
                point, f"it yields {part!r}, which has no {' and no '.join(missing)}"
            )
        log.info("plug_in_loaded kind=%r name=%s from=%s", self.kind, point.name, point.value)
        return Installed(f"{self.kind} {point.name}", part)

    def _unusable(self, point: EntryPoint, reason: str) -> ConfigurationError:
        return ConfigurationError(
            f"the {self.kind} {point.name} ({point.value}) of group {self.name} cannot be loaded:"
            f" {reason}; fix or uninstall the package that offers it"
        )
