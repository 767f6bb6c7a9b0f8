"""Whether the commit log ends before what its checkpoint and manifest prove: flushed records that
are missing.

After a clean stop both state where the log ended. One of them alone may be corrupt, or belong to
another store: a manifest, which has a checksum, is trusted unless a checkpoint that fits the log
contradicts it; a checkpoint is trusted if there is no manifest. Apache's brokers have no manifest;
those before 5.5 have no offset in their checkpoint, only the store times of the last record: both
must be later than the log's.

After a crash the checkpoint states how far the log was flushed; later records may be lost.
"""

from __future__ import annotations

from typing import Protocol

from orbitmq.store.queue_manifest import Manifest


class FlushedNumbers(Protocol):
    """The fields of a checkpoint that are needed here."""

    @property
    def log_time_ms(self) -> int: ...

    @property
    def queues_time_ms(self) -> int: ...

    @property
    def confirmed_offset(self) -> int: ...

    @property
    def queues_offset(self) -> int: ...


def proven_end(
    checkpoint: FlushedNumbers | None,
    manifest: Manifest | None,
    *,
    log_end: int,
    last_time_ms: int,
) -> int | None:
    """Return where the log of a cleanly stopped store should end, if it ends before that; 0 if only
    store times show it.
    """
    queues_offset = 0 if checkpoint is None else checkpoint.queues_offset
    if manifest is not None:
        if manifest.log_offset <= log_end or 0 < queues_offset <= log_end:
            return None
        return manifest.log_offset
    if checkpoint is None:
        return None
    if queues_offset:
        return queues_offset if queues_offset > log_end else None
    oldest_ms = min(checkpoint.log_time_ms, checkpoint.queues_time_ms)
    return 0 if oldest_ms > last_time_ms else None


def flushed_end(checkpoint: FlushedNumbers | None, manifest: Manifest | None) -> int:
    """Return how far the log was flushed in a store that was not stopped cleanly."""
    return max(
        0 if checkpoint is None else checkpoint.confirmed_offset,
        0 if manifest is None else manifest.log_offset,
    )
