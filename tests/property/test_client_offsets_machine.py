"""The offset stores of consumers against plain dictionaries, with restarts, brokers that are away,
and somebody else who sets offsets.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq.client.consumer.file_offsets import FileOffsets
from orbitmq.client.consumer.offset_store import BrokerOffsets
from orbitmq.client.session.client_session import ClientSession
from orbitmq.common.errors import RemoteUnavailableError, RequestRefusedError
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(3)]
queues = st.sampled_from(QUEUES)
offsets = st.integers(0, 50)


class Broker:
    """What a session is to the store: one broker that keeps offsets by queue, and may be away."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.is_away = False

    async def broker_of(self, queue: MessageQueue) -> str:
        return queue.broker_name

    async def ask(
        self, _address: str, request: RemotingCommand, _timeout_ms: int | None = None
    ) -> RemotingCommand:
        if self.is_away:
            raise RemoteUnavailableError("it is away")
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            update = UpdateConsumerOffsetRequestHeader.from_fields(request.ext_fields)
            self.offsets[update.queue_id] = update.commit_offset
            return request.reply(ResponseCode.SUCCESS)
        asked = QueryConsumerOffsetRequestHeader.from_fields(request.ext_fields)
        if asked.queue_id not in self.offsets:
            raise RequestRefusedError(ResponseCode.QUERY_NOT_FOUND, "it never consumed")
        return request.reply(
            ResponseCode.SUCCESS,
            header=QueryConsumerOffsetResponseHeader(offset=self.offsets[asked.queue_id]),
        )


class BrokerOffsetsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker()
        self.store = self.opened()
        self.remembered: dict[MessageQueue, int] = {}

    def opened(self) -> BrokerOffsets:
        return BrokerOffsets(cast("ClientSession", self.broker), "g")

    @rule(queue=queues, offset=offsets, back=st.booleans())
    def update(self, queue: MessageQueue, offset: int, back: bool) -> None:
        self.store.update(queue, offset, may_go_back=back)
        if back or offset > self.remembered.get(queue, -1):
            self.remembered[queue] = offset

    @rule(queue=queues)
    def read(self, queue: MessageQueue) -> None:
        if self.broker.is_away:
            return
        found = asyncio.run(self.store.read(queue))
        assert found == self.broker.offsets.get(queue.queue_id)
        if found is not None:
            self.remembered[queue] = found

    @rule(chosen=st.sets(queues))
    def persist(self, chosen: set[MessageQueue]) -> None:
        asyncio.run(self.store.persist(chosen))
        if not self.broker.is_away:
            for queue in chosen & self.remembered.keys():
                assert self.broker.offsets[queue.queue_id] == self.remembered[queue]

    @rule(queue=queues, offset=offsets)
    def write(self, queue: MessageQueue, offset: int) -> None:
        try:
            asyncio.run(self.store.write({queue: offset}))
        except RemoteUnavailableError:
            assert self.broker.is_away
        else:
            assert self.broker.offsets[queue.queue_id] == offset
        self.remembered[queue] = offset

    @rule(queue=queues)
    def lose(self, queue: MessageQueue) -> None:
        self.store.forget(queue)
        self.remembered.pop(queue, None)

    @rule(away=st.booleans())
    def go_or_come(self, away: bool) -> None:
        self.broker.is_away = away

    @rule()
    def restart(self) -> None:
        self.store = self.opened()
        self.remembered = {}

    @invariant()
    def knows_what_it_was_told(self) -> None:
        assert {queue: self.store.known(queue) for queue in QUEUES} == {
            queue: self.remembered.get(queue) for queue in QUEUES
        }


class FileOffsetsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store = self.opened()
        self.remembered: dict[MessageQueue, int] = {}
        self.kept: dict[MessageQueue, int] = {}

    def opened(self) -> FileOffsets:
        store = FileOffsets(self.folder / "client" / "offsets.json")
        store.open()
        return store

    def teardown(self) -> None:
        asyncio.run(self.store.close())
        shutil.rmtree(self.folder)

    @rule(queue=queues, offset=offsets, back=st.booleans())
    def update(self, queue: MessageQueue, offset: int, back: bool) -> None:
        self.store.update(queue, offset, may_go_back=back)
        if back or offset > self.remembered.get(queue, -1):
            self.remembered[queue] = offset

    @rule(chosen=st.sets(queues))
    def persist(self, chosen: set[MessageQueue]) -> None:
        asyncio.run(self.store.persist(chosen))
        self.kept = dict(self.remembered)

    @rule(queue=queues)
    def lose(self, queue: MessageQueue) -> None:
        self.store.forget(queue)  # the next one to have it is this process again

    @rule()
    def crash(self) -> None:
        asyncio.run(self.store.close())
        self.store = self.opened()
        self.remembered = dict(self.kept)

    @invariant()
    def knows_what_it_was_told(self) -> None:
        assert {queue: self.store.known(queue) for queue in QUEUES} == {
            queue: self.remembered.get(queue) for queue in QUEUES
        }


def _case(machine: Any) -> Any:
    machine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
    return machine.TestCase


TestBrokerOffsets = _case(BrokerOffsetsMachine)
TestFileOffsets = _case(FileOffsetsMachine)
