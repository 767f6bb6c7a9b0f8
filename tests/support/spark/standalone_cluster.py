"""A standalone cluster of Spark on this machine: a master and workers as processes, and a Python
for them that does not have our code.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import pyarrow
import pyspark

from orbitmq.spark import java
from support.common.free_ports import free_port
from support.common.waiting import wait_until

HOST: Final = "127.0.0.1"
PATIENCE_S: Final = 240
_DEPLOY: Final = "org.apache.spark.deploy"


def bare_environment(folder: Path) -> Path:
    """An environment with Arrow and nothing else; its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    packages = (
        folder
        / "lib"
        / f"python{sys.version_info.major}.{sys.version_info.minor}"
        / "site-packages"
    )
    (packages / "pyarrow").symlink_to(Path(pyarrow.__file__).parent)
    has_code = subprocess.run(
        [python, "-c", "import orbitmq"], capture_output=True, check=False, cwd=folder
    )
    assert has_code.returncode == 1, has_code
    return python


def packed(python: Path, folder: Path) -> Path:
    """An archive as tools that pack environments make it, but for its Python, which leads to one
    that is here.
    """
    (folder / "bin").mkdir(parents=True)
    script = folder / "bin" / "python"
    script.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    script.chmod(0o755)
    with tarfile.open(folder / "environment.tar.gz", "w:gz") as archive:
        archive.add(folder / "bin", "bin")
    return folder / "environment.tar.gz"


class StandaloneCluster:
    """A master and workers of one core each, every one with a folder of its own."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._port = free_port(HOST)
        self._workers = [folder / f"worker-{number}" for number in range(workers)]
        self._processes: dict[Path, subprocess.Popen[bytes]] = {}
        self._ending = ExitStack()

    @property
    def master(self) -> str:
        return f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start(
                self._folder / "master", f"{_DEPLOY}.master.Master", "--port", str(self._port)
            )
            self._wait(self._folder / "master", "I have been elected leader")
            for worker in self._workers:
                more = ("--cores", "1", "--memory", "1g", "--work-dir", str(worker / "work"))
                self._start(worker, f"{_DEPLOY}.worker.Worker", *more, self.master)
            for worker in self._workers:
                self._wait(worker, "Successfully registered with master")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def executors(self) -> dict[int, Path]:
        """The processes of executors, and the folder that each runs in."""
        found = {}
        for worker, process in self._processes.items():
            for pid in children(process.pid):
                if "CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_text():
                    found[pid] = worker
        return found

    def _start(self, folder: Path, *arguments: str) -> None:
        (folder / "work").mkdir(parents=True)
        home = Path(pyspark.__file__).parent
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))
        }
        environment |= {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "JAVA_HOME": str(java.search(os.environ).require().home()),
        }
        with (folder / "log").open("w") as log:
            self._processes[folder] = process = subprocess.Popen(
                [
                    str(home / "bin" / "spark-class"),
                    *arguments[:1],
                    "--host",
                    HOST,
                    "--webui-port",
                    "0",
                    *arguments[1:],
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        self._ending.callback(_end, process)

    def _wait(self, folder: Path, text: str) -> None:
        def has_text() -> bool:
            log = (folder / "log").read_text()
            assert self._processes[folder].poll() is None, log
            return text in log

        wait_until(has_text, text, seconds=PATIENCE_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """With its executors, which are in its group."""
    for pid in (*descendants(process.pid), process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def children(pid: int) -> list[int]:
    try:
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:  # it has ended
        return []


def descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from descendants(child)
