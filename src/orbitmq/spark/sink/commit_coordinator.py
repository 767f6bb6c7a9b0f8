"""Driver side of exactly-once delivery: records the decision to commit a batch, then commits its
staged messages.

Crash rule: before the decision is on disk nothing of the batch is delivered, and everything staged
is rolled back. After it the next run of the batch finishes it with the messages of the decision,
and rolls back what it staged itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.common.errors import SendFailedError
from orbitmq.spark.failures import DataLossError
from orbitmq.spark.sink.options import SinkOptions
from orbitmq.spark.sink.sender import sender_of
from orbitmq.spark.sink.staged_messages import decode_staged, iter_staged
from orbitmq.spark.sink.staging import StagingSender
from orbitmq.spark.sink.transaction_log import BatchState, TransactionLog

log = logging.getLogger(__name__)


class CommitCoordinator:
    """Commits or aborts one batch of a query whose tasks have all ended."""

    def __init__(self, options: SinkOptions, transaction_log: TransactionLog, batch: int) -> None:
        self._options = options
        self._log = transaction_log
        self._batch = batch

    def commit(self, parts: Iterable[bytes]) -> str:
        """Commit the staged messages. If the batch was decided before, only the messages of that
        decision are committed. Returns what was done, for the log.
        """
        staged = decode_staged(parts)
        if self._log.state(self._batch) is BatchState.OPEN:
            if not staged.num_rows:
                return "nothing"
            try:
                self._log.decide(self._batch, staged)
            except FileExistsError:
                log.warning(
                    "batch_decided_elsewhere log=%s batch=%d; is the query running twice?",
                    self._log,
                    self._batch,
                )
            else:
                self._deliver(staged, is_first=True)
                return "delivered"
        return self._finish_decided(staged)

    def _finish_decided(self, staged: pa.Table) -> str:
        """Finish a batch that an earlier run decided."""
        if self._log.state(self._batch) is BatchState.DONE:
            self._roll_back(staged)
            if staged.num_rows:
                self._log.check_known(self._batch)
            log.warning(
                "batch_delivered_before log=%s batch=%d rows=%d; not delivered again",
                self._log,
                self._batch,
                staged.num_rows,
            )
            return "delivered before"
        decided = self._log.staged(self._batch)
        self._roll_back(
            staged.filter(pc.invert(pc.is_in(staged["uniqueKey"], decided["uniqueKey"])))
        )
        self._deliver(decided, is_first=False)
        return "finished"

    def abort(self, parts: Iterable[bytes]) -> str:
        """Roll back the staged messages. A batch that is already decided is left to the next run.
        Returns what was done, for the log.
        """
        if self._log.state(self._batch) is not BatchState.OPEN:
            return "decided: the next run of the batch finishes it"
        self._roll_back(decode_staged(parts))
        return "rolled back"

    def _deliver(self, staged: pa.Table, *, is_first: bool) -> None:
        try:
            sender_of(self._options, StagingSender).commit(
                iter_staged(staged), is_doubtful=not is_first
            )
        except (SendFailedError, DataLossError) as problem:
            raise type(problem)(
                f"batch {self._batch} was decided but only partly delivered: {problem}. Restart the"
                " query to finish it. If the staged messages are lost for good, delete"
                f" {self._batch}.parquet in {self._log} to send the whole batch again, or create"
                f" {self._batch}.done there to continue without the rest"
            ) from problem
        self._log.finish(self._batch)

    def _roll_back(self, staged: pa.Table) -> None:
        if staged.num_rows:
            sender_of(self._options, StagingSender).roll_back(iter_staged(staged))
