"""Decides at start what is kept of the index: what the manifest proves. Everything else is rebuilt
from the commit log.

The manifest has the header of each index file, and checksums of its entries and of its slots; only
these bytes are read, not the empty rest of a file. The first file that differs is removed with all
after it, and the log is dispatched again from there.

A manifest that is present but unusable proves nothing of the index either: all of it is removed. If
there is none, or one that does not cover the index, the files may be an Apache broker's, and are
not rebuilt without need. A file is trusted then if

- it is full, or the last;
- its header and its slots follow from its entries, whose chains are complete and in the order of
  the log;
- the log has no record with a key before its first entry that the file before it does not have;
- the log confirms its first and last entry, the times that the header has of them, and a sample of
  the others.

A changed log offset or time in any other entry goes unnoticed: it costs a hit.
"""

from __future__ import annotations

import logging
from typing import Final

from orbitmq.message.flags import TransactionType, transaction_type
from orbitmq.message.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQUE_KEY, decode_text
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.tags import index_hash
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.index import Index, tags_key
from orbitmq.store.index_file import IndexFile
from orbitmq.store.queue_manifest import Manifest
from orbitmq.store.types import LogOffset

_SAMPLE: Final = 64  # entries of an unproven file that are checked against the log
log = logging.getLogger(__name__)


class IndexProof:
    """The proof of one start. `manifest` is one that matches the log; `is_ours`: there is a
    manifest, usable or not.
    """

    def __init__(
        self, commit_log: CommitLog, index: Index, manifest: Manifest | None, *, is_ours: bool
    ) -> None:
        self._log = commit_log
        self._index = index
        self._manifest = manifest
        self._is_ours = is_ours
        self.is_rebuilt = False

    def run(self, log_end: LogOffset) -> LogOffset:
        """Keep what is proven; return where dispatch must begin."""
        index, manifest, log_min = self._index, self._manifest, self._log.min_offset
        flaw: str | None
        if (
            manifest is not None
            and manifest.index is not None
            and manifest.index.shape == index.shape
        ):
            flaw, begin = index.load(manifest.index.files, log_min), manifest.log_offset
        elif manifest is None and self._is_ours:
            flaw, begin = "the manifest proves nothing" if log_min < log_end else None, log_min
            index.load((), log_min)
        else:
            flaw = index.load(None, log_min, self._flaw)
            begin = index.end_offset
            if index.files:
                log.warning(
                    "index_unproven end=%d reason=its files are in no manifest: only their"
                    " consistency was checked",
                    begin,
                )
        if flaw is not None:
            self.is_rebuilt, begin = True, index.end_offset
            log.warning("index_rebuilt from=%d reason=%s", begin, flaw)
        index.truncate(log_end)
        return LogOffset(max(min(begin, log_end), log_min))

    def _flaw(self, file: IndexFile, before: IndexFile | None) -> str | None:
        """Return what the log has against an unproven file, or None."""
        header, log_min = file.header, self._log.min_offset
        if header.entry_count == 1 or header.end_offset < log_min:
            return None
        missing = self._missing(
            None if before is None else before.header.end_offset, header.begin_offset
        )
        if missing is not None:
            return (
                f"begins at {header.begin_offset}: the record at {missing} has a key that is in no"
                " file before it"
            )
        last = header.entry_count - 1
        for number in sorted({1, last, *range(1, last, max(1, last // _SAMPLE))}):
            key_hash, log_offset = file.entry(number)
            if log_offset < log_min:
                continue
            record = next(
                iter(self._log.scan(log_offset, LogOffset(log_offset + 1), check_body=False)), None
            )
            if record is None or key_hash not in _hashes(record):
                return (
                    f"has entry {number}, which gives the record at {log_offset} a key of"
                    f" hash {key_hash}"
                )
            if number == 1 and record.store_time_ms != header.begin_time_ms:
                return (
                    f"begins at {header.begin_time_ms}, its first record at {record.store_time_ms}"
                )
            # To the second, if it was truncated.
            if number == last and not 0 <= record.store_time_ms - header.end_time_ms < 1000:
                return f"ends at {header.end_time_ms}, its last record at {record.store_time_ms}"
        return None

    def _missing(self, after: LogOffset | None, before: LogOffset) -> LogOffset | None:
        """Return the first record between two others that should be in the index. Tags alone do not
        count: 4.9 does not index them.
        """
        begin = self._log.min_offset if after is None else max(self._log.min_offset, after)
        for record in self._log.scan(begin, before, check_body=False):
            is_keyed = record.property(UNIQUE_KEY) or (record.property(KEYS) or "").strip(
                KEY_SEPARATOR
            )
            if (
                is_keyed
                and record.log_offset != after
                and transaction_type(record.sys_flag) is not TransactionType.ROLLBACK
            ):
                return LogOffset(record.log_offset)
        return None


def _hashes(record: RecordCursor) -> set[int]:
    """Return the hashes of the keys of a record."""
    topic, tags = decode_text(record.topic()), record.property(TAGS)
    keys = [
        record.property(UNIQUE_KEY),
        *(record.property(KEYS) or "").split(KEY_SEPARATOR),
        tags and tags_key(tags),
    ]
    return {index_hash(topic, key) for key in keys if key}
