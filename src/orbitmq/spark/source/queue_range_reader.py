"""Reads a range of a queue from its broker as pieces of stored records, in order and up to its
exact end.

An unreachable broker is retried for `retryTimeout`; one that comes back under another address is
found there. Missing messages raise an error or log a warning, as the user chose.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from orbitmq.client.consumer.pulling import PullStatus
from orbitmq.common.errors import (
    NotFoundError,
    OrbitError,
    RemoteError,
    RemoteUnavailableError,
    RequestRefusedError,
)
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.spark.failures import DataLossError
from orbitmq.spark.offsets import (
    DataLoss,
    QueueName,
    QueueRange,
    deleted,
    skipped_by_broker,
    truncated,
)
from orbitmq.spark.options import SourceOptions
from orbitmq.spark.source.pull_link import LinkReply, PullLink, borrow_link
from orbitmq.spark.source.pull_prefetcher import Piece, PlannedPull, PullPrefetcher

_PAUSE_S: Final = 0.2
_PAUSE_S_MAX: Final = 2.0
# How long a queue may be shorter than known: a replica, for instance, lags behind its master.
_END_WAIT_S: Final = 5.0
HasHoles = Callable[[QueueName], bool]  # whether a queue may lack messages within its bounds
AddressLookup = Callable[[MessageQueue, bool], str]  # True: the last known address did not work

log = logging.getLogger(__name__)


class RetryTimer:
    """Limits how long a failing operation is retried, with growing pauses."""

    def __init__(self, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        self._since: float | None = None
        self._pause_s = _PAUSE_S

    def reset(self) -> None:
        """Start over after a success."""
        self._since, self._pause_s = None, _PAUSE_S

    def wait(self) -> bool:
        """Pause before the next try. Returns False if the time is up."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since >= self._seconds_max:
            return False
        time.sleep(min(self._pause_s, self._seconds_max))
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)
        return True


def report_loss(loss: DataLoss, options: SourceOptions) -> None:
    """Raise DataLossError, or log a warning with failOnDataLoss=false."""
    if options.fail_on_data_loss:
        raise DataLossError(f"{loss}; set failOnDataLoss=false to continue without them")
    log.warning(
        "data_lost queue=%s begin=%d end=%s why='%s'", loss.queue, loss.begin, loss.end, loss.why
    )


class QueueRangeReader:
    """Reads one queue range once."""

    def __init__(
        self,
        options: SourceOptions,
        wanted: QueueRange,
        address: AddressLookup,
        has_holes: HasHoles,
    ) -> None:
        names = options.client.names
        self._options = options
        self._range = wanted
        self._queue = MessageQueue(
            names.wire(wanted.queue.topic), wanted.queue.broker, wanted.queue.queue_id
        )
        self._address = address
        self._has_holes = has_holes
        self._prefetcher = PullPrefetcher(
            wanted.begin, wanted.end, is_dense=options.expression is None
        )
        self._sent: dict[int, PlannedPull] = {}
        self._reported_until = wanted.begin  # losses before it are reported
        self._retry = RetryTimer(options.retry_ms / 1000)
        self._end_retry = RetryTimer(_END_WAIT_S)

    def pieces(self) -> Iterator[Piece]:
        """Return the records of the range in order; a piece is valid until the next one is
        requested.
        """
        is_stale = False
        while not self._prefetcher.is_done:
            try:
                with borrow_link(
                    self._address(self._queue, is_stale), self._options.client
                ) as link:
                    link.select_queue(
                        self._options.reader_group,
                        self._queue,
                        self._options.subscription_for(self._queue.topic),
                    )
                    yield from self._read_from(link)
            except (RemoteError, NotFoundError) as problem:
                self._prefetcher.restart()
                self._sent.clear()
                if not self._retry.wait():
                    raise self._timeout_error(problem) from problem
                is_stale = True
            except RequestRefusedError as refused:
                if refused.code == ResponseCode.TOPIC_NOT_EXIST:
                    report_loss(
                        DataLoss(
                            self._range.queue,
                            self._prefetcher.position,
                            self._range.end,
                            "the topic was deleted",
                        ),
                        self._options,
                    )
                    return
                raise RequestRefusedError(
                    refused.code, f"queue {self._range.queue} cannot be read: {refused.remark}"
                ) from refused

    def _timeout_error(self, problem: OrbitError) -> RemoteUnavailableError:
        seconds = self._options.retry_ms / 1000
        return RemoteUnavailableError(
            f"queue {self._range.queue} could not be read for {seconds:g} s (retryTimeout):"
            f" {problem}"
        )

    def _read_from(self, link: PullLink) -> Iterator[Piece]:
        prefetcher = self._prefetcher
        while not prefetcher.is_done:
            while (pull := prefetcher.next_pull()) is not None:
                self._sent[link.queue_pull(pull.begin, pull.count)] = pull
            for reply in link.receive():
                self._handle_reply(self._sent.pop(reply.number), reply)
            while (piece := prefetcher.take()) is not None:
                yield piece
            prefetcher.copy_pending()

    def _handle_reply(self, pull: PlannedPull, reply: LinkReply) -> None:
        is_elsewhere = reply.status is PullStatus.OFFSET_ILLEGAL and reply.min_offset <= pull.begin
        if reply.next_offset > pull.begin and not is_elsewhere:
            if not reply.body and pull.begin >= self._reported_until:
                self._report_hole(pull.begin, min(reply.next_offset, self._range.end), reply)
            self._prefetcher.on_reply(pull, reply.body, reply.next_offset)
            self._retry.reset()
            self._end_retry.reset()
            return
        if reply.status is PullStatus.FOUND:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the broker's reply does not advance past offset {pull.begin}",
            )
        # A reset of the group also causes such a reply once; it concerns only its consumers.
        if self._end_retry.wait():
            self._prefetcher.on_failure(pull)
            return
        loss = truncated(self._range.queue, pull.begin, self._range.end)
        if reply.max_offset > pull.begin:
            loss = replace(
                loss,
                why=f"the broker returns none of them, but the queue ends at {reply.max_offset}",
            )
        report_loss(loss, self._options)
        self._prefetcher.on_reply(pull, b"", self._range.end)

    def _report_hole(self, begin: int, end: int, reply: LinkReply) -> None:
        """Report messages that a reply without records skips. With a filter it is unknown whether
        there were any.
        """
        queue = self._range.queue
        if reply.status is PullStatus.OFFSET_ILLEGAL:
            self._reported_until = end
            report_loss(deleted(queue, begin, end, reply.min_offset), self._options)
        elif self._options.expression is None and not self._has_holes(queue):
            self._reported_until = end
            report_loss(skipped_by_broker(queue, begin, end), self._options)
