"""The file sizes that a store was created with, which its files do not state: given by a broker's
configuration or the user, else detected.

Files of one kind have one length, and each begins where the one before ends: the majority of
lengths and distances of names is right. An index file of S bytes may have any number of slots s
with 4·s + 20·entries + 40 = S: the right one is that for which the first and the last entry match
the header.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from orbitmq.common import properties
from orbitmq.common.errors import StoreError
from orbitmq.store.config import DELAY_LEVELS_MS
from orbitmq.store.index_file import IndexHeader, IndexShape
from orbitmq.store.queue_manifest import IndexState
from orbitmq.store.tools.read_only import ReadOnlyLayer

HEADER = Struct(">qqqqii")
INDEX_ENTRY = Struct(">iqii")
_SCORE_MAX = 2
_SEARCHED_MAX = 64 << 20  # index files above this are not tried with every number of slots
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Extent(NamedTuple):
    """A file that is named after its first byte."""

    start: int
    length: int
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLayout:
    """What is known of a store before its files are read; None: to be detected."""

    root: Path
    log_folders: tuple[Path, ...] = ()
    log_file_size: int | None = None
    queue_file_size: int | None = None
    ext_file_size: int | None = None
    batch_file_size: int | None = None
    index_slots: int | None = None
    index_entries: int | None = None
    delay_levels_ms: tuple[int, ...] | None = None


def read_config(path: Path, layout: StoreLayout | None = None) -> StoreLayout:
    """Complete `layout` from a broker's configuration file; StoreError if it is unusable."""
    try:
        pairs = {
            entry.key: entry.value.strip()
            for entry in properties.parse(properties.decode(path.read_bytes()))
        }
    except OSError as error:
        raise StoreError(
            f"the configuration {path} cannot be read: {error.strerror}; name a broker's properties"
            " file"
        ) from error
    except properties.PropertiesError as error:
        raise StoreError(f"the configuration {path} is not a properties file: {error}") from error
    if layout is None:
        if not pairs.get("storePathRootDir"):
            raise StoreError(f"{path} has no storePathRootDir: name the store's directory too")
        layout = StoreLayout(root=Path(pairs["storePathRootDir"]))
    levels = pairs.get("messageDelayLevel")
    return replace(
        layout,
        log_folders=tuple(
            Path(part) for part in pairs.get("storePathCommitLog", "").split(",") if part
        ),
        log_file_size=_number(path, pairs, "mappedFileSizeCommitLog"),
        queue_file_size=_number(path, pairs, "mappedFileSizeConsumeQueue", 20),
        ext_file_size=_number(path, pairs, "mappedFileSizeConsumeQueueExt"),
        batch_file_size=_number(path, pairs, "mapperFileSizeBatchConsumeQueue", 46),
        index_slots=layout.index_slots or _number(path, pairs, "maxHashSlotNum"),
        index_entries=layout.index_entries or _number(path, pairs, "maxIndexNum"),
        delay_levels_ms=None if levels is None else _delays(path, levels),
    )


def file_size(runs: Iterable[Sequence[Extent]]) -> int | None:
    """Return the length that the files of these runs should have; None if there are none."""
    votes: Counter[int] = Counter()
    for run in runs:
        votes.update(
            after.start - before.start
            for before, after in pairwise(run)
            if after.start > before.start
        )
        votes.update(extent.length for extent in run if extent.length)
    return min(
        (size for size, count in votes.items() if count == max(votes.values())), default=None
    )


def index_shape(
    layer: ReadOnlyLayer,
    paths: Sequence[Path],
    layout: StoreLayout,
    state: IndexState | None = None,
) -> IndexShape | None:
    """Return slots and entries of the index files, from the manifest if it has them; None if there
    are none, StoreError if they cannot be detected.
    """
    if layout.index_slots and layout.index_entries:
        return IndexShape(layout.index_slots, layout.index_entries)
    if state is not None and not layout.index_slots and not layout.index_entries:
        return state.shape
    sizes = Counter(size for path in paths if (size := layer.size(path)))
    if not sizes:
        return None
    size = sizes.most_common(1)[0][0]
    samples = [_Sample(layer, path) for path in paths if layer.size(path) == size]
    best: tuple[int, IndexShape | None] = (-1, None)
    for shape in _shapes(size, layout):
        score = sum(sample.score(shape) for sample in samples)
        if score > best[0]:
            best = (score, shape)
        if score == _SCORE_MAX * len(samples):
            break
    for sample in samples:
        sample.close()
    if best[1] is None or (best[0] == 0 and size > _SEARCHED_MAX):
        raise StoreError(
            f"index files of {size} bytes: their number of slots cannot be detected; give"
            " --index-slots and --index-entries (the broker's maxHashSlotNum and maxIndexNum), or"
            " its --config"
        )
    return best[1]


def _shapes(size: int, layout: StoreLayout) -> Iterator[IndexShape]:
    """Iterate over possible shapes of that size, likely ones first: Apache's numbers, its ratio,
    then any.
    """
    rest = size - HEADER.size
    first = [layout.index_slots, IndexShape().slots, rest // 84 if rest % 84 == 0 else None]
    every = range(rest // 4 % 5 or 5, rest // 4 - 9, 5) if size <= _SEARCHED_MAX else range(0)
    for slots in (*(slots for slots in first if slots), *every):
        entries, odd = divmod(rest - 4 * slots, INDEX_ENTRY.size)
        if (
            not odd
            and entries >= 2
            and layout.index_entries in (None, entries)
            and layout.index_slots in (None, slots)
        ):
            yield IndexShape(slots, entries)


class _Sample:
    """One index file, tried with one shape after the other."""

    def __init__(self, layer: ReadOnlyLayer, path: Path) -> None:
        self._layer = layer
        self._descriptor = layer.open(path)
        self.header = IndexHeader._make(
            HEADER.unpack(layer.pread(self._descriptor, HEADER.size, 0))
        )

    def score(self, shape: IndexShape) -> int:
        """Return how well the entries fit the shape: one point if they match the header, one for
        the slot of the last.
        """
        header, last_number = self.header, self.header.entry_count - 1
        if last_number == 0:
            return _SCORE_MAX  # any shape fits
        if not 0 < last_number < shape.entries or any(self._entry(shape, 0)):
            return 0
        first, last = (
            INDEX_ENTRY.unpack(self._entry(shape, number)) for number in (1, last_number)
        )
        fits = (
            (first[1], last[1]) == (header.begin_offset, header.end_offset)
            and first[3] == 0
            and min(first[0], last[0]) >= 0
        )
        if not fits or not 0 <= last[3] < max(last_number, 1):
            return 0
        slot = self._layer.pread(self._descriptor, 4, HEADER.size + 4 * (last[0] % shape.slots))
        return _SCORE_MAX if int.from_bytes(slot) == last_number else 1

    def close(self) -> None:
        self._layer.close(self._descriptor)

    def _entry(self, shape: IndexShape, number: int) -> bytes:
        return self._layer.pread(
            self._descriptor, INDEX_ENTRY.size, shape.entries_at + INDEX_ENTRY.size * number
        )


def _number(path: Path, pairs: dict[str, str], key: str, multiple: int = 1) -> int | None:
    """Return a size of the configuration, rounded up to a multiple."""
    text = pairs.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text)):
        raise StoreError(f"{key}={text} in {path} is not a size: give a positive whole number")
    return -(-int(text) // multiple) * multiple


def _delays(path: Path, text: str) -> tuple[int, ...]:
    """Parse the delays of a messageDelayLevel: `1s 5s 1m …`."""
    try:
        return (
            tuple(int(word[:-1]) * _UNITS_MS[word[-1]] for word in text.split()) or DELAY_LEVELS_MS
        )
    except (KeyError, ValueError) as error:
        raise StoreError(
            f"messageDelayLevel={text!r} in {path} is not of the form '1s 5s 1m 2h'"
        ) from error
