"""A slave's copy of its master's tables: what to ask for next, and how a response is applied.

Sans-IO: members of a response in, changed tables out, in slices. Each table is followed by the
position up to which this broker has the master's changes. It is asked for as a whole if there is no
position, if the master does not know it any more, or if this broker changed the table itself
meanwhile. Rows are applied page by page; what the master does not have is removed only when the
last page of a whole table has arrived, and never if that has no rows although every master has
some: then nothing is removed, and the table is asked for again.

Thread rule: the loop thread. Invariant: a position is noted after its changes are applied, so an
interrupted response is applied again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from orbitmq.common.change_log import ChangeLog, Position
from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import Slices, slices_of
from orbitmq.protocol.bodies.metadata_changes import TableCodec, TablePage
from orbitmq.protocol.bodies.nameserver import DataVersion

_KEYS_PER_SLICE: Final = 10_000

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class FollowedTable(Protocol):
    """A table that follows a master's."""

    @property
    def name(self) -> str: ...

    def position(self) -> Position:
        """Return the position after which changes are needed."""
        ...

    def apply(self, members: Any) -> Slices[None]:
        """Apply the master's changes. Raises ProtocolError if they cannot be used."""
        ...

    def forget(self) -> None:
        """Ask for all of the table next."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTable(Generic[K, R]):
    """This broker's table. `all_keys` returns a snapshot; `take_over` applies rows, removed keys
    and a version; without a version more pages follow.
    """

    codec: TableCodec[K, R]
    changes: ChangeLog[K]
    all_keys: Callable[[], Iterable[K]]
    version: Callable[[], DataVersion | None]
    take_over: Callable[[list[R], list[K], DataVersion | None], Slices[None]]
    may_be_empty: bool


class TableCopy(Generic[K, R]):
    """One table as a copy of a master's."""

    def __init__(self, own: OwnTable[K, R]) -> None:
        self._own = own
        self._position = Position()
        self._own_changes = own.changes.own_changes
        self._seen: set[K] | None = None  # keys of a whole table whose last page is missing

    @property
    def name(self) -> str:
        return self._own.codec.name

    def position(self) -> Position:
        if self._own_changes != self._own.changes.own_changes:
            self._own_changes = self._own.changes.own_changes
            self.forget()
        return self._position

    def forget(self) -> None:
        self._position, self._seen = Position(), None

    def apply(self, members: Any) -> Slices[None]:
        page = yield from self._own.codec.page_from_json(members)
        begun = page.whole_begun or self._position.begun
        if page.whole_begun:
            self._seen = set()
        elif not self._position.number:
            raise ProtocolError(f"all of {self.name} was asked for, and a part was sent")
        removed = dict.fromkeys(page.removed)
        if self._seen is not None:
            removed |= dict.fromkeys((yield from self._missing(page, self._seen)))
        version = None if page.has_more else page.version
        if page.rows or removed or (version is not None and version != self._own.version()):
            yield from self._own.take_over([*page.rows], [*removed], version)
        self._position = Position(page.number, begun if page.has_more else 0)
        if not page.has_more:
            self._seen = None

    def _missing(self, page: TablePage[K, R], seen: set[K]) -> Slices[list[K]]:
        """Note the rows of a whole table; return the keys that it lacks, after its last page."""
        seen.difference_update(page.removed)
        seen.update(map(self._own.codec.key_of, page.rows))
        if page.has_more:
            return []
        if not seen and not self._own.may_be_empty:
            self.forget()
            raise ProtocolError(f"the master sent no {self.name} at all; nothing was removed")
        missing: list[K] = []
        for part in slices_of(self._own.all_keys(), _KEYS_PER_SLICE):
            missing += [key for key in part if key not in seen]
            if len(part) == _KEYS_PER_SLICE:
                yield
        return missing


class ValueCopy(Generic[R]):
    """A value that is replaced as a whole: `read` decodes it and its number, `hold` takes it."""

    def __init__(
        self,
        name: str,
        read: Callable[[Any], tuple[int, R | None]],
        hold: Callable[[R], object],
    ) -> None:
        self._name = name
        self._read = read
        self._hold = hold
        self._position = Position()

    @property
    def name(self) -> str:
        return self._name

    def position(self) -> Position:
        return self._position

    def forget(self) -> None:
        self._position = Position()

    def apply(self, members: Any) -> Slices[None]:
        number, value = self._read(members)
        if value is not None:
            self._hold(value)
        self._position = Position(number)
        yield from ()
