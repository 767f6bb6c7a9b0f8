"""A broker in its own process: `orbitmq broker run`, started, stopped and killed. Its log goes to a
file.

The process ends with this one, whatever happens. Waiting for it happens in threads of the loop's
executor.
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

from orbitmq.common.service import StartFailedError

STOPS_WITHIN_S: Final = 60.0
_LOG_TAIL_CHARACTERS: Final = 2_000


class ProcessBroker:
    """A broker process, from `start` to `stop` or `kill`."""

    def __init__(self, keys: Mapping[str, str], log_file: Path) -> None:
        self._log_file = log_file
        pairs = [text for name, value in keys.items() for text in ("--set", f"{name}={value}")]
        self._command = [
            sys.executable,
            "-P",
            "-m",
            "orbitmq",
            "broker",
            "run",
            "--exit-with-parent",
            *pairs,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None, "it is not started"
        return self._process.pid

    async def start(self) -> None:
        """Start the process, and wait until it reports that it is up."""
        self._process = process = self._spawn()
        assert process.stdout is not None
        try:
            if not await asyncio.to_thread(process.stdout.readline):
                said = self._log_file.read_text(errors="replace")[-_LOG_TAIL_CHARACTERS:]
                raise StartFailedError(f"its process ended instead of starting; its log:\n{said}")
        except BaseException:
            await self.kill()
            raise

    async def stop(self) -> None:
        """Ask the process to stop and wait for it; kill it if it does not stop in time."""
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """Kill the process; the operating system closes its connections."""
        await self._end(signal.SIGKILL)

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        # The same packages as in this process.
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)
        }
        with self._log_file.open("ab") as errors:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
            )

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
