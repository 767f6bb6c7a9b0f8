"""Offsets: the ends of queues, places in them by time, and how far groups are, which can be read, set, reset and copied.

A reset is planned before anything is changed. Where the broker keeps resets itself (5.x and ours) it is told the new offset of each queue,
and its consumers hear of it when they pull. An older one has the members that are online go to a time, all queues together; the offsets
of a group that is not online are simply set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Final

from orbitmq.admin.calls import Calls, config_lines
from orbitmq.admin.groups import GroupOperations
from orbitmq.admin.positions import AtOffset, AtTime, Edge, Position
from orbitmq.admin.topics import TopicOperations
from orbitmq.client import queue_offsets
from orbitmq.common.errors import NotFound, RequestRefused
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import PERM_READ
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.headers.offsets import CloneGroupOffsetRequestHeader, ResetOffsetRequestHeader

_TO_THE_END: Final = -1  # as a time
_KEEPS_RESETS: Final = "useServerSideResetOffset"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReset:
    """Where a group is in a queue, None when it never consumed it, and where it will go on."""

    queue: MessageQueue
    before: int | None
    after: int


class OffsetOperations:
    """See above."""

    def __init__(self, calls: Calls, topics: TopicOperations, groups: GroupOperations) -> None:
        self._calls = calls
        self._topics = topics
        self._groups = groups

    # -- queues

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that may be read, in order."""
        route = await self._topics.route(topic)
        return sorted(
            MessageQueue(topic, queues.broker_name, number)
            for queues in route.queue_datas
            if queues.perm & PERM_READ
            for number in range(queues.read_queue_nums)
        )

    async def first(self, queue: MessageQueue) -> int:
        """The offset of the first message of a queue."""
        return await queue_offsets.min_offset(self._calls.session, queue)

    async def end(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will have."""
        return await queue_offsets.max_offset(self._calls.session, queue)

    async def at_time(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the message that was stored at a time; 4.9 takes the nearest one."""
        return await queue_offsets.offset_at(self._calls.session, queue, time_ms)

    async def at(self, queue: MessageQueue, position: Position) -> int:
        """The offset of a place in a queue; RequestRefused when the queue has no such one."""
        match position:
            case AtTime(time_ms):
                return await self.at_time(queue, time_ms)
            case Edge.FIRST:
                return await self.first(queue)
            case AtOffset(offset):
                low, high = await asyncio.gather(self.first(queue), self.end(queue))
                if not low <= offset <= high:
                    place = f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
                    raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"{place} has no offset {offset}; it goes from {low} to {high}")
                return offset
            case _:
                return await self.end(queue)

    # -- how far a group is

    async def read(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """Up to where a group has consumed each queue of a topic; None where it never did."""
        queues = await self.queues(topic)
        return dict(zip(queues, await asyncio.gather(*(self.committed(group, queue) for queue in queues)), strict=True))

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Up to where a group has consumed a queue; None when it never did."""
        return await queue_offsets.group_offset(self._calls.session, group, queue)

    async def set(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Say up to where a group has consumed a queue; members that are online will say something else soon: reset it, then."""
        await queue_offsets.set_group_offset(self._calls.session, group, queue, offset)

    async def clone(self, source: str, target: str, topic: str | None = None) -> list[str]:
        """Let a group go on where another one is, in one topic or all that it has offsets in; the topics."""
        known = [topic] if topic else {each.queue.topic for each in (await self._groups.progress(source, with_owners=False)).queues}
        topics = [name for name in sorted(known) if any(offset is not None for offset in (await self.read(source, name)).values())]
        if not topics:
            raise NotFound(f"group {source} has no offsets{f' in topic {topic}' if topic else ''}; nothing was copied")
        for name in topics:
            header = CloneGroupOffsetRequestHeader(src_group=source, dest_group=target, topic=name, offline=False)
            ask = partial(self._calls.ask, code=RequestCode.CLONE_GROUP_OFFSET, header=header)
            await self._calls.change((await self._topics.readers(name)).values(), ask)
        return topics

    # -- resets

    async def plan_reset(
        self, group: str, topic: str, to: Position, *, queues: Collection[MessageQueue] = (), force: bool = True
    ) -> list[PlannedReset]:
        """What a reset would do, with all queues of a topic or some; without force no queue goes forward."""
        known = await self.read(group, topic)
        unknown = sorted(set(queues).difference(known))
        if unknown:
            raise NotFound(f"topic {topic} has no queue {unknown[0].broker_name}:{unknown[0].queue_id}; see orbitmq topic stats {topic}")
        chosen = sorted(queues) or list(known)
        found = await asyncio.gather(*(self.at(queue, to) for queue in chosen))
        plan = []
        for queue, after in zip(chosen, found, strict=True):
            before = known[queue]
            plan.append(PlannedReset(queue=queue, before=before, after=after if force or before is None else min(before, after)))
        return plan

    async def reset(
        self, group: str, topic: str, to: Position, *, queues: Collection[MessageQueue] = (), force: bool = True
    ) -> list[PlannedReset]:
        """Let a group, online or not, go on elsewhere in all queues of a topic, or some; what was done."""
        plan = await self.plan_reset(group, topic, to, queues=queues, force=force)
        by_broker: dict[str, list[PlannedReset]] = {}
        for each in plan:
            by_broker.setdefault(await self._calls.session.broker_of(each.queue), []).append(each)
        is_whole = not queues
        await self._calls.change(by_broker, lambda address: self._reset_at(address, group, to, by_broker[address], is_whole, force))
        return plan

    async def _reset_at(self, address: str, group: str, to: Position, plan: list[PlannedReset], is_whole: bool, force: bool) -> None:
        """Reset the queues of one broker, by the way that it knows."""
        config = config_lines((await self._calls.ask(address, RequestCode.GET_BROKER_CONFIG)).body)
        if config.get(_KEEPS_RESETS) == "true":
            for each in plan:
                await self._tell(address, group, each.queue.topic, time_ms=0, force=force, queue_id=each.queue.queue_id, offset=each.after)
            return
        if not (await self._groups.connections(group)).members:
            for each in plan:
                await self.set(group, each.queue, each.after)
            return
        if isinstance(to, AtOffset) or not is_whole:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"{address} can set offsets of a group that is online by time only, all queues together: "
                f"stop the members of {group} first, or reset the whole topic to a time, the first or the last message",
            )
        time_ms = to.time_ms if isinstance(to, AtTime) else _TO_THE_END if to is Edge.LAST else 0
        await self._tell(address, group, plan[0].queue.topic, time_ms=time_ms, force=force)

    async def _tell(
        self, address: str, group: str, topic: str, *, time_ms: int, force: bool, queue_id: int | None = None, offset: int | None = None
    ) -> None:
        header = ResetOffsetRequestHeader(group=group, topic=topic, timestamp=time_ms, is_force=force, queue_id=queue_id, offset=offset)
        await self._calls.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
