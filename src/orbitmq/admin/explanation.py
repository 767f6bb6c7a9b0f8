"""Explains why each queue of a consumer group progresses or not, by rules over the reports of
brokers and members.

Pure: a `GroupView` in, one explanation per queue out. The first rule that applies explains a queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.admin.group_values import GroupConnections, GroupQueue
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.running_info import ConsumerRunningInfo, QueueProgress
from orbitmq.protocol.bodies.subscriptions import MessageModel

# Default limits of consumers, unless they report others.
_CACHED_COUNT_MAX: Final = ("pullThresholdForQueue", 1_000)
_CACHED_MIB_MAX: Final = ("pullThresholdSizeForQueue", 100)
_SPAN_MAX: Final = ("consumeConcurrentlyMaxSpan", 2_000)
_LOCK_MS_MAX: Final = 30_000  # then a member considers its lock lost
_PULL_MS_MAX: Final = 45_000  # 15 s of long polling, and up to 30 s for the reply


class ConsumptionState(Enum):
    """Whether messages of a queue are consumed, or what prevents it."""

    MOVES = "messages are consumed"
    DONE = "everything is consumed"
    FALLS_BEHIND = "messages arrive faster than they are consumed"
    UNREACHABLE = "the broker cannot be reached"
    NO_MEMBER = "no member is online"
    FORBIDDEN = "the group may not consume at the broker"
    NO_SUBSCRIPTION = "the members do not subscribe to the topic"
    BROADCAST = "every member reads the queue and stores its own offsets"
    NO_OWNER = "the queue has no owner"
    SILENT = "members did not report their state"
    PAUSED = "the member is suspended"
    NOT_LOCKED = "the member has no lock on the queue"
    CACHE_FULL = "the member's cache is full"
    NOT_PULLING = "the member owns the queue but does not pull"
    SLOW = "the listener has messages but finished none"
    WAITS = "the member pulls, but no message was consumed yet"

    @property
    def is_fine(self) -> bool:
        """Whether the queue needs no attention."""
        return self in (ConsumptionState.MOVES, ConsumptionState.DONE, ConsumptionState.BROADCAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueExplanation:
    """Why one queue progresses or not, and what to do; lag and owner are None if unknown."""

    queue: MessageQueue
    state: ConsumptionState
    why: str
    lag: int | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """All reports about a group; `before` and `now` are looks at its queues, `seconds` apart."""

    group: str
    now_ms: int
    seconds: float
    configs: Mapping[str, GroupConfig]  # by broker
    connections: GroupConnections
    before: Mapping[MessageQueue, GroupQueue]
    now: Mapping[MessageQueue, GroupQueue]
    routed: frozenset[MessageQueue]  # all readable queues of its topics
    running: Mapping[str, ConsumerRunningInfo | str]  # by client; or why it did not report


def explain(view: GroupView) -> list[QueueExplanation]:
    """Return one explanation for each queue, in order."""
    return [_explained(view, queue) for queue in sorted(view.routed.union(view.now))]


class _QueueOwner(NamedTuple):
    """The member that owns a queue, and its report."""

    client_id: str
    info: ConsumerRunningInfo
    progress: QueueProgress


_Rules = Iterator[tuple[ConsumptionState, str]]


def _explained(view: GroupView, queue: MessageQueue) -> QueueExplanation:
    found, owner = view.now.get(queue), _owner(view, queue)
    state, why = next(_rules(view, queue, found, owner))
    return QueueExplanation(
        queue=queue,
        state=state,
        why=why,
        lag=None if found is None else found.lag,
        owner=owner and owner.client_id,
    )


def _owner(view: GroupView, queue: MessageQueue) -> _QueueOwner | None:
    for client_id, info in sorted(view.running.items(), key=lambda item: item[0]):
        progress = info.queues.get(queue) if isinstance(info, ConsumerRunningInfo) else None
        if (
            isinstance(info, ConsumerRunningInfo)
            and progress is not None
            and not progress.is_dropped
        ):
            return _QueueOwner(client_id, info, progress)
    return None


def _rules(
    view: GroupView, queue: MessageQueue, found: GroupQueue | None, owner: _QueueOwner | None
) -> _Rules:
    """Yield what applies to a queue, the most significant first."""
    yield from _by_broker(view, queue)
    yield from _by_group(view, queue, found)
    if owner is None:
        yield from _without_owner(view, queue)
        return
    if found is not None and found.lag == 0:
        yield ConsumptionState.DONE, ConsumptionState.DONE.value
    yield from _by_member(view, owner.info, owner.progress)
    yield from _by_movement(view, found, owner.progress)


def _by_broker(view: GroupView, queue: MessageQueue) -> _Rules:
    problem = view.connections.unreachable.get(queue.broker_name)
    if problem is not None:
        yield (
            ConsumptionState.UNREACHABLE,
            f"{problem}; the state of its queues is unknown until it is back",
        )
    config = view.configs.get(queue.broker_name)
    if config is not None and not config.consume_enable:
        yield (
            ConsumptionState.FORBIDDEN,
            (
                f"group {view.group} may not consume at {queue.broker_name}: set its consumeEnable"
                " to true there"
            ),
        )


def _by_group(view: GroupView, queue: MessageQueue, found: GroupQueue | None) -> _Rules:
    connections = view.connections
    if not connections.members:
        if found is not None and found.lag == 0:
            yield ConsumptionState.DONE, "everything is consumed; no member is online"
        yield (
            ConsumptionState.NO_MEMBER,
            "no member of the group is connected to any broker; start one, or check its group name",
        )
    if queue.topic not in connections.subscriptions:
        wanted = ", ".join(sorted(connections.subscriptions)) or "nothing"
        yield (
            ConsumptionState.NO_SUBSCRIPTION,
            (
                f"the members subscribe to {wanted}; if {queue.topic} should be consumed, all of"
                " them must subscribe to it"
            ),
        )
    if connections.message_model is MessageModel.BROADCASTING:
        yield ConsumptionState.BROADCAST, ConsumptionState.BROADCAST.value


def _without_owner(view: GroupView, queue: MessageQueue) -> _Rules:
    silent = {client_id: info for client_id, info in view.running.items() if isinstance(info, str)}
    if silent:
        yield (
            ConsumptionState.SILENT,
            "; ".join(f"{client_id}: {why}" for client_id, why in sorted(silent.items())),
        )
    others = [
        client_id
        for client_id, info in sorted(view.running.items())
        if isinstance(info, ConsumerRunningInfo)
        and all(each.topic != queue.topic for each in info.subscriptions)
    ]
    if others:
        yield (
            ConsumptionState.NO_SUBSCRIPTION,
            (
                f"{', '.join(others)} does not subscribe to {queue.topic}, but others do: all"
                " members of a group need the same subscriptions"
            ),
        )
    yield (
        ConsumptionState.NO_OWNER,
        ("no member owns it; members rebalance every 20 s: look again, then check their logs"),
    )


def _by_member(view: GroupView, info: ConsumerRunningInfo, progress: QueueProgress) -> _Rules:
    if info.is_suspended:
        yield (
            ConsumptionState.PAUSED,
            "its application has suspended it: it continues after resume()",
        )
    if info.is_ordered and (
        not progress.is_locked or view.now_ms - progress.last_lock_ms > _LOCK_MS_MAX
    ):
        yield (
            ConsumptionState.NOT_LOCKED,
            (
                "it consumes in order and has no lock on the queue; the previous owner may hold it"
                " for another minute: look again then"
            ),
        )
    yield from _by_cache(view, info, progress)
    pulled_s = (view.now_ms - progress.last_pull_ms) / 1000
    if pulled_s * 1000 > _PULL_MS_MAX:
        yield (
            ConsumptionState.NOT_PULLING,
            (
                f"its last pull was {pulled_s:.0f} s ago, and it holds {progress.cached_count}"
                " messages: it is paused or stuck; see its log"
            ),
        )


def _by_movement(view: GroupView, found: GroupQueue | None, progress: QueueProgress) -> _Rules:
    before = None if found is None else view.before.get(found.queue)
    moved = grown = 0
    if found is not None and before is not None:
        moved, grown = found.consumer_offset - before.consumer_offset, found.lag - before.lag
    within = f"within {view.seconds:g} s"
    if moved > 0 and grown > 0:
        yield (
            ConsumptionState.FALLS_BEHIND,
            (
                f"{moved} were consumed {within}, but the lag grew by {grown}: add members, or make"
                " listeners faster"
            ),
        )
    if moved > 0:
        yield ConsumptionState.MOVES, f"{moved} were consumed {within}"
    if found is not None and progress.commit_offset > found.consumer_offset:
        yield (
            ConsumptionState.MOVES,
            f"the member is at {progress.commit_offset}, and will commit that within seconds",
        )
    if progress.cached_count:
        yield (
            ConsumptionState.SLOW,
            (
                f"the listener has {progress.cached_count} messages but finished none"
                f" {within}{_last(view, progress)}"
            ),
        )
    if grown > 0:
        yield (
            ConsumptionState.FALLS_BEHIND,
            f"nothing was consumed {within}, and the lag grew by {grown}",
        )
    yield (
        ConsumptionState.WAITS,
        "the member pulls, but has received nothing yet; look again in a few seconds",
    )


def _by_cache(view: GroupView, info: ConsumerRunningInfo, progress: QueueProgress) -> _Rules:
    span = (
        progress.cached_last_offset - progress.cached_first_offset if progress.cached_count else 0
    )
    for held, what, (name, default) in (
        (progress.cached_count, "messages", _CACHED_COUNT_MAX),
        (progress.cached_bytes >> 20, "MiB", _CACHED_MIB_MAX),
        (0 if info.is_ordered else span, "messages between the first and the last", _SPAN_MAX),
    ):
        limit = info.setting(name, default)
        if held >= limit > 0:
            yield (
                ConsumptionState.CACHE_FULL,
                (
                    f"its cache holds {held} {what} not yet consumed, the limit is"
                    f" {limit}{_last(view, progress)}: the listener is slow or stuck; see its log,"
                    " or add members"
                ),
            )


def _last(view: GroupView, progress: QueueProgress) -> str:
    if progress.last_consume_ms <= 0:
        return ""
    return (
        f" (the last one was consumed {max(view.now_ms - progress.last_consume_ms, 0) / 1000:.0f} s"
        " ago)"
    )
