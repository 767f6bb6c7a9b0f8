"""What the driver does at the end of a batch that is delivered exactly once: it decides, and has the staged messages committed.

Crash rule: before the decision is on disk nothing of the batch was delivered, and whatever was staged is rolled back. After it the batch is
finished by whoever runs it again, with the messages of the decision, and what was staged anew is rolled back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.common.errors import SendFailed
from orbitmq.spark.failures import DataLost
from orbitmq.spark.sender import sender_of
from orbitmq.spark.sink_options import SinkOptions
from orbitmq.spark.staged_messages import each_of, unpacked
from orbitmq.spark.staging import StagingSender
from orbitmq.spark.transaction_log import BatchState, TransactionLog

log = logging.getLogger(__name__)


class BatchDecision:
    """A batch of a query, whose tasks have all ended."""

    def __init__(self, options: SinkOptions, transaction_log: TransactionLog, batch: int) -> None:
        self._options = options
        self._log = transaction_log
        self._batch = batch

    def commit(self, parts: Iterable[bytes]) -> str:
        """Deliver what tasks have staged, unless the batch was decided before: then that is delivered, and nothing else."""
        staged = unpacked(parts)
        if self._log.state(self._batch) is BatchState.OPEN:
            if not staged.num_rows:
                return "nothing"
            try:
                self._log.decide(self._batch, staged)
            except FileExistsError:
                log.warning("batch_decided_elsewhere log=%s batch=%d; is the query running twice?", self._log, self._batch)
            else:
                self._deliver(staged, is_first=True)
                return "delivered"
        return self._finish_decided(staged)

    def _finish_decided(self, staged: pa.Table) -> str:
        """The batch was decided by a run before this one."""
        if self._log.state(self._batch) is BatchState.DONE:
            self._roll_back(staged)
            if staged.num_rows:
                self._log.check_known(self._batch)
            log.warning(
                "batch_delivered_before log=%s batch=%d rows=%d; they are not delivered again", self._log, self._batch, staged.num_rows
            )
            return "delivered before"
        decided = self._log.staged(self._batch)
        self._roll_back(staged.filter(pc.invert(pc.is_in(staged["uniqueKey"], decided["uniqueKey"]))))
        self._deliver(decided, is_first=False)
        return "finished"

    def abort(self, parts: Iterable[bytes]) -> str:
        """Deliver nothing; when the batch was decided, what is to be delivered is by the next run."""
        if self._log.state(self._batch) is not BatchState.OPEN:
            return "decided: it is finished when the batch is run again"
        self._roll_back(unpacked(parts))
        return "rolled back"

    def _deliver(self, staged: pa.Table, *, is_first: bool) -> None:
        try:
            sender_of(self._options, StagingSender).commit(each_of(staged), is_doubtful=not is_first)
        except (SendFailed, DataLost) as problem:
            raise type(problem)(
                f"batch {self._batch} was decided, and a part of it not delivered yet: {problem}. Start the query again to finish it. "
                f"If what was staged is gone for good, delete {self._batch}.parquet in {self._log} to have all of the batch sent anew, "
                f"or make {self._batch}.done there to go on without the rest"
            ) from problem
        self._log.finish(self._batch)

    def _roll_back(self, staged: pa.Table) -> None:
        if staged.num_rows:
            sender_of(self._options, StagingSender).roll_back(each_of(staged))
