"""What the simulated network needs of a host, so that it knows neither disks nor programs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeAlias

NetworkAddress: TypeAlias = tuple[str, int]  # a host's address or name, and a port
MakeProtocol: TypeAlias = Callable[[], asyncio.BaseProtocol]


class NetworkHost(Protocol):
    """A machine with one process; its callbacks wait while that is paused, and die with it."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str:
        """Its IP address."""
        ...

    @property
    def is_on(self) -> bool:
        """Whether the machine has power."""
        ...

    def call_soon(self, callback: Callable[[], object], what: str = ...) -> object:
        """Call it as an event of the process."""
        ...

    def call_later_ms(
        self, delay_ms: int, callback: Callable[[], object], what: str = ...
    ) -> object:
        """Call it as an event of the process, when that time has passed."""
        ...
