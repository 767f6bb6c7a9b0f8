"""The commit log after a crash: cut at any byte, killed at any moment, without power at any
call.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from orbitmq.message.record_write import record_size
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.store.file_queue import file_name
from orbitmq.store.types import LogOffset
from orbitmq.testing.faulty_disk import FaultyDisk
from support.store.logs import (
    FILE_SIZE,
    HOST,
    NOW_MS,
    bodies,
    contents,
    golden_logs,
    loaded_log,
    message,
    new_log,
)

RECORD = record_size(message(), HOST)


def log_of(folder: Path, files: dict[str, bytes], file_size: int) -> CommitLog:
    """The log that consists of these files."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "commitlog").mkdir(parents=True)
    for name, content in files.items():
        (folder / "commitlog" / name).write_bytes(content)
    log = new_log(folder, commit_log_file_size=file_size)
    log.load()
    return log


@pytest.mark.short
@pytest.mark.crash
@pytest.mark.parametrize(
    "name",
    [
        "store-4.9.8/tiny/store",
        "store-5.5.0/tiny/store",
        "store-5.5.0/clean/store",
        "store-5.5.0/propcrc/store",
    ],
)
def test_a_log_that_ends_at_any_byte_of_its_last_records_ends_behind_the_last_good_one(
    name: str, tmp_path: Path
) -> None:
    """Without a checksum of the whole record nobody can tell that the text of its properties is
    lost: such a record counts as good.
    """
    check_record = "propcrc" in name
    files = dict(golden_logs()[name])
    last, size = max(files), len(next(iter(files.values())))
    whole = log_of(tmp_path, files, size)
    # Where each record ends, and from which byte on its loss goes unnoticed: of a checksum that is
    # its end mark.
    spans = [
        (
            end := record.log_offset + record.size,
            end - (1 if check_record else record.properties_size),
        )
        for record in whole.scan(whole.min_offset)
    ]
    whole.files.close()
    start, begin = int(last), spans[-4][0]
    assert begin >= start
    for cut in range(begin, spans[-1][0] + 1):
        content = golden_logs()[name][last][: cut - start] + bytes(size - (cut - start))
        (tmp_path / "commitlog" / last).write_bytes(content)
        log = new_log(tmp_path, commit_log_file_size=size)
        log.load()
        scan, _ = contents(log, check_record=check_record)
        assert scan.offset == max(end for end, unnoticed_from in spans if cut >= unnoticed_from), (
            cut
        )
        log.files.close()


@pytest.mark.short
@pytest.mark.crash
def test_a_log_that_was_cut_at_any_byte_goes_on_from_there(tmp_path: Path) -> None:
    log = loaded_log(tmp_path / "whole")
    for number in range(3):
        log.append(message(b"%05d" % number), NOW_MS)
    log.commit()
    content = bytes(log.files.files[0].view())
    log.close()
    for cut in range(3 * RECORD + 1):
        log = log_of(
            tmp_path / "cut", {file_name(0): content[:cut] + b"\xff" * (FILE_SIZE - cut)}, FILE_SIZE
        )
        scan, _ = contents(log)
        assert scan.offset == cut - cut % RECORD
        log.files.close()
        log = loaded_log(tmp_path / "cut")
        log.append(message(b"after"), NOW_MS)
        log.commit()
        log.files.close()
        expected = [b"%05d" % number for number in range(cut // RECORD)] + [b"after"]
        assert bodies(loaded_log(tmp_path / "cut")) == expected


def test_a_prepared_file_that_a_killed_broker_left_is_no_part_of_the_log(tmp_path: Path) -> None:
    log = loaded_log(tmp_path)
    for number in range(50):
        log.append(message(b"%05d" % number), NOW_MS)
    log.commit()
    log.files.prepare_next()
    log.files.close()
    assert len(list((tmp_path / "commitlog").iterdir())) == 3
    again = loaded_log(tmp_path)
    assert len(bodies(again)) == 50
    assert len(list((tmp_path / "commitlog").iterdir())) == 2
    again.close()


@pytest.mark.parametrize(
    "kind", ["open", "truncate", "fdatasync", "sync_dir", "pwrite", "unlink", "clear"]
)
def test_without_power_at_any_call_the_log_can_be_loaded_and_has_what_was_flushed(
    kind: str, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    disk = FaultyDisk(OsFileLayer(), tmp_path / "real")
    log = loaded_log(tmp_path / "real", disk, record_crc=True)
    random = Random(kind)
    cuts = [0]

    def cut() -> None:
        """The power goes: look at what is left, and go on as if nothing had been."""
        cuts[0] += 1
        target = tmp_path / str(cuts[0])
        disk.power_cut(target, random)
        found = new_log(target, commit_log_file_size=FILE_SIZE)
        found.load()
        scan, _ = contents(found, found.min_offset, check_record=True)
        assert scan.offset >= log.flushed_offset
        found.resume(LogOffset(scan.offset), log.last_store_time_ms)
        found.append(message(b"later"), NOW_MS)
        found.commit()
        found.close()
        shutil.rmtree(target)

    disk.stall(kind, cut)
    for turn in range(60):
        for number in range(random.randint(1, 12)):
            log.append(message(b"%03d%02d" % (turn, number)), NOW_MS)
        log.commit()
        if turn % 3 == 0:
            log.files.prepare_next()
        if turn % 4 == 0:
            log.flush()
        if turn % 10 == 9:
            log.resume(log.end_offset, log.last_store_time_ms)
        if turn % 7 == 0:
            log.files.delete_oldest()
    log.close()
    assert cuts[0] > 5


WRITER = """
import sys, threading
from pathlib import Path
from support.store.logs import loaded_log, message
log = loaded_log(Path(sys.argv[1]))
first = int(sys.argv[2])
for number in range(first, first + 1_000_000):
    log.append(message(b"%08d" % number), number)
    if number % 5 == 4:
        log.commit()
        print(number, flush=True)
    if number % 30 == 0:
        threading.Thread(target=log.files.prepare_next).start()
"""


@pytest.mark.crash
def test_a_writer_that_is_killed_again_and_again_loses_nothing_that_it_committed(
    tmp_path: Path,
) -> None:
    random = Random(1)
    written = 0
    for _ in range(25):
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(written)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent
        ) as writer:
            assert writer.stdout is not None
            told = [
                int(line)
                for line, _ in zip(writer.stdout, range(random.randint(1, 400)), strict=False)
            ]
            writer.kill()
            told += [int(line) for line in writer.stdout if line.endswith("\n")]
        log = loaded_log(tmp_path)
        found = [int(body) for body in bodies(log)]
        assert found == list(range(len(found)))
        assert len(found) > told[-1]
        written = len(found)
        log.files.close()
    assert written > 1000
