"""Whatever changes at a master, after a tick its slave has the same tables, and after the log was
copied its queues show the same messages; whatever the slave changed itself, and however the
responses are cut into pages.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, cast
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from orbitmq.broker.processors import metadata_changes
from orbitmq.broker.processors.metadata_changes import MetadataChangesProcessor
from orbitmq.broker.wiring.components import BrokerComponents
from orbitmq.common.slices import finish
from orbitmq.message.record import decode_all
from orbitmq.message.record_write import MessageRecord
from orbitmq.protocol import frame
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.delay import DelayOffsets
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.bodies.request_modes import RequestMode
from orbitmq.protocol.bodies.subscriptions import SubscriptionData
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.client import RemotingClient
from orbitmq.store.types import QueueKey, QueueOffset
from orbitmq.testing.manual_clock import ManualClock
from support.broker.slave import Slave, check_point, loaded, tables
from support.remoting.channels import Peers, answered_now
from support.store.logs import HOST

TOPICS = st.sampled_from(["T1", "T2", "T3"])
GROUPS = st.sampled_from(["g1", "g2"])
CLIENTS = st.sampled_from(["c1", "c2"])
SMALL = st.integers(0, 3)
IS_MASTER = st.sampled_from([True, True, True, False])
LEVEL_OFFSETS = st.dictionaries(st.integers(1, 3), st.integers(0, 9), min_size=1)


class Loopback:
    """Passes requests to a processor, as frames."""

    def __init__(self, master: BrokerComponents) -> None:
        self._master = master
        self._channel = Peers().connect()
        self.restart()

    def restart(self) -> None:
        """Begin another run of the master: its numbers are new."""
        self._processor = MetadataChangesProcessor(
            metadata=self._master.metadata,
            delay=self._master.delay,
            locks=self._master.locks,
            store=self._master.store,
            clock=self._master.clock,
            random=Random(),
        )

    async def invoke(
        self, _address: str, request: RemotingCommand, _timeout_ms: int
    ) -> RemotingCommand:
        received: RemotingCommand = frame.decode_one(frame.encode(request))
        handler = self._processor.handlers()[request.code]
        response = answered_now(handler, self._channel, received)
        assert response is not None
        answered: RemotingCommand = frame.decode_one(frame.encode(response))
        assert answered.is_response
        return answered


class SlaveSyncMachine(RuleBasedStateMachine):
    @initialize(units_max=st.sampled_from([1, 3, 2_000]), removed_max=st.sampled_from([1, 10_000]))
    def begin(self, units_max: int, removed_max: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="orbitmq-slave-sync-"))
        self.patch = patch.object(metadata_changes, "UNITS_MAX", units_max)
        self.patch.start()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.stack = AsyncExitStack()
        self.master, own = self._await(self._open())
        for log in self._logs(self.master):
            log._removed_max = removed_max
        self.link = Loopback(self.master)
        self.slave = Slave(own, cast("RemotingClient", self.link), "master:1")

    async def _open(self) -> tuple[BrokerComponents, BrokerComponents]:
        master = await self.stack.enter_async_context(loaded(self.folder / "m", self.clock))
        slave = await self.stack.enter_async_context(
            loaded(self.folder / "s", self.clock, listenPort="10921")
        )
        return master, slave

    def _await(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def _logs(self, broker: BrokerComponents) -> list[Any]:
        metadata = broker.metadata
        parts = (metadata.topics, metadata.groups, metadata.offsets, metadata.modes)
        return [part.changes for part in (*parts, metadata.filters, broker.locks)]

    def _broker(self, is_master: bool) -> BrokerComponents:
        return self.master if is_master else self.slave.components

    # -- what happens at the master, or at the slave itself

    @rule(name=TOPICS, queues=st.integers(1, 3), is_master=IS_MASTER)
    def update_topic(self, name: str, queues: int, is_master: bool) -> None:
        self._broker(is_master).metadata.topics.update(TopicConfig(name, queues, queues))

    @rule(name=TOPICS)
    def end_topic(self, name: str) -> None:
        self.delete_topic(name)

    def delete_topic(self, name: str) -> None:
        self.master.metadata.topics.delete(name)
        self.master.metadata.offsets.delete_topic(name)
        self.master.store.delete_topic(name)

    @rule(name=TOPICS, body=st.binary(max_size=4))
    def send_one(self, name: str, body: bytes) -> None:
        self.send(name, body)

    def send(self, name: str, body: bytes) -> None:
        self.master.metadata.topics.for_send(name, "TBW102", 2)
        self.clock.advance_ms(1)
        message = MessageRecord(name.encode(), body, born_host=HOST, born_time_ms=1, queue_id=0)
        self.master.store.put(message)

    @rule(name=TOPICS, bodies=st.lists(st.binary(max_size=4), max_size=3), copies=st.booleans())
    def begin_again(self, name: str, bodies: list[bytes], copies: bool) -> None:
        """Delete a topic and create it again, with or without messages of the new life."""
        if copies:
            self.slave.copy_log(self.master)
        self.delete_topic(name)
        for body in bodies:
            self.send(name, body)

    @rule()
    def copy_log(self) -> None:
        self.slave.copy_log(self.master)

    @rule(name=GROUPS, retries=SMALL, is_master=IS_MASTER)
    def update_group(self, name: str, retries: int, is_master: bool) -> None:
        self._broker(is_master).metadata.groups.update(GroupConfig(name, retry_max_times=retries))

    @rule(name=GROUPS, is_master=IS_MASTER)
    def delete_group(self, name: str, is_master: bool) -> None:
        self._broker(is_master).metadata.groups.delete(name)
        self._broker(is_master).metadata.offsets.delete_group(name)

    @rule(group=GROUPS, topic=TOPICS, readable=st.booleans())
    def forbid(self, group: str, topic: str, readable: bool) -> None:
        self.master.metadata.groups.set_readable(group, topic, readable)

    @rule(group=GROUPS, topic=TOPICS, queue_id=SMALL, offset=SMALL, is_master=IS_MASTER)
    def commit(self, group: str, topic: str, queue_id: int, offset: int, is_master: bool) -> None:
        self._broker(is_master).metadata.offsets.commit(group, topic, queue_id, offset)

    @rule(group=GROUPS, topic=TOPICS, offsets=st.dictionaries(SMALL, SMALL, max_size=2))
    def reset(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        finish(self.master.metadata.offsets.assign_resets_in_slices(group, topic, offsets))

    @rule(group=GROUPS, copy=GROUPS, topic=TOPICS)
    def clone(self, group: str, copy: str, topic: str) -> None:
        self.master.metadata.offsets.clone(group, copy, topic)

    @rule(topic=TOPICS, group=GROUPS, shares=SMALL, is_master=IS_MASTER)
    def set_mode(self, topic: str, group: str, shares: int, is_master: bool) -> None:
        self._broker(is_master).metadata.modes.set(RequestMode(topic, group, "PULL", shares))

    @rule(group=GROUPS, topics=st.lists(TOPICS, unique=True), limit=SMALL, is_master=IS_MASTER)
    def subscribe(self, group: str, topics: list[str], limit: int, is_master: bool) -> None:
        wanted = [
            SubscriptionData(topic, f"a > {limit}", self.clock.now_ms(), expression_type="SQL92")
            for topic in topics
        ]
        finish(self._broker(is_master).metadata.filters.heard(group, wanted))

    @rule(group=GROUPS)
    def leave(self, group: str) -> None:
        self.master.metadata.filters.left(group)

    @rule(group=GROUPS, client=CLIENTS, queue_id=SMALL, is_master=IS_MASTER)
    def lock(self, group: str, client: str, queue_id: int, is_master: bool) -> None:
        queue = MessageQueue("T1", "a", queue_id)
        self._broker(is_master).locks.lock(group, [queue], client, self.clock.monotonic_ms())

    @rule(group=GROUPS, client=CLIENTS, queue_id=SMALL)
    def unlock(self, group: str, client: str, queue_id: int) -> None:
        self.master.locks.unlock(group, [MessageQueue("T1", "a", queue_id)], client)

    @rule(offsets=LEVEL_OFFSETS)
    def deliver_levels(self, offsets: dict[int, int]) -> None:
        now = DelayOffsets(offsets, None)
        self.master.delay.levels.take_over(now, self.master.store.log.end_offset)

    @rule(topic=TOPICS, change=st.integers(-1, 2))
    def take_timed_in(self, topic: str, change: int) -> None:
        timed = self.master.delay.timed
        assert timed is not None
        timed.files.metrics.add(topic, change, self.clock.now_ms())

    @rule(elapsed_ms=st.sampled_from([1, 20_000, 86_400_000]))
    def let_time_pass(self, elapsed_ms: int) -> None:
        self.clock.advance_ms(elapsed_ms)
        finish(self.master.locks.scan(self.clock.monotonic_ms()))
        self.master.metadata.filters.clean()
        timed = self.master.delay.timed
        assert timed is not None
        timed.timer.run(self.clock.now_ms())
        self.master.delay.save_timer()

    @rule()
    def restart_the_master(self) -> None:
        self.link.restart()

    # -- what must hold

    @rule()
    def copy_log_and_tick(self) -> None:
        self.slave.copy_log(self.master)
        self._await(self.slave.tick())
        own = self.slave.components
        assert tables(own) == tables(self.master)
        assert check_point(own) == check_point(self.master)
        for topic in ("T1", "T2", "T3"):
            if topic in self.master.metadata.topics.table:
                assert _bodies(own, topic) == _bodies(self.master, topic), topic

    @rule()
    def tick(self) -> None:
        self._await(self.slave.tick())
        behind, expected = tables(self.slave.components), tables(self.master)
        del behind["levels"], expected["levels"]  # they wait for the log
        assert behind == expected

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            self.copy_log_and_tick()
            self._await(self.stack.aclose())
            self.loop.close()
            self.patch.stop()
            shutil.rmtree(self.folder)


def _bodies(broker: BrokerComponents, topic: str) -> list[bytes]:
    result = broker.store.reads.get(QueueKey(topic, 0), QueueOffset(0), count_max=32)
    return [message.body for message in decode_all(result.records)]


TestSlaveSync = SlaveSyncMachine.TestCase
TestSlaveSync.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
