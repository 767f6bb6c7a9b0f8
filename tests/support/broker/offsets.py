"""Offsets in a folder that outlives them, as a broker has them, with a loop and a worker that wait
to be told.
"""

from __future__ import annotations

from pathlib import Path

from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.metadata.offset_journal import OffsetJournal
from orbitmq.broker.metadata.persistent_file import ConfigFile
from orbitmq.store.file_layer import FileLayer
from orbitmq.testing.manual_clock import ManualClock
from support.broker.manual_worker import InlineWorker, ManualLoop
from support.common.process_files import ProcessFiles

State = dict[str, dict[int, int]]


class OffsetsRoom:
    """One run of a broker, as far as offsets are concerned."""

    def __init__(
        self, folder: Path, files: FileLayer | None = None, *, version_step: int = 500
    ) -> None:
        self.path = folder / "consumerOffset.json"
        self.journal_path = folder / "consumerOffset.journal"
        self.loop = ManualLoop()
        self.worker = InlineWorker()
        self.clock = ManualClock()
        self._own_files = ProcessFiles()
        self.file = ConfigFile(self.path, self.worker, self.loop)
        self.journal = OffsetJournal(self.journal_path, files or self._own_files)
        self.offsets = Offsets(
            self.file, self.journal, self.clock, version_step=version_step, state_version=lambda: 4
        )
        self.offsets.load()

    def save(self) -> None:
        """Write what there is to the file, as the broker does every few seconds."""
        self.offsets.flush()
        self.offsets.save_soon()
        self.loop.run()

    def be_killed(self) -> None:
        """What the operating system does for a process that is gone."""
        self._own_files.end()

    def state(self) -> State:
        """All offsets by group@topic, as the public face tells them."""
        groups = {group for topic in "ABCT" for group in self.offsets.groups_of(topic)}
        return {
            f"{group}@{topic}": dict(self.offsets.of(group, topic))
            for group in groups
            for topic in self.offsets.topics_of(group)
        }
