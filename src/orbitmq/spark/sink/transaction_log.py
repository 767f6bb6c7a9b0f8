"""The record of exactly-once delivery: which batches are decided, with which staged messages, and
which are done.

    <folder>/<query>/<batch>.parquet   the batch is decided: exactly these messages are committed,
                                       however often it runs
    <folder>/<query>/<batch>.done      all of them are committed
    <checkpoint>/transactions/place    where the record of this stream is; with another record, a
                                       batch that Spark repeats would count as new

Order rule: a batch is decided before its first message is committed, done after its last one, and
the next batch starts when it is done. So all batches before the last decided one are done; their
files only serve to tell delivered batches from ones that never ran. A decision is made once.
"""

from __future__ import annotations

import hashlib
import io
import logging
import re
from contextlib import suppress
from enum import Enum
from typing import Final

import pyarrow as pa

from orbitmq.common.errors import ConfigurationError, OrbitError
from orbitmq.spark.sink.record_folder import open_folder
from orbitmq.spark.sink.staged_messages import SCHEMA

KEPT_MAX: Final = 100  # batches whose files are kept
_DECIDED: Final = ".parquet"
_DONE: Final = ".done"
_NAME: Final = re.compile(r"(\d+)(\.parquet|\.done)")
_QUERY: Final = re.compile(r"[\w.-]{1,200}")
_PLACE: Final = "place"
log = logging.getLogger(__name__)


class BatchState(Enum):
    """How far the commit of a batch is."""

    OPEN = "not decided"
    DECIDED = "its messages are being committed"
    DONE = "its messages are committed"


class TransactionLog:
    """The transaction log of one query."""

    def __init__(self, folder: str, query: str) -> None:
        if not _QUERY.fullmatch(query) or query.startswith("."):
            raise ConfigurationError(
                f"option transactionId={query!r}: must have at most 200 letters, digits and"
                " characters of . _ -"
            )
        self._folder = open_folder(f"{folder}/{query}")
        self.name = (  # unique among all logs
            f"{hashlib.sha256(folder.encode()).hexdigest()[:12]}/{query}"
        )

    def __str__(self) -> str:
        return str(self._folder)

    def state(self, batch: int) -> BatchState:
        """Return the current state of a batch."""
        files = self._files()
        last = max((number for number, kind in files if kind == _DECIDED), default=-1)
        if batch > last:
            return BatchState.OPEN
        return BatchState.DONE if batch < last or (batch, _DONE) in files else BatchState.DECIDED

    def check_known(self, batch: int) -> None:
        """Refuse a batch that counts as done because a later one is decided, but has no record of
        its own.
        """
        files = self._files()
        last = max((number for number, kind in files if kind == _DECIDED), default=-1)
        if batch >= last or {(batch, _DECIDED), (batch, _DONE)} & files:
            return
        known = "it was never delivered"
        if batch <= last - KEPT_MAX:
            first = last - KEPT_MAX + 1
            known = (
                f"whether it was delivered is unknown, since records of batches before {first} are"
                " deleted; look for its rows"
            )
        raise ConfigurationError(
            f"batch {batch} comes after batch {last}, the last one in {self}, and {known}. Nothing"
            " of it is delivered now: batch numbers (transactionBatch) must increase; use one"
            f" above {last}, or another transactionId"
        )

    def decide(self, batch: int, staged: pa.Table) -> None:
        """Record that the batch consists of these messages; raises FileExistsError if it is
        decided.
        """
        import pyarrow.parquet as pq

        # Left over if the user deleted the decision to have the batch sent again.
        self._folder.delete(f"{batch}{_DONE}")
        content = io.BytesIO()
        pq.write_table(staged, content)
        self._folder.create(f"{batch}{_DECIDED}", content.getvalue())

    def staged(self, batch: int) -> pa.Table:
        """Return the messages of a decided batch."""
        import pyarrow.parquet as pq

        name = f"{batch}{_DECIDED}"
        try:
            return pq.read_table(io.BytesIO(self._folder.read(name))).cast(SCHEMA)
        except (pa.ArrowException, ValueError) as problem:
            raise OrbitError(
                f"{self}/{name} is corrupt: {problem}; restore it, or delete it to send the whole"
                " batch again, including messages already delivered"
            ) from problem

    def finish(self, batch: int) -> None:
        """Record that all messages of the batch are committed, and delete old records."""
        try:
            self._folder.create(f"{batch}{_DONE}", b"")
        except FileExistsError:
            return
        for number, kind in self._files():
            if number <= batch - KEPT_MAX:
                self._folder.delete(f"{number}{kind}")

    def _files(self) -> set[tuple[int, str]]:
        found = map(_NAME.fullmatch, self._folder.names())
        return {(int(match[1]), match[2]) for match in found if match}


def check_log_location(folder: str, checkpoint: str) -> None:
    """Refuse a stream whose checkpoint was used with another transaction log. A log inside the
    checkpoint may move with it.
    """
    inside = f"{checkpoint}/transactions"
    place = "." if folder == inside else folder
    try:
        notes = open_folder(inside)
        if _PLACE not in notes.names():  # written once, by the first batch
            with suppress(FileExistsError):
                notes.create(_PLACE, place.encode())
        noted = notes.read(_PLACE).decode()
    except OrbitError as problem:  # Spark supports file systems that Arrow does not
        log.warning(
            "transaction_log_place_unknown checkpoint=%s problem='%s'; do not change"
            " transactionLog",
            checkpoint,
            problem,
        )
        return
    if noted != place:
        raise ConfigurationError(
            "the transaction log of this stream is in"
            f" {inside if noted == '.' else noted}, not in {folder}: a repeated batch would be"
            " delivered twice. Set the option transactionLog as it was, or leave it out as it was;"
            f" if the log was moved with all its files, delete {inside}/{_PLACE}"
        )
