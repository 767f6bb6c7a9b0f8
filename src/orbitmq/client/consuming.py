"""From what readers bring to a listener: messages of a queue side by side, or one after the other.

Invariant of both: a message is finished in its process queue when the listener took it, when the broker took it back, or when it is given
up, and at no other time.

A message whose body cannot be read is not for a listener: trying it again would not help. It goes to the dead letters at once, where
somebody can look at it, and its neighbours are consumed; where nothing is delivered again it is given up, as what a listener fails at. It
is given up too, and that is logged, when its broker refuses it again and again: it stays where it was read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, Protocol

from orbitmq.client.consume_rates import ConsumeRates
from orbitmq.client.listening import InOrder, Job, Listener, MayGoOn, listening
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.observers import ConsumeObserver, Outcome
from orbitmq.client.process_queue import ProcessQueue
from orbitmq.client.queue_reader import QueueReader
from orbitmq.client.send_back import SendBack
from orbitmq.common.errors import RequestRefused
from orbitmq.protocol.bodies.clients import MessageQueue

_RETRY_HERE_S: Final = 5.0
_RUN_MAX: Final = 32  # messages of a queue that a thread gets at a time
_TIMED_OUT_LEVEL: Final = 3
_BURY_TRIES_MAX: Final = 12

log = logging.getLogger(__name__)


class ConsumeLater(Exception):
    """Raised by a listener that wants a message again, after the broker's delay or that of a level."""

    def __init__(self, delay_level: int = 0) -> None:
        super().__init__(f"delay level {delay_level}")
        self.delay_level = delay_level


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeRules:
    """How messages are consumed."""

    group: str  # as the application calls it
    concurrency: int
    max_attempts: int  # -1: what the broker says; in order: without end
    pause_s: float  # before a message is tried again in order
    timeout_s: float  # of one listener call, side by side
    gives_up: bool  # what a listener does not take is not delivered again: each member reads everything


class Consuming(Protocol):
    """One of both ways."""

    rates: ConsumeRates
    observers: list[ConsumeObserver]

    def arrived(self, reader: QueueReader) -> None:
        """Something can be taken from a reader's cache."""
        ...

    async def call(self, message: ReceivedMessage) -> BaseException | None:
        """Let the listener have one message that belongs to no queue of ours; what it raised, or None."""
        ...

    async def pause(self) -> None:
        """Begin nothing more, and wait for what is under way."""
        ...

    async def released(self, reader: QueueReader) -> None:
        """Wait until nothing of a reader that was dropped is under way, if that matters."""
        ...

    def send_back_overdue(self) -> None:
        """Free queues of messages that a listener does not come back with."""
        ...

    def close(self) -> None: ...


class _Base:
    def __init__(self, rules: ConsumeRules, send_back: SendBack) -> None:
        self.rates = ConsumeRates()
        self.observers: list[ConsumeObserver] = []
        self._rules = rules
        self._send_back = send_back
        self._is_paused = False
        self._refusals: dict[ReceivedMessage, int] = {}  # of messages that cannot be read, by their brokers

    def _note(self, messages: Sequence[ReceivedMessage], problem: BaseException | None, seconds: float) -> None:
        """Tell of calls that ended, all alike."""
        message = messages[0]
        self.rates.note(message.topic, len(messages), seconds, failed=problem is not None)
        if problem is not None and not isinstance(problem, ConsumeLater):
            place = (message.msg_id, message.queue, message.queue_offset)
            log.error("listener_failed group=%s msg_id=%s queue=%s offset=%d", self._rules.group, *place, exc_info=problem)
        for observer in self.observers:
            outcome = Outcome.SUCCESS if problem is None else Outcome.FAILED if isinstance(problem, ConsumeLater) else Outcome.EXCEPTION
            try:
                observer.consumed(self._rules.group, messages, outcome, round(seconds * 1000))
            except Exception:
                log.exception("observer_failed observer=%r", observer)

    async def _bury(self, cache: ProcessQueue, message: ReceivedMessage) -> bool:
        """Have a message that cannot be read among the dead letters, or given up; whether it is finished."""
        try:
            if not self._rules.gives_up and not await self._send_back.to_dead_letters(message):
                return False
        except RequestRefused as refused:
            tries = self._refusals[message] = self._refusals.get(message, 0) + 1
            if tries < _BURY_TRIES_MAX:
                return False
            place = (self._rules.group, message.queue, message.queue_offset, message.msg_id)
            log.error("message_given_up group=%s queue=%s offset=%d msg_id=%s why='%s'", *place, refused)
        self._refusals.pop(message, None)
        self.rates.note(message.topic, 1, 0.0, failed=True)
        cache.finish_one(message)
        return True

    def _tell_before(self, messages: Sequence[ReceivedMessage]) -> None:
        for observer in self.observers:
            try:
                observer.consuming(self._rules.group, messages)
            except Exception:
                log.exception("observer_failed observer=%r", observer)


class SideBySide(_Base):
    """Messages of all queues at the same time, up to the limit."""

    def __init__(self, listener: Listener, rules: ConsumeRules, send_back: SendBack) -> None:
        super().__init__(rules, send_back)
        self._listening = listening(listener, rules.concurrency, self._settled)
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._overdue: set[ReceivedMessage] = set()  # sent back although a listener still has them

    def arrived(self, reader: QueueReader) -> None:
        cache = reader.cache
        messages = cache.take(cache.waiting_count)
        if any(message.problem is not None for message in messages):
            for message in messages:
                if message.problem is not None:
                    self._spawn(self._bury_in_time(reader, cache, message))
            messages = [message for message in messages if message.problem is None]
        if self.observers:
            for message in messages:
                self._tell_before([message])
        self._listening.submit([(reader, cache, message) for message in messages])

    async def call(self, message: ReceivedMessage) -> BaseException | None:
        return await self._listening.call(message)

    def _settled(self, job: Job, problem: BaseException | None, began_s: float, ended_s: float) -> None:
        reader, cache, message = job
        reader.last_finished_s = ended_s
        if self._is_paused:
            self._changed.set()
        if problem is None and not self.observers:
            self.rates.note(message.topic, 1, ended_s - began_s, failed=False)
        else:
            self._note((message,), problem, ended_s - began_s)
        if problem is None or self._rules.gives_up:
            cache.finish_one(message)
        elif message not in self._overdue:
            self._spawn(self._again(job, problem.delay_level if isinstance(problem, ConsumeLater) else 0))
        if self._overdue:
            self._overdue.discard(message)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _again(self, job: Job, delay_level: int) -> None:
        """Send a message back; when nobody takes it, hand it out again here after a while."""
        reader, cache, message = job
        if await self._send_back.send_back(message, delay_level):
            cache.finish_one(message)
            return
        await asyncio.sleep(_RETRY_HERE_S)
        if not reader.is_dropped and not self._is_paused:
            self._listening.submit([(reader, cache, message.once_more())])

    async def _bury_in_time(self, reader: QueueReader, cache: ProcessQueue, message: ReceivedMessage) -> None:
        """Try that until it is done, or the queue is somebody else's."""
        while not reader.is_dropped and reader.cache is cache:
            if await self._bury(cache, message):
                return
            await asyncio.sleep(_RETRY_HERE_S)

    async def _take_away(self, cache: ProcessQueue, message: ReceivedMessage) -> None:
        """Let somebody else have a message that a listener does not come back with; what fails is tried again at the next look."""
        if self._rules.gives_up or await self._send_back.send_back(message, _TIMED_OUT_LEVEL):
            cache.finish_one(message)
        else:
            self._overdue.discard(message)

    async def pause(self) -> None:
        self._is_paused = True
        self._listening.forget()
        while self._listening.is_busy:
            self._changed.clear()
            await self._changed.wait()

    async def released(self, reader: QueueReader) -> None: ...

    def send_back_overdue(self) -> None:
        now_s = time.monotonic()
        for (_, cache, message), began_s in list(self._listening.running.values()):
            seconds = now_s - began_s
            if seconds > self._rules.timeout_s and message not in self._overdue:
                self._overdue.add(message)
                log.warning("listener_overdue group=%s msg_id=%s seconds=%.0f", self._rules.group, message.msg_id, seconds)
                self._spawn(self._take_away(cache, message))

    def close(self) -> None:
        self._listening.close()
        for task in list(self._tasks):
            task.cancel()


class InQueueOrder(_Base):
    """One message of a queue after the other; the next one only when the one before was taken."""

    def __init__(
        self,
        listener: Listener,
        rules: ConsumeRules,
        send_back: SendBack,
        is_ours: Callable[[MessageQueue], bool],
    ) -> None:
        super().__init__(rules, send_back)
        self._listening = listening(listener, rules.concurrency, lambda *_: None)
        self._is_ours = is_ours
        self._queues: dict[QueueReader, asyncio.Task[None]] = {}  # those that are consumed now

    def arrived(self, reader: QueueReader) -> None:
        if reader not in self._queues and not self._is_paused:
            self._queues[reader] = asyncio.get_running_loop().create_task(self._consume(reader))

    async def call(self, message: ReceivedMessage) -> BaseException | None:
        return await self._listening.call(message)

    async def _consume(self, reader: QueueReader) -> None:
        """Consume what a queue has, until nothing waits or it is ours no more."""

        def may_go_on() -> bool:
            return not reader.is_dropped and not self._is_paused and reader.cache is cache and self._is_ours(reader.queue)

        try:
            cache = reader.cache
            while cache.waiting_count and may_go_on():
                if not await self._consume_run(reader, cache, may_go_on):
                    await asyncio.sleep(self._rules.pause_s)
                cache = reader.cache  # another one after a reset
        except Exception:
            log.exception("consuming_failed group=%s queue=%s", self._rules.group, reader.queue)
        finally:
            del self._queues[reader]
            if reader.cache.waiting_count and not reader.is_dropped and not self._is_paused:
                asyncio.get_running_loop().call_later(self._rules.pause_s, self.arrived, reader)

    async def _consume_run(self, reader: QueueReader, cache: ProcessQueue, may_go_on: MayGoOn) -> bool:
        """Consume the next messages; whether none failed. However it ends, what is not finished comes first again, in the same order."""
        run = left = cache.take(_RUN_MAX)
        try:
            if run[0].problem is not None:
                is_done = await self._bury(cache, run[0])
                left = run[1:] if is_done else run
                return is_done
            run = list(takewhile(lambda message: message.problem is None, run))
            behind = left[len(run) :]
            self._tell_before(run)
            done = await self._listening.in_order(run, may_go_on)
            reader.last_finished_s = time.monotonic()
            left = [*self._settle(cache, run, done), *behind]
            if done.problem is not None:
                left = await self._failed(cache, left)
            return done.problem is None
        finally:
            cache.give_back([message for message in left if message.queue_offset in cache])

    def _settle(self, cache: ProcessQueue, run: list[ReceivedMessage], done: InOrder) -> list[ReceivedMessage]:
        """Finish what was taken; the rest of the run."""
        taken, left = run[: done.taken], run[done.taken :]
        for message in taken:
            cache.finish_one(message)
        calls = done.taken + (done.problem is not None)
        if taken:
            self._note(taken, None, done.seconds / calls)
        if done.problem is not None:
            self._note(left[:1], done.problem, done.seconds / calls)
        return left

    async def _failed(self, cache: ProcessQueue, left: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Count an attempt of the first message; the last one was enough when it was one too many."""
        first = left[0]
        if self._rules.gives_up:
            cache.finish_one(first)
            return left[1:]
        if 0 <= self._rules.max_attempts <= first.reconsume_times and await self._send_back.to_retry_topic(first):
            cache.finish_one(first)
            return left[1:]
        return [first.once_more(), *left[1:]]

    async def pause(self) -> None:
        self._is_paused = True
        await asyncio.gather(*self._queues.values(), return_exceptions=True)

    async def released(self, reader: QueueReader) -> None:
        task = self._queues.get(reader)
        if task is not None:
            await asyncio.wait([task])

    def send_back_overdue(self) -> None:
        """In order nothing may overtake: a listener that does not come back holds its queue, which `explain` tells."""

    def close(self) -> None:
        for task in list(self._queues.values()):
            task.cancel()
        self._listening.close()
