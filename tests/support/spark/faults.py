"""What tests of faults share: the `orbitmq` command as a process that is killed at a point of its
work, and counts of what came of it.

Points in our source and sink are reached in Python (`spark/faults`). Those in Spark's Java are told
by the files that it makes: without libraries of its own for that it lets the program `chmod` set
their permissions, and here finds one that kills it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.client.messages import ReceivedMessage

FAULTS: Final = Path(__file__).parents[2] / "spark" / "faults"
OCCURRENCE: Final = 3  # so that a batch, or two, are done before
FILES: Final[Mapping[str, str]] = {
    "fileWrite": "*/part-*.parquet",
    "beforeFileCommit": "*/_spark_metadata/.[0-9]*",
    "afterFileCommit": "*/commits/.[0-9]*",
}
_CHMOD: Final = """\
#!/bin/sh
case "$2" in
$FAULT_FILE)
    number=1
    until mkdir "$FAULT_MARKS/file-$number" 2>/dev/null; do number=$((number + 1)); done
    [ "$number" -eq "$FAULT_OCCURRENCE" ] && kill -9 0 ;;
esac
exec /bin/chmod "$@"
"""


_COPY: Final = """\
name: copy
source:
  format: rocketmq
  options:
    {{nameServer: "{name_server}", subscribe: from, consumerGroup: copy, startingOffsets: earliest,
      maxOffsetsPerTrigger: {batch}, minPartitions: 2}}
steps:
  - sql: select concat(brokerName, ' ', queueId, ' ', queueOffset) as body from input
sinks: [{{format: rocketmq, options: {{topic: to, {options}}}}}]
checkpoint: checkpoint
"""


def copy_pipeline(name_server: str, batch: int, options: str = "") -> str:
    """A pipeline that writes the place of each message of the topic `from`, so many in a batch, to
    the topic `to`.
    """
    return _COPY.format(name_server=name_server, batch=batch, options=options)


class Outcome(NamedTuple):
    """What became of messages that were to arrive once each."""

    attempted: int
    delivered: int
    lost: int
    duplicated: int

    @classmethod
    def of(cls, wanted: Iterable[object], found: Iterable[object]) -> Outcome:
        due, there = Counter(wanted), Counter(found)
        return cls(due.total(), there.total(), (due - there).total(), (there - due).total())

    def tell(self, what: str, **more: object) -> None:
        """Print a line, for whoever wants to know the numbers."""
        print(json.dumps({"what": what, **self._asdict(), **more}))


def place_of(message: ReceivedMessage) -> str:
    """Where a message is, as `concat(brokerName, ' ', queueId, ' ', queueOffset)` says it."""
    return f"{message.queue.broker_name} {message.stored.queue_id} {message.stored.queue_offset}"


class Command:
    """`orbitmq …`, in a group of processes of its own, with Spark in it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._arguments = arguments
        self._folder = folder
        for part in ("bin", "tmp"):
            (folder / part).mkdir(parents=True)
        chmod = folder / "bin" / "chmod"
        chmod.write_text(_CHMOD)
        chmod.chmod(0o755)
        self._runs = 0

    def killed_at(self, point: str, occurrence: int = OCCURRENCE) -> None:
        """Run it until it is killed, driver and Java, at a point."""
        file = FILES.get(point)
        faults = {"FAULT_FILE": file} if file else {"FAULTS": f"{point}@{occurrence}=driver"}
        code, output = self._run((), faults)
        assert code == -signal.SIGKILL, (point, code, output)

    def came_to(self) -> set[str]:
        """The points that the last run came to, with their occurrences."""
        return {mark.name for mark in (self._folder / f"marks-{self._runs}").iterdir()}

    def slow_starts(self) -> int:
        """How often queries began again because a Python took too long to come up: Spark gives it
        ten seconds, on any machine.
        """
        return sum(
            output.read_text().count("query_started_again")
            for output in self._folder.glob("output-*")
        )

    def run(self, *more: str, faults: str = "") -> str:
        """Run it to its end; what it has printed."""
        code, output = self._run(more, {"FAULTS": faults})
        assert code == 0, output
        return output

    def _run(self, more: tuple[str, ...], faults: Mapping[str, str]) -> tuple[int, str]:
        self._runs += 1
        marks = self._folder / f"marks-{self._runs}"
        marks.mkdir()
        environment = {
            "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1",
            **os.environ,
            "PYTHONPATH": str(FAULTS),
            "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}",
            "TMPDIR": str(self._folder / "tmp"),  # what is killed clears nothing away
            "SPARK_LOCAL_DIRS": str(self._folder / "tmp"),
            "FAULT_MARKS": str(marks),
            "FAULT_OCCURRENCE": str(OCCURRENCE),
            "FAULT_FILE": "-",
            **faults,
        }
        log = self._folder / f"output-{self._runs}"
        with log.open("w") as output:  # a pipe would stay open as long as any worker is left
            process = subprocess.Popen(
                [sys.executable, "-m", "orbitmq", *self._arguments, *more],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
            try:
                code = process.wait(timeout=600)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        return code, log.read_text()
