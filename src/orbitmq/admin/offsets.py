"""Offsets: the ends of queues, search by time, and group offsets to read, set, reset and clone.

A reset is planned before anything is changed. A broker with server-side resets (5.x and OrbitMQ)
gets the new offset of each queue, and its consumers learn it with their next pull. An older broker
can only have online members go to a time, for all queues together; the offsets of an offline group
are set directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Final

from orbitmq.admin.calls import Calls, config_lines
from orbitmq.admin.groups import GroupOperations
from orbitmq.admin.positions import AtOffset, AtStoreTime, Position, QueueEdge
from orbitmq.admin.topics import TopicOperations
from orbitmq.client.consumer import queue_offsets
from orbitmq.common.errors import NotFoundError, RequestRefusedError
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import PERM_READ
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.headers.offsets import CloneGroupOffsetRequestHeader, ResetOffsetRequestHeader

_TO_THE_END: Final = -1  # as a timestamp
_KEEPS_RESETS: Final = "useServerSideResetOffset"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReset:
    """A group's offset of a queue before a reset, None if it has none, and after it."""

    queue: MessageQueue
    before: int | None
    after: int


class OffsetOperations:
    """Reads and changes offsets."""

    def __init__(self, calls: Calls, topics: TopicOperations, groups: GroupOperations) -> None:
        self._calls = calls
        self._topics = topics
        self._groups = groups

    # -- queues

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic, in order."""
        route = await self._topics.route(topic)
        return sorted(
            MessageQueue(topic, queues.broker_name, number)
            for queues in route.queue_datas
            if queues.perm & PERM_READ
            for number in range(queues.read_queue_nums)
        )

    async def first(self, queue: MessageQueue) -> int:
        """Return the offset of the first message of a queue."""
        return await queue_offsets.min_offset(self._calls.session, queue)

    async def end(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of a queue will have."""
        return await queue_offsets.max_offset(self._calls.session, queue)

    async def at_time(self, queue: MessageQueue, time_ms: int) -> int:
        """Return the offset of the message stored at a time; brokers of 4.9 pick the nearest."""
        return await queue_offsets.offset_at(self._calls.session, queue, time_ms)

    async def at(self, queue: MessageQueue, position: Position) -> int:
        """Return the offset of a position in a queue; raise RequestRefusedError if it is out of
        range.
        """
        match position:
            case AtStoreTime(time_ms):
                return await self.at_time(queue, time_ms)
            case QueueEdge.FIRST:
                return await self.first(queue)
            case AtOffset(offset):
                low, high = await asyncio.gather(self.first(queue), self.end(queue))
                if not low <= offset <= high:
                    place = f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
                    raise RequestRefusedError(
                        ResponseCode.INVALID_PARAMETER,
                        f"{place} has no offset {offset}; its offsets range from {low} to {high}",
                    )
                return offset
            case _:
                return await self.end(queue)

    # -- group offsets

    async def read(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """Return a group's committed offset of each queue of a topic, None where it has none."""
        queues = await self.queues(topic)
        return dict(
            zip(
                queues,
                await asyncio.gather(*(self.committed(group, queue) for queue in queues)),
                strict=True,
            )
        )

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return a group's committed offset of a queue, or None if it has none."""
        return await queue_offsets.group_offset(self._calls.session, group, queue)

    async def set(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit a group's offset of a queue; online members overwrite it soon, so reset those
        instead.
        """
        await queue_offsets.set_group_offset(self._calls.session, group, queue, offset)

    async def clone(self, source: str, target: str, topic: str | None = None) -> list[str]:
        """Copy a group's offsets to another group, in one topic or all; return the topics."""
        known = (
            [topic]
            if topic
            else {
                each.queue.topic
                for each in (await self._groups.progress(source, with_owners=False)).queues
            }
        )
        topics = [
            name
            for name in sorted(known)
            if any(offset is not None for offset in (await self.read(source, name)).values())
        ]
        if not topics:
            raise NotFoundError(
                f"group {source} has no offsets{f' in topic {topic}' if topic else ''}; nothing was"
                " copied"
            )
        for name in topics:
            header = CloneGroupOffsetRequestHeader(
                src_group=source, dest_group=target, topic=name, offline=False
            )
            ask = partial(self._calls.ask, code=RequestCode.CLONE_GROUP_OFFSET, header=header)
            await self._calls.for_each_server((await self._topics.readers(name)).values(), ask)
        return topics

    # -- resets

    async def plan_reset(
        self,
        group: str,
        topic: str,
        to: Position,
        *,
        queues: Collection[MessageQueue] = (),
        force: bool = True,
    ) -> list[PlannedReset]:
        """Return what a reset would do to all or some queues of a topic; without `force`, none
        moves forward.
        """
        known = await self.read(group, topic)
        unknown = sorted(set(queues).difference(known))
        if unknown:
            raise NotFoundError(
                f"topic {topic} has no queue {unknown[0].broker_name}:{unknown[0].queue_id}; see"
                f" orbitmq topic stats {topic}"
            )
        chosen = sorted(queues) or list(known)
        found = await asyncio.gather(*(self.at(queue, to) for queue in chosen))
        plan = []
        for queue, after in zip(chosen, found, strict=True):
            before = known[queue]
            plan.append(
                PlannedReset(
                    queue=queue,
                    before=before,
                    after=after if force or before is None else min(before, after),
                )
            )
        return plan

    async def reset(
        self,
        group: str,
        topic: str,
        to: Position,
        *,
        queues: Collection[MessageQueue] = (),
        force: bool = True,
    ) -> list[PlannedReset]:
        """Reset the offsets of a group, online or not, in all or some queues of a topic; return
        what was done.
        """
        plan = await self.plan_reset(group, topic, to, queues=queues, force=force)
        by_broker: dict[str, list[PlannedReset]] = {}
        for each in plan:
            by_broker.setdefault(await self._calls.session.broker_of(each.queue), []).append(each)
        is_whole = not queues
        await self._calls.for_each_server(
            by_broker,
            lambda address: self._reset_at(address, group, to, by_broker[address], is_whole, force),
        )
        return plan

    async def _reset_at(
        self,
        address: str,
        group: str,
        to: Position,
        plan: list[PlannedReset],
        is_whole: bool,
        force: bool,
    ) -> None:
        """Reset the queues of one broker in the way it supports."""
        config = config_lines((await self._calls.ask(address, RequestCode.GET_BROKER_CONFIG)).body)
        if config.get(_KEEPS_RESETS) == "true":
            for each in plan:
                await self._send_reset(
                    address,
                    group,
                    each.queue.topic,
                    time_ms=0,
                    force=force,
                    queue_id=each.queue.queue_id,
                    offset=each.after,
                )
            return
        if not (await self._groups.connections(group)).members:
            for each in plan:
                await self.set(group, each.queue, each.after)
            return
        if isinstance(to, AtOffset) or not is_whole:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"{address} can reset an online group only by time and for all queues together:"
                f" stop the members of {group} first, or reset the whole topic to a time, the first"
                " or the last message",
            )
        time_ms = (
            to.time_ms
            if isinstance(to, AtStoreTime)
            else _TO_THE_END
            if to is QueueEdge.LAST
            else 0
        )
        await self._send_reset(address, group, plan[0].queue.topic, time_ms=time_ms, force=force)

    async def _send_reset(
        self,
        address: str,
        group: str,
        topic: str,
        *,
        time_ms: int,
        force: bool,
        queue_id: int | None = None,
        offset: int | None = None,
    ) -> None:
        header = ResetOffsetRequestHeader(
            group=group,
            topic=topic,
            timestamp=time_ms,
            is_force=force,
            queue_id=queue_id,
            offset=offset,
        )
        await self._calls.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
