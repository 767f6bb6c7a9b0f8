"""The status of a pipeline, in a small file that can be read while it runs and afterwards.

The file is replaced atomically. The running process holds a lock file next to it, so that no two
processes run one pipeline on one checkpoint, and a killed run is recognized whatever its status
file says.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from orbitmq.common import atomic_file
from orbitmq.common.errors import AlreadyExistsError, ConfigurationError, file_cause
from orbitmq.spark.pipeline.progress import BatchProgress, SinkProgress


class State(StrEnum):
    """The state of a pipeline."""

    NEVER_RAN = "never ran"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"  # by a signal
    FINISHED = "finished"  # everything was read
    FAILED = "failed"
    KILLED = "killed"  # ended without a final status; never in the file


_OVER = (State.NEVER_RAN, State.STOPPED, State.FINISHED, State.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of one run."""

    name: str
    state: State
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    master: str = ""
    ui: str | None = None  # address of Spark's UI
    started_ms: int
    updated_ms: int
    problem: str | None = None
    sinks: tuple[SinkProgress, ...] = ()

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Status:
        """Parse the output of `to_json`; raises ValueError if it is malformed."""
        try:
            found: dict[str, Any] = json.loads(data)
            sinks = tuple(_sink(each) for each in found.pop("sinks"))
            return cls(**{**found, "state": State(found["state"]), "sinks": sinks})
        except (TypeError, KeyError) as problem:
            raise ValueError(f"not a status: {problem}") from problem


def _sink(found: dict[str, Any]) -> SinkProgress:
    last = found.pop("last")
    return SinkProgress(**found, last=None if last is None else BatchProgress(**last))


class StatusFile:
    """The status file and lock of one pipeline."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock_path = path.with_suffix(".lock")  # orders.status.json: orders.status.lock
        self._lock: int | None = None

    def acquire(self) -> None:
        """Lock the pipeline until `release`; raises AlreadyExistsError if another process holds the
        lock.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as problem:
            raise ConfigurationError(
                f"the status file {problem.filename} cannot be written: {file_cause(problem)}"
            ) from problem
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            os.close(descriptor)
            status = self._read()
            who = (
                f"process {status.pid} on {status.host}"
                if status is not None
                else "another process"
            )
            raise AlreadyExistsError(
                f"the pipeline is already running in {who}; stop that first, or use another"
                f" checkpoint ({self._path})"
            ) from problem
        self._lock = descriptor

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, status: Status) -> None:
        """Write the current status."""
        atomic_file.write(self._path, status.to_json(), keep_backup=False)

    def read(self) -> Status | None:
        """Return the current or last status; None if the pipeline never ran here."""
        status = self._read()
        if status is None or status.state in _OVER or self._is_held():
            return status
        return replace(status, state=State.KILLED)

    def _read(self) -> Status | None:
        try:
            status, why_not = atomic_file.read_checked(self._path, Status.from_json)
        except OSError as problem:
            raise ConfigurationError(
                f"{self._path} cannot be read: {file_cause(problem)}"
            ) from problem
        if why_not not in (None, "missing", "empty"):
            raise ConfigurationError(
                f"{self._path} is {why_not}; delete it: the next run creates it again"
            )
        return status

    def _is_held(self) -> bool:
        if self._lock is not None:
            return True
        try:
            descriptor = os.open(self._lock_path, os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False
