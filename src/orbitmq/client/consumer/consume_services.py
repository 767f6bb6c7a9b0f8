"""Passes prefetched messages to a listener: concurrently, or in queue order.

Invariant of both: a message is finished in its process queue when the listener accepted it, when
the broker took it back for redelivery, or when it is given up, and at no other time.

A message whose body cannot be decoded is not passed to a listener, since a retry would not help. It
becomes a dead letter at once, where an operator can inspect it, and its neighbours are consumed. In
broadcast mode, which has no redelivery, it is given up like any message the listener fails. It is
also given up, and that is logged, if its broker keeps refusing it: it stays where it was read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, Protocol

from orbitmq.client.consumer.consume_rates import ConsumeRates
from orbitmq.client.consumer.listeners import (
    Job,
    Listener,
    RunResult,
    ShouldContinue,
    listener_runner,
)
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.queue_reader import QueueReader
from orbitmq.client.consumer.send_back import RetrySender
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.observers import ConsumeObserver, ConsumeOutcome
from orbitmq.common.errors import RequestRefusedError
from orbitmq.protocol.bodies.clients import MessageQueue

_RETRY_HERE_S: Final = 5.0
_RUN_MAX: Final = 32  # messages of a queue passed to a thread at a time
_TIMED_OUT_LEVEL: Final = 3
_DEAD_LETTER_TRIES_MAX: Final = 12

log = logging.getLogger(__name__)


class ConsumeLater(Exception):
    """Raised by a listener to have a message redelivered, after the broker's delay or a delay
    level.
    """

    def __init__(self, delay_level: int = 0) -> None:
        super().__init__(f"delay level {delay_level}")
        self.delay_level = delay_level


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeRules:
    """How messages are consumed."""

    group: str  # the application's name of it
    concurrency: int
    max_attempts: int  # -1: the broker's limit; in order: unlimited
    pause_s: float  # before a message is retried in order
    timeout_s: float  # of one concurrent listener call
    drop_failed: bool  # do not redeliver failed messages (broadcast mode)


class ConsumeService(Protocol):
    """Passes messages to a listener, concurrently or in order."""

    rates: ConsumeRates
    observers: list[ConsumeObserver]

    def arrived(self, reader: QueueReader) -> None:
        """Called when a reader's cache has new messages."""
        ...

    async def call(self, message: ReceivedMessage) -> BaseException | None:
        """Pass one message outside of any queue to the listener; return its error, or None."""
        ...

    async def pause(self) -> None:
        """Start no more calls, and wait for the running ones."""
        ...

    async def released(self, reader: QueueReader) -> None:
        """Wait until no message of a dropped reader is being consumed, where order requires it."""
        ...

    def send_back_overdue(self) -> None:
        """Return messages to the broker whose listener call exceeded the timeout."""
        ...

    def close(self) -> None: ...


class _ConsumeServiceBase:
    def __init__(self, rules: ConsumeRules, send_back: RetrySender) -> None:
        self.rates = ConsumeRates()
        self.observers: list[ConsumeObserver] = []
        self._rules = rules
        self._send_back = send_back
        self._is_paused = False
        # How often brokers refused each undecodable message.
        self._refusals: dict[ReceivedMessage, int] = {}

    def _note(
        self, messages: Sequence[ReceivedMessage], problem: BaseException | None, seconds: float
    ) -> None:
        """Count calls with the same outcome, log their error, and notify observers."""
        message = messages[0]
        self.rates.note(message.topic, len(messages), seconds, failed=problem is not None)
        if problem is not None and not isinstance(problem, ConsumeLater):
            place = (message.msg_id, message.queue, message.queue_offset)
            log.error(
                "listener_failed group=%s msg_id=%s queue=%s offset=%d",
                self._rules.group,
                *place,
                exc_info=problem,
            )
        for observer in self.observers:
            outcome = (
                ConsumeOutcome.SUCCESS
                if problem is None
                else ConsumeOutcome.FAILED
                if isinstance(problem, ConsumeLater)
                else ConsumeOutcome.EXCEPTION
            )
            try:
                observer.consumed(self._rules.group, messages, outcome, round(seconds * 1000))
            except Exception:
                log.exception("observer_failed observer=%r", observer)

    async def _dead_letter(self, cache: ProcessQueue, message: ReceivedMessage) -> bool:
        """Turn an undecodable message into a dead letter, or give it up; return whether it is
        finished.
        """
        try:
            if not self._rules.drop_failed and not await self._send_back.to_dead_letters(message):
                return False
        except RequestRefusedError as refused:
            tries = self._refusals[message] = self._refusals.get(message, 0) + 1
            if tries < _DEAD_LETTER_TRIES_MAX:
                return False
            place = (self._rules.group, message.queue, message.queue_offset, message.msg_id)
            log.error(
                "message_given_up group=%s queue=%s offset=%d msg_id=%s why='%s'", *place, refused
            )
        self._refusals.pop(message, None)
        self.rates.note(message.topic, 1, 0.0, failed=True)
        cache.finish_one(message)
        return True

    def _notify_consuming(self, messages: Sequence[ReceivedMessage]) -> None:
        for observer in self.observers:
            try:
                observer.consuming(self._rules.group, messages)
            except Exception:
                log.exception("observer_failed observer=%r", observer)


class ConcurrentConsumeService(_ConsumeServiceBase):
    """Consumes messages of all queues concurrently, up to the limit."""

    def __init__(self, listener: Listener, rules: ConsumeRules, send_back: RetrySender) -> None:
        super().__init__(rules, send_back)
        self._runner = listener_runner(listener, rules.concurrency, self._on_settled)
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._overdue: set[ReceivedMessage] = set()  # sent back while their listener still runs

    def arrived(self, reader: QueueReader) -> None:
        cache = reader.cache
        messages = cache.take(cache.waiting_count)
        if any(message.problem is not None for message in messages):
            for message in messages:
                if message.problem is not None:
                    self._spawn(self._dead_letter_with_retries(reader, cache, message))
            messages = [message for message in messages if message.problem is None]
        if self.observers:
            for message in messages:
                self._notify_consuming([message])
        self._runner.submit([(reader, cache, message) for message in messages])

    async def call(self, message: ReceivedMessage) -> BaseException | None:
        return await self._runner.call(message)

    def _on_settled(
        self, job: Job, problem: BaseException | None, began_s: float, ended_s: float
    ) -> None:
        reader, cache, message = job
        reader.last_finished_s = ended_s
        if self._is_paused:
            self._changed.set()
        if problem is None and not self.observers:
            self.rates.note(message.topic, 1, ended_s - began_s, failed=False)
        else:
            self._note((message,), problem, ended_s - began_s)
        if problem is None or self._rules.drop_failed:
            cache.finish_one(message)
        elif message not in self._overdue:
            self._spawn(
                self._retry(job, problem.delay_level if isinstance(problem, ConsumeLater) else 0)
            )
        if self._overdue:
            self._overdue.discard(message)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _retry(self, job: Job, delay_level: int) -> None:
        """Send a message back; if no broker accepts it, retry it here after a pause."""
        reader, cache, message = job
        if await self._send_back.send_back(message, delay_level):
            cache.finish_one(message)
            return
        await asyncio.sleep(_RETRY_HERE_S)
        if not reader.is_dropped and not self._is_paused:
            self._runner.submit([(reader, cache, message.with_next_attempt())])

    async def _dead_letter_with_retries(
        self, reader: QueueReader, cache: ProcessQueue, message: ReceivedMessage
    ) -> None:
        """Retry until the message is a dead letter or the queue has another owner."""
        while not reader.is_dropped and reader.cache is cache:
            if await self._dead_letter(cache, message):
                return
            await asyncio.sleep(_RETRY_HERE_S)

    async def _return_overdue(self, cache: ProcessQueue, message: ReceivedMessage) -> None:
        """Send an overdue message back for redelivery; a failure is retried at the next check."""
        if self._rules.drop_failed or await self._send_back.send_back(message, _TIMED_OUT_LEVEL):
            cache.finish_one(message)
        else:
            self._overdue.discard(message)

    async def pause(self) -> None:
        self._is_paused = True
        self._runner.forget()
        while self._runner.is_busy:
            self._changed.clear()
            await self._changed.wait()

    async def released(self, reader: QueueReader) -> None: ...

    def send_back_overdue(self) -> None:
        now_s = time.monotonic()
        for (_, cache, message), began_s in list(self._runner.running.values()):
            seconds = now_s - began_s
            if seconds > self._rules.timeout_s and message not in self._overdue:
                self._overdue.add(message)
                log.warning(
                    "listener_overdue group=%s msg_id=%s seconds=%.0f",
                    self._rules.group,
                    message.msg_id,
                    seconds,
                )
                self._spawn(self._return_overdue(cache, message))

    def close(self) -> None:
        self._runner.close()
        for task in list(self._tasks):
            task.cancel()


class OrderlyConsumeService(_ConsumeServiceBase):
    """Consumes the messages of a queue one at a time, each only after the previous success."""

    def __init__(
        self,
        listener: Listener,
        rules: ConsumeRules,
        send_back: RetrySender,
        is_ours: Callable[[MessageQueue], bool],
    ) -> None:
        super().__init__(rules, send_back)
        self._runner = listener_runner(listener, rules.concurrency, lambda *_: None)
        self._is_ours = is_ours
        self._queues: dict[QueueReader, asyncio.Task[None]] = {}  # queues being consumed

    def arrived(self, reader: QueueReader) -> None:
        if reader not in self._queues and not self._is_paused:
            self._queues[reader] = asyncio.get_running_loop().create_task(self._consume(reader))

    async def call(self, message: ReceivedMessage) -> BaseException | None:
        return await self._runner.call(message)

    async def _consume(self, reader: QueueReader) -> None:
        """Consume a queue until its cache is empty or another member owns it."""

        def should_continue() -> bool:
            return (
                not reader.is_dropped
                and not self._is_paused
                and reader.cache is cache
                and self._is_ours(reader.queue)
            )

        try:
            cache = reader.cache
            while cache.waiting_count and should_continue():
                if not await self._consume_run(reader, cache, should_continue):
                    await asyncio.sleep(self._rules.pause_s)
                cache = reader.cache  # a reset replaces it
        except Exception:
            log.exception("consuming_failed group=%s queue=%s", self._rules.group, reader.queue)
        finally:
            del self._queues[reader]
            if reader.cache.waiting_count and not reader.is_dropped and not self._is_paused:
                asyncio.get_running_loop().call_later(self._rules.pause_s, self.arrived, reader)

    async def _consume_run(
        self, reader: QueueReader, cache: ProcessQueue, should_continue: ShouldContinue
    ) -> bool:
        """Consume the next messages; return whether all succeeded.

        However it ends, unfinished messages return to the front of the cache in their order.
        """
        run = left = cache.take(_RUN_MAX)
        try:
            if run[0].problem is not None:
                is_done = await self._dead_letter(cache, run[0])
                left = run[1:] if is_done else run
                return is_done
            run = list(takewhile(lambda message: message.problem is None, run))
            behind = left[len(run) :]
            self._notify_consuming(run)
            done = await self._runner.in_order(run, should_continue)
            reader.last_finished_s = time.monotonic()
            left = [*self._settle(cache, run, done), *behind]
            if done.problem is not None:
                left = await self._failed(cache, left)
            return done.problem is None
        finally:
            cache.give_back([message for message in left if message.queue_offset in cache])

    def _settle(
        self, cache: ProcessQueue, run: list[ReceivedMessage], done: RunResult
    ) -> list[ReceivedMessage]:
        """Finish the messages that were consumed; return the rest of the run."""
        taken, left = run[: done.taken], run[done.taken :]
        for message in taken:
            cache.finish_one(message)
        calls = done.taken + (done.problem is not None)
        if taken:
            self._note(taken, None, done.seconds / calls)
        if done.problem is not None:
            self._note(left[:1], done.problem, done.seconds / calls)
        return left

    async def _failed(
        self, cache: ProcessQueue, left: list[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        """Count a failed attempt of the first message; once its attempts are used up, send it to
        the retry topic.
        """
        first = left[0]
        if self._rules.drop_failed:
            cache.finish_one(first)
            return left[1:]
        if (
            0 <= self._rules.max_attempts <= first.reconsume_times
            and await self._send_back.to_retry_topic(first)
        ):
            cache.finish_one(first)
            return left[1:]
        return [first.with_next_attempt(), *left[1:]]

    async def pause(self) -> None:
        self._is_paused = True
        await asyncio.gather(*self._queues.values(), return_exceptions=True)

    async def released(self, reader: QueueReader) -> None:
        task = self._queues.get(reader)
        if task is not None:
            await asyncio.wait([task])

    def send_back_overdue(self) -> None:
        """Do nothing: in order no message may overtake, so a stuck listener blocks its queue (see
        `explain`).
        """

    def close(self) -> None:
        for task in list(self._queues.values()):
            task.cancel()
        self._runner.close()
