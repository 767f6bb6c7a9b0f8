"""A broker in a process of its own: `orbitmq broker run`, started, stopped and killed. Everything that it logs goes to a file.

The process ends with this one, whatever happens to it. What waits for it does so in threads of the loop's executor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orbitmq.common.service import StartFailed

STOPS_WITHIN_S: Final = 60.0
_LOG_TAIL_CHARACTERS: Final = 2_000


class ProcessBroker:
    """From `start` to `stop` or `kill`."""

    def __init__(self, keys: Mapping[str, str], log_file: Path) -> None:
        self._log_file = log_file
        pairs = [text for name, value in keys.items() for text in ("--set", f"{name}={value}")]
        self._command = [sys.executable, "-P", "-m", "orbitmq", "broker", "run", "--exit-with-parent", *pairs]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it is not started"
        return self._process.pid

    async def start(self) -> None:
        """Start the process, and wait until it says that it is up."""
        self._process = process = self._spawn()
        assert process.stdout is not None
        try:
            if not await asyncio.to_thread(process.stdout.readline):
                said = self._log_file.read_text(errors="replace")[-_LOG_TAIL_CHARACTERS:]
                raise StartFailed(f"its process ended instead of coming up, and said:\n{said}")
        except BaseException:
            await self.kill()
            raise

    async def stop(self) -> None:
        """Tell the process to stop, and wait until it did; one that does not is killed."""
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """Kill the process: it hears nothing of it, and the system closes its connections."""
        await self._end(signal.SIGKILL)

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}  # the same packages as here
        with self._log_file.open("ab") as errors:
            return subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment)

    async def _end(self, number: signal.Signals) -> None:
        process = self._process
        assert process is not None, "it was started"
        process.send_signal(number)
        try:
            await asyncio.to_thread(process.wait, STOPS_WITHIN_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
