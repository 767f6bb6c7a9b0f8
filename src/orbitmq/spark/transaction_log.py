"""The record of a sink that delivers exactly once: which batches were decided, of which staged messages, and which of them are done.

    <folder>/<query>/<batch>.parquet   the batch is decided: these messages are committed, and no others, however often it is run
    <folder>/<query>/<batch>.done      all of them are

Order rule: a batch is decided before its first message is committed, done after its last one, and the next begins when it is done. So all
batches before the last one that was decided are done, and their files are needed no more but to tell what was done from what was never
begun. A decision is made once.

    <checkpoint>/transactions/place    where the record of this stream is: with another one, a batch that Spark repeats would be new
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
from orbitmq.spark.record_folder import folder_at
from orbitmq.spark.staged_messages import SCHEMA

KEPT_MAX: Final = 100  # batches whose files stay
_DECIDED: Final = ".parquet"
_DONE: Final = ".done"
_NAME: Final = re.compile(r"(\d+)(\.parquet|\.done)")
_QUERY: Final = re.compile(r"[\w.-]{1,200}")
_PLACE: Final = "place"
log = logging.getLogger(__name__)


class BatchState(Enum):
    """What is known of a batch."""

    OPEN = "nothing is decided"
    DECIDED = "its messages are being committed"
    DONE = "its messages are committed"


class TransactionLog:
    """Of one query."""

    def __init__(self, folder: str, query: str) -> None:
        if not _QUERY.fullmatch(query) or query.startswith("."):
            raise ConfigurationError(f"option transactionId={query!r}: it has at most 200 letters, digits, and the signs . _ -")
        self._folder = folder_at(f"{folder}/{query}")
        self.name = f"{hashlib.sha256(folder.encode()).hexdigest()[:12]}/{query}"  # by which it is told from all others

    def __str__(self) -> str:
        return str(self._folder)

    def state(self, batch: int) -> BatchState:
        """What is known of a batch now."""
        files = self._files()
        last = max((number for number, kind in files if kind == _DECIDED), default=-1)
        if batch > last:
            return BatchState.OPEN
        return BatchState.DONE if batch < last or (batch, _DONE) in files else BatchState.DECIDED

    def check_known(self, batch: int) -> None:
        """Refuse a batch that counts as done because a later one was decided, when there is no record that it ever was itself."""
        files = self._files()
        last = max((number for number, kind in files if kind == _DECIDED), default=-1)
        if batch >= last or {(batch, _DECIDED), (batch, _DONE)} & files:
            return
        known = "it never was delivered"
        if batch <= last - KEPT_MAX:
            first = last - KEPT_MAX + 1
            known = f"whether it was delivered cannot be known, since records of batches before {first} are deleted; look for its rows"
        raise ConfigurationError(
            f"batch {batch} comes after batch {last}, the last one in {self}, and {known}. Nothing of it is delivered now: numbers of "
            f"batches (transactionBatch) only go up; give it one above {last}, or a transactionId of its own"
        )

    def decide(self, batch: int, staged: pa.Table) -> None:
        """Let the batch be these messages; FileExistsError when somebody has decided already."""
        import pyarrow.parquet as pq

        self._folder.delete(f"{batch}{_DONE}")  # somebody took the decision away, so that the batch is sent anew
        content = io.BytesIO()
        pq.write_table(staged, content)
        self._folder.create(f"{batch}{_DECIDED}", content.getvalue())

    def staged(self, batch: int) -> pa.Table:
        """The messages of a batch that was decided."""
        import pyarrow.parquet as pq

        name = f"{batch}{_DECIDED}"
        try:
            return pq.read_table(io.BytesIO(self._folder.read(name))).cast(SCHEMA)
        except (pa.ArrowException, ValueError) as problem:
            raise OrbitError(
                f"{self}/{name} is damaged: {problem}; restore it, or delete it: then the batch is sent anew, what of it was sent included"
            ) from problem

    def finish(self, batch: int) -> None:
        """All messages of the batch are committed."""
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


def check_place(folder: str, checkpoint: str) -> None:
    """Refuse a stream whose checkpoint was used with a record elsewhere; a checkpoint that is moved takes a record inside it along."""
    inside = f"{checkpoint}/transactions"
    place = "." if folder == inside else folder
    try:
        notes = folder_at(inside)
        if _PLACE not in notes.names():  # each batch comes here, and only the first one has to write
            with suppress(FileExistsError):
                notes.create(_PLACE, place.encode())
        noted = notes.read(_PLACE).decode()
    except OrbitError as problem:  # Spark may reach places that Arrow does not
        log.warning("transaction_log_place_unknown checkpoint=%s problem='%s'; do not change transactionLog", checkpoint, problem)
        return
    if noted != place:
        raise ConfigurationError(
            f"the record of what this stream has delivered is in {inside if noted == '.' else noted}, not in {folder}: a batch that is "
            f"repeated would be delivered twice. Set the option transactionLog as it was, or leave it out as it was; if the record has "
            f"moved with all its files, delete {inside}/{_PLACE}"
        )
