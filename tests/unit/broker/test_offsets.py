"""Offsets: what a group committed is there again after a restart, a kill at any moment, a full disk, and a run of the original."""

from __future__ import annotations

import errno
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

import golden_stores
from config_room import DiskCalls, Killed
from offsets_room import OffsetsRoom, State
from orbitmq.common import atomic_file
from orbitmq.common.errors import DamagedFile, StoreError
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import DataVersion
from orbitmq.protocol.bodies.offsets import ConsumerOffsets
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.testing.faulty_disk import FaultyDisk


@pytest.fixture
def room(tmp_path: Path) -> OffsetsRoom:
    return OffsetsRoom(tmp_path)


# --- commits, pulls, resets -------------------------------------------------------------------------------------------


def test_a_group_goes_on_where_it_committed_last(room: OffsetsRoom) -> None:
    offsets = room.offsets
    assert offsets.query("g", "T", 0) is None
    offsets.commit("g", "T", 0, 5)
    offsets.commit("g", "T", 3, 7)
    offsets.commit("h", "T", 0, 1)
    assert (offsets.query("g", "T", 0), offsets.query("g", "T", 3), offsets.query("g", "T", 1)) == (5, 7, None)
    assert (offsets.query("h", "T", 0), offsets.query("g", "U", 0)) == (1, None)
    assert offsets.of("g", "T") == {0: 5, 3: 7}
    assert offsets.of("g", "U") == {}


def test_a_commit_may_go_back_and_is_logged_with_who_did_it(room: OffsetsRoom, caplog: pytest.LogCaptureFixture) -> None:
    room.offsets.commit("g", "T", 0, 5, client="10.0.0.1:99")
    with caplog.at_level(logging.WARNING):
        room.offsets.commit("g", "T", 0, 5, client="10.0.0.1:99")
        assert not caplog.records
        room.offsets.commit("g", "T", 0, 3, client="10.0.0.1:99")
    assert room.offsets.query("g", "T", 0) == 3
    assert "client=10.0.0.1:99 key=T@g queue=0 from=5 to=3" in caplog.text


def test_an_offset_below_zero_is_kept_in_the_file_and_answered_as_none(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{3:-7}}}')
    room = OffsetsRoom(tmp_path)
    assert room.offsets.query("g", "T", 3) is None
    assert room.offsets.of("g", "T") == {3: -7}


def test_a_commit_below_zero_leaves_how_far_the_group_is(room: OffsetsRoom, caplog: pytest.LogCaptureFixture) -> None:
    room.offsets.commit("g", "T", 3, 5)
    room.offsets.commit("g", "T", 3, -1, client="10.0.0.1:99")
    assert room.offsets.query("g", "T", 3) == 5
    assert "offset_not_committed client=10.0.0.1:99 group=g topic=T queue=3 offset=-1" in caplog.text


def test_a_start_on_a_full_disk_says_which_file_and_what_to_do(tmp_path: Path) -> None:
    disk = FaultyDisk(OsFileLayer(), tmp_path)
    disk.fail("pwrite", errno.ENOSPC)
    with pytest.raises(StoreError, match=r"consumerOffset\.journal cannot be written: .*No space left on device; free or mend its disk"):
        OffsetsRoom(tmp_path, disk)


def test_the_version_moves_with_every_so_many_commits(tmp_path: Path) -> None:
    room = OffsetsRoom(tmp_path, version_step=3)
    start_ms = room.clock.now_ms()
    room.clock.advance_ms(10)
    for offset in (1, 1):
        room.offsets.commit("g", "T", 0, offset)
    assert room.offsets.data_version == DataVersion(0, start_ms, 0)
    room.offsets.commit("g", "T", 0, 1)
    assert room.offsets.data_version == DataVersion(1, start_ms + 10, 4)


def test_where_a_group_pulled_is_told_until_the_broker_stops_and_then_where_it_committed(room: OffsetsRoom, tmp_path: Path) -> None:
    offsets = room.offsets
    offsets.commit("g", "T", 0, 5)
    assert offsets.query_pull("g", "T", 0) == 5
    offsets.commit_pull("g", "T", 0, 9)
    offsets.commit_pull("g", "T", 1, 2)
    assert (offsets.query_pull("g", "T", 0), offsets.query_pull("g", "T", 1), offsets.query_pull("g", "T", 2)) == (9, 2, None)
    offsets.close()
    assert fastjson.loads(room.path.read_bytes())["pullOffsetTable"] == {"T@g": {"0": 9, "1": 2}}
    assert OffsetsRoom(tmp_path).offsets.query_pull("g", "T", 0) == 5
    offsets.clear_pull("g", "T")
    assert offsets.query_pull("g", "T", 0) == 5


def test_a_reset_is_committed_at_once_and_waits_for_the_consumer_until_it_is_taken(room: OffsetsRoom) -> None:
    offsets = room.offsets
    offsets.commit("g", "T", 0, 50)
    offsets.assign_reset("g", "T", 0, 10)
    assert offsets.has_reset("g", "T", 0)
    assert not offsets.has_reset("g", "T", 1)
    offsets.commit("g", "T", 0, 60)
    assert offsets.query("g", "T", 0) == 10
    offsets.server_side_reset = False
    assert offsets.query("g", "T", 0) == 60
    assert offsets.take_reset("g", "T", 0) == 10
    assert offsets.take_reset("g", "T", 0) is None
    assert not offsets.has_reset("g", "T", 0)
    for group, topic, queue_id, offset in [("", "T", 0, 1), ("g", "", 0, 1), ("g", "T", -1, 1), ("g", "T", 0, -1)]:
        offsets.assign_reset(group, topic, queue_id, offset)
    assert offsets.of("g", "T") == {0: 60}


def test_groups_and_topics_find_each_other_and_are_deleted_together_with_what_waits(room: OffsetsRoom) -> None:
    offsets = room.offsets
    for group, topic in [("g", "A"), ("g", "B"), ("h", "A")]:
        offsets.commit(group, topic, 0, 1)
        offsets.commit_pull(group, topic, 0, 2)
        offsets.assign_reset(group, topic, 1, 3)
    assert (offsets.topics_of("g"), offsets.groups_of("A"), offsets.topics_of("x")) == ({"A", "B"}, {"g", "h"}, set())
    offsets.delete_topic("A")
    assert (offsets.topics_of("g"), offsets.groups_of("A")) == ({"B"}, set())
    assert (offsets.query_pull("g", "A", 0), offsets.take_reset("h", "A", 1)) == (None, None)
    assert offsets.query_pull("g", "B", 0) == 2
    offsets.delete_group("g")
    assert (offsets.topics_of("g"), offsets.query_pull("g", "B", 0), offsets.has_reset("g", "B", 1)) == (set(), None, False)


def test_a_clone_takes_the_place_of_what_the_target_had(room: OffsetsRoom) -> None:
    offsets = room.offsets
    offsets.commit("g", "T", 0, 1)
    offsets.commit("h", "T", 5, 9)
    offsets.clone("g", "h", "T")
    offsets.commit("g", "T", 0, 2)
    assert offsets.of("h", "T") == {0: 1}
    offsets.clone("nobody", "g", "T")
    assert offsets.of("g", "T") == {0: 2}


# --- the file ---------------------------------------------------------------------------------------------------------


def golden_files(archive: str) -> list[tuple[str, bytes]]:
    return [
        (f"{folder}/{path}", data)
        for folder in golden_stores.folders()
        if folder.startswith(archive)
        for path, data in golden_stores.content(folder, "config").items()
        if path.removesuffix(".bak") == "consumerOffset.json"
    ]


def test_a_golden_file_of_5_5_0_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    files = golden_files("store-5.5.0")
    assert len(files) == 26
    for name, data in files:
        (tmp_path / "consumerOffset.json").write_bytes(data)
        room = OffsetsRoom(tmp_path)
        for key, queues in ConsumerOffsets.decode(data).pull_offsets.items():  # which 5.5.0 writes and does not read again
            topic, group = key.split("@")
            for queue_id, offset in queues.items():
                room.offsets.commit_pull(group, topic, queue_id, offset)
        assert room.offsets.encode() == data, name


def test_a_golden_file_of_4_9_is_read(tmp_path: Path) -> None:
    files = golden_files("store-4.9.8")
    assert files
    for name, data in files:
        (tmp_path / "consumerOffset.json").write_bytes(data)
        room = OffsetsRoom(tmp_path)
        expected = {key: {int(q): offset for q, offset in queues.items()} for key, queues in fastjson.loads(data)["offsetTable"].items()}
        assert {key: dict(room.offsets.of(*reversed(key.split("@")))) for key in expected} == expected, name
        assert room.offsets.data_version == DataVersion(0, room.clock.now_ms(), 0)


def test_the_answer_to_a_slave_is_the_compact_form(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_text('{"offsetTable":{"A1@G1":{3:-7}}}')
    room = OffsetsRoom(tmp_path)
    room.offsets.commit("G1", "A1", 0, 10)
    room.offsets.clone("G1", "G2", "A1")
    # As a 5.5.0 broker answered it, but for its time.
    assert room.offsets.encode(pretty=False) == (
        b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":%d},"groupTopicMap":{"G1":["A1"],"G2":["A1"]},'
        b'"offsetTable":{"A1@G1":{0:10,3:-7},"A1@G2":{0:10,3:-7}},"pullOffsetTable":{}}' % room.clock.now_ms()
    )


def test_a_key_that_names_no_topic_and_group_stays_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_bytes(b'{"offsetTable":{"a@b@c":{0:1},"plain":{0:2},"T@g":{0:3}}}')
    room = OffsetsRoom(tmp_path)
    assert room.offsets.topics_of("g") == {"T"}
    table = fastjson.loads(room.offsets.encode())
    assert list(table["offsetTable"]) == ["a@b@c", "plain", "T@g"]
    assert table["groupTopicMap"] == {"g": ["T"]}


@pytest.mark.parametrize("damaged", [b"", b"{", b'{"offsetTable":{"T@g":[1]}}', b'{"offsetTable":{"T@g":{"x":1}}}'])
def test_a_damaged_file_is_replaced_by_its_backup(room: OffsetsRoom, tmp_path: Path, damaged: bytes) -> None:
    for offset in (1, 2):
        room.offsets.commit("g", "T", 0, offset)
        room.save()
    room.path.write_bytes(damaged)
    assert OffsetsRoom(tmp_path).offsets.query("g", "T", 0) == 1
    room.path.write_bytes(b"{")
    atomic_file.backup_path(room.path).write_bytes(b"{")
    with pytest.raises(DamagedFile):
        OffsetsRoom(tmp_path)


def test_the_file_is_saved_only_when_something_changed(room: OffsetsRoom) -> None:
    room.save()
    assert not room.path.exists()
    room.offsets.commit("g", "T", 0, 1)
    room.save()
    written = room.path.stat().st_mtime_ns
    room.offsets.commit("g", "T", 0, 1)
    room.save()
    assert room.path.stat().st_mtime_ns == written


# --- the journal ------------------------------------------------------------------------------------------------------


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
    assert OffsetsRoom(tmp_path).state() == again.state(), "a second kill right after the start loses nothing either"
    again.save()
    assert OffsetsRoom(tmp_path).state() == again.state()


def test_a_turn_is_one_write_and_a_turn_without_change_none(tmp_path: Path) -> None:
    disk = FaultyDisk(OsFileLayer(), tmp_path)
    room = OffsetsRoom(tmp_path, disk)
    writes = disk.calls["pwrite"]
    for offset in range(100):
        room.offsets.commit("g", "T", offset % 4, offset)
    assert room.offsets.flush()
    assert room.offsets.flush()
    assert disk.calls["pwrite"] == writes + 1
    assert disk.calls["fdatasync"] == disk.calls["sync_dir"] == 0


def test_the_journal_grows_by_a_small_record_per_queue_and_begins_anew_with_each_save(room: OffsetsRoom) -> None:
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


def test_cut_at_any_byte_the_journal_gives_the_state_after_some_record_and_the_later_the_more(tmp_path: Path) -> None:
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


def test_a_flipped_bit_ends_the_journal_there(room: OffsetsRoom, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_kill_before_any_call_to_the_disk_loses_nothing_that_was_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        # What was being flushed may be there too: a record is not half there, but a flush may have been done and not told.
        now = None if room is None else room.state()
        assert state in (acknowledged, now), (kills, state, acknowledged, now)
        if not is_killed:
            break
        kills += 1
    assert calls.count == kills > 30


def test_when_the_original_ran_in_between_its_offsets_stand(room: OffsetsRoom, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room.offsets.commit("g", "T", 0, 10)
    room.save()
    room.offsets.commit("g", "T", 0, 12)
    room.offsets.flush()  # killed here; the original starts with 10, goes on to 30 and saves, the version being the same
    saved = json.loads(room.path.read_text().replace("0:10", '"0":30'))
    room.path.write_bytes(fastjson.dumps_pretty(saved))
    with caplog.at_level(logging.WARNING):
        again = OffsetsRoom(tmp_path)
    assert again.offsets.query("g", "T", 0) == 30
    assert "offset_journal_stale" in caplog.text
    again.offsets.commit("g", "T", 0, 31)
    again.offsets.flush()
    assert OffsetsRoom(tmp_path).offsets.query("g", "T", 0) == 31, "the new journal continues the original's file"


def test_when_the_original_ran_and_saved_nothing_new_the_journal_stands(room: OffsetsRoom, tmp_path: Path) -> None:
    room.offsets.commit("g", "T", 0, 10)
    room.save()
    room.offsets.commit("g", "T", 0, 12)
    room.offsets.flush()
    data = room.path.read_bytes()
    room.path.rename(atomic_file.backup_path(room.path))
    room.path.write_bytes(data)
    assert OffsetsRoom(tmp_path).offsets.query("g", "T", 0) == 12


def test_when_the_file_was_taken_away_the_journal_is_not_used_either(room: OffsetsRoom, tmp_path: Path) -> None:
    room.offsets.commit("g", "T", 0, 10)
    room.save()
    room.offsets.commit("g", "T", 0, 12)
    room.offsets.flush()
    room.path.unlink()
    assert OffsetsRoom(tmp_path).offsets.query("g", "T", 0) is None


def test_commits_before_the_first_save_ever_survive_a_kill(room: OffsetsRoom, tmp_path: Path) -> None:
    room.offsets.commit("g", "T", 0, 1)
    room.offsets.flush()
    assert OffsetsRoom(tmp_path).offsets.query("g", "T", 0) == 1


def test_a_full_disk_is_told_and_what_it_refused_is_written_when_there_is_room_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk(OsFileLayer(), tmp_path)
    room = OffsetsRoom(tmp_path, disk)
    room.offsets.commit("g", "T", 0, 1)
    disk.fail("pwrite", errno.ENOSPC, times=2, partial_bytes=7)
    with caplog.at_level(logging.INFO):
        assert not room.offsets.flush()
        assert not room.offsets.flush()
        room.offsets.commit("h", "T", 0, 2)
        assert room.offsets.flush()
    events = [record.getMessage().split(" ")[0] for record in caplog.records if "journal" in record.getMessage()]
    assert events == ["offset_journal_failed", "offset_journal_writes_again"]
    assert OffsetsRoom(tmp_path).state() == {"g@T": {0: 1}, "h@T": {0: 2}}


@pytest.mark.parametrize("call", ["open", "pwrite", "rename"])
def test_a_journal_that_cannot_begin_anew_goes_on(tmp_path: Path, call: str, caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk(OsFileLayer(), tmp_path)
    room = OffsetsRoom(tmp_path, disk)
    room.offsets.commit("g", "T", 0, 1)
    room.offsets.flush()
    room.offsets.save_soon()
    disk.fail(call, errno.EIO, after=1 if call == "pwrite" else 0)  # the first write names the JSON that comes
    with caplog.at_level(logging.WARNING):
        room.loop.run()
    assert "offset_journal_goes_on" in caplog.text
    room.offsets.commit("g", "T", 0, 2)
    room.offsets.flush()
    assert OffsetsRoom(tmp_path).state() == {"g@T": {0: 2}}
    room.save()
    assert OffsetsRoom(tmp_path).state() == {"g@T": {0: 2}}


def test_a_save_that_the_journal_could_not_announce_waits(tmp_path: Path) -> None:
    disk = FaultyDisk(OsFileLayer(), tmp_path)
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
    disk = FaultyDisk(OsFileLayer(), store, seed=seed)
    room = OffsetsRoom(store, disk)
    for offset in range(1, 6):
        room.offsets.commit("g", "T", 0, offset)
        room.offsets.flush()
        if offset == 3:
            room.save()
    disk.power_cut(tmp_path / "after", Random(seed))
    shutil.copy(room.path, tmp_path / "after")
    assert OffsetsRoom(tmp_path / "after").offsets.query("g", "T", 0) in (3, 4, 5)


def test_close_saves_everything_and_the_next_start_needs_no_journal(room: OffsetsRoom, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("table", [{}, {"T@g": {}}, {'é"\n@g': {70: 1, 2: -3}, "U@g": {0: 9}}])
@pytest.mark.parametrize("pretty", [True, False])
def test_the_file_that_is_put_together_by_hand_is_what_the_writer_of_json_gives(table: State, pretty: bool) -> None:
    found = ConsumerOffsets(table, table, DataVersion(1, 2, 3)).encode(pretty=pretty)
    members = {"dataVersion": DataVersion(1, 2, 3).to_json(), "groupTopicMap": fastjson.loads(found)["groupTopicMap"]}
    tables = {key: dict(sorted(queues.items())) for key, queues in table.items()}
    dumps = fastjson.dumps_pretty if pretty else fastjson.dumps
    assert found == dumps({**members, "offsetTable": tables, "pullOffsetTable": tables})
