"""Consumer offsets by group and queue: consumerOffset.json, saved every few seconds, and a journal
of the changes since.

Thread rule: the loop thread owns it. Crash rule: a commit survives a kill after the next `flush`,
and a power cut after the next save; `offset_journal` explains how. Invariants: a commit may go back
(a consumer was reset), which is logged; an offset below zero is kept, as in Apache RocketMQ, and
reported as absent. Pull offsets and pending resets are in memory only. Names were validated before:
none contains an `@`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from orbitmq.broker.metadata.offset_journal import OffsetJournal
from orbitmq.broker.metadata.persistent_file import ConfigFile, Encoder
from orbitmq.common.change_log import ChangeLog
from orbitmq.common.clock import Clock
from orbitmq.common.slices import SLICE_UNITS, SliceBudget, Slices, finish, slices_of
from orbitmq.protocol.bodies.metadata_rows import OffsetsRow
from orbitmq.protocol.bodies.nameserver import DataVersion
from orbitmq.protocol.bodies.offsets import SEPARATOR, ConsumerOffsets, split_key
from orbitmq.protocol.bodies.topics import next_version
from orbitmq.store.types import QueueKey, QueueOffset

VERSION_STEP: Final = 500

_NOTED_PER_SLICE: Final = 5_000  # offsets of one topic and group
log = logging.getLogger(__name__)


class _Queues:
    """The offsets of one group in the queues of one topic."""

    __slots__ = ("key", "offsets")

    def __init__(self, key: str) -> None:
        self.key = key
        self.offsets: dict[int, int] = {}


class Offsets:
    """The offsets of all groups. `server_side_reset` (useServerSideResetOffset) and `version_step`
    may be changed while the broker runs.
    """

    def __init__(
        self,
        file: ConfigFile,
        journal: OffsetJournal,
        clock: Clock,
        *,
        server_side_reset: bool = True,
        version_step: int = VERSION_STEP,
        state_version: Callable[[], int] = int,
    ) -> None:
        self.server_side_reset = server_side_reset
        self._file = file
        self._journal = journal
        self._clock = clock
        self.version_step = version_step
        self._state_version = state_version
        self._table: dict[str, _Queues] = {}  # by `topic@group`, in the order of the file
        self._groups: dict[str, dict[str, _Queues]] = {}  # the same by group, then topic
        self.changes = ChangeLog[str]()  # of keys, for slaves
        self._pulls: dict[tuple[str, str], dict[int, int]] = {}  # by group and topic
        self._resets: dict[tuple[str, str, int], int] = {}  # by group, topic and queue
        self._version = DataVersion(timestamp=clock.now_ms())
        self._commits = 0
        self._is_changed = False

    def load(self) -> None:
        """Load the file, and apply the journal on top of it."""
        loaded, digest = self._file.open(ConsumerOffsets.decode, self._snapshot, self._journal)
        if loaded is not None:
            for key, offsets in loaded.offsets.items():
                self._add(key).offsets.update(offsets)
            self._version = loaded.version or self._version
        changes = self._journal.replay(digest)
        for (key, queue_id), offset in changes.items.items():
            if queue_id is None:
                self._remove(key)
            else:
                self._add(key).offsets[queue_id] = offset
        self._journal.start(digest, changes)
        self._is_changed = bool(changes.items)
        self.changes.put_all(self._table)
        log.info("offsets_loaded keys=%d from_journal=%d", len(self._table), len(changes.items))

    # Consumers.

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, *, client: str = ""
    ) -> None:
        """Commit `offset` for the group and queue; `client` is the sender, for the log.

        An offset below zero counts as none, and does not overwrite the group's progress.
        """
        if offset < 0:
            log.warning(
                "offset_not_committed client=%s group=%s topic=%s queue=%d offset=%d",
                client,
                group,
                topic,
                queue_id,
                offset,
            )
            return
        self._commits += 1
        if self._commits % self.version_step == 0:
            self._version = next_version(self._version, self._clock.now_ms(), self._state_version())
        try:
            queues = self._groups[group][topic]
        except KeyError:
            queues = self._add(_key(group, topic))
        stored = queues.offsets.get(queue_id)
        if stored == offset:
            return
        queues.offsets[queue_id] = offset
        self._journal.put(queues.key, queue_id, offset)
        self.changes.put(queues.key)
        self._is_changed = True
        if stored is not None and offset < stored:
            log.warning(
                "offset_goes_back client=%s key=%s queue=%d from=%d to=%d",
                client,
                queues.key,
                queue_id,
                stored,
                offset,
            )

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return where the group continues in the queue: a pending reset, else its committed
        offset; None if there is none.
        """
        if (
            self._resets
            and self.server_side_reset
            and (reset := self._resets.get((group, topic, queue_id))) is not None
        ):
            return reset
        queues = self._find(group, topic)
        offset = -1 if queues is None else queues.offsets.get(queue_id, -1)
        return None if offset < 0 else offset

    def commit_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note the next pull offset of the group: everything before was delivered to it."""
        try:
            self._pulls[group, topic][queue_id] = offset
        except KeyError:
            self._pulls[group, topic] = {queue_id: offset}

    def query_pull(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the next pull offset of the group; the committed one if it did not pull since the
        start.
        """
        offset = self._pulls.get((group, topic), {}).get(queue_id)
        return self.query(group, topic, queue_id) if offset is None else offset

    @property
    def pulls(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Return the next pull offsets of groups that pulled since the start: by group and topic,
        then queue.
        """
        return self._pulls

    def clear_pull(self, group: str, topic: str) -> None:
        """Forget the next pull offset of the group."""
        self._pulls.pop((group, topic), None)

    # Server-side resets: the reply to the next pull of the queue redirects the consumer.

    def assign_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Reset the group to `offset`: effective now, and again when the consumer, which does not
        know of it yet, pulls.
        """
        if not group or not topic or queue_id < 0 or offset < 0:
            log.warning(
                "offset_not_reset group=%s topic=%s queue=%d offset=%d",
                group,
                topic,
                queue_id,
                offset,
            )
            return
        self._resets[group, topic, queue_id] = offset
        queues = self._add(_key(group, topic))
        queues.offsets[queue_id] = offset
        self._journal.put(queues.key, queue_id, offset)
        self.changes.put(queues.key)
        self._is_changed = True
        log.info(
            "offset_reset group=%s topic=%s queue=%d offset=%d", group, topic, queue_id, offset
        )

    def assign_resets_in_slices(
        self, group: str, topic: str, offsets: Mapping[int, int]
    ) -> Slices[None]:
        """Do what `assign_reset` does for many queues, all at once; only the journal is written in
        slices. No offset is below zero.
        """
        resets: dict[tuple[str, str, int], int] = {}
        for part in slices_of(offsets.items(), _NOTED_PER_SLICE):
            resets.update({(group, topic, queue_id): offset for queue_id, offset in part})
            if len(part) == _NOTED_PER_SLICE:
                yield
        self._resets.update(resets)
        queues = self._add(_key(group, topic))
        queues.offsets.update(offsets)
        self.changes.put(queues.key)
        self._is_changed = True
        log.info("offsets_reset group=%s topic=%s queues=%d", group, topic, len(offsets))
        yield from self._note_in_slices(queues, list(offsets))

    def _note_in_slices(self, queues: _Queues, queue_ids: list[int]) -> Slices[None]:
        """Write offsets to the journal, each with its value at that time."""
        for part in slices_of(queue_ids, _NOTED_PER_SLICE):
            if self._table.get(queues.key) is not queues:
                return  # deleted meanwhile
            self._journal.put_all(
                queues.key, {each: queues.offsets[each] for each in part if each in queues.offsets}
            )
            self._journal.flush()
            if len(part) == _NOTED_PER_SLICE:
                yield

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether a reset is pending for the consumer of the queue."""
        return bool(self._resets) and (group, topic, queue_id) in self._resets

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Remove and return the reset that is pending for the consumer of the queue; None if there
        is none.
        """
        return self._resets.pop((group, topic, queue_id), None) if self._resets else None

    # Administration.

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the group's committed offsets in the topic, by queue."""
        queues = self._find(group, topic)
        return MappingProxyType({} if queues is None else queues.offsets)

    def topics_of(self, group: str) -> set[str]:
        """Return the topics in which the group committed offsets."""
        return set(self._groups.get(group, ()))

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that committed offsets in the topic."""
        return {group for group, topics in self._groups.items() if topic in topics}

    def consumed_by_all(self, queue: QueueKey) -> QueueOffset | None:
        """Return the offset up to which every group of the topic has consumed the queue; None if
        the topic has no group.

        A group that committed in the topic, but not in this queue, has consumed nothing of it.
        """
        topic, queue_id = queue
        committed = [
            max(topics[topic].offsets.get(queue_id, 0), 0)
            for topics in self._groups.values()
            if topic in topics
        ]
        return QueueOffset(min(committed)) if committed else None

    def clone(self, source: str, target: str, topic: str) -> None:
        """Do what `clone_in_slices` does, at once."""
        finish(self.clone_in_slices(source, target, topic))

    def clone_in_slices(self, source: str, target: str, topic: str) -> Slices[None]:
        """Copy the source group's progress in the topic to the target group, at once; only the
        journal is written in slices. Does nothing if the source has none.
        """
        queues = self._find(source, topic)
        if queues is None:
            return
        copy = self._add(_key(target, topic))
        self._journal.drop(copy.key)
        copy.offsets = dict(queues.offsets)
        self.changes.put(copy.key)
        self._is_changed = True
        log.info("offsets_cloned source=%s target=%s topic=%s", source, target, topic)
        yield from self._note_in_slices(copy, list(copy.offsets))

    def delete_topic(self, topic: str) -> None:
        """Delete the progress of all groups in a topic."""
        finish(self.delete_topic_in_slices(topic))

    def delete_topic_in_slices(self, topic: str) -> Slices[None]:
        """Delete the progress of all groups in a topic at once; only the log lines are written in
        slices.
        """
        deleted = self._delete(
            [topics[topic] for topics in self._groups.values() if topic in topics]
        )
        self._pulls = {pair: queues for pair, queues in self._pulls.items() if pair[1] != topic}
        self._resets = {
            reset: offset for reset, offset in self._resets.items() if reset[1] != topic
        }
        yield from _log_deleted(deleted)

    def delete_group(self, group: str) -> None:
        """Delete the progress of a group in all topics."""
        finish(self.delete_group_in_slices(group))

    def delete_group_in_slices(self, group: str) -> Slices[None]:
        """Delete the progress of a group in all topics at once; only the log lines are written in
        slices.
        """
        deleted = self._delete(list(self._groups.get(group, {}).values()))
        self._pulls = {pair: queues for pair, queues in self._pulls.items() if pair[0] != group}
        self._resets = {
            reset: offset for reset, offset in self._resets.items() if reset[0] != group
        }
        yield from _log_deleted(deleted)

    # Replication.

    @property
    def keys(self) -> Iterable[str]:
        """The `topic@group` of every group with offsets."""
        return self._table.keys()

    def row(self, key: str) -> OffsetsRow | None:
        """Return the offsets of a `topic@group`, as they are now; None if it has none."""
        queues = self._table.get(key)
        return None if queues is None else OffsetsRow(key, dict(queues.offsets))

    def take_over_in_slices(
        self, rows: Sequence[OffsetsRow], removed: Iterable[str], *, version: DataVersion | None
    ) -> Slices[None]:
        """Apply a master's changes at once, with its version if it has one; only the journal is
        written in slices.
        """
        dropped = [key for key in removed if key in self._table]
        for key in dropped:
            self._remove(key)
        changed: list[tuple[_Queues, list[int], bool]] = []
        for key, offsets in rows:
            queues = self._add(key)
            before, queues.offsets = queues.offsets, dict(offsets)
            is_reduced = not before.keys() <= offsets.keys()
            differ = [each for each in offsets if is_reduced or before.get(each) != offsets[each]]
            if is_reduced or differ:
                changed.append((queues, differ, is_reduced))
        self.changes.take_over([row.key for row in rows], dropped)
        self._version = version or self._version
        self._is_changed = True
        if dropped:
            self._journal.drop(*dropped)
        budget = SliceBudget(_NOTED_PER_SLICE)
        for queues, differ, is_reduced in changed:
            if is_reduced and self._table.get(queues.key) is queues:
                self._journal.drop(queues.key)
            for part in slices_of(differ, _NOTED_PER_SLICE):
                if self._table.get(queues.key) is not queues:
                    break  # deleted meanwhile
                self._journal.put_all(
                    queues.key,
                    {each: queues.offsets[each] for each in part if each in queues.offsets},
                )
                if budget.spend(1 + len(part)):
                    self._journal.flush()
                    yield
        self._journal.flush()

    # Files.

    @property
    def data_version(self) -> DataVersion:
        return self._version

    def flush(self) -> bool:
        """Make the commits so far survive a kill, at the end of a loop iteration. Returns False if
        the write failed.
        """
        return self._journal.flush()

    def save_soon(self) -> None:
        """Have the file written if anything changed; called every flushConsumerOffsetInterval."""
        if self._is_changed:
            self._is_changed = False
            self._file.changed()

    def close(self) -> None:
        """Save everything, blocking, and close the journal. Raises if the file cannot be saved."""
        try:
            self.save_soon()
            self._file.save_now()
        finally:
            self._journal.close()

    def abandon(self) -> None:
        """Close the journal without saving."""
        self._file.abandon()
        self._journal.close()

    def encode(self, *, pretty: bool = True) -> bytes:
        """Return the current content of the file; compact in the form that a slave requests."""
        return self._content().encode(pretty=pretty)

    def encode_in_slices(self) -> Slices[bytes]:
        """Do what `encode` does, compact: with the keys at the first slice, and offsets as they are
        when each is encoded.
        """
        now = ConsumerOffsets(
            offsets={key: queues.offsets for key, queues in self._table.items()},
            pull_offsets={_key(*names): queues for names, queues in self._pulls.items()},
            version=self._version,
        )
        return now.encode_in_slices()

    def _snapshot(self) -> Encoder:
        self._journal.snapshot_taken()
        return partial(self._content().encode, pretty=True)

    def _content(self) -> ConsumerOffsets:
        return ConsumerOffsets(
            offsets={key: dict(queues.offsets) for key, queues in self._table.items()},
            pull_offsets={_key(*names): dict(queues) for names, queues in self._pulls.items()},
            version=self._version,
        )

    # Tables.

    def _find(self, group: str, topic: str) -> _Queues | None:
        try:
            return self._groups[group][topic]
        except KeyError:
            return None

    def _add(self, key: str) -> _Queues:
        """Return the entry of that key, created if needed; a key not of the form `topic@group` is
        only kept for the file.
        """
        queues = self._table.get(key)
        if queues is None:
            queues = self._table[key] = _Queues(key)
            if (names := split_key(key)) is not None:
                self._groups.setdefault(names[1], {})[names[0]] = queues
        return queues

    def _remove(self, key: str) -> None:
        self._table.pop(key, None)
        if (names := split_key(key)) is not None and (
            topics := self._groups.get(names[1])
        ) is not None:
            topics.pop(names[0], None)
            if not topics:
                del self._groups[names[1]]

    def _delete(self, deleted: list[_Queues]) -> list[_Queues]:
        for queues in deleted:
            self._remove(queues.key)
        if deleted:
            keys = [queues.key for queues in deleted]
            self._journal.drop(*keys)
            self.changes.remove(*keys)
            self._is_changed = True
        return deleted


def _log_deleted(deleted: list[_Queues]) -> Slices[None]:
    for part in slices_of(deleted):
        for queues in part:
            log.info("offsets_deleted key=%s offsets=%s", queues.key, queues.offsets)
        if len(part) == SLICE_UNITS:
            yield


def _key(group: str, topic: str) -> str:
    return f"{topic}{SEPARATOR}{group}"
