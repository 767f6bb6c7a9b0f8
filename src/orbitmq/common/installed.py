"""What other installed packages offer, found by their entry points: one way for hooks, validators and plug-ins alike.

An entry point names a class or function; what it gives when it is called is the part. A part that cannot be loaded, or that lacks a member
it is asked for, stops the start: nobody should believe that it is in force.
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
    """A part of another package, and what to call it when something is said of it."""

    label: str
    part: Part


@dataclass(frozen=True, slots=True)
class PartGroup(Generic[Part]):
    """A group of entry points: what its parts are, and the members that each must have."""

    name: str
    kind: str
    members: tuple[str, ...]

    def installed(self) -> list[Installed[Part]]:
        """Every part that is offered, in the order of their names."""
        return [self.load(point) for point in self.offered()]

    def offered(self) -> list[EntryPoint]:
        return sorted(entry_points(group=self.name), key=lambda point: (point.name, point.value))

    def load(self, point: EntryPoint, *arguments: object) -> Installed[Part]:
        """The part that an entry point gives for these arguments; ConfigurationError when it gives none."""
        try:
            part = point.load()(*arguments)
        except Exception as problem:
            raise self._unusable(point, describe(problem)) from problem
        missing = [member for member in self.members if not hasattr(part, member)]
        if missing:
            raise self._unusable(point, f"what it gives, {part!r}, has no {' and no '.join(missing)}")
        log.info("plug_in_loaded kind=%r name=%s from=%s", self.kind, point.name, point.value)
        return Installed(f"{self.kind} {point.name}", part)

    def _unusable(self, point: EntryPoint, reason: str) -> ConfigurationError:
        return ConfigurationError(
            f"the {self.kind} {point.name} ({point.value}) of group {self.name} cannot be loaded: {reason}; "
            f"mend or uninstall the package that offers it"
        )
