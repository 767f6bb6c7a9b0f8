"""What a pipeline does, in a small file that anybody may read while it runs and afterwards.

The file is replaced as a whole. Beside it lies a lock that the running process holds: so no two run one pipeline on one checkpoint, and one
that was killed is told from one that runs, whatever its file says.
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
from orbitmq.common.errors import AlreadyExists, ConfigurationError, file_cause
from orbitmq.spark.pipeline.progress import Batch, SinkProgress


class State(StrEnum):
    """What a pipeline is about."""

    NEVER_RAN = "never ran"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"  # because somebody said so
    FINISHED = "finished"  # there was nothing left to read
    FAILED = "failed"
    KILLED = "killed"  # it ended without saying so; never in the file


_OVER = (State.NEVER_RAN, State.STOPPED, State.FINISHED, State.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One run of a pipeline, as far as it is."""

    name: str
    state: State
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    master: str = ""
    ui: str | None = None  # where Spark shows what it does
    started_ms: int
    updated_ms: int
    problem: str | None = None
    sinks: tuple[SinkProgress, ...] = ()

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Status:
        """What `to_json` made; ValueError when it is something else."""
        try:
            found: dict[str, Any] = json.loads(data)
            sinks = tuple(_sink(each) for each in found.pop("sinks"))
            return cls(**{**found, "state": State(found["state"]), "sinks": sinks})
        except (TypeError, KeyError) as problem:
            raise ValueError(f"it is no status: {problem}") from problem


def _sink(found: dict[str, Any]) -> SinkProgress:
    last = found.pop("last")
    return SinkProgress(**found, last=None if last is None else Batch(**last))


class StatusFile:
    """The file and the lock of one pipeline."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock_path = path.with_suffix(".lock")  # orders.status.json: orders.status.lock
        self._lock: int | None = None

    def acquire(self) -> None:
        """Be the one who runs the pipeline, until `release`; AlreadyExists when somebody is."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as problem:
            raise ConfigurationError(
                f"{problem.filename} cannot be written, where the pipeline keeps its status: {file_cause(problem)}"
            ) from problem
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            os.close(descriptor)
            status = self._read()
            who = f"process {status.pid} on {status.host}" if status is not None else "another process"
            raise AlreadyExists(
                f"the pipeline runs already, in {who}; stop that first, or give this one a checkpoint of its own ({self._path})"
            ) from problem
        self._lock = descriptor

    def release(self) -> None:
        """Let others run it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, status: Status) -> None:
        """Say what the pipeline does now."""
        atomic_file.write(self._path, status.to_json(), keep_backup=False)

    def read(self) -> Status | None:
        """What it does, or did last; None when it never ran here."""
        status = self._read()
        if status is None or status.state in _OVER or self._is_held():
            return status
        return replace(status, state=State.KILLED)

    def _read(self) -> Status | None:
        try:
            status, why_not = atomic_file.read_checked(self._path, Status.from_json)
        except OSError as problem:
            raise ConfigurationError(f"{self._path} cannot be read: {file_cause(problem)}") from problem
        if why_not not in (None, "missing", "empty"):
            raise ConfigurationError(f"{self._path} is {why_not}; delete it: the next run writes it anew")
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
