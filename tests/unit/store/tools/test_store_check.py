"""A check: golden stores are clean, and every planted damage is found where it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.message.record_read import RecordCursor
from orbitmq.store.consume_queue import ENTRY
from orbitmq.store.tools.findings import DETAILS_MAX, Finding, Findings, Severity
from orbitmq.testing.manual_clock import ManualClock
from support.store import golden_stores
from support.store.tools import (
    CLEAN_5,
    checked,
    damage,
    filled,
    flip,
    golden,
    kinds,
    overwrite,
    own_store,
    put,
    tree,
)

PLANTED = ("badcrc/store", "torn/store")  # what these were made with is found below
WHOLE = [folder for folder in golden_stores.folders() if not folder.endswith(PLANTED)]


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("folder", WHOLE)
def test_a_store_of_the_real_broker_is_clean(folder: str, tmp_path: Path) -> None:
    root = golden(tmp_path, folder)
    before = tree(root)
    found = checked(root)
    assert damage(found) == []
    assert (found.records, found.log_end) == (
        len(golden_stores.records(folder)),
        golden_stores.log_end(folder),
    )
    assert found.index_entries > 0
    assert tree(root) == before


@pytest.mark.parametrize(
    "folder",
    [
        folder
        for folder in golden_stores.folders()
        if folder.endswith(("badcrc/recovered", "torn/recovered"))
    ],
)
def test_what_the_original_leaves_behind_the_end_is_a_note(folder: str, tmp_path: Path) -> None:
    note = next(
        finding
        for finding in checked(golden(tmp_path, folder)).findings
        if finding.kind == "stale" and "commitlog" in finding.file
    )
    assert (note.severity, note.offset) == (Severity.NOTE, golden_stores.log_end(folder) % 65536)


@pytest.mark.parametrize("release", golden_stores.ARCHIVES)
def test_a_torn_end_is_found(release: str, tmp_path: Path) -> None:
    finding = only(damage(checked(golden(tmp_path, f"{release}/torn/store"))))
    assert (finding.kind, finding.offset) == (
        "torn",
        golden_stores.log_end(f"{release}/torn/store") % 65536,
    )


@pytest.mark.parametrize("release", golden_stores.ARCHIVES)
def test_a_damaged_body_is_found_and_those_behind_it_are_good(release: str, tmp_path: Path) -> None:
    found = checked(golden(tmp_path, f"{release}/badcrc/store"))
    finding = only(damage(found))
    assert (finding.severity, finding.kind) == (Severity.LOSS, "record")
    assert (
        finding.offset == golden_stores.log_end(f"{release}/badcrc/store") % 65536
    )  # where the original stops


def test_our_own_store_is_clean(tmp_path: Path) -> None:
    filled(tmp_path)
    found = checked(tmp_path)
    assert list(found.findings) == []
    assert found.records == 60


def test_the_files_of_the_name_server_that_runs_beside_the_broker_belong_there(
    tmp_path: Path,
) -> None:
    filled(tmp_path)
    for name in (
        "kvConfig.json",
        "kvConfig.json.bak",
        "namesrv.properties",
        "namesrv.properties.bak",
    ):
        (tmp_path / name).touch()
    assert list(checked(tmp_path).findings) == []


RECORD_FIELDS: dict[str, Callable[[RecordCursor], int]] = {
    "size": lambda record: record.at + 2,
    "magic": lambda record: record.at + 5,
    "body checksum": lambda record: record.at + 9,
    "queue": lambda record: record.at + 15,
    "queue offset": lambda record: record.at + 27,
    "queue offset, far": lambda record: record.at + 22,
    "own offset": lambda record: record.at + 35,
    "transaction type": lambda record: record.at + 39,
    "body size": lambda record: record.body_at - 1,
    "body": lambda record: record.body_at,
    "topic size": lambda record: record.topic_at - 1,
    "topic": lambda record: record.topic_at + 1,
    "properties size": lambda record: record.properties_at - 1,
    "store time": lambda record: record.at + 58,
}


@pytest.mark.parametrize("field", RECORD_FIELDS)
def test_a_damaged_field_of_a_record_is_found(field: str, tmp_path: Path) -> None:
    root = golden(tmp_path)
    told = next(
        record
        for record in golden_stores.records(CLEAN_5)
        if record.topic == "GoldenRoll" and record.queue_offset == 100
    )
    path = root / f"commitlog/{told.log_offset - told.log_offset % 65536:020}"
    cursor = RecordCursor()
    assert cursor.read(path.read_bytes(), told.log_offset % 65536, 65536) > 0
    at = RECORD_FIELDS[field](cursor)
    bits = 0x08 if field == "transaction type" else 0x01
    flip(path, at, bits | 4 if field == "transaction type" else bits)
    found = damage(checked(root))
    places = [(finding.file, finding.offset) for finding in found]
    in_log = (f"commitlog/{path.name}", cursor.at) in places
    in_queue = ("consumequeue/GoldenRoll/0/00000000000000002000", 0) in places
    assert in_log or (field == "transaction type" and in_queue), found


@pytest.mark.parametrize("step", range(0, 380, 9))
def test_every_byte_of_a_record_that_has_a_checksum_is_guarded(step: int, tmp_path: Path) -> None:
    folder = "store-5.5.0/propcrc/store"
    root = golden(tmp_path, folder)
    record = golden_stores.records(folder)[50]
    flip(root / "commitlog/00000000000000000000", record.log_offset + step % record.size, 0x10)
    assert any(
        finding.offset == record.log_offset
        for finding in damage(checked(root))
        if "commitlog" in finding.file
    )


def test_a_hole_in_the_middle_of_the_log_is_found(tmp_path: Path) -> None:
    offsets = filled(tmp_path)
    overwrite(
        tmp_path / "commitlog/00000000000000000000", offsets[3], bytes(offsets[5] - offsets[3])
    )
    found = checked(tmp_path)
    finding = only(damage(found))
    assert (finding.kind, finding.offset, finding.file) == (
        "record",
        offsets[3],
        "commitlog/00000000000000000000",
    )
    assert found.records == 58


def test_a_blank_that_says_another_length_is_found(tmp_path: Path) -> None:
    offsets = filled(tmp_path)
    last = max(offset for offset in offsets if offset < 4096)
    cursor = RecordCursor()
    size = cursor.read((tmp_path / "commitlog/00000000000000000000").read_bytes(), last, 4096)
    overwrite(tmp_path / "commitlog/00000000000000000000", last + size, (8).to_bytes(4))
    finding = only(damage(checked(tmp_path)))
    assert (finding.kind, finding.offset) == ("blank", last + size)


def test_one_store_time_that_stands_out_is_damage_and_a_clock_set_back_is_not(
    tmp_path: Path,
) -> None:
    offsets = filled(tmp_path)
    flip(tmp_path / "commitlog/00000000000000000000", offsets[2] + 58, 0x01)
    assert ("store-time", offsets[2]) in [
        (finding.kind, finding.offset) for finding in damage(checked(tmp_path))
    ]


QUEUES = {
    "plain": (CLEAN_5, "consumequeue/GoldenRoll/0/00000000000000002000", 3, 20),
    "schedule": (CLEAN_5, "consumequeue/SCHEDULE_TOPIC_XXXX/17/00000000000000000000", 1, 20),
    "with ext": ("store-4.9.8/ext/store", "consumequeue/GoldenA/1/00000000000000000000", 1, 20),
    "tiny": ("store-4.9.8/tiny/store", "consumequeue/GoldenHa/1/00000000000000000120", 1, 20),
    "batch": (CLEAN_5, "batchconsumequeue/GoldenBcq/0/00000000000000000000", 1, 46),
}


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("at", [0, 7, 8, 11, 12, 19])
def test_a_damaged_entry_of_a_queue_is_found(queue: str, at: int, tmp_path: Path) -> None:
    folder, name, number, size = QUEUES[queue]
    root = golden(tmp_path, folder)
    flip(root / name, number * size + at)
    found = damage(checked(root))
    assert (name, number * size) in [(finding.file, finding.offset) for finding in found], found


@pytest.mark.parametrize("at", [20, 27, 28, 35, 36, 37, 38, 41, 42, 45])
def test_a_damaged_field_of_a_batch_is_found(at: int, tmp_path: Path) -> None:
    folder, name, number, size = QUEUES["batch"]
    root = golden(tmp_path, folder)
    flip(root / name, number * size + at)
    assert (name, number * size) in [
        (finding.file, finding.offset) for finding in damage(checked(root))
    ]


@pytest.mark.parametrize("at", [0, 1, 2, 9, 10, 17, 18, 19])
@pytest.mark.parametrize("release", golden_stores.ARCHIVES)
def test_a_damaged_unit_of_an_ext_file_is_found(at: int, release: str, tmp_path: Path) -> None:
    root = golden(tmp_path, f"{release}/ext/store")
    flip(root / "consumequeue_ext/GoldenA/1/00000000000000000000", at)
    finding = damage(checked(root))[0]
    assert (finding.kind, finding.file) == ("ext", "consumequeue/GoldenA/1/00000000000000000000")


@pytest.mark.parametrize("at", [0, 7, 8, 15, 16, 23, 24, 31, 32, 35, 36, 39])
def test_a_damaged_header_of_an_index_file_is_found(at: int, tmp_path: Path) -> None:
    root = golden(tmp_path)
    name = sorted(path.name for path in (root / "index").iterdir())[1]
    flip(root / "index" / name, at)
    assert f"index/{name}" in {
        finding.file for finding in damage(checked(root, index_slots=100, index_entries=300))
    }


@pytest.mark.parametrize("at", range(20))
def test_a_damaged_entry_of_an_index_file_is_found(at: int, tmp_path: Path) -> None:
    root = golden(tmp_path)
    name = sorted(path.name for path in (root / "index").iterdir())[1]
    place = 40 + 4 * 100 + 20 * 57
    flip(root / "index" / name, place + at, 0x02)
    assert (f"index/{name}", place) in [
        (finding.file, finding.offset) for finding in damage(checked(root))
    ]


def test_a_damaged_slot_and_bytes_where_none_should_be_are_found(tmp_path: Path) -> None:
    root = golden(tmp_path)
    names = sorted(path.name for path in (root / "index").iterdir())
    flip(root / "index" / names[0], 40 + 4 * 5 + 3, 0x40)
    flip(root / "index" / names[1], 40 + 4 * 100)
    flip(root / "index" / names[-1], 40 + 4 * 100 + 20 * 299)
    found = {(finding.kind, finding.file, finding.offset) for finding in damage(checked(root))}
    assert ("index-slot", f"index/{names[0]}", 40 + 4 * 5) in found
    assert ("index-behind", f"index/{names[1]}", 440) in found
    assert ("index-behind", f"index/{names[-1]}", 440 + 20 * 299) in found


@pytest.mark.parametrize("number", [0, 1, 3])
def test_an_index_file_that_is_missing_is_found(number: int, tmp_path: Path) -> None:
    root = golden(tmp_path)
    sorted((root / "index").iterdir())[number].unlink()
    assert {finding.kind for finding in damage(checked(root))} <= {
        "index-begin",
        "index-missing",
        "index-end",
        "index-time",
    }
    assert damage(checked(root))


def entry_at(root: Path, number: int) -> tuple[Path, int]:
    return root / f"consumequeue/Orders/0/{number * 20 - number * 20 % 200:020}", number * 20 % 200


def test_an_entry_that_is_missing_in_the_middle_or_at_the_end_is_found(tmp_path: Path) -> None:
    filled(tmp_path)
    for number in (4, 29):
        path, at = entry_at(tmp_path, number)
        overwrite(path, at, bytes(20))
    found = damage(checked(tmp_path))
    assert [(finding.kind, finding.offset) for finding in found] == [
        ("no-entry", 80),
        ("no-entry", 180),
    ]


def test_an_entry_that_no_record_has_is_found(tmp_path: Path) -> None:
    offsets = filled(tmp_path, 50)
    path, at = entry_at(tmp_path, 25)
    overwrite(path, at, ENTRY.pack(offsets[7] + 1, 100, 0))
    finding = only(damage(checked(tmp_path)))
    assert (finding.kind, finding.offset) == ("entry-without-record", at)


def test_a_filler_where_a_record_is_is_found(tmp_path: Path) -> None:
    filled(tmp_path)
    path, at = entry_at(tmp_path, 4)
    overwrite(path, at, ENTRY.pack(0, 0x7FFFFFFF, 0))
    finding = only(damage(checked(tmp_path)))
    assert (finding.kind, finding.offset) == ("entry", 80)
    assert "filler" in finding.what


def test_a_store_that_was_not_stopped_may_lack_its_last_entries(tmp_path: Path) -> None:
    filled(tmp_path)
    path, at = entry_at(tmp_path, 29)
    overwrite(path, at, bytes(20))
    (tmp_path / "abort").touch()
    found = checked(tmp_path)
    assert damage(found) == []
    assert {"abort", "behind"} <= kinds(found)


def test_a_record_that_lies_about_its_queue_is_told_from_a_queue_that_lost_an_entry(
    tmp_path: Path,
) -> None:
    offsets = filled(tmp_path)
    flip(
        tmp_path / "commitlog/00000000000000000000", offsets[4] + 15, 0x02
    )  # queue 0 becomes queue 2
    found = damage(checked(tmp_path))
    finding = only(found)
    assert (finding.kind, finding.severity, finding.offset) == (
        "record-place",
        Severity.LOSS,
        offsets[4],
    )
    assert "message 2 of Orders/0" in finding.what


@pytest.mark.parametrize("number", [0, 2, 57, 58])
@pytest.mark.parametrize("at", [21, 26, 27])
def test_a_record_that_lies_about_its_queue_offset_is_told(
    number: int, at: int, tmp_path: Path
) -> None:
    offsets = filled(tmp_path)
    path = tmp_path / f"commitlog/{offsets[number] - offsets[number] % 4096:020}"
    flip(path, offsets[number] % 4096 + at, 0x04)
    finding = only(damage(checked(tmp_path)))
    assert (finding.kind, finding.file, finding.offset) == (
        "record-place",
        f"commitlog/{path.name}",
        offsets[number] % 4096,
    )


def test_a_topic_that_was_deleted_and_made_again_is_no_damage(tmp_path: Path) -> None:
    clock = ManualClock()
    store = own_store(tmp_path, clock)
    for number in range(5):
        put(store, number)
    store.queues.delete_topic("Orders")
    store.log.offsets.forget("Orders")
    for number in range(5, 8):
        put(store, number)
    store.close()
    found = checked(tmp_path)
    assert damage(found) == []
    assert kinds(found) == {"begins-again"}


@pytest.mark.parametrize("known", [True, False])
def test_records_without_a_queue_are_damage_only_if_the_topic_is_known(
    known: bool, tmp_path: Path
) -> None:
    filled(tmp_path, 10)
    for path in sorted((tmp_path / "consumequeue").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config/topics.json").write_text(
        '{"topicConfigTable":{' + ('"Orders":{}' if known else "") + "}}"
    )
    assert bool(damage(checked(tmp_path))) is known
    assert "no-queue" in kinds(checked(tmp_path))


@pytest.mark.parametrize(
    ("content", "offset"),
    [
        (b"", None),
        (bytes(100), None),
        (b"\xff" * 8 + bytes(4088), 0),
        ((1 << 62).to_bytes(8) + bytes(4088), 0),
        (bytes(40) + (1 << 40).to_bytes(8) + bytes(4048), 40),
        (bytes(1000) + b"x" + bytes(3095), 48),
    ],
)
def test_a_checkpoint_that_cannot_be_is_found(
    content: bytes, offset: int | None, tmp_path: Path
) -> None:
    filled(tmp_path)
    (tmp_path / "checkpoint").write_bytes(content)
    finding = only(damage(checked(tmp_path)))
    assert (finding.kind, finding.file, finding.offset) == ("checkpoint", "checkpoint", offset)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\x00\x00"])
def test_a_configuration_that_cannot_be_read_is_found(content: bytes, tmp_path: Path) -> None:
    root = golden(tmp_path)
    (root / "config/topics.json").write_bytes(content)
    finding = only(damage(checked(root)))
    assert (finding.kind, finding.file, finding.severity) == (
        "config",
        "config/topics.json",
        Severity.DAMAGE,
    )
    (root / "config/topics.json.bak").write_bytes(content)
    assert only(damage(checked(root))).severity is Severity.LOSS


@pytest.mark.parametrize("name", ["users.json", "acls.json"])
def test_users_and_rules_are_lists(name: str, tmp_path: Path) -> None:
    root = golden(tmp_path)
    (root / "config" / name).write_bytes(b'[{"username":"alice"}]')
    assert damage(checked(root)) == []
    (root / "config" / name).write_bytes(b"{}")
    assert only(damage(checked(root))).file == f"config/{name}"


def test_a_backup_of_a_configuration_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    root = golden(tmp_path)
    (root / "config/transactionMetrics.bak").write_bytes(b"{")
    assert only(damage(checked(root))).kind == "config-backup"


def test_a_log_file_that_is_missing_is_found(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "commitlog/00000000000000004096").unlink()
    finding = next(finding for finding in damage(checked(tmp_path)) if finding.kind == "log-gap")
    assert (finding.file, finding.severity) == ("commitlog/00000000000000008192", Severity.LOSS)
    assert "1 are missing" in finding.what


@pytest.mark.parametrize("length", [4000, 5000])
def test_a_log_file_of_another_length_is_found(length: int, tmp_path: Path) -> None:
    filled(tmp_path)
    path = max((tmp_path / "commitlog").iterdir())
    path.write_bytes(path.read_bytes()[:length].ljust(length, b"\0"))
    finding = only(damage(checked(tmp_path)))
    assert (finding.kind, finding.file) == ("log-length", f"commitlog/{path.name}")


def test_queue_files_of_another_length_or_with_one_missing_between_are_found(
    tmp_path: Path,
) -> None:
    filled(tmp_path)
    (tmp_path / "consumequeue/Orders/0/00000000000000000200").unlink()
    short = tmp_path / "consumequeue/Orders/1/00000000000000000400"
    short.write_bytes(short.read_bytes()[:100])
    found = {(finding.kind, finding.file) for finding in damage(checked(tmp_path))}
    assert found == {
        ("queue-gap", "consumequeue/Orders/0/00000000000000000400"),
        ("queue-length", "consumequeue/Orders/1/00000000000000000400"),
    }


def test_files_that_do_not_belong_there_are_noted(tmp_path: Path) -> None:
    filled(tmp_path)
    for name in ("core.1234", "commitlog/readme", "index/old", "consumequeue/Orders/0/x"):
        (tmp_path / name).touch()
    found = checked(tmp_path)
    assert damage(found) == []
    assert {finding.file for finding in found.findings} == {
        "core.1234",
        "commitlog/readme",
        "index/old",
        "consumequeue/Orders/0/x",
    }


def test_an_empty_last_file_is_noted(tmp_path: Path) -> None:
    filled(tmp_path)
    end = 4096 * len(list((tmp_path / "commitlog").iterdir()))
    (tmp_path / f"commitlog/{end:020}").touch()
    found = checked(tmp_path)
    assert damage(found) == []
    assert kinds(found) == {"log-empty-file"}


def test_a_store_without_messages_is_clean(tmp_path: Path) -> None:
    own_store(tmp_path, ManualClock()).close()
    (tmp_path / "commitlog").mkdir(exist_ok=True)
    assert damage(checked(tmp_path)) == []


def test_of_one_kind_in_one_file_only_the_first_are_kept() -> None:
    findings = Findings()
    for number in range(DETAILS_MAX + 5):
        findings.add(Finding(Severity.DAMAGE, "entry", "file", number, f"entry {number}", "remedy"))
    findings.add(Finding(Severity.NOTE, "other", "file", 0, "other", "nothing"))
    told = list(findings)
    assert len(told) == DETAILS_MAX + 2
    assert told[DETAILS_MAX].what == "and 5 more of the same kind"
    assert (len(findings), findings.count(Severity.DAMAGE)) == (DETAILS_MAX + 6, DETAILS_MAX + 5)


def test_progress_is_told(tmp_path: Path) -> None:
    from orbitmq.store.tools.check import check
    from support.store.tools import directory

    filled(tmp_path)
    heard: list[tuple[int, int]] = []
    check(directory(tmp_path), lambda done, whole: heard.append((done, whole)))
    assert heard[-1] == (1, 1)
