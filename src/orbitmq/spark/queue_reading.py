"""Reads a range of a queue from its broker, as pieces of stored records in order, and stops exactly at its end.

A broker that cannot be reached is asked again, for so long and no longer; one that comes back on another address is found there. Messages
that are not there any more are an error, or a warning, as the user wants it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from orbitmq.client.pulling import PullStatus
from orbitmq.common.errors import NotFound, OrbitError, RemoteError, RemoteUnavailable, RequestRefused
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.spark.ask_ahead import Ask, AskAhead, Piece
from orbitmq.spark.failures import DataLost
from orbitmq.spark.offsets import Loss, QueueKey, QueueRange, deleted, not_given, shortened
from orbitmq.spark.options import SourceOptions
from orbitmq.spark.pull_link import Answer, PullLink, link_to

_PAUSE_S: Final = 0.2
_PAUSE_S_MAX: Final = 2.0
_END_WAIT_S: Final = 5.0  # how long a queue may be shorter than it was known to be: a replica, for instance, follows its master
HasHoles = Callable[[QueueKey], bool]  # whether a queue may lack messages between its ends
Address = Callable[[MessageQueue, bool], str]  # where the broker of a queue is; true: what was known of it led nowhere

log = logging.getLogger(__name__)


class Patience:
    """How long something that fails is tried again; what succeeds begins anew."""

    def __init__(self, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        self._since: float | None = None
        self._pause_s = _PAUSE_S

    def renew(self) -> None:
        self._since, self._pause_s = None, _PAUSE_S

    def wait(self) -> bool:
        """Wait a moment before another try; no, when the time for that is over."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since >= self._seconds_max:
            return False
        time.sleep(min(self._pause_s, self._seconds_max))
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)
        return True


def tell(loss: Loss, options: SourceOptions) -> None:
    """Fail because of what is lost, or warn of it."""
    if options.fail_on_data_loss:
        raise DataLost(f"{loss}; set failOnDataLoss=false to go on with what is there")
    log.warning("data_lost queue=%s begin=%d end=%s why='%s'", loss.queue, loss.begin, loss.end, loss.why)


class QueueReading:
    """One range, read once."""

    def __init__(self, options: SourceOptions, wanted: QueueRange, address: Address, has_holes: HasHoles) -> None:
        names = options.client.names
        self._options = options
        self._wanted = wanted
        self._queue = MessageQueue(names.wire(wanted.queue.topic), wanted.queue.broker, wanted.queue.queue_id)
        self._address = address
        self._has_holes = has_holes
        self._plan = AskAhead(wanted.begin, wanted.end, is_dense=options.expression is None)
        self._sent: dict[int, Ask] = {}
        self._told_until = wanted.begin  # what is lost before it was told
        self._patience = Patience(options.retry_ms / 1000)
        self._end_patience = Patience(_END_WAIT_S)

    def pieces(self) -> Iterator[Piece]:
        """The records of the range, in order; each piece is good until the next is asked for."""
        is_again = False
        while not self._plan.is_over:
            try:
                with link_to(self._address(self._queue, is_again), self._options.client) as link:
                    link.aim(self._options.reader_group, self._queue, self._options.wanted(self._queue.topic))
                    yield from self._over(link)
            except (RemoteError, NotFound) as problem:
                self._plan.restart()
                self._sent.clear()
                if not self._patience.wait():
                    raise self._given_up(problem) from problem
                is_again = True
            except RequestRefused as refused:
                if refused.code == ResponseCode.TOPIC_NOT_EXIST:
                    tell(Loss(self._wanted.queue, self._plan.position, self._wanted.end, "the topic was deleted"), self._options)
                    return
                raise RequestRefused(refused.code, f"queue {self._wanted.queue} cannot be read: {refused.remark}") from refused

    def _given_up(self, problem: OrbitError) -> RemoteUnavailable:
        seconds = self._options.retry_ms / 1000
        return RemoteUnavailable(f"queue {self._wanted.queue} could not be read for {seconds:g} s (retryTimeout): {problem}")

    def _over(self, link: PullLink) -> Iterator[Piece]:
        plan = self._plan
        while not plan.is_over:
            while (ask := plan.next_ask()) is not None:
                self._sent[link.ask(ask.begin, ask.count)] = ask
            for answer in link.answers():
                self._settle(self._sent.pop(answer.number), answer)
            while (piece := plan.take()) is not None:
                yield piece
            plan.keep()

    def _settle(self, ask: Ask, answer: Answer) -> None:
        is_elsewhere = answer.status is PullStatus.OFFSET_ILLEGAL and answer.min_offset <= ask.begin
        if answer.next_offset > ask.begin and not is_elsewhere:
            if not answer.body and ask.begin >= self._told_until:
                self._tell_hole(ask.begin, min(answer.next_offset, self._wanted.end), answer)
            self._plan.answered(ask, answer.body, answer.next_offset)
            self._patience.renew()
            self._end_patience.renew()
            return
        if answer.status is PullStatus.FOUND:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the broker's answer does not reach further than {ask.begin}")
        if self._end_patience.wait():  # a group that was reset, too, gets such an answer once, which concerns its consumers
            self._plan.failed(ask)
            return
        loss = shortened(self._wanted.queue, ask.begin, self._wanted.end)
        if answer.max_offset > ask.begin:
            loss = replace(loss, why=f"the broker gives none of them, though the queue ends at {answer.max_offset}")
        tell(loss, self._options)
        self._plan.answered(ask, b"", self._wanted.end)

    def _tell_hole(self, begin: int, end: int, answer: Answer) -> None:
        """Tell of messages that an answer leads past, without any; of chosen ones nobody knows whether there were some."""
        queue = self._wanted.queue
        if answer.status is PullStatus.OFFSET_ILLEGAL:
            self._told_until = end
            tell(deleted(queue, begin, end, answer.min_offset), self._options)
        elif self._options.expression is None and not self._has_holes(queue):
            self._told_until = end
            tell(not_given(queue, begin, end), self._options)
