"""The journal of offsets: what it keeps through a kill at any moment, a full disk, a power cut and
a run of the original.
"""

from __future__ import annotations

import errno
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from orbitmq.common import atomic_file
from orbitmq.common.slices import finish
from orbitmq.protocol import fastjson
from orbitmq.testing.faulty_disk import FaultyDisk
from support.broker.manual_worker import DiskCalls, Killed
from support.broker.offsets import OffsetsRoom, State
from support.common.process_files import ProcessFiles


@pytest.fixture
def room(tmp_path: Path) -> OffsetsRoom:
    return OffsetsRoom(tmp_path)


def test_a_kill_loses_nothing_that_was_flushed(room: OffsetsRoom, tmp_path: Path) -> None:
    room.offsets.commit("g", "A", 0, 1)
    room.save()
    room.offsets.commit("g", "A", 0, 2)
    room.offsets.commit("g", "B", 7, 9)
    room.offsets.assign_reset("h", "A", 0, 4)
    room.offsets.flush()
    room.offsets.delete_topic("B")
    room.offsets.clone("g", "h", "A")
    room.offsets.flush()
    room.offsets.commit("g", "A", 0, 99)  # not flushed
    again = OffsetsRoom(tmp_path)
    assert again.state() == {"g@A": {0: 2}, "h@A": {0: 2}}
    assert OffsetsRoom(tmp_path).state() == again.state(), (
        "a second kill right after the start loses nothing either"
    )
    again.save()
    assert OffsetsRoom(tmp_path).state() == again.state()


def test_a_turn_is_one_write_and_a_turn_without_change_none(tmp_path: Path) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    room = OffsetsRoom(tmp_path, disk)
    writes = disk.calls["pwrite"]
    for offset in range(100):
        room.offsets.commit("g", "T", offset % 4, offset)
    assert room.offsets.flush()
    assert room.offsets.flush()
    assert disk.calls["pwrite"] == writes + 1
    assert disk.calls["fdatasync"] == disk.calls["sync_dir"] == 0


def test_the_journal_grows_by_a_small_record_per_queue_and_begins_anew_with_each_save(
    room: OffsetsRoom,
) -> None:
    def size() -> int:
        return room.journal_path.stat().st_size

    empty = size()
    room.offsets.commit("group", "topic", 0, 1)
    room.offsets.flush()
    first = size()
    for offset in range(2, 12):
        room.offsets.commit("group", "topic", 0, offset)
        room.offsets.flush()
    assert size() - first == 10 * 21
    room.save()
    assert size() == empty


def test_cut_at_any_byte_the_journal_gives_the_state_after_some_record_and_the_later_the_more(
    tmp_path: Path,
) -> None:
    room = OffsetsRoom(tmp_path / "store")
    room.offsets.commit("g", "A", 0, 1)
    room.save()
    states: list[State] = [room.state()]

    def acts() -> Iterator[Callable[[], None]]:
        yield lambda: room.offsets.commit("g", "A", 0, 2)
        yield lambda: room.offsets.commit("h", "A", 1, 5)
        yield lambda: room.offsets.delete_group("g")
        yield lambda: room.offsets.commit("g", "B", 0, 3)
        yield lambda: room.offsets.commit("h", "A", 1, 4)

    for act in acts():
        act()
        room.offsets.flush()
        states.append(room.state())
    journal = room.journal_path.read_bytes()
    seen = []
    for length in range(len(journal) + 1):
        folder = tmp_path / "cut"
        shutil.copytree(tmp_path / "store", folder)
        (folder / "consumerOffset.journal").write_bytes(journal[:length])
        seen.append(states.index(OffsetsRoom(folder).state()))
        shutil.rmtree(folder)
    assert seen == sorted(seen)
    assert set(seen) == set(range(len(states)))


def test_a_flipped_bit_ends_the_journal_there(
    room: OffsetsRoom, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for offset in (1, 2, 3):
        room.offsets.commit("g", "T", 0, offset)
        room.offsets.flush()
    journal = bytearray(room.journal_path.read_bytes())
    journal[-30] ^= 1
    room.journal_path.write_bytes(journal)
    with caplog.at_level(logging.WARNING):
        assert OffsetsRoom(tmp_path).offsets.query("g", "T", 0) == 1
    assert "offset_journal_torn" in caplog.text


def scenario(room: OffsetsRoom, acknowledged: State) -> None:
    """Commits between all steps of two saves; `acknowledged` is what was flushed."""
    offsets = 0

    def turn() -> None:
        nonlocal offsets
        offsets += 1
        room.offsets.commit("g", "A", offsets % 2, offsets)
        if offsets % 3 == 0:
            room.offsets.delete_topic("B")
        room.offsets.commit(f"new{offsets}", "B", 0, offsets)
        assert room.offsets.flush()
        acknowledged.clear()
        acknowledged.update(room.state())

    room.worker.holds = True
    for _ in range(2):
        turn()
        room.offsets.save_soon()
        turn()
        while room.worker.work():
            turn()
            room.loop.run()
            turn()


def test_a_kill_before_any_call_to_the_disk_loses_nothing_that_was_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = 0
    while True:
        folder = tmp_path / str(kills)
        acknowledged: State = {}
        room: OffsetsRoom | None = None
        with monkeypatch.context() as patch:
            calls = DiskCalls(patch, kill_before=kills)
            try:
                room = OffsetsRoom(folder)
                scenario(room, acknowledged)
                is_killed = False
            except Killed:
                is_killed = True
        state = OffsetsRoom(folder).state()
        # What was being flushed may be there too: a record is not half there, but a flush may have
        # been done and not told.
        now = None if room is None else room.state()
        assert state in (acknowledged, now), (kills, state, acknowledged, now)
        if not is_killed:
            break
        kills += 1
    assert calls.count == kills > 30


def test_when_the_original_ran_in_between_its_offsets_stand(
    room: OffsetsRoom, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    room.offsets.commit("g", "T", 0, 10)
    room.save()
    room.offsets.commit("g", "T", 0, 12)
    # killed here; the original starts with 10, goes on to 30 and saves, the version being the same
    room.offsets.flush()
    saved = json.loads(room.path.read_text().replace("0:10", '"0":30'))
    room.path.write_bytes(fastjson.dumps_pretty(saved))
    with caplog.at_level(logging.WARNING):
        again = OffsetsRoom(tmp_path)
    assert again.offsets.query("g", "T", 0) == 30
    assert "offset_journal_stale" in caplog.text
    again.offsets.commit("g", "T", 0, 31)
    again.offsets.flush()
    assert OffsetsRoom(tmp_path).offsets.query("g", "T", 0) == 31, (
        "the new journal continues the original's file"
    )


def test_when_the_original_ran_and_saved_nothing_new_the_journal_stands(
    room: OffsetsRoom, tmp_path: Path
) -> None:
    room.offsets.commit("g", "T", 0, 10)
    room.save()
    room.offsets.commit("g", "T", 0, 12)
    room.offsets.flush()
    data = room.path.read_bytes()
    room.path.rename(atomic_file.backup_path(room.path))
    room.path.write_bytes(data)
    assert OffsetsRoom(tmp_path).offsets.query("g", "T", 0) == 12


def test_when_the_file_was_taken_away_the_journal_is_not_used_either(
    room: OffsetsRoom, tmp_path: Path
) -> None:
    room.offsets.commit("g", "T", 0, 10)
    room.save()
    room.offsets.commit("g", "T", 0, 12)
    room.offsets.flush()
    room.path.unlink()
    assert OffsetsRoom(tmp_path).offsets.query("g", "T", 0) is None


def test_commits_before_the_first_save_ever_survive_a_kill(
    room: OffsetsRoom, tmp_path: Path
) -> None:
    room.offsets.commit("g", "T", 0, 1)
    room.offsets.flush()
    assert OffsetsRoom(tmp_path).offsets.query("g", "T", 0) == 1


def test_a_full_disk_is_told_and_what_it_refused_is_written_when_there_is_room_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    room = OffsetsRoom(tmp_path, disk)
    room.offsets.commit("g", "T", 0, 1)
    disk.fail("pwrite", errno.ENOSPC, times=2, partial_bytes=7)
    with caplog.at_level(logging.INFO):
        assert not room.offsets.flush()
        assert not room.offsets.flush()
        room.offsets.commit("h", "T", 0, 2)
        assert room.offsets.flush()
    events = [
        record.getMessage().split(" ")[0]
        for record in caplog.records
        if "journal" in record.getMessage()
    ]
    assert events == ["offset_journal_failed", "offset_journal_writes_again"]
    assert OffsetsRoom(tmp_path).state() == {"g@T": {0: 1}, "h@T": {0: 2}}


@pytest.mark.parametrize("call", ["open", "pwrite", "rename"])
def test_a_journal_that_cannot_begin_anew_goes_on(
    tmp_path: Path, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    room = OffsetsRoom(tmp_path, disk)
    room.offsets.commit("g", "T", 0, 1)
    room.offsets.flush()
    room.offsets.save_soon()
    disk.fail(
        call, errno.EIO, after=1 if call == "pwrite" else 0
    )  # the first write names the JSON that comes
    with caplog.at_level(logging.WARNING):
        room.loop.run()
    assert "offset_journal_goes_on" in caplog.text
    room.offsets.commit("g", "T", 0, 2)
    room.offsets.flush()
    assert OffsetsRoom(tmp_path).state() == {"g@T": {0: 2}}
    room.save()
    assert OffsetsRoom(tmp_path).state() == {"g@T": {0: 2}}


def test_a_save_that_the_journal_could_not_announce_waits(tmp_path: Path) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    room = OffsetsRoom(tmp_path, disk)
    room.offsets.commit("g", "T", 0, 1)
    room.offsets.flush()
    disk.fail("pwrite", errno.ENOSPC)
    room.offsets.save_soon()
    room.loop.run()
    assert not room.path.exists()
    assert room.file.failure is not None
    room.loop.let_time_pass()
    assert room.path.exists()
    assert room.file.failure is None


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_loses_at_most_what_came_after_the_last_save(tmp_path: Path, seed: int) -> None:
    """The JSON is synced by itself; of the journal, which is not, anything may be left."""
    store = tmp_path / "store"
    store.mkdir()
    disk = FaultyDisk(ProcessFiles(), store, seed=seed)
    room = OffsetsRoom(store, disk)
    for offset in range(1, 6):
        room.offsets.commit("g", "T", 0, offset)
        room.offsets.flush()
        if offset == 3:
            room.save()
    disk.power_cut(tmp_path / "after", Random(seed))
    shutil.copy(room.path, tmp_path / "after")
    assert OffsetsRoom(tmp_path / "after").offsets.query("g", "T", 0) in (3, 4, 5)


def test_close_saves_everything_and_the_next_start_needs_no_journal(
    room: OffsetsRoom, tmp_path: Path
) -> None:
    room.offsets.commit("g", "T", 0, 1)
    room.offsets.close()
    room.journal_path.unlink()
    assert OffsetsRoom(tmp_path).offsets.query("g", "T", 0) == 1


def test_close_tells_that_the_file_could_not_be_saved_and_the_journal_has_all(
    room: OffsetsRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    room.offsets.commit("g", "T", 0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(atomic_file, "write", fail)
        with pytest.raises(OSError, match="disk full"):
            room.offsets.close()
    assert OffsetsRoom(tmp_path).offsets.query("g", "T", 0) == 1


def test_a_journal_goes_on_when_many_offsets_changed_during_a_save(tmp_path: Path) -> None:
    room = OffsetsRoom(tmp_path)
    room.offsets.commit("g", "T", 0, 1)
    room.offsets.save_soon()
    finish(room.offsets.assign_resets_in_slices("g", "U", dict.fromkeys(range(20_000), 7)))
    room.loop.run()
    expected = {"g@T": {0: 1}, "g@U": dict.fromkeys(range(20_000), 7)}
    assert OffsetsRoom(tmp_path).state() == expected
    room.save()
    assert OffsetsRoom(tmp_path).state() == expected
