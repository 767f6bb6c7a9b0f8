"""A log that ends in the middle of a record, at any byte of it: the whole records stay, and queues
and index are those of a rebuild.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from crash import store_load
from crash.store_verify import Derived, Place, Report, derived, look, rebuilt
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.file_queue import file_name
from orbitmq.store.index_file import IndexShape
from orbitmq.store.message_store import MessageStore
from orbitmq.store.recovery import LostLogError
from orbitmq.testing.manual_clock import ManualClock
from support.store.indexes import UnsyncedLayer

FIRST = list(range(35))  # fill one file of the log and begin the next
LAST = [173, 346, 519, 692]  # their bodies are short, and the last is an inner batch
ATTEMPTED = 1000
FILE_SIZE = 8192


def opened(root: Path) -> MessageStore:
    config = store_load.small(
        root, commit_log_file_size=FILE_SIZE, index_shape=IndexShape(slots=31, entries=150)
    )
    store = MessageStore(UnsyncedLayer(), ManualClock(), config, store_load.HOST)
    store.open()
    return store


@dataclass(frozen=True, slots=True)
class Span:
    """Where a record stands, and from which byte on nobody can tell that it is not whole: its
    properties have no checksum.
    """

    number: int
    begin: int
    unnoticed: int
    end: int


@dataclass(frozen=True, slots=True)
class Written:
    """A store as it was while it was open, and after it was stopped; where its last records stand,
    and how far all messages are.
    """

    killed: Path
    stopped: Path
    spans: list[Span]
    places: dict[int, Place]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("written")
    store = opened(folder / "stopped")
    spans, places, cursor = [], {}, RecordCursor()
    for number in FIRST + LAST:
        appended = store.put(store_load.message(number))
        places[number] = store_load.queue_of(number), int(appended.queue_offset)
        content = store.log.read(appended.offset, appended.size)
        assert content is not None
        cursor.read(content, 0, appended.size)
        spans.append(
            Span(number, appended.offset, appended.end - cursor.properties_size, appended.end)
        )
    assert spans[-len(LAST)].begin // FILE_SIZE == spans[-1].begin // FILE_SIZE == 1
    shutil.copytree(folder / "stopped", folder / "killed")
    store.close()
    return Written(folder / "killed", folder / "stopped", spans[-len(LAST) :], places)


def cut_log(image: Path, target: Path, cut: int, fill: bytes) -> None:
    """A copy of the store whose log has, from `cut` on, `fill` again and again."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(image, target)
    path = target / "commitlog" / file_name(cut - cut % FILE_SIZE)
    content = path.read_bytes()
    kept = cut % FILE_SIZE
    path.write_bytes(content[:kept] + (fill * len(content))[: len(content) - kept])


def expectations(written: Written, folder: Path) -> list[Derived]:
    """What queues and index must be like when none, one, two … of the last records are left: from
    logs that end there.
    """
    found = []
    for end in (written.spans[0].begin, *(span.end for span in written.spans)):
        cut_log(written.killed, folder, end, b"\0")
        store = opened(folder)
        found.append(rebuilt(store, folder / "second"))
        store.close()
    return found


def check(store: MessageStore, written: Written, kept: int, torn_max: int) -> None:
    """Exactly the messages before the cut are there, besides one of which only the properties are
    lost.
    """
    numbers = FIRST + LAST[:kept]
    report = Report("torn log", 0)
    found = look(store, report, ATTEMPTED, {number: written.places[number] for number in numbers})
    assert set(numbers) <= found.keys() <= {*FIRST, *LAST[: kept + torn_max]}
    assert len(found) + report.torn == len(numbers) + torn_max
    assert (
        report.lost,
        report.duplicated,
        report.reordered,
        report.phantom,
        report.gaps,
        report.bad_bytes,
    ) == (0, 0, 0, 0, 0, 0)


ZEROS, ONES, GARBAGE = b"\0", b"\xff", b"2\x01\x02 \xda\xa3\x20\xa7"


@pytest.mark.parametrize(
    ("image", "fill", "step"),
    [
        ("killed", ZEROS, 1),
        ("killed", ONES, 3),
        ("killed", GARBAGE, 3),
        ("stopped", ZEROS, 5),
        ("stopped", GARBAGE, 7),
    ],
)
def test_a_log_cut_at_any_byte_of_its_last_records_keeps_the_whole_ones(
    written: Written, image: str, fill: bytes, step: int, tmp_path: Path
) -> None:
    expected = expectations(written, tmp_path / "expected")
    last = written.spans[-1]
    for cut in range(written.spans[2].begin, written.spans[-1].end, step):
        cut_log(getattr(written, image), tmp_path / "cut", cut, fill)
        if image == "stopped" and fill == ZEROS and cut < min(last.unnoticed, last.end - 64):
            refused(tmp_path / "cut", cut, last.end)
            continue
        store = opened(tmp_path / "cut")
        kept = sum(cut >= span.end for span in written.spans)
        torn = next(span for span in written.spans if cut < span.end)
        check(store, written, kept, torn_max=int(cut >= torn.unnoticed))
        if cut < torn.unnoticed:
            assert derived(store) == expected[kept], cut
        store.close()


def refused(root: Path, cut: int, end: int) -> None:
    """After a clean stop a log that lacks bytes is not opened, and stays as it is."""
    before = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    with pytest.raises(
        LostLogError, match=r"queues.manifest and checkpoint.*store repair"
    ) as error:
        opened(root)
    missing = int(str(error.value).split(" bytes of records are missing")[0].split()[-1])
    assert 0 < missing <= end - cut + 1024
    assert str(root / "commitlog" / file_name(cut - cut % FILE_SIZE)) in str(error.value)
    assert {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()} == before


@pytest.mark.parametrize("fill", [ZEROS, ONES])
def test_a_store_whose_log_was_cut_goes_on_where_the_whole_records_end(
    written: Written, fill: bytes, tmp_path: Path
) -> None:
    for cut in range(written.spans[-1].begin + 1, written.spans[-1].unnoticed, 29):
        cut_log(written.killed, tmp_path / "cut", cut, fill)
        store = opened(tmp_path / "cut")
        for number in (
            703,
            704,
        ):  # an inner batch, which takes the place of the one that is lost, and another
            store.put(store_load.message(number))
        store.close()
        again = opened(tmp_path / "cut")
        report = Report("torn log", 0)
        assert look(again, report, ATTEMPTED, {703: written.places[692]}).keys() == {
            *FIRST,
            *LAST[:-1],
            703,
            704,
        }
        assert (report.lost, report.phantom, report.gaps) == (0, 0, 0)
        assert derived(again) == rebuilt(again, tmp_path / "second")
        again.close()
