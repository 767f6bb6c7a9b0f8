"""Follows the tables of a master that does not know GET_METADATA_CHANGES, such as Apache's: asks
for all of them, in the order in which Apache's slaves do.

Each step is tried even if the one before failed. All requests go to the main port, which serves
them in both lines. Tables of 5.x come in pages; a page of another version than the first means that
the table changed meanwhile, and begins it anew. Fails closed: nothing is removed unless the table
arrived completely, and has rows. Thread rule: the loop thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from orbitmq.broker.delay.service import DelayService
from orbitmq.broker.metadata.metadata import BrokerMetadata
from orbitmq.broker.roles.delay_follower import UNKNOWN_END, DelayFollower
from orbitmq.broker.roles.followed_topics import FollowedTopics
from orbitmq.broker.roles.sync_problems import SyncProblems
from orbitmq.common.errors import ProtocolError, RemoteUnavailableError, RequestRefusedError
from orbitmq.common.slices import Slices, slices_of
from orbitmq.common.topic_names import PREDEFINED_GROUPS
from orbitmq.protocol.bodies import master_tables
from orbitmq.protocol.bodies.metadata_rows import GroupRow, TopicRow
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import HeaderFields, RemotingCommand
from orbitmq.protocol.headers.groups import (
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
)
from orbitmq.protocol.headers.topics import (
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
)
from orbitmq.remoting.client import RemotingClient
from orbitmq.remoting.slices import finish_between
from orbitmq.store.message_store import MessageStore

PAGE_SIZE: Final = 2_000  # topics or groups
TIMEOUT_MS: Final = 3_000
TABLE_TIMEOUT_MS: Final = 30_000
TOPICS_STEP: Final = "topics"
_RESTARTS_MAX: Final = 10  # of a table that changes while its pages are read
_ROWS_PER_SLICE: Final = 500

IsCurrent = Callable[[], bool]  # whether the master is still the one that is asked
T = TypeVar("T")


class _Page(NamedTuple, Generic[T]):
    """A part of a table by name, its version, how many rows count, and how many there are in all;
    None if this is all.
    """

    rows: dict[str, T]
    version: DataVersion
    row_count: int
    total: int | None


class StockMaster:
    """Takes over the tables of a master by Apache's requests."""

    def __init__(
        self,
        *,
        client: RemotingClient,
        metadata: BrokerMetadata,
        topics: FollowedTopics,
        delay: DelayService,
        progress: DelayFollower,
        store: MessageStore,
        problems: SyncProblems,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._topics = topics
        self._delay = delay
        self._progress = progress
        self._store = store
        self._problems = problems

    async def follow_all(self, address: str, is_current: IsCurrent) -> None:
        """Take over all tables."""
        ask = partial(self._ask, address, is_current)
        steps: list[tuple[str, Callable[[_Ask], Awaitable[None]]]] = [
            (TOPICS_STEP, self._follow_topics),
            ("consumer offsets", self._follow_offsets),
            ("delay offsets", self._follow_levels),
            ("groups", self._follow_groups),
            ("request modes", self._follow_modes),
        ]
        if self._delay.timed is not None:
            steps.append(("timer metrics", self._follow_metrics))
        for name, work in steps:
            with self._problems.step(name):
                await work(ask)

    async def follow_check_point(self, address: str, is_current: IsCurrent) -> None:
        """Take over the timer's check point; 4.9 has none."""
        with self._problems.step("timer check point"):
            ask = partial(self._ask, address, is_current)
            response = await ask(RequestCode.GET_TIMER_CHECK_POINT)
            if response is not None:
                self._progress.hold_check_point(response.body or b"", UNKNOWN_END)
                self._progress.release()

    # -- steps

    async def _follow_topics(self, ask: _Ask) -> None:
        async def page(seq: int, version: DataVersion | None) -> _Page[TopicConfig]:
            header = GetAllTopicConfigRequestHeader(
                topic_seq=seq,
                data_version=master_tables.version_text(version),
                max_topic_num=PAGE_SIZE,
            )
            response = _needed(
                await ask(RequestCode.GET_ALL_TOPIC_CONFIG, header, TABLE_TIMEOUT_MS)
            )
            found = await finish_between(master_tables.decode_topics(response.body or b""))
            total = GetAllTopicConfigResponseHeader.from_fields(response.ext_fields).total_topic_num
            topics = {topic.name: topic for topic in found.topics}
            return _Page(topics, found.version, len(found.topics), total)

        topics, version = await _whole(page, "topics")
        if version != self._topics.topics.data_version:
            await finish_between(self._take_over_topics(topics, version))

    def _take_over_topics(
        self, topics: Mapping[str, TopicConfig], version: DataVersion
    ) -> Slices[None]:
        own, log_end = self._topics.topics, self._store.log.end_offset
        removed = [name for name in own.table if name not in topics and not own.is_system(name)]
        for part in slices_of(topics.values(), _ROWS_PER_SLICE):
            rows = [
                TopicRow(topic, own.begin_of(topic.name))
                for topic in part
                if own.find(topic.name) != topic
            ]
            if rows:
                yield from self._topics.take_over(
                    rows, (), version=own.data_version, log_end=log_end
                )
            yield
        yield from self._topics.take_over((), removed, version=version, log_end=log_end)
        for name in removed:
            yield from self._metadata.offsets.delete_topic_in_slices(name)

    async def _follow_offsets(self, ask: _Ask) -> None:
        response = _needed(await ask(RequestCode.GET_ALL_CONSUMER_OFFSET))
        found = await finish_between(master_tables.decode_offsets(response.body or b""))
        offsets = self._metadata.offsets
        for part in slices_of(found.offsets, _ROWS_PER_SLICE):
            rows = [row for row in part if offsets.row(row.key) != row]
            await finish_between(offsets.take_over_in_slices(rows, (), version=None))
        await finish_between(offsets.take_over_in_slices((), (), version=found.version))
        offsets.save_soon()

    async def _follow_levels(self, ask: _Ask) -> None:
        response = _needed(await ask(RequestCode.GET_ALL_DELAY_OFFSET))
        levels = master_tables.decode_delay_offsets(response.body or b"")
        self._progress.hold_levels(levels, UNKNOWN_END)
        self._progress.release()
        self._delay.levels.save_soon()

    async def _follow_groups(self, ask: _Ask) -> None:
        async def page(seq: int, version: DataVersion | None) -> _Page[GroupRow]:
            header = GetAllSubscriptionGroupRequestHeader(
                group_seq=seq,
                data_version=master_tables.version_text(version),
                max_group_num=PAGE_SIZE,
            )
            response = _needed(
                await ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header, TABLE_TIMEOUT_MS)
            )
            found = await finish_between(master_tables.decode_groups(response.body or b""))
            count = sum(group.config is not None for group in found.groups)
            groups = {group.name: group for group in found.groups}
            return _Page(groups, found.version, count, _total_groups(response))

        groups, version = await _whole(page, "groups")
        if version != self._metadata.groups.data_version:
            await finish_between(self._take_over_groups(groups, version))

    def _take_over_groups(
        self, groups: Mapping[str, GroupRow], version: DataVersion
    ) -> Slices[None]:
        own = self._metadata.groups
        removed = own.names.difference(groups, PREDEFINED_GROUPS)
        for part in slices_of(groups.values(), _ROWS_PER_SLICE):
            rows = [row for row in part if own.row(row.name) != row]
            if rows:
                own.take_over(rows, (), version=own.data_version)
            yield
        own.take_over((), removed, version=version)

    async def _follow_modes(self, ask: _Ask) -> None:
        response = await ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        if response is None:
            return  # 4.9 has none
        found = await finish_between(master_tables.decode_request_modes(response.body or b""))
        modes = self._metadata.modes
        known = {(mode.topic, mode.group) for mode in found}
        modes.take_over(
            [mode for mode in found if modes.find(mode.topic, mode.group) != mode],
            [key for key in modes.keys if key not in known],
        )

    async def _follow_metrics(self, ask: _Ask) -> None:
        response = await ask(RequestCode.GET_TIMER_METRICS)
        timed = self._delay.timed
        if response is None or timed is None or self._delay.is_delivering:
            return  # 4.9 has none
        found = await finish_between(master_tables.decode_timing(response.body or b""))
        metrics, known = timed.files.metrics, {row.topic for row in found.counts}
        if found.version != metrics.data_version:
            removed = [topic for topic in metrics.counts if topic not in known]
            metrics.take_over(found.counts, removed, version=found.version)

    # -- requests

    async def _ask(
        self,
        address: str,
        is_current: IsCurrent,
        code: int,
        header: HeaderFields | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> RemotingCommand | None:
        """Return the master's response; None if it does not know the request."""
        response = await self._client.invoke(
            address, RemotingCommand.request(code, header), timeout_ms
        )
        if not is_current():
            raise RemoteUnavailableError(f"{address} is the master no more")
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        if response.code != ResponseCode.SUCCESS:
            raise RequestRefusedError(
                response.code,
                f"{address} answered request {code} with code {response.code}: {response.remark}",
            )
        return response


_Ask = Callable[..., Awaitable[RemotingCommand | None]]


async def _whole(
    fetch: Callable[[int, DataVersion | None], Awaitable[_Page[T]]], what: str
) -> tuple[dict[str, T], DataVersion]:
    """Return all rows of a table, of one version; ProtocolError if they are not complete."""
    for _ in range(_RESTARTS_MAX):
        page = await fetch(0, None)
        rows, version, seq = dict(page.rows), page.version, page.row_count
        while page.version == version:
            if page.total is None or seq >= page.total:
                if not rows or (page.total is not None and seq > page.total):
                    raise ProtocolError(f"the master sent {seq} {what}; nothing was removed")
                return rows, version
            if not page.row_count:
                raise ProtocolError(
                    f"the master sent {seq} of {page.total} {what}; nothing was removed"
                )
            page = await fetch(seq, version)
            rows |= page.rows
            seq += page.row_count
    raise ProtocolError(f"the master's {what} changed while their pages were read; nothing changed")


def _needed(response: RemotingCommand | None) -> RemotingCommand:
    if response is None:
        raise ProtocolError("the master does not know a request that every broker serves")
    return response


def _total_groups(response: RemotingCommand) -> int | None:
    """Return the number of all groups; None if this is a master of 4.9, which sends all at once."""
    if not response.ext_fields:
        return None
    header = GetAllSubscriptionGroupResponseHeader.from_fields(response.ext_fields)
    return header.total_group_num
