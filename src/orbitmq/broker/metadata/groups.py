"""The consumer groups of this broker, what each is forbidden to read, and the file
subscriptionGroup.json.

Sans-IO except for the file, which saves itself. Thread rule: the loop thread owns it. Invariants:
the groups of Apache RocketMQ's own tools exist from `load` on; each change gives the table a new
version. A slave takes over the changes of its master, with the master's version.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from orbitmq.broker.metadata.attributes import GROUP_ATTRIBUTES, altered, warn_of_unserved
from orbitmq.broker.metadata.persistent_file import ConfigFile, Encoder
from orbitmq.broker.metadata.topic_names import check_group, is_valid_group
from orbitmq.common.change_log import ChangeLog
from orbitmq.common.clock import Clock
from orbitmq.common.slices import SliceBudget, Slices, finish, sorted_in_slices
from orbitmq.common.topic_names import PREDEFINED_GROUPS, SYSTEM_GROUP_PREFIX
from orbitmq.protocol.bodies.groups import GroupConfig, GroupTable
from orbitmq.protocol.bodies.metadata_rows import GroupRow
from orbitmq.protocol.bodies.nameserver import PERM_READ, DataVersion
from orbitmq.protocol.bodies.topics import next_version

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """Which groups are created on first use; the defaults are those of Apache RocketMQ."""

    auto_create: bool = True
    system_groups_enable: bool = True


class Groups:
    """The table of groups. `rules` may be replaced while the broker runs."""

    def __init__(
        self,
        rules: GroupRules,
        file: ConfigFile,
        clock: Clock,
        *,
        state_version: Callable[[], int] = int,
    ) -> None:
        self.rules = rules
        self._file = file
        self._clock = clock
        self._state_version = state_version
        self._table = {name: GroupConfig(name) for name in PREDEFINED_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}
        self.changes = ChangeLog[str]()  # for slaves
        self._version = DataVersion(timestamp=clock.now_ms())

    def load(self) -> None:
        """Load the file; predefined groups that it lacks get the defaults."""
        loaded, _ = self._file.open(GroupTable.decode, self._snapshot)
        if loaded is not None:
            self._table = {
                **loaded.groups,
                **{name: own for name, own in self._table.items() if name not in loaded.groups},
            }
            self._forbidden = {group: dict(topics) for group, topics in loaded.forbidden.items()}
            self._version = loaded.version or self._version
            for name, config in loaded.groups.items():
                warn_of_unserved(GROUP_ATTRIBUTES, f"group={name}", config.attributes)
        self.changes.put_all(self.names)
        log.info("groups_loaded groups=%d version=%d", len(self._table), self._version.counter)

    def find(self, group: str) -> GroupConfig | None:
        """Return the group, created if allowed; None if it does not exist."""
        return self._table.get(group) or self._create(group)

    def __contains__(self, group: str) -> bool:
        return group in self._table

    def __iter__(self) -> Iterator[GroupConfig]:
        return iter(self._table.values())

    def __len__(self) -> int:
        return len(self._table)

    @property
    def table(self) -> Mapping[str, GroupConfig]:
        """All groups by name; a live view."""
        return MappingProxyType(self._table)

    @property
    def data_version(self) -> DataVersion:
        return self._version

    def whole_in_slices(self) -> Slices[GroupTable]:
        """Return all groups, and all forbidden topics, even of groups that do not exist."""
        version, forbidden = self._version, self._forbidden_now()
        groups = yield from self._sorted(0, len(self))
        return GroupTable(groups, forbidden, version)

    def page(self, begin: int, count: int) -> GroupTable:
        """Return at most `count` groups, ordered by name, from that number on, and their forbidden
        topics.
        """
        return finish(self.page_in_slices(begin, count))

    def page_in_slices(self, begin: int, count: int) -> Slices[GroupTable]:
        """Do what `page` does, in slices, with the groups as they are at its start."""
        version, forbidden = self._version, self._forbidden_now()
        groups = yield from self._sorted(begin, count)
        return GroupTable(
            groups, {name: bits for name, bits in forbidden.items() if name in groups}, version
        )

    def _sorted(self, begin: int, count: int) -> Slices[dict[str, GroupConfig]]:
        table = dict(self._table)
        names = yield from sorted_in_slices(table)
        return {name: table[name] for name in names[begin : begin + count]}

    def _forbidden_now(self) -> dict[str, dict[str, int]]:
        return {group: dict(topics) for group, topics in self._forbidden.items()}

    def update(self, *wanted: GroupConfig) -> None:
        """Create or change groups, all or none; their attributes are changes (`+name`, `-name`)."""
        finish(self.update_in_slices(wanted))

    def update_in_slices(self, wanted: Sequence[GroupConfig]) -> Slices[None]:
        """Do what `update` does: check in slices, then change the table at once, so that readers
        never see a part of it.

        A group that was changed meanwhile is checked again before the table is changed.
        """
        final: dict[str, GroupConfig] = {}
        before: dict[str, GroupConfig | None] = {}
        budget = SliceBudget()
        for config in wanted:
            before[config.name] = self._table.get(config.name)
            final[config.name] = self._checked(config, final.get(config.name))
            if budget.spend(config.units):
                yield
        stale = {name for name, current in before.items() if self._table.get(name) is not current}
        if stale:
            final = {name: config for name, config in final.items() if name not in stale}
            for config in wanted:
                if config.name in stale:
                    final[config.name] = self._checked(config, final.get(config.name))
        if final:
            old = {name: self._table.get(name) for name in final}
            self._table.update(final)
            self._changed(*final)
            for name, config in final.items():
                log.info("group_changed old=%s new=%s", old[name], config)
                if budget.spend(config.units):
                    yield

    def _checked(self, config: GroupConfig, earlier: GroupConfig | None) -> GroupConfig:
        """Return the new group, after an `earlier` change in the same request. Raises
        RefusedError if it is not allowed.
        """
        check_group(config.name)
        current = earlier or self._table.get(config.name)
        return replace(
            config,
            attributes=altered(
                GROUP_ATTRIBUTES, None if current is None else current.attributes, config.attributes
            ),
        )

    def delete(self, group: str) -> bool:
        """Delete a group and its forbidden topics; return whether it existed."""
        config = self._table.pop(group, None)
        was_forbidden = self._forbidden.pop(group, None)
        if config is None:
            log.warning("group_not_deleted group=%s reason=unknown", group)
        else:
            log.info("group_deleted config=%s", config)
        if config is not None or was_forbidden is not None:
            self._changed(group)
        return config is not None

    def forbidden(self, group: str, topic: str) -> int:
        """Return the bits (PERM_…) that are forbidden to the group for the topic."""
        topics = self._forbidden.get(group)
        return 0 if topics is None else max(topics.get(topic, 0), 0)

    def is_readable(self, group: str, topic: str) -> bool:
        """Return whether the group is not forbidden to read the topic."""
        return not self.forbidden(group, topic) & PERM_READ

    def set_readable(self, group: str, topic: str, readable: bool) -> None:
        """Forbid the group to read the topic, or allow it again."""
        old = self.forbidden(group, topic)
        bits = old & ~PERM_READ if readable else old | PERM_READ
        if bits == old:
            return
        log.info("group_forbidden group=%s topic=%s old=%d new=%d", group, topic, old, bits)
        topics = self._forbidden.setdefault(group, {})
        topics[topic] = bits
        if not bits:
            del topics[topic]
        if not topics:
            del self._forbidden[group]
        self._changed(group)

    # Replication.

    @property
    def names(self) -> set[str]:
        """All groups that exist, or are forbidden to read a topic."""
        return {*self._table, *self._forbidden}

    def row(self, group: str) -> GroupRow | None:
        """Return a group and its forbidden topics; None if there is neither."""
        config, forbidden = self._table.get(group), self._forbidden.get(group)
        if config is None and forbidden is None:
            return None
        return GroupRow(group, config, dict(forbidden or {}))

    def take_over(
        self, rows: Sequence[GroupRow], removed: Iterable[str], *, version: DataVersion
    ) -> None:
        """Apply a master's changes at once, with its version."""
        gone = [name for name in removed if name in self._table or name in self._forbidden]
        for name, config, forbidden in [*rows, *(GroupRow(name, None, {}) for name in gone)]:
            self._table.pop(name, None)
            self._forbidden.pop(name, None)
            if config is not None:
                self._table[name] = config
            if forbidden:
                self._forbidden[name] = dict(forbidden)
        self.changes.take_over([row.name for row in rows], gone)
        self._version = replace(version)  # a new object: the fast path looks at its identity
        self._file.changed()
        if rows or gone:
            log.info(
                "groups_taken_over changed=%d removed=%d version=%d",
                len(rows),
                len(gone),
                version.counter,
            )

    def encode(self) -> bytes:
        """Return the current content of the file."""
        return self._snapshot()()

    def _create(self, group: str) -> GroupConfig | None:
        if not (
            self.rules.auto_create
            or (self.rules.system_groups_enable and group.startswith(SYSTEM_GROUP_PREFIX))
        ):
            return None
        if not is_valid_group(group):
            return None
        config = self._table[group] = GroupConfig(group)
        log.info("group_created group=%s", group)
        self._changed(group)
        return config

    def _changed(self, *names: str) -> None:
        for name in names:
            if name in self._table or name in self._forbidden:
                self.changes.put(name)
            else:
                self.changes.remove(name)
        self._version = next_version(self._version, self._clock.now_ms(), self._state_version())
        self._file.changed()

    def _snapshot(self) -> Encoder:
        return partial(
            GroupTable(dict(self._table), self._forbidden_now(), self._version).encode, pretty=True
        )
