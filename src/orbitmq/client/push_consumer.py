"""The push consumer: reads its share of a group's queues, and hands every message to a listener until that takes it.

Messages of a queue are handed out side by side. A listener is a function or a coroutine function; plain functions run in threads of their
own, so that they may block without anybody missing a heartbeat. It takes a message by returning; it wants it again by raising, or by
`ConsumeLater`.

Invariant: an offset is committed only when every message before it was taken, sent back, or given up.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from orbitmq.client.membership import GroupSettings, Membership
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.offset_store import BrokerOffsets, FileOffsets, OffsetStore
from orbitmq.client.process_queue import CacheLimits, ProcessQueue
from orbitmq.client.pulling import PullResult, PullStatus, pull
from orbitmq.client.session import ClientSession
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import OrbitError
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.subscriptions import TAG, MessageModel
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.clients import NotifyConsumerIdsChangedRequestHeader
from orbitmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from orbitmq.remoting.channel import Channel

PERSIST_PERIOD_S: Final = 5.0
SUSPEND_MS: Final = 15_000
_PRESSURE_WAIT_S: Final = 0.05
_FAILURE_WAIT_S: Final = 1.0
_RETRY_HERE_S: Final = 5.0
_MAX_ATTEMPTS_DEFAULT: Final = 16

log = logging.getLogger(__name__)

Listener = Callable[[ReceivedMessage], object] | Callable[[ReceivedMessage], Awaitable[object]]


class ConsumeLater(Exception):
    """Raised by a listener that wants a message again, after the broker's delay or one that it names itself."""

    def __init__(self, delay_level: int = 0) -> None:
        super().__init__(f"delay level {delay_level}")
        self.delay_level = delay_level


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How a push consumer reads and hands out."""

    group: GroupSettings = field(default_factory=GroupSettings)
    limits: CacheLimits = field(default_factory=CacheLimits)
    pull_count: int = 32
    concurrency: int = 20  # listeners that run at the same time
    max_attempts: int = -1  # then a message goes to the dead letters; -1: what the broker says
    offsets_folder: Path = field(default_factory=lambda: Path.home() / ".rocketmq_offsets")  # of broadcasting


class PushConsumer:
    """`async with PushConsumer("127.0.0.1:9876", "group", listener) as consumer`, after `subscribe`."""

    def __init__(
        self,
        name_servers: str | Sequence[str],
        group: str,
        listener: Listener,
        *,
        settings: ConsumerSettings | None = None,
        session: ClientSession | None = None,
    ) -> None:
        self.settings = settings or ConsumerSettings()
        self._owns_session = session is None
        self.session = session or ClientSession(ClientSettings(name_servers=name_servers))
        self._listener = listener
        self._is_coroutine = inspect.iscoroutinefunction(listener)
        self.is_broadcasting = self.settings.group.message_model is MessageModel.BROADCASTING
        self.offsets = self._offset_store(group)
        self.membership = Membership(self.session, group, self.settings.group, self.offsets, self._queues_changed)
        self._readers: dict[MessageQueue, _QueueReader] = {}
        self._batches: asyncio.Queue[tuple[_QueueReader, ReceivedMessage]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._pool: ThreadPoolExecutor | None = None

    def _offset_store(self, group: str) -> OffsetStore:
        if self.is_broadcasting:
            return FileOffsets(self.settings.offsets_folder / self.session.client_id / group / "offsets.json")
        return BrokerOffsets(self.session, group)

    @property
    def group(self) -> str:
        return self.membership.group

    def subscribe(self, topic: str, expression: str = "*", kind: str = TAG) -> None:
        """Want messages of a topic: all, those of some tags (`a || b`), or by an expression of another kind (`SQL92`)."""
        self.membership.subscribe(topic, expression, kind)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Join the group and consume from now on."""
        if not self._is_coroutine:
            self._pool = ThreadPoolExecutor(self.settings.concurrency, thread_name_prefix=f"consume-{self.group}")
        self.session.dispatcher.register(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._members_changed)
        self._tasks = [asyncio.create_task(self._consume_forever()) for _ in range(self.settings.concurrency)]
        self._tasks.append(asyncio.create_task(self._persist_forever()))
        await self.membership.start()

    async def close(self) -> None:
        """Give the queues up, with the offsets up to where all was consumed; what listeners have now is waited for."""
        await self.membership.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        if self._owns_session:
            await self.session.close()

    # -- queues

    async def _queues_changed(self, queues: frozenset[MessageQueue]) -> None:
        lost = [reader for queue, reader in self._readers.items() if queue not in queues]
        for reader in lost:
            del self._readers[reader.queue]
        await asyncio.gather(*(reader.stop() for reader in lost))
        await self.offsets.persist([reader.queue for reader in lost])
        for reader in lost:
            self.offsets.forget(reader.queue)
        for queue in sorted(queues - self._readers.keys()):
            self._readers[queue] = reader = _QueueReader(self, queue)
            reader.start()

    def _members_changed(self, _channel: Channel, request: RemotingCommand) -> None:
        header = NotifyConsumerIdsChangedRequestHeader.from_fields(request.ext_fields)
        if header.consumer_group == self.group:
            self.membership.rebalance_soon()

    async def _persist_forever(self) -> None:
        while True:
            await asyncio.sleep(PERSIST_PERIOD_S)
            await self.offsets.persist(list(self._readers))

    # -- consuming

    async def _consume_forever(self) -> None:
        """One of those who hand messages out."""
        while True:
            reader, message = await self._batches.get()
            if not reader.is_dropped:
                await self._consume(reader, message)

    async def _consume(self, reader: _QueueReader, message: ReceivedMessage) -> None:
        try:
            await self._call(message)
        except ConsumeLater as later:
            is_done = await self._send_back(message, later.delay_level)
        except Exception:
            log.exception("listener_failed group=%s msg_id=%s queue=%s offset=%d", self.group, message.msg_id, *_place(message))
            is_done = await self._send_back(message, 0)
        else:
            is_done = True
        if is_done:
            reader.finished(message)
        else:
            asyncio.get_running_loop().call_later(_RETRY_HERE_S, reader.again, message)

    async def _call(self, message: ReceivedMessage) -> None:
        if self._is_coroutine:
            result = self._listener(message)
            assert inspect.isawaitable(result)
            await result
        else:
            await asyncio.get_running_loop().run_in_executor(self._pool, self._listener, message)

    async def _send_back(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Let the broker deliver a message again later; whether it will. What everybody reads is given up."""
        if self.is_broadcasting:
            return True
        attempts = self.settings.max_attempts
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.stored.log_offset,
            group=self.group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=message.topic,
            unit_mode=False,
            max_reconsume_times=_MAX_ATTEMPTS_DEFAULT if attempts < 0 else attempts,
        )
        request = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        try:
            await self.session.ask(await self.session.broker_of(message.queue), request, 5_000)
        except OrbitError as problem:
            log.warning("not_sent_back msg_id=%s why='%s' again_in_s=%s", message.msg_id, problem, _RETRY_HERE_S)
            return False
        return True

    def hand_out(self, reader: _QueueReader, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            self._batches.put_nowait((reader, message))


class _QueueReader:
    """Reads one queue, as long as it is ours."""

    def __init__(self, consumer: PushConsumer, queue: MessageQueue) -> None:
        self.queue = queue
        self.is_dropped = False
        self.problem: str | None = None  # why it does not move
        self._consumer = consumer
        self._cache = ProcessQueue()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._read_forever())

    async def stop(self) -> None:
        """Read no more; what listeners still have comes again to the next member."""
        self.is_dropped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def finished(self, message: ReceivedMessage) -> None:
        self._cache.finish([message])
        commit = self._cache.commit_offset
        if commit is not None and not self.is_dropped:
            self._consumer.offsets.update(self.queue, commit)

    def again(self, message: ReceivedMessage) -> None:
        """Hand a message out again that the broker did not take back."""
        if not self.is_dropped:
            stored = message.stored._replace(reconsume_times=message.stored.reconsume_times + 1)
            self._consumer.hand_out(self, [replace(message, stored=stored)])

    async def _read_forever(self) -> None:
        offset: int | None = None
        broker_id = 0
        while True:
            try:
                if offset is None:
                    offset = await self._consumer.membership.first_offset(self.queue)
                self.problem = self._cache.pressure(self._consumer.settings.limits, in_order=False)
                if self.problem is not None:
                    await asyncio.sleep(_PRESSURE_WAIT_S)
                    continue
                found = await self._pull(offset, broker_id)
            except OrbitError as problem:
                self.problem = str(problem)
                log.info("pull_failed queue=%s offset=%s why='%s'", self.queue, offset, problem)
                await asyncio.sleep(_FAILURE_WAIT_S)
                continue
            broker_id = found.broker_id
            if found.status is PullStatus.OFFSET_ILLEGAL:
                log.warning("offset_moved queue=%s from=%d to=%d", self.queue, offset, found.next_offset)
                self._consumer.offsets.update(self.queue, found.next_offset, may_go_back=True)
            offset = found.next_offset
            self._cache.put(found.messages, offset)
            if not len(self._cache):
                self._consumer.offsets.update(self.queue, offset)
            self._consumer.hand_out(self, self._cache.take(len(found.messages)))

    async def _pull(self, offset: int, broker_id: int) -> PullResult:
        consumer = self._consumer
        return await pull(
            consumer.session,
            consumer.group,
            self.queue,
            offset,
            consumer.membership.subscriptions[self.queue.topic],
            count_max=consumer.settings.pull_count,
            commit_offset=None if consumer.is_broadcasting else consumer.offsets.known(self.queue),
            suspend_ms=SUSPEND_MS,
            broker_id=broker_id,
        )


def _place(message: ReceivedMessage) -> tuple[MessageQueue, int]:
    return message.queue, message.queue_offset
