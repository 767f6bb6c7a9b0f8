"""Consume modes: which groups pull and which pop, as set by operators, and the file
messageRequestMode.json.

Sans-IO except for the file, which saves itself. Thread rule: the loop thread owns it. The table is
only stored and served: nothing here pops.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from orbitmq.broker.metadata.persistent_file import ConfigFile, Encoder
from orbitmq.common.change_log import ChangeLog
from orbitmq.common.slices import Slices
from orbitmq.protocol.bodies.metadata_rows import GroupTopic
from orbitmq.protocol.bodies.request_modes import (
    RequestMode,
    decode_modes,
    encode_modes,
    encode_modes_in_slices,
)

log = logging.getLogger(__name__)


class RequestModes:
    """The consume mode of each group and topic."""

    def __init__(self, file: ConfigFile) -> None:
        self._file = file
        self._table: dict[str, dict[str, RequestMode]] = {}
        self.changes = ChangeLog[GroupTopic]()  # for slaves
        self.when_saved = file.when_saved

    def load(self) -> None:
        """Load the file."""
        loaded, _ = self._file.open(decode_modes, self._snapshot)
        self._table = loaded or {}
        self.changes.put_all(self.keys)

    def set(self, mode: RequestMode) -> None:
        """Set how a group receives messages of a topic."""
        log.info("request_mode_set topic=%s group=%s mode=%s", mode.topic, mode.group, mode.mode)
        self._table.setdefault(mode.topic, {})[mode.group] = mode
        self.changes.put((mode.topic, mode.group))
        self._file.changed()

    @property
    def keys(self) -> list[GroupTopic]:
        """The topic and group of every mode that is set."""
        return [(topic, group) for topic, groups in self._table.items() for group in groups]

    def find(self, topic: str, group: str) -> RequestMode | None:
        """Return the mode that is set for a group and topic."""
        return self._table.get(topic, {}).get(group)

    def take_over(self, rows: Sequence[RequestMode], removed: Iterable[GroupTopic]) -> None:
        """Apply a master's changes."""
        gone = [key for key in removed if self.find(*key) is not None]
        for topic, group in gone:
            del self._table[topic][group]
            if not self._table[topic]:
                del self._table[topic]
        for mode in rows:
            self._table.setdefault(mode.topic, {})[mode.group] = mode
        self.changes.take_over([(mode.topic, mode.group) for mode in rows], gone)
        if rows or gone:
            log.info("request_modes_taken_over changed=%d removed=%d", len(rows), len(gone))
            self._file.changed()

    def encode(self) -> Slices[bytes]:
        """Return the whole table as the body of a reply."""
        return encode_modes_in_slices(
            {topic: dict(groups) for topic, groups in self._table.items()}
        )

    def _snapshot(self) -> Encoder:
        return partial(
            encode_modes,
            {topic: dict(groups) for topic, groups in self._table.items()},
            pretty=True,
        )
