"""A repair: what is damaged is built again from the log, no message is lost by it, and everything
taken away is kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.common.errors import StoreError
from orbitmq.store.recovery import Progress
from orbitmq.store.store_lock import StoreLock
from orbitmq.store.tools.findings import RepairAction, Severity
from orbitmq.store.tools.repair import Repair, plan, plan_rebuild
from orbitmq.testing.manual_clock import ManualClock
from support.common.process_files import ProcessFiles
from support.store import derived_files, golden_stores
from support.store.tools import (
    CLEAN_5,
    checked,
    damage,
    directory,
    filled,
    flip,
    golden,
    kinds,
    mend,
    overwrite,
    own_config,
    own_store,
    put,
    queued,
    tree,
)


def clear(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def first_index(root: Path) -> Path:
    return min((root / "index").iterdir())


DERIVED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "an entry of a queue": (
        CLEAN_5,
        lambda root: flip(root / "consumequeue/GoldenA/1/00000000000000000000", 27),
    ),
    "a queue of zeros": (
        CLEAN_5,
        lambda root: clear(root / "consumequeue/GoldenA/1/00000000000000000000"),
    ),
    "a queue file that is short": (
        CLEAN_5,
        lambda root: (root / "consumequeue/GoldenA/1/00000000000000000000").write_bytes(b"x"),
    ),
    "a queue file that is missing": (
        CLEAN_5,
        lambda root: (root / "consumequeue/GoldenRoll/0/00000000000000002000").unlink(),
    ),
    "a delivery time": (
        CLEAN_5,
        lambda root: flip(root / "consumequeue/SCHEDULE_TOPIC_XXXX/17/00000000000000000000", 19),
    ),
    "a batch": (
        CLEAN_5,
        lambda root: flip(root / "batchconsumequeue/GoldenBcq/0/00000000000000000000", 46 + 30),
    ),
    "an ext unit": (
        "store-4.9.8/ext/store",
        lambda root: flip(root / "consumequeue_ext/GoldenA/1/00000000000000000000", 5),
    ),
    "all ext files": (
        "store-4.9.8/ext/store",
        lambda root: clear(root / "consumequeue_ext/GoldenA/1/00000000000000000000"),
    ),
    "an index entry": (CLEAN_5, lambda root: flip(first_index(root), 440 + 20 * 7 + 2)),
    "an index header": (CLEAN_5, lambda root: flip(first_index(root), 38)),
    "an index file that is missing": (CLEAN_5, lambda root: first_index(root).unlink()),
    "an index file that is short": (CLEAN_5, lambda root: first_index(root).write_bytes(b"short")),
    "a checkpoint": (CLEAN_5, lambda root: (root / "checkpoint").write_bytes(b"\xff" * 4096)),
    "a tiny queue": (
        "store-4.9.8/tiny/store",
        lambda root: flip(root / "consumequeue/GoldenHa/1/00000000000000000120", 6),
    ),
}


@pytest.mark.parametrize("what", DERIVED)
def test_what_follows_from_the_log_is_built_again(what: str, tmp_path: Path) -> None:
    folder, harm = DERIVED[what]
    root = golden(tmp_path, folder)
    messages, log = (
        queued(root),
        {
            name: content
            for name, (content, _) in tree(root).items()
            if name.startswith("commitlog")
        },
    )
    harm(root)
    before = tree(root)
    assert damage(checked(root))
    planned, after, backup = mend(root)
    assert damage(after) == []
    assert planned.left == ()
    assert queued(root) == messages
    assert {
        name: content for name, (content, _) in tree(root).items() if name.startswith("commitlog")
    } == log
    kept = {
        str(path.relative_to(backup)): path.read_bytes()
        for path in backup.rglob("*")
        if path.is_file()
    }
    assert kept
    assert all(before[name][0] == content for name, content in kept.items())


@pytest.mark.parametrize("folder", golden_stores.read_back())
def test_every_golden_store_can_be_built_again_whole(folder: str, tmp_path: Path) -> None:
    root = golden(tmp_path, folder)
    messages = queued(root)
    store = directory(root)
    found = checked(root)
    Repair(store, found, ManualClock()).run(plan_rebuild(store, found).steps)
    after = checked(root)
    assert damage(after) == []
    assert after.records == found.records
    assert queued(root) == messages


@pytest.mark.parametrize("release", golden_stores.ARCHIVES)
def test_a_torn_end_is_cut_and_kept(release: str, tmp_path: Path) -> None:
    folder = f"{release}/torn/store"
    root = golden(tmp_path, folder)
    end = golden_stores.log_end(folder)
    path = root / f"commitlog/{end - end % 65536:020}"
    torn = path.read_bytes()[end % 65536 :]
    planned, after, backup = mend(root)
    assert [(step.action, step.target) for step in planned.steps] == [
        (RepairAction.CUT_LOG, str(end))
    ]
    assert list(after.findings) == []
    assert after.log_end == end
    assert (backup / f"commitlog/{path.name}.from-{end % 65536}").read_bytes() == torn
    assert not any(path.read_bytes()[end % 65536 :])


@pytest.mark.parametrize("release", golden_stores.ARCHIVES)
def test_stale_bytes_of_the_original_are_cleared(release: str, tmp_path: Path) -> None:
    root = golden(tmp_path, f"{release}/badcrc/recovered")
    messages = queued(root)
    assert "stale" in kinds(checked(root))
    _, after, _ = mend(root)
    assert list(after.findings) == []
    assert {name: found for name, found in queued(root).items() if name not in messages} == {}


def test_a_bad_record_in_the_middle_stays_unless_the_log_is_given_up_there(tmp_path: Path) -> None:
    offsets = filled(tmp_path)
    flip(tmp_path / "commitlog/00000000000000000000", offsets[10] + 120, 0x20)
    planned, after, _ = mend(tmp_path)
    assert planned.steps == ()
    assert [finding.offset for finding in planned.left] == [offsets[10]]
    assert damage(after) != []
    planned, after, backup = mend(tmp_path, truncate_damage=True)
    assert damage(after) == []
    assert (after.records, after.log_end) == (10, offsets[10])
    assert len(queued(tmp_path)["Orders/0"]) == 5
    assert (backup / "commitlog/00000000000000004096").exists()


def test_a_queue_is_built_again_around_a_record_that_is_lost(tmp_path: Path) -> None:
    offsets = filled(tmp_path)
    flip(tmp_path / "commitlog/00000000000000000000", offsets[10] + 5, 0x20)  # its magic
    flip(tmp_path / "consumequeue/Orders/0/00000000000000000000", 6)
    planned, after, _ = mend(tmp_path)
    assert {finding.kind for finding in damage(after)} == {"record"}
    assert [offset for offset, _ in queued(tmp_path)["Orders/0"]] == [
        offset for offset in range(30) if offset != 5
    ]
    assert "fillers" in kinds(after)
    assert [finding.kind for finding in planned.left] == ["record"]


def test_a_record_that_lies_about_its_queue_is_left_where_it_is(tmp_path: Path) -> None:
    offsets = filled(tmp_path)
    flip(tmp_path / "commitlog/00000000000000000000", offsets[4] + 15, 0x02)
    planned = plan(checked(tmp_path))
    assert planned.steps == ()
    assert [finding.kind for finding in planned.left] == ["record-place"]


@pytest.mark.parametrize("length", [4000, 5000])
def test_a_last_log_file_of_another_length_gets_that_of_the_others(
    length: int, tmp_path: Path
) -> None:
    filled(tmp_path)
    messages = queued(tmp_path)
    path = max((tmp_path / "commitlog").iterdir())
    path.write_bytes(path.read_bytes()[:length].ljust(length, b"x"))
    _, after, backup = mend(tmp_path)
    assert damage(after) == []
    assert queued(tmp_path) == messages
    assert path.stat().st_size == 4096
    if length > 4096:
        assert (backup / f"commitlog/{path.name}.from-4096").read_bytes() == b"x" * (length - 4096)


def test_an_empty_last_file_is_moved_away(tmp_path: Path) -> None:
    filled(tmp_path)
    end = 4096 * len(list((tmp_path / "commitlog").iterdir()))
    (tmp_path / f"commitlog/{end:020}").touch()
    _, after, backup = mend(tmp_path)
    assert list(after.findings) == []
    assert (backup / f"commitlog/{end:020}").exists()


def test_a_blank_is_written_again(tmp_path: Path) -> None:
    offsets = filled(tmp_path)
    data = (tmp_path / "commitlog/00000000000000000000").read_bytes()
    blank = (
        data.index(bytes.fromhex("cbd43194"), max(offset for offset in offsets if offset < 4096))
        - 4
    )
    overwrite(tmp_path / "commitlog/00000000000000000000", blank, (8).to_bytes(4))
    _, after, _ = mend(tmp_path)
    assert list(after.findings) == []
    assert (tmp_path / "commitlog/00000000000000000000").read_bytes() == data


def test_a_gap_in_the_log_is_for_a_person_to_mend(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "commitlog/00000000000000004096").unlink()
    flip(tmp_path / "consumequeue/Orders/0/00000000000000000000", 6)
    found = checked(tmp_path)
    assert all(
        step.action not in (RepairAction.REBUILD_QUEUE, RepairAction.CUT_LOG)
        for step in plan(found).steps
    )
    with pytest.raises(StoreError, match=r"nothing can be rebuilt from this log: .*missing"):
        plan_rebuild(directory(tmp_path), found)
    _, after, backup = mend(tmp_path, truncate_damage=True)
    assert damage(after) == []
    assert after.log_end == 4096
    assert (backup / "commitlog/00000000000000008192").exists()


def test_a_configuration_is_restored_from_its_backup(tmp_path: Path) -> None:
    root = golden(tmp_path)
    (root / "config/consumerOffset.json").write_bytes(b"\x00" * 100)
    (root / "config/delayOffset.json.bak").write_bytes(b"")
    (root / "config/topics.json").write_bytes(b"")
    (root / "config/topics.json.bak").write_bytes(b"")
    planned, after, backup = mend(root)
    assert (root / "config/consumerOffset.json").read_bytes() == (
        root / "config/consumerOffset.json.bak"
    ).read_bytes()
    assert (root / "config/delayOffset.json").read_bytes() == (
        root / "config/delayOffset.json.bak"
    ).read_bytes()
    assert (backup / "config/consumerOffset.json").read_bytes() == b"\x00" * 100
    assert [finding.file for finding in planned.left] == ["config/topics.json"]
    assert [finding.file for finding in damage(after)] == ["config/topics.json"]
    assert not (backup / "checkpoint").exists()  # the store itself was not touched


@pytest.mark.parametrize("whole", [True, False])
def test_a_queue_of_which_the_log_has_no_message_any_more_keeps_its_offsets(
    whole: bool, tmp_path: Path
) -> None:
    clock = ManualClock()
    store = own_store(tmp_path, clock)
    for number in range(3):
        put(store, number, "Old")
    for number in range(60):
        put(store, number)
    store.close()
    (tmp_path / "commitlog/00000000000000000000").unlink()
    found, folder = checked(tmp_path), directory(tmp_path)
    assert damage(found) == []
    if whole:
        Repair(folder, found, clock).run(plan_rebuild(folder, found).steps)
    else:
        flip(tmp_path / "consumequeue/Orders/0/00000000000000000400", 6)
        mend(tmp_path)
    assert damage(checked(tmp_path)) == []
    store = own_store(tmp_path, clock)
    assert (store.queues.min_offset("Old", 0), store.queues.max_offset("Old", 0)) == (3, 3)
    store.close()


def test_a_topic_that_was_deleted_does_not_come_back(tmp_path: Path) -> None:
    store = own_store(tmp_path, ManualClock())
    for number in range(5):
        put(store, number, "Gone")
        put(store, number, "Kept")
    store.queues.delete_topic("Gone")
    store.close()
    (tmp_path / "config").mkdir()
    (tmp_path / "config/topics.json").write_text('{"topicConfigTable":{"Kept":{}}}')
    flip(tmp_path / "consumequeue/Kept/0/00000000000000000000", 6)
    _, after, _ = mend(tmp_path)
    assert damage(after) == []
    assert sorted(path.name for path in (tmp_path / "consumequeue").iterdir()) == ["Kept"]


def test_a_queue_of_a_topic_that_was_made_again_is_not_built_from_both_lives(
    tmp_path: Path,
) -> None:
    store = own_store(tmp_path, ManualClock())
    for number in range(5):
        put(store, number)
    store.queues.delete_topic("Orders")
    store.log.offsets.forget("Orders")
    for number in range(5, 8):
        put(store, number)
    store.close()
    messages, folder, found = queued(tmp_path), directory(tmp_path), checked(tmp_path)
    Repair(folder, found, ManualClock()).run(plan_rebuild(folder, found).steps)
    assert queued(tmp_path) == messages
    assert damage(checked(tmp_path)) == []


def test_a_store_that_is_open_is_not_repaired(tmp_path: Path) -> None:
    filled(tmp_path)
    flip(tmp_path / "consumequeue/Orders/0/00000000000000000000", 6)
    found, folder = checked(tmp_path), directory(tmp_path)
    before = tree(tmp_path)
    lock = StoreLock(ProcessFiles(), own_config(tmp_path).root)
    lock.acquire()
    try:
        with pytest.raises(StoreError, match="open already"):
            Repair(folder, found, ManualClock()).run(plan(found).steps)
    finally:
        lock.release()
    assert {name: content for name, (content, _) in tree(tmp_path).items()} == {
        name: content for name, (content, _) in before.items()
    }


def test_progress_of_building_is_told(tmp_path: Path) -> None:
    filled(tmp_path)
    folder, found = directory(tmp_path), checked(tmp_path)
    heard: list[Progress] = []
    Repair(folder, found, ManualClock()).run(plan_rebuild(folder, found).steps, heard.append)
    assert heard
    assert all(seen.begin <= seen.offset <= seen.end for seen in heard)


def last_index(root: Path) -> Path:
    return max((root / "index").iterdir())


OWN_INDEX: dict[str, Callable[[Path], object]] = {
    "missing": lambda root: first_index(root).unlink(),
    "all missing": lambda root: shutil.rmtree(root / "index"),
    "zeroed": lambda root: first_index(root).write_bytes(bytes(first_index(root).stat().st_size)),
    "cut": lambda root: last_index(root).write_bytes(last_index(root).read_bytes()[:500]),
    "header": lambda root: flip(first_index(root), 38),
    "slot": lambda root: flip(last_index(root), 43),
    "entry 0": lambda root: flip(last_index(root), 40 + 4 * 11),
    "log offset of an entry": lambda root: flip(first_index(root), 40 + 4 * 11 + 20 * 9 + 10),
    "seconds of an entry": lambda root: flip(first_index(root), 40 + 4 * 11 + 20 * 9 + 15),
    "behind the last entry": lambda root: flip(last_index(root), -1),
    "of another time": lambda root: shutil.copy(first_index(root), last_index(root)),
    "unknown": lambda root: shutil.copy(first_index(root), root / "index" / "29990101000000000"),
}


@pytest.mark.parametrize("way", ["start", "repair"])
@pytest.mark.parametrize("what", OWN_INDEX)
def test_what_a_check_finds_in_the_index_a_start_mends_as_a_repair_does(
    what: str, way: str, tmp_path: Path
) -> None:
    filled(tmp_path)
    OWN_INDEX[what](tmp_path)
    found = damage(checked(tmp_path))
    assert found
    assert all("the next start, or orbitmq store repair" in finding.remedy for finding in found)
    if way == "repair":
        mend(tmp_path)
    store = own_store(tmp_path, ManualClock())
    hits = [len(store.reads.query("Orders", f"k{number}")) for number in range(60)]
    store.close()
    assert hits == [1] * 60
    assert damage(checked(tmp_path)) == []


def last_log_file(root: Path) -> Path:
    return max(path for path in (root / "commitlog").iterdir())


LOSSES: dict[str, Callable[[Path], object]] = {
    "the last file is missing": lambda root: last_log_file(root).unlink(),
    "the last file is empty": lambda root: last_log_file(root).write_bytes(b""),
    "the last file has zeros": lambda root: clear(last_log_file(root)),
    "all files are missing": lambda root: derived_files.unlink_all((root / "commitlog").iterdir()),
    "all files are empty": lambda root: [
        path.write_bytes(b"") for path in (root / "commitlog").iterdir()
    ],
}


@pytest.mark.parametrize("loss", LOSSES)
def test_what_the_log_lacks_is_loss_until_it_is_accepted(loss: str, tmp_path: Path) -> None:
    filled(tmp_path)
    clock = ManualClock()
    messages = queued(tmp_path)
    LOSSES[loss](tmp_path)
    found = checked(tmp_path, log_file_size=4096)
    lost = [finding for finding in found.findings if finding.severity is Severity.LOSS]
    assert {finding.kind for finding in lost} == {"log-lost", "lost"}
    kept = found.records
    assert sum(int(each.what.split()[0]) for each in lost if each.kind == "lost") == 60 - kept
    with pytest.raises(StoreError, match="orbitmq store repair"):
        own_store(tmp_path, clock)
    planned, after, _ = mend(tmp_path, log_file_size=4096)
    assert planned.left == ()
    assert damage(after) == []
    assert plan(after).steps == ()
    store = own_store(tmp_path, clock)
    offsets = [store.queues.max_offset("Orders", queue_id) for queue_id in (0, 1)]
    assert sum(offsets) == kept
    put(store, 100)
    store.close()
    again = queued(tmp_path)
    assert again["Orders/0"][:-1] == messages["Orders/0"][: offsets[0]]
    assert damage(checked(tmp_path)) == []


def test_a_queue_that_lost_its_end_goes_on_behind_what_has_expired(tmp_path: Path) -> None:
    clock = ManualClock()
    store = own_store(tmp_path, clock)
    for number in range(3):
        put(store, number, "Old")
    for number in range(60):
        put(store, number)
    put(store, 3, "Old")
    store.close()
    (tmp_path / "commitlog/00000000000000000000").unlink()
    last_log_file(tmp_path).unlink()
    _, after, _ = mend(tmp_path)
    assert damage(after) == []
    store = own_store(tmp_path, clock)
    assert store.queues.max_offset("Old", 0) == 3
    store.close()


def test_the_length_of_a_single_log_file_is_not_believed_if_no_broker_makes_such(
    tmp_path: Path,
) -> None:
    filled(tmp_path, commit_log_file_size=1 << 20)
    messages = queued(tmp_path)
    path = last_log_file(tmp_path)
    path.write_bytes(path.read_bytes()[:300_001])
    planned, _, _ = mend(tmp_path)
    assert planned.steps == ()
    (left,) = planned.left
    assert "300001 bytes" in left.what
    assert "mappedFileSizeCommitLog with --config" in left.remedy
    _, after, _ = mend(tmp_path, log_file_size=1 << 20)
    assert damage(after) == []
    assert queued(tmp_path) == messages
    own_store(tmp_path, ManualClock(), commit_log_file_size=1 << 20).close()


def test_the_queue_of_a_bad_record_is_not_made(tmp_path: Path) -> None:
    offsets = filled(tmp_path, record_crc=True)
    overwrite(tmp_path / "commitlog/00000000000000000000", offsets[4] + 12, b"XXXX")
    flip(tmp_path / "consumequeue/Orders/0/00000000000000000000", 6)
    found = checked(tmp_path)
    assert {finding.kind for finding in damage(found)} == {"record", "entry"}
    mend(tmp_path)
    assert sorted(path.name for path in (tmp_path / "consumequeue/Orders").iterdir()) == ["0", "1"]
    assert kinds(checked(tmp_path)) == {"record", "fillers"}


def test_queues_that_their_topic_does_not_have_are_found(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/topics.json").write_text(
        '{"topicConfigTable":{"Orders":{"readQueueNums":1,"writeQueueNums":1}}}'
    )
    (finding,) = damage(checked(tmp_path))
    assert "topic Orders has 1 queues, and the log has 30 records of its queue 1" in finding.what
    assert "orbitmq topic update Orders --queues 2" in finding.remedy
