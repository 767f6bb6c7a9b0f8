"""Offsets: what a group committed, pulled and was reset to, and the file that has it after a
restart.
"""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from orbitmq.common import atomic_file
from orbitmq.common.errors import CorruptFileError, StoreError
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import DataVersion
from orbitmq.protocol.bodies.offsets import ConsumerOffsets
from orbitmq.store.types import QueueKey
from orbitmq.testing.faulty_disk import FaultyDisk
from support.broker.offsets import OffsetsRoom, State
from support.common.process_files import ProcessFiles
from support.store import golden_stores


@pytest.fixture
def room(tmp_path: Path) -> OffsetsRoom:
    return OffsetsRoom(tmp_path)


# --- commits, pulls, resets


def test_a_group_goes_on_where_it_committed_last(room: OffsetsRoom) -> None:
    offsets = room.offsets
    assert offsets.query("g", "T", 0) is None
    offsets.commit("g", "T", 0, 5)
    offsets.commit("g", "T", 3, 7)
    offsets.commit("h", "T", 0, 1)
    assert (offsets.query("g", "T", 0), offsets.query("g", "T", 3), offsets.query("g", "T", 1)) == (
        5,
        7,
        None,
    )
    assert (offsets.query("h", "T", 0), offsets.query("g", "U", 0)) == (1, None)
    assert offsets.of("g", "T") == {0: 5, 3: 7}
    assert offsets.of("g", "U") == {}


def test_a_commit_may_go_back_and_is_logged_with_who_did_it(
    room: OffsetsRoom, caplog: pytest.LogCaptureFixture
) -> None:
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


def test_a_commit_below_zero_leaves_how_far_the_group_is(
    room: OffsetsRoom, caplog: pytest.LogCaptureFixture
) -> None:
    room.offsets.commit("g", "T", 3, 5)
    room.offsets.commit("g", "T", 3, -1, client="10.0.0.1:99")
    assert room.offsets.query("g", "T", 3) == 5
    assert (
        "offset_not_committed client=10.0.0.1:99 group=g topic=T queue=3 offset=-1" in caplog.text
    )


def test_a_start_on_a_disk_that_fails_says_which_file_and_what_to_do(tmp_path: Path) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    disk.fail("pwrite", errno.EIO)
    with pytest.raises(
        StoreError,
        match=(
            r"consumerOffset\.journal cannot be written: .*Input/output error; free or repair"
            r" its disk"
        ),
    ):
        OffsetsRoom(tmp_path, disk)


def test_on_a_full_disk_the_journal_begins_when_there_is_room(tmp_path: Path) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    room = OffsetsRoom(tmp_path, disk)
    room.offsets.commit("g", "T", 0, 5)
    assert room.offsets.flush()
    disk.fail("pwrite", errno.ENOSPC, times=2)
    again = OffsetsRoom(tmp_path, disk)
    assert again.offsets.query("g", "T", 0) == 5
    again.offsets.commit("g", "T", 0, 7)
    assert not again.offsets.flush()
    assert OffsetsRoom(tmp_path, ProcessFiles()).offsets.query("g", "T", 0) == 5
    disk.heal()
    assert again.offsets.flush()
    assert OffsetsRoom(tmp_path, ProcessFiles()).offsets.query("g", "T", 0) == 7


def test_the_version_moves_with_every_so_many_commits(tmp_path: Path) -> None:
    room = OffsetsRoom(tmp_path, version_step=3)
    start_ms = room.clock.now_ms()
    room.clock.advance_ms(10)
    for offset in (1, 1):
        room.offsets.commit("g", "T", 0, offset)
    assert room.offsets.data_version == DataVersion(0, start_ms, 0)
    room.offsets.commit("g", "T", 0, 1)
    assert room.offsets.data_version == DataVersion(1, start_ms + 10, 4)


def test_where_a_group_pulled_is_told_until_the_broker_stops_and_then_where_it_committed(
    room: OffsetsRoom, tmp_path: Path
) -> None:
    offsets = room.offsets
    offsets.commit("g", "T", 0, 5)
    assert offsets.query_pull("g", "T", 0) == 5
    offsets.commit_pull("g", "T", 0, 9)
    offsets.commit_pull("g", "T", 1, 2)
    assert (
        offsets.query_pull("g", "T", 0),
        offsets.query_pull("g", "T", 1),
        offsets.query_pull("g", "T", 2),
    ) == (9, 2, None)
    offsets.close()
    assert fastjson.loads(room.path.read_bytes())["pullOffsetTable"] == {"T@g": {"0": 9, "1": 2}}
    assert OffsetsRoom(tmp_path).offsets.query_pull("g", "T", 0) == 5
    offsets.clear_pull("g", "T")
    assert offsets.query_pull("g", "T", 0) == 5


def test_a_reset_is_committed_at_once_and_waits_for_the_consumer_until_it_is_taken(
    room: OffsetsRoom,
) -> None:
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
    for group, topic, queue_id, offset in [
        ("", "T", 0, 1),
        ("g", "", 0, 1),
        ("g", "T", -1, 1),
        ("g", "T", 0, -1),
    ]:
        offsets.assign_reset(group, topic, queue_id, offset)
    assert offsets.of("g", "T") == {0: 60}


def test_groups_and_topics_find_each_other_and_are_deleted_together_with_what_waits(
    room: OffsetsRoom,
) -> None:
    offsets = room.offsets
    for group, topic in [("g", "A"), ("g", "B"), ("h", "A")]:
        offsets.commit(group, topic, 0, 1)
        offsets.commit_pull(group, topic, 0, 2)
        offsets.assign_reset(group, topic, 1, 3)
    assert (offsets.topics_of("g"), offsets.groups_of("A"), offsets.topics_of("x")) == (
        {"A", "B"},
        {"g", "h"},
        set(),
    )
    offsets.delete_topic("A")
    assert (offsets.topics_of("g"), offsets.groups_of("A")) == ({"B"}, set())
    assert (offsets.query_pull("g", "A", 0), offsets.take_reset("h", "A", 1)) == (None, None)
    assert offsets.query_pull("g", "B", 0) == 2
    offsets.delete_group("g")
    assert (
        offsets.topics_of("g"),
        offsets.query_pull("g", "B", 0),
        offsets.has_reset("g", "B", 1),
    ) == (set(), None, False)


def test_a_queue_is_consumed_as_far_as_every_group_of_its_topic_has(room: OffsetsRoom) -> None:
    offsets = room.offsets
    assert offsets.consumed_by_all(QueueKey("T", 0)) is None
    offsets.commit("quick", "T", 0, 9)
    offsets.commit("slow", "T", 0, 4)
    offsets.commit("other", "U", 0, 1)
    assert offsets.consumed_by_all(QueueKey("T", 0)) == 4
    assert offsets.consumed_by_all(QueueKey("T", 1)) == 0, (
        "they read the topic, and nothing of this queue yet"
    )
    offsets.delete_group("slow")
    assert offsets.consumed_by_all(QueueKey("T", 0)) == 9


def test_a_clone_takes_the_place_of_what_the_target_had(room: OffsetsRoom) -> None:
    offsets = room.offsets
    offsets.commit("g", "T", 0, 1)
    offsets.commit("h", "T", 5, 9)
    offsets.clone("g", "h", "T")
    offsets.commit("g", "T", 0, 2)
    assert offsets.of("h", "T") == {0: 1}
    offsets.clone("nobody", "g", "T")
    assert offsets.of("g", "T") == {0: 2}


# --- the file


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
        for key, queues in ConsumerOffsets.decode(
            data
        ).pull_offsets.items():  # which 5.5.0 writes and does not read again
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
        expected = {
            key: {int(q): offset for q, offset in queues.items()}
            for key, queues in fastjson.loads(data)["offsetTable"].items()
        }
        assert {
            key: dict(room.offsets.of(*reversed(key.split("@")))) for key in expected
        } == expected, name
        assert room.offsets.data_version == DataVersion(0, room.clock.now_ms(), 0)


def test_the_answer_to_a_slave_is_the_compact_form(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_text('{"offsetTable":{"A1@G1":{3:-7}}}')
    room = OffsetsRoom(tmp_path)
    room.offsets.commit("G1", "A1", 0, 10)
    room.offsets.clone("G1", "G2", "A1")
    # As a 5.5.0 broker answered it, but for its time.
    assert room.offsets.encode(pretty=False) == (
        b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":%d},"groupTopicMap":{"G1":["A1"],"G2":["A1"]},'
        b'"offsetTable":{"A1@G1":{0:10,3:-7},"A1@G2":{0:10,3:-7}},"pullOffsetTable":{}}'
        % room.clock.now_ms()
    )


def test_a_key_that_names_no_topic_and_group_stays_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_bytes(
        b'{"offsetTable":{"a@b@c":{0:1},"plain":{0:2},"T@g":{0:3}}}'
    )
    room = OffsetsRoom(tmp_path)
    assert room.offsets.topics_of("g") == {"T"}
    table = fastjson.loads(room.offsets.encode())
    assert list(table["offsetTable"]) == ["a@b@c", "plain", "T@g"]
    assert table["groupTopicMap"] == {"g": ["T"]}


@pytest.mark.parametrize(
    "damaged", [b"", b"{", b'{"offsetTable":{"T@g":[1]}}', b'{"offsetTable":{"T@g":{"x":1}}}']
)
def test_a_damaged_file_is_replaced_by_its_backup(
    room: OffsetsRoom, tmp_path: Path, damaged: bytes
) -> None:
    for offset in (1, 2):
        room.offsets.commit("g", "T", 0, offset)
        room.save()
    room.path.write_bytes(damaged)
    assert OffsetsRoom(tmp_path).offsets.query("g", "T", 0) == 1
    room.path.write_bytes(b"{")
    atomic_file.backup_path(room.path).write_bytes(b"{")
    with pytest.raises(CorruptFileError):
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


@pytest.mark.parametrize("table", [{}, {"T@g": {}}, {'é"\n@g': {70: 1, 2: -3}, "U@g": {0: 9}}])
@pytest.mark.parametrize("pretty", [True, False])
def test_the_file_that_is_put_together_by_hand_is_what_the_writer_of_json_gives(
    table: State, pretty: bool
) -> None:
    found = ConsumerOffsets(table, table, DataVersion(1, 2, 3)).encode(pretty=pretty)
    members = {
        "dataVersion": DataVersion(1, 2, 3).to_json(),
        "groupTopicMap": fastjson.loads(found)["groupTopicMap"],
    }
    tables = {key: dict(sorted(queues.items())) for key, queues in table.items()}
    dumps = fastjson.dumps_pretty if pretty else fastjson.dumps
    assert found == dumps({**members, "offsetTable": tables, "pullOffsetTable": tables})
