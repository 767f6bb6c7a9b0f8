"""A machine in a simulation: one process with timers and connections, a clock, and a disk.

A program is a function that gets the host and sets up callbacks; `start` runs it, and `start` again
after the process died. All that happens in the process is an event: a timer, a callback of a
connection, a finished sync. Faults: `kill` ends the process, its peers get resets, its writes stay;
`lose_power` ends the machine, its peers hear nothing, unsynced writes are lost; `pause` holds back
the process while time and network go on, as SIGSTOP does.

Crash rule: a process dies between two events, and no event of it runs afterwards. Thread rule: that
of the simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from orbitmq.common.errors import InvalidStateError
from orbitmq.testing.network_host import MakeProtocol, NetworkAddress
from orbitmq.testing.simulated_disk import DiskKind, SimulatedDisk
from orbitmq.testing.simulated_flusher import SimulatedFlushers
from orbitmq.testing.simulated_network import (
    CONNECT_TIMEOUT_MS,
    SimulatedListener,
    SimulatedNetwork,
)
from orbitmq.testing.simulation import ScheduledCall, Simulation

UPTIME_MS_MAX: Final = 1_000_000  # so that monotonic times of hosts differ
HostProgram: TypeAlias = Callable[["SimulatedHost"], object]


class SimulatedHost:
    """One machine of the network, from its construction to the end of the simulation."""

    def __init__(
        self,
        name: str,
        *,
        simulation: Simulation,
        network: SimulatedNetwork,
        folder: Path,
        skew_ms: int = 0,
        disk_kind: DiskKind = DiskKind.FORGETFUL,
    ) -> None:
        self.name = name
        self.address = network.next_address()
        self.network = network
        self.clock = simulation.new_clock(
            skew_ms=skew_ms, uptime_ms=simulation.random.randrange(UPTIME_MS_MAX)
        )
        self.disk = SimulatedDisk(
            folder, clock=self.clock, random=simulation.random, kind=disk_kind
        )
        self.flushers = SimulatedFlushers(self, simulation.random)
        self.is_on = True
        self.is_running = False
        self.is_paused = False
        self._simulation = simulation
        self._life = 0  # of the process: its events carry the number
        self._held: list[Callable[[], None]] = []  # events that came due while paused
        self._death_callbacks: list[Callable[[], object]] = []
        network.join(self)
        simulation.on_close(self.kill)

    # -- life

    def start(self, program: HostProgram) -> None:
        """Run a program as the first event of a new process; turns the machine on if it is off."""
        if self.is_running:
            raise InvalidStateError(f"{self.name} runs a program already: kill it first")
        if not self.is_on:
            self.is_on = True
            self.network.host_is_on(self)
        self.is_running = True
        self.call_soon(lambda: program(self), "starts")

    def kill(self) -> None:
        """End the process at once; does nothing if none runs."""
        self._end_process(with_resets=True)

    def lose_power(self) -> None:
        """End the machine at once; `start` turns it on again."""
        self._end_process(with_resets=False)
        self.disk.lose_power()
        self.is_on = False

    def pause(self) -> None:
        """Hold back all events of the process, until `resume`."""
        self.is_paused = True

    def resume(self) -> None:
        """Continue the process, with the events that came due meanwhile, in their order."""
        self.is_paused = False
        held, self._held = self._held, []
        for run in held:
            self._simulation.call_soon(run)

    def on_death(self, callback: Callable[[], object]) -> None:
        """Call it when this process dies, to release what the test's process holds for it; later
        ones first.
        """
        self._death_callbacks.append(callback)

    def _end_process(self, *, with_resets: bool) -> None:
        if not self.is_running:
            return
        self._simulation.note(f"{self.name} dies")
        self.network.drop_host(self, with_resets=with_resets)
        self.flushers.drop_all()
        while self._death_callbacks:
            self._death_callbacks.pop()()
        self.disk.close_all()
        self._life += 1
        self._held.clear()
        self.is_running = self.is_paused = False

    # -- timers

    def call_soon(self, callback: Callable[[], object], what: str = "callback") -> ScheduledCall:
        """Call it now, after what runs; calls keep their order."""
        call, run = self._event(self._simulation.now_ms, callback, what)
        self._simulation.call_soon(run)
        return call

    def call_later_ms(
        self, delay_ms: int, callback: Callable[[], object], what: str = "timer"
    ) -> ScheduledCall:
        """Call it when that time has passed."""
        call, run = self._event(self._simulation.now_ms + delay_ms, callback, what)
        self._simulation.call_later_ms(delay_ms, run)
        return call

    def call_at_ms(
        self, time_ms: int, callback: Callable[[], object], what: str = "timer"
    ) -> ScheduledCall:
        """Call it at that time of the host's monotonic clock, or now if that has passed."""
        return self.call_later_ms(max(time_ms - self.clock.monotonic_ms(), 0), callback, what)

    def _event(
        self, time_ms: int, callback: Callable[[], object], what: str
    ) -> tuple[ScheduledCall, Callable[[], None]]:
        """Return the call that can be cancelled, and the event that runs it in this process."""
        if not self.is_running:
            raise InvalidStateError(f"no process runs on {self.name}: start a program first")
        life = self._life
        call = ScheduledCall(time_ms, callback)

        def run() -> None:
            if life == self._life and call.is_pending:
                if self.is_paused:
                    self._held.append(run)
                else:
                    self._simulation.note(f"{self.name} {what}")
                    call.run()

        return call, run

    # -- connections

    def listen(self, port: int, make_protocol: MakeProtocol) -> SimulatedListener:
        """Accept connections to a port; 0 chooses a free one."""
        return self.network.listen(self, port, make_protocol)

    def connect(
        self,
        target: NetworkAddress,
        make_protocol: MakeProtocol,
        *,
        failed: Callable[[OSError], object],
        timeout_ms: int = CONNECT_TIMEOUT_MS,
    ) -> None:
        """Connect to a port of a host; the protocol gets the connection, or `failed` the error."""
        self.network.connect(self, target, make_protocol, failed=failed, timeout_ms=timeout_ms)
