"""The consumer groups that this broker knows, what each may not read, and the file subscriptionGroup.json that follows them.

Sans-IO but for the file, which saves itself. Thread rule: the loop thread owns it. Invariants: the groups of the original's own tools
are there from `load` on; each change gives the table a new version.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from orbitmq.broker.attributes import GROUP_ATTRIBUTES, altered, warn_of_unserved
from orbitmq.broker.config_file import ConfigFile, Encoder
from orbitmq.broker.topic_names import check_group, is_valid_group
from orbitmq.common.clock import Clock
from orbitmq.common.slices import SLICE_UNITS, Slices, finish, slices_of, sorted_in_slices
from orbitmq.common.topic_names import PREDEFINED_GROUPS, SYSTEM_GROUP_PREFIX
from orbitmq.protocol.bodies.groups import GroupConfig, GroupTable
from orbitmq.protocol.bodies.nameserver import PERM_READ, DataVersion
from orbitmq.protocol.bodies.topics import next_version

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """Which groups come to be when they are first named; the defaults are the original's."""

    auto_create: bool = True
    system_groups_enable: bool = True


class Groups:
    """See above. `rules` may be replaced while the broker runs."""

    def __init__(self, rules: GroupRules, file: ConfigFile, clock: Clock, *, state_version: Callable[[], int] = int) -> None:
        self.rules = rules
        self._file = file
        self._clock = clock
        self._state_version = state_version
        self._table = {name: GroupConfig(name) for name in PREDEFINED_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}
        self._version = DataVersion(timestamp=clock.now_ms())

    def load(self) -> None:
        """Take over what the file says; the predefined groups that it lacks have the defaults."""
        loaded, _ = self._file.open(GroupTable.decode, self._snapshot)
        if loaded is not None:
            self._table = {**loaded.groups, **{name: own for name, own in self._table.items() if name not in loaded.groups}}
            self._forbidden = {group: dict(topics) for group, topics in loaded.forbidden.items()}
            self._version = loaded.version or self._version
            for name, config in loaded.groups.items():
                warn_of_unserved(GROUP_ATTRIBUTES, f"group={name}", config.attributes)
        log.info("groups_loaded groups=%d version=%d", len(self._table), self._version.counter)

    def find(self, group: str) -> GroupConfig | None:
        """The group, created if groups are; None for one that may not be."""
        return self._table.get(group) or self._create(group)

    def __contains__(self, group: str) -> bool:
        return group in self._table

    def __iter__(self) -> Iterator[GroupConfig]:
        return iter(self._table.values())

    def __len__(self) -> int:
        return len(self._table)

    @property
    def table(self) -> Mapping[str, GroupConfig]:
        """All groups by name, as they are at any time."""
        return MappingProxyType(self._table)

    @property
    def data_version(self) -> DataVersion:
        return self._version

    def whole_in_slices(self) -> Slices[GroupTable]:
        """All groups, and all that is forbidden, to groups that are not there too."""
        version, forbidden = self._version, self._forbidden_now()
        groups = yield from self._sorted(0, len(self))
        return GroupTable(groups, forbidden, version)

    def page(self, begin: int, count: int) -> GroupTable:
        """At most `count` groups in the order of their names, from the one of that number on, and what is forbidden to them."""
        return finish(self.page_in_slices(begin, count))

    def page_in_slices(self, begin: int, count: int) -> Slices[GroupTable]:
        """Do what `page` does, in slices, with the groups as they are at its begin."""
        version, forbidden = self._version, self._forbidden_now()
        groups = yield from self._sorted(begin, count)
        return GroupTable(groups, {name: bits for name, bits in forbidden.items() if name in groups}, version)

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
        """Do what `update` does: check in slices, then change the table at once, so that nobody ever sees a part of it.

        A group that somebody else changed meanwhile is checked again before anything is changed.
        """
        final: dict[str, GroupConfig] = {}
        before: dict[str, GroupConfig | None] = {}
        for part in slices_of(wanted):
            for config in part:
                before[config.name] = self._table.get(config.name)
                final[config.name] = self._checked(config, final.get(config.name))
            if len(part) == SLICE_UNITS:
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
            self._changed()
            for names in slices_of(final):
                for name in names:
                    log.info("group_changed old=%s new=%s", old[name], final[name])
                if len(names) == SLICE_UNITS:
                    yield

    def _checked(self, config: GroupConfig, earlier: GroupConfig | None) -> GroupConfig:
        """The group as it is to be, after an `earlier` change of the same request; RequestRefused when it may not be."""
        check_group(config.name)
        current = earlier or self._table.get(config.name)
        return replace(config, attributes=altered(GROUP_ATTRIBUTES, None if current is None else current.attributes, config.attributes))

    def delete(self, group: str) -> bool:
        """Forget a group and what is forbidden to it; whether it was there."""
        config = self._table.pop(group, None)
        was_forbidden = self._forbidden.pop(group, None)
        if config is None:
            log.warning("group_not_deleted group=%s reason=unknown", group)
        else:
            log.info("group_deleted config=%s", config)
        if config is not None or was_forbidden is not None:
            self._changed()
        return config is not None

    def forbidden(self, group: str, topic: str) -> int:
        """The bits (of PERM_…) of what the group may not do with the topic."""
        topics = self._forbidden.get(group)
        return 0 if topics is None else max(topics.get(topic, 0), 0)

    def is_readable(self, group: str, topic: str) -> bool:
        """Whether the group may read the topic, as far as it is not forbidden."""
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
        self._changed()

    def encode(self) -> bytes:
        """The content of the file as the tables are now."""
        return self._snapshot()()

    def _create(self, group: str) -> GroupConfig | None:
        if not (self.rules.auto_create or (self.rules.system_groups_enable and group.startswith(SYSTEM_GROUP_PREFIX))):
            return None
        if not is_valid_group(group):
            return None
        config = self._table[group] = GroupConfig(group)
        log.info("group_created group=%s", group)
        self._changed()
        return config

    def _changed(self) -> None:
        self._version = next_version(self._version, self._clock.now_ms(), self._state_version())
        self._file.changed()

    def _snapshot(self) -> Encoder:
        return partial(GroupTable(dict(self._table), self._forbidden_now(), self._version).encode, pretty=True)
