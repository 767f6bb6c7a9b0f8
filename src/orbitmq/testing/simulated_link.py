"""One direction of the network between two simulated hosts: delay, bandwidth and silence.

A link carries packets. One that arrives while the link is silent, or its target has no power, is
lost; if its sender repeats it, as TCP does with all but resets, it is sent again once the link
carries. Packets overtake each other: the order of a stream is restored by its receiver. Knows no
connections. Invariant: a packet arrives at most once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Final

from orbitmq.testing.simulation import Simulation

DELAY_MS_MAX: Final = 3  # until another is set


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPacket:
    """Something on its way; `is_repeated` returns whether its sender sends it again if lost."""

    what: str
    arrive: Callable[[], object]
    is_repeated: Callable[[], bool]
    size: int = 0


class SimulatedLink:
    """The way from one host to another, or to itself."""

    def __init__(self, simulation: Simulation, name: str, is_target_on: Callable[[], bool]) -> None:
        self.name = name
        self.delay_ms: tuple[int, int] = (0, DELAY_MS_MAX)  # the least and the greatest
        self.bytes_per_s: int | None = None  # None: unlimited
        self._simulation = simulation
        self._is_target_on = is_target_on
        self._is_silent = False
        self._free_ms = 0.0  # when a slow link has sent what it was given
        self._lost: list[LinkPacket] = []

    @property
    def carries(self) -> bool:
        """Whether packets arrive."""
        return not self._is_silent and self._is_target_on()

    def send(self, packet: LinkPacket) -> None:
        """Let a packet arrive after its delay, if the link carries then."""
        now_ms = self._simulation.now_ms
        left_ms = float(now_ms)
        if self.bytes_per_s is not None:
            left_ms = max(left_ms, self._free_ms) + packet.size * 1000 / self.bytes_per_s
            self._free_ms = left_ms
        delay_ms = ceil(left_ms) - now_ms + self._simulation.random.randint(*self.delay_ms)
        self._simulation.call_later_ms(delay_ms, lambda: self._arrived(packet))

    def silence(self) -> None:
        """Lose every packet that would arrive from now on."""
        self._is_silent = True

    def heal(self) -> None:
        """Carry packets again, those first that were lost and are repeated."""
        self._is_silent = False
        self.repeat_lost()

    def repeat_lost(self) -> None:
        """Send the lost packets again that still have a sender."""
        lost, self._lost = self._lost, []
        for packet in lost:
            if packet.is_repeated():
                self.send(packet)

    def _arrived(self, packet: LinkPacket) -> None:
        if self.carries:
            self._simulation.note(f"{self.name} {packet.what}")
            packet.arrive()
        else:
            self._simulation.note(f"{self.name} {packet.what} (lost)")
            if packet.is_repeated():
                self._lost.append(packet)
