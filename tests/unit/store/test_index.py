"""The index: its bytes, its queries, its files, and what a crash or damage leaves of it."""

from __future__ import annotations

import errno
import struct
from pathlib import Path
from random import Random

import pytest

from orbitmq.common.errors import WriteFailedError
from orbitmq.common.slices import finish
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.tags import index_hash
from orbitmq.store.index import Index, tags_key
from orbitmq.store.index_file import IndexShape
from orbitmq.store.index_writer import PENDING_MAX, IndexWriter
from orbitmq.store.types import LogOffset
from orbitmq.testing.faulty_disk import FaultyDisk
from orbitmq.testing.manual_clock import ManualClock
from support.common.process_files import ProcessFiles
from support.store.indexes import (
    ALWAYS,
    SHAPE,
    TIME_MS,
    Keyed,
    UnsyncedLayer,
    contents,
    loaded,
    make_index,
    put_all,
)

ENTRIES_AT = 40 + 4 * SHAPE.slots


def one_key(count: int, first: int = 0) -> list[Keyed]:
    """Records of one key each, one second apart."""
    return [Keyed(100 * n, TIME_MS + 1000 * n, keys=f"key{n}") for n in range(first, first + count)]


def found(
    index: Index, key: str, limit: int = 64, begin_ms: int = ALWAYS[0], end_ms: int = ALWAYS[1]
) -> list[int]:
    return list(index.query("Topic", key, limit, begin_ms, end_ms).offsets)


def all_found(index: Index, count: int) -> list[int]:
    """Which of the `count` records that `one_key` makes can be found."""
    return [n for n in range(count) if 100 * n in found(index, f"key{n}")]


def crashed(index: Index) -> None:
    """Leave the files as a killed process would."""
    index.close()


def entry(content: bytes, number: int) -> tuple[int, ...]:
    return struct.unpack_from(">iqii", content, ENTRIES_AT + 20 * number)


def header(content: bytes) -> tuple[int, ...]:
    return struct.unpack_from(">qqqqii", content, 0)


def test_the_bytes_of_a_small_file(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    put_all(
        index,
        [Keyed(300, TIME_MS, unique_key="U", keys="a b"), Keyed(400, TIME_MS + 2999, keys="a")],
    )
    index.stop()
    (content,) = contents(tmp_path)
    hashes = [index_hash("Topic", key) for key in ("U", "a", "b", "a")]
    assert len(content) == SHAPE.file_size
    assert header(content) == (
        TIME_MS,
        TIME_MS + 2999,
        300,
        400,
        len({each % 7 for each in hashes}),
        5,
    )
    newest: dict[int, int] = {}
    for number, (key_hash, offset, seconds) in enumerate(
        zip(hashes, (300, 300, 300, 400), (0, 0, 0, 2), strict=True), 1
    ):
        assert entry(content, number) == (key_hash, offset, seconds, newest.get(key_hash % 7, 0))
        newest[key_hash % 7] = number
    assert struct.unpack_from(">7i", content, 40) == tuple(newest.get(slot, 0) for slot in range(7))
    assert not content[ENTRIES_AT : ENTRIES_AT + 20].strip(b"\0")  # entry 0 is never used


def test_unique_key_then_keys_then_tags_are_indexed_and_empty_ones_are_not(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    put_all(
        index, [Keyed(0, unique_key="U", keys=" a  b ", tags="T"), Keyed(100, keys=" "), Keyed(200)]
    )
    index.stop()
    (content,) = contents(tmp_path)
    expected = [index_hash("Topic", key) for key in ("U", "a", "b", tags_key("T"))]
    assert [entry(content, number)[0] for number in range(1, 5)] == expected
    assert header(content)[5] == 5


def test_keys_topics_and_tags_that_are_not_ascii_have_the_hash_of_their_text(
    tmp_path: Path,
) -> None:
    index = make_index(tmp_path)
    put_all(
        index,
        [
            Keyed(0, keys="唯一键 ascii", tags="标签"),
            Keyed(1, topic="Тема", unique_key="plain", tags="tag"),
        ],
    )
    assert found(index, "唯一键") == found(index, "ascii") == found(index, tags_key("标签")) == [0]
    assert (
        index.query("Тема", "plain", 64, *ALWAYS).offsets
        == index.query("Тема", tags_key("tag"), 64, *ALWAYS).offsets
        == [1]
    )


def test_the_hash_that_has_no_opposite_counts_as_0(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    put_all(index, [Keyed(100, keys="adpempfw")])  # Topic#adpempfw has the hash -2^31
    assert index_hash("Topic", "adpempfw") == 0
    assert found(index, "adpempfw") == [100]
    index.stop()
    assert entry(contents(tmp_path)[0], 1) == (0, 100, 0, 0)


def test_a_full_file_is_followed_by_another_and_a_record_may_be_split(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    put_all(index, [Keyed(100 * n, TIME_MS + n, keys=f"a{n} b{n}") for n in range(10)])
    assert [file.header.entry_count for file in index.files] == [20, 2]
    assert index.files[0].header.end_offset == index.files[1].header.begin_offset == 900
    assert found(index, "a9") == found(index, "b9") == [900]
    index.stop()
    first, second = contents(tmp_path)
    assert header(first)[:4] == (TIME_MS, TIME_MS + 9, 0, 900)
    assert header(second)[:4] == (TIME_MS + 9, TIME_MS + 9, 900, 900)
    assert found(loaded(tmp_path), "b9") == [900]


def test_the_first_entry_of_a_file_counts_its_seconds_from_the_end_of_the_file_before(
    tmp_path: Path,
) -> None:
    index = make_index(tmp_path)
    put_all(index, one_key(19))
    put_all(
        index,
        [Keyed(5000, TIME_MS + 100_000, keys="late"), Keyed(5100, TIME_MS + 99_000, keys="early")],
    )
    index.stop()
    _, second = contents(tmp_path)
    assert [entry(second, number)[2] for number in (1, 2)] == [(100_000 - 18_000) // 1000, 0]
    assert header(second)[0] == TIME_MS + 100_000


def test_names_are_local_time_and_grow_even_when_the_clock_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    clock = ManualClock(TIME_MS)
    index = Index(ProcessFiles(), tmp_path, clock, SHAPE)
    put_all(index, one_key(20))
    clock.set_wall_ms(TIME_MS - 3_600_000)
    put_all(index, one_key(20, first=20))
    assert len(index.files) == 3
    names = [file.path.name for file in index.files]
    assert names == [str(int(names[0]) + n) for n in range(3)]
    assert len(names[0]) == 17
    assert names[0].endswith("000")


def test_a_record_that_was_indexed_before_is_passed_over(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    put_all(index, one_key(25))
    counts = [file.header.entry_count for file in index.files]
    put_all(index, one_key(24))
    assert [file.header.entry_count for file in index.files] == counts
    assert index.end_offset == 2400


@pytest.mark.parametrize("count", [18, 19, 20])
def test_the_last_record_that_is_put_again_after_a_stop_gets_the_entries_that_it_lacks(
    tmp_path: Path, count: int
) -> None:
    """Its keys fill the first file, one is missing there, or two are."""
    split = Keyed(5000, unique_key="u", keys="a b")
    index = make_index(tmp_path / "whole")
    put_all(index, [*one_key(count - 1), split])
    index.stop()
    whole = contents(tmp_path / "whole")
    again = loaded(tmp_path / "whole")
    put_all(again, [split])
    again.stop()
    assert contents(tmp_path / "whole") == whole
    part = make_index(tmp_path / "part")
    put_all(part, [*one_key(count - 1), split])
    part.stop()
    for path in sorted((tmp_path / "part").iterdir())[1:]:
        path.unlink()  # as if the second file could not be made
    rest = loaded(tmp_path / "part")
    put_all(rest, [split])
    rest.stop()
    assert contents(tmp_path / "part") == whole


def test_a_query_takes_the_newest_first_and_stops_at_its_limit(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    put_all(index, [Keyed(100 * n, TIME_MS + n, keys="same") for n in range(45)])
    assert found(index, "same", 50) == [100 * n for n in reversed(range(45))]
    assert found(index, "same", 30) == [100 * n for n in reversed(range(15, 45))]
    assert found(index, "same", 0) == []
    hits = index.query("Topic", "same", 1, *ALWAYS)
    assert (hits.last_time_ms, hits.last_offset) == (TIME_MS + 44, 4400)
    assert make_index(tmp_path / "none").query("Topic", "same", 9, *ALWAYS) == ([], 0, 0)


def test_a_query_sees_what_waits_to_be_written(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    put_all(index, one_key(3))
    index.put(one_key(1, first=3)[0].cursor())
    assert all_found(index, 4) == [0, 1, 2, 3]


def test_a_query_keeps_to_its_time_by_the_second(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    put_all(
        index, [Keyed(100 * n, TIME_MS + 1000 * n + 500 * (n > 0), keys="same") for n in range(45)]
    )
    offset = {TIME_MS + 1000 * n: 100 * n for n in range(45)}
    assert found(index, "same", 99, TIME_MS, TIME_MS + 3000) == [300, 200, 100, 0]
    assert found(index, "same", 99, TIME_MS + 4000, TIME_MS + 4000) == [offset[TIME_MS + 4000]]
    assert found(index, "same", 99, TIME_MS - 2, TIME_MS - 1) == []
    assert found(index, "same", 99, TIME_MS + 46_000, ALWAYS[1]) == []
    assert found(index, "same", 99, TIME_MS + 30_500, TIME_MS + 33_000)[-1] >= 3000


def test_files_whose_records_are_all_gone_are_removed_but_never_the_last(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    put_all(index, one_key(50))
    assert [file.header.end_offset for file in index.files] == [1800, 3700, 4900]
    assert index.delete_before(LogOffset(1800)) == 0
    assert index.delete_before(LogOffset(1801)) == 1
    assert all_found(index, 50) == list(range(19, 50))
    assert index.delete_before(LogOffset(1 << 60)) == 1
    assert len(contents(tmp_path)) == 1


def test_a_stopped_index_goes_on_where_it_was(tmp_path: Path) -> None:
    whole, cut = make_index(tmp_path / "whole"), make_index(tmp_path / "cut")
    put_all(whole, one_key(50))
    for first in range(0, 50, 5):
        cut.load(cut.states)
        put_all(cut, one_key(5, first))
        cut.stop()
    whole.stop()
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


@pytest.mark.parametrize("count", [1, 2, 18, 19, 20, 37, 38, 45])
def test_after_a_kill_nothing_that_was_committed_is_missing(tmp_path: Path, count: int) -> None:
    whole, killed = make_index(tmp_path / "whole"), make_index(tmp_path / "killed")
    put_all(whole, one_key(50))
    put_all(killed, one_key(count))
    killed.put(one_key(1, first=count)[0].cursor())  # not committed
    states = killed.states
    crashed(killed)
    killed = make_index(tmp_path / "killed")
    assert killed.load(states) is None
    assert all_found(killed, 50) == list(range(count))
    assert killed.end_offset == 100 * (count - 1)
    put_all(killed, one_key(50))
    killed.stop()
    whole.stop()
    assert all_found(loaded(tmp_path / "killed"), 50) == list(range(50))


def test_entries_behind_those_that_are_proven_are_not_believed(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    put_all(index, one_key(25))
    states = index.states
    put_all(index, one_key(45))
    crashed(index)
    index = make_index(tmp_path)
    assert index.load(states) is None
    assert all_found(index, 45) == list(range(25))
    assert len(contents(tmp_path)) == 2
    put_all(index, one_key(45))
    assert all_found(index, 45) == list(range(45))


@pytest.mark.parametrize(
    "damage", ["missing", "cut", "entry 0", "entry", "slot", "header", "another's"]
)
def test_a_damaged_file_goes_with_all_behind_it(tmp_path: Path, damage: str) -> None:
    index, other = make_index(tmp_path / "index"), make_index(tmp_path / "other")
    put_all(index, one_key(50))
    put_all(other, one_key(50, first=1))
    index.stop()
    other.stop()
    (_, path, _), (_, others, _) = (
        sorted((tmp_path / "index").iterdir()),
        sorted((tmp_path / "other").iterdir()),
    )
    content = bytearray(path.read_bytes())
    content[
        {
            "entry 0": ENTRIES_AT + 7,
            "entry": ENTRIES_AT + 20 * 9 + 11,
            "slot": 43,
            "header": 38,
        }.get(damage, 7)
    ] ^= 2
    match damage:
        case "missing":
            path.unlink()
        case "another's":
            path.write_bytes(others.read_bytes())
        case _:
            path.write_bytes(content[: 100 if damage == "cut" else None])
    again = make_index(tmp_path / "index")
    assert again.load(index.states) == f"{path} is missing or corrupt"
    assert all_found(again, 50) == list(range(19))
    put_all(again, one_key(50, first=18))
    assert all_found(again, 50) == list(range(50))
    again.stop()
    whole = make_index(tmp_path / "index")
    assert whole.load(again.states) is None
    assert all_found(whole, 50) == list(range(50))


@pytest.mark.parametrize("place", [0, 8, 16, 24, 32, 39, 40, 67, "behind"])
def test_slots_and_header_of_the_last_file_are_made_again_from_its_entries(
    tmp_path: Path, place: int | str
) -> None:
    index = make_index(tmp_path)
    put_all(index, one_key(45))
    index.stop()
    before = contents(tmp_path)
    path = max(tmp_path.iterdir())
    content = bytearray(path.read_bytes())
    content[-1 if isinstance(place, str) else place] ^= 4
    path.write_bytes(content)
    again = make_index(tmp_path)
    assert again.load(index.states) is None
    assert all_found(again, 45) == list(range(45))
    again.stop()
    assert contents(tmp_path) == before
    assert again.states == index.states


def test_a_file_whose_records_are_all_expired_is_not_missed(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    put_all(index, one_key(50))
    index.stop()
    min(tmp_path.iterdir()).unlink()
    again = make_index(tmp_path)
    assert again.load(index.states, LogOffset(1801)) is None
    assert all_found(again, 50) == list(range(19, 50))


def test_files_that_the_manifest_does_not_know_are_removed(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    put_all(index, one_key(50))
    index.stop()
    again = make_index(tmp_path)
    assert again.load(()) is None
    assert contents(tmp_path) == []


@pytest.mark.parametrize(
    "place", [8 * 2 + 7, 8 * 3 + 7, 35, 39, 43, ENTRIES_AT + 20 * 9 + 3, ENTRIES_AT + 20 * 9 + 19]
)
def test_a_file_for_which_nobody_vouches_must_bear_out_its_slots_and_header(
    tmp_path: Path, place: int
) -> None:
    index = make_index(tmp_path)
    put_all(index, one_key(50))
    index.stop()
    first, path, _ = sorted(tmp_path.iterdir())
    assert make_index(tmp_path).load(None) is None
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    again = make_index(tmp_path)
    assert again.load(None) == f"{path} has other slots, or another header, than its entries imply"
    assert list(tmp_path.iterdir()) == [first]


@pytest.mark.parametrize("kept", [0, 1, 2, 10, 18, 19, 20, 38, 44, 45, 99])
def test_a_log_that_lost_its_end_takes_its_keys_with_it(tmp_path: Path, kept: int) -> None:
    index = make_index(tmp_path)
    put_all(index, one_key(45))
    index.truncate(LogOffset(100 * kept))
    assert all_found(index, 45) == list(range(min(kept, 45)))
    index.put(Keyed(100 * kept, TIME_MS + 500_000, keys="after").cursor())
    index.commit()
    assert found(index, "after") == [100 * kept]
    index.stop()
    index = loaded(tmp_path)
    assert all_found(index, 45) == list(range(min(kept, 45)))
    assert found(index, "after") == [100 * kept]


def test_more_entries_than_the_buffer_holds_are_written_in_between(tmp_path: Path) -> None:
    index = make_index(tmp_path, shape=IndexShape(100, 20_000))
    for record in one_key(PENDING_MAX + 100):
        index.put(record.cursor())
    assert index.files[0].header.entry_count == PENDING_MAX + 101
    assert all_found(index, PENDING_MAX + 100) == list(range(PENDING_MAX + 100))


@pytest.mark.parametrize("kind", ["pwrite", "truncate", "sync_dir", "open"])
def test_what_the_disk_does_not_take_is_kept_for_the_next_try(tmp_path: Path, kind: str) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    index = make_index(tmp_path / "index", disk)
    put_all(index, one_key(15))
    disk.fail(kind, errno.ENOSPC, times=2)
    for _ in range(2):
        with pytest.raises(WriteFailedError, match="No space left"):
            put_all(index, one_key(10, first=15))
    put_all(index, one_key(10, first=15))
    assert all_found(index, 25) == list(range(25))
    index.stop()
    assert all_found(loaded(tmp_path / "index"), 25) == list(range(25))


def test_full_files_are_handed_to_the_flusher_and_stay_open_until_they_are_back(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    index = make_index(tmp_path / "index", disk)
    put_all(index, one_key(18))
    assert index.begin_flush() is None
    put_all(index, one_key(22, first=18))
    job = index.begin_flush()
    assert job is not None
    assert job.sealed is not None
    assert job.sealed.header.end_time_ms == TIME_MS + 37_000
    assert index.begin_flush() is None
    index.delete_before(LogOffset(1 << 60))
    for descriptor in job.descriptors:
        disk.fdatasync(descriptor)
    closed = disk.calls["close"]
    index.end_flush(job)
    assert disk.calls["close"] == closed + 2
    index.stop()


def test_foreign_files_are_left_alone_and_one_that_never_got_its_size_is_removed(
    tmp_path: Path,
) -> None:
    index = make_index(tmp_path)
    put_all(index, one_key(3))
    index.stop()
    (tmp_path / "notes").touch()
    (tmp_path / "20990101000000000").touch()  # a crash came before it got its size
    assert all_found(loaded(tmp_path), 3) == [0, 1, 2]
    assert not (tmp_path / "20990101000000000").exists()
    assert (tmp_path / "notes").exists()


def test_a_file_of_another_size_goes_with_those_behind_it_to_be_completed_from_the_log(
    tmp_path: Path,
) -> None:
    index = make_index(tmp_path)
    put_all(index, one_key(50))
    index.stop()
    first, second, *behind = sorted(tmp_path.iterdir())
    assert behind
    second.write_bytes(second.read_bytes()[:100])
    again = make_index(tmp_path)
    assert (
        again.load(None) == f"{second} has another size than maxHashSlotNum and maxIndexNum require"
    )
    assert list(tmp_path.iterdir()) == [first]
    put_all(again, one_key(50))
    assert all_found(again, 50) == list(range(50))
    again.stop()
    assert make_index(tmp_path, shape=IndexShape(8, 20)).load(None), (
        "the shape was changed: all of it is made again"
    )
    assert not list(tmp_path.iterdir())


def test_a_file_of_the_usual_size_takes_little_space(tmp_path: Path) -> None:
    index = make_index(tmp_path, shape=IndexShape())
    put_all(index, one_key(100))
    index.stop()
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size == 420_000_040
    assert path.stat().st_blocks * 512 < 2_000_000
    assert all_found(loaded(tmp_path, IndexShape()), 100) == list(range(100))


def test_the_writer_refuses_a_cursor_that_is_on_no_record_and_shapes_that_hold_nothing() -> None:
    with pytest.raises(ValueError, match="not on a complete record"):
        IndexWriter(7, 20, 0, 0).put(RecordCursor())
    for slots, entries in ((0, 20), (7, 1)):
        with pytest.raises(ValueError, match="needs one and two at least"):
            IndexWriter(slots, entries, 0, 0)


def test_power_loss_takes_nothing_that_was_synced_before_its_state_was_written(
    tmp_path: Path,
) -> None:
    for seed in range(20):
        disk = FaultyDisk(ProcessFiles(), tmp_path / f"disk{seed}", seed=seed)
        (tmp_path / f"disk{seed}").mkdir()
        index = make_index(tmp_path / f"disk{seed}" / "index", disk)
        for number in range(0, 45, 3):
            put_all(index, one_key(3, first=number))
            if number == 2 * seed - 2 * seed % 3:
                states = index.states
                job = index.begin_flush(is_thorough=True)
                assert job is not None
                for descriptor in job.descriptors:
                    disk.fdatasync(descriptor)
                index.end_flush(job)
        disk.power_cut(tmp_path / f"after{seed}", Random(seed))
        crashed(index)
        again = make_index(tmp_path / f"after{seed}" / "index")
        assert again.load(states) is None
        assert all_found(again, 45) == list(range(2 * seed - 2 * seed % 3 + 3))
        put_all(again, one_key(45))
        assert all_found(again, 45) == list(range(45))
        again.stop()


def test_a_key_that_a_record_repeats_has_one_entry(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    index.put(Keyed(100, keys="k  k j k", unique_key="k").cursor())
    index.put(Keyed(200, keys=" ".join(["k"] * 300)).cursor())
    assert index.files[-1].header.entry_count - 1 == 4, "unique key, k, j; and k"
    assert found(index, "k") == [200, 100]
    assert found(index, "j") == [100]


def test_a_long_chain_is_walked_in_slices(tmp_path: Path) -> None:
    index = make_index(tmp_path, UnsyncedLayer(), IndexShape(7, 20_000))
    for number in range(10_000):
        time_ms = TIME_MS + (0 if number == 0 else 5_000)
        index.put(Keyed(100 * number + 100, time_ms, keys="k").cursor())
    work = index.query_in_slices("Topic", "k", 64, 0, TIME_MS + 1_000)
    assert sum(1 for _ in work) == 2
    assert index.query("Topic", "k", 64, 0, TIME_MS + 1_000).offsets == [100]


def test_a_query_in_slices_ends_when_its_file_is_closed(tmp_path: Path) -> None:
    index = make_index(tmp_path, UnsyncedLayer(), IndexShape(7, 20_000))
    for number in range(9_000):
        index.put(Keyed(100 * number + 100, keys="k").cursor())
    work = index.query_in_slices("Topic", "k", 20_000, 0, TIME_MS)
    next(work)
    index.close()
    assert len(finish(work).offsets) < 9_000
