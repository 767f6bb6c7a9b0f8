"""The forgetful disk: only synced content, lengths and names remain, whatever was done since."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq.testing.forgetful_disk import ForgetfulDisk
from orbitmq.testing.manual_clock import ManualClock


class Room:
    """A disk with a single folder."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.root.mkdir(parents=True)
        self.clock = ManualClock()
        self.disk = ForgetfulDisk(self.clock, folder / "limbo")

    @contextmanager
    def opened(self, name: str, *, create: bool = False) -> Iterator[int]:
        descriptor = self.disk.open(self.root / name, create=create)
        try:
            yield descriptor
        finally:
            self.disk.close(descriptor)

    def make(self, name: str, content: bytes, *, sync: bool = True) -> None:
        with self.opened(name, create=True) as descriptor:
            self.disk.pwrite(descriptor, content, 0)
            if sync:
                self.disk.fdatasync(descriptor)
        if sync:
            self.disk.sync_dir(self.root)

    def found(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def test_what_was_there_before_stays_and_a_write_to_it_that_was_not_synced_goes(room: Room) -> None:
    (room.root / "old").write_bytes(b"0123456789")
    with room.opened("old") as descriptor:
        room.disk.pwrite(descriptor, b"xyz", 2)
        room.disk.pwrite(descriptor, b"!!!!", 8)
        assert room.found() == {"old": b"01xyz567!!!!"}
    room.disk.forget()
    assert room.found() == {"old": b"0123456789"}


def test_what_is_synced_stays_and_what_came_after_it_goes(room: Room) -> None:
    room.make("file", b"synced")
    with room.opened("file") as descriptor:
        room.disk.pwrite(descriptor, b"SYNC", 0)
        room.disk.fdatasync(descriptor)
        room.disk.truncate(descriptor, 2)
        room.disk.pwrite(descriptor, b"lost", 2)
    room.disk.forget()
    assert room.found() == {"file": b"SYNCed"}


def test_a_file_whose_name_was_not_synced_goes_although_its_content_was(room: Room) -> None:
    with room.opened("file", create=True) as descriptor:
        room.disk.pwrite(descriptor, b"content", 0)
        room.disk.fdatasync(descriptor)
    room.disk.forget()
    assert room.found() == {}


def test_a_file_comes_back_whose_removal_was_not_synced_and_stays_away_when_it_was(
    room: Room, tmp_path: Path
) -> None:
    room.make("a", b"a")
    room.make("b", b"b")
    room.disk.unlink(room.root / "a")
    room.disk.sync_dir(room.root)
    room.disk.unlink(room.root / "b")
    assert room.found() == {}
    room.disk.forget()
    assert room.found() == {"b": b"b"}
    assert list((tmp_path / "limbo").iterdir()) == []


def test_a_rename_over_another_file_is_undone_with_both_contents(room: Room) -> None:
    room.make("old", b"old")
    room.make("new", b"new")
    room.disk.rename(room.root / "new", room.root / "old")
    assert room.found() == {"old": b"new"}
    room.disk.forget()
    assert room.found() == {"old": b"old", "new": b"new"}


def test_a_folder_that_was_removed_is_made_again_for_its_file(room: Room) -> None:
    room.disk.make_folder(room.root / "sub")
    room.make("sub/file", b"kept")
    room.disk.sync_dir(room.root / "sub")
    room.disk.unlink(room.root / "sub/file")
    room.disk.remove_folder(room.root / "sub")
    room.disk.forget()
    assert room.found() == {"sub/file": b"kept"}


def test_a_file_is_as_old_as_the_clock_says(room: Room) -> None:
    room.make("file", b"x")
    written_ms = room.clock.now_ms()
    room.clock.advance_ms(3_600_000)
    assert room.disk.modified_ms(room.root / "file") == written_ms
    with room.opened("file") as descriptor:
        room.disk.pwrite(descriptor, b"y", 0)
    assert room.disk.modified_ms(room.root / "file") == room.clock.now_ms()


def test_nothing_is_forgotten_under_the_hands_of_somebody_who_writes(room: Room) -> None:
    with room.opened("file", create=True), pytest.raises(AssertionError, match="are open"):
        room.disk.forget()


NAMES = st.sampled_from(["a", "b", "c"])


class DiskMachine(RuleBasedStateMachine):
    """The disk next to a model that copies whole files: `now` is visible, `durable` survives a
    power loss.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.room = Room(Path(self.folder.name))
        self.now: dict[str, bytearray] = {}
        self.durable_names: dict[str, bytearray] = {}
        self.synced: dict[int, bytes] = {}  # by identity of the content
        self.contents: list[bytearray] = []  # keeps all alive, so that no identity is reused

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(name=NAMES)
    def create(self, name: str) -> None:
        if name not in self.now:
            with self.room.opened(name, create=True):
                pass
            self.now[name] = content = bytearray()
            self.synced[id(content)] = b""
            self.contents.append(content)

    @rule(name=NAMES, offset=st.integers(0, 20), data=st.binary(min_size=1, max_size=10))
    def write(self, name: str, offset: int, data: bytes) -> None:
        if (content := self.now.get(name)) is not None:
            with self.room.opened(name) as descriptor:
                self.room.disk.pwrite(descriptor, data, offset)
            content.extend(bytes(max(offset + len(data) - len(content), 0)))
            content[offset : offset + len(data)] = data

    @rule(name=NAMES, length=st.integers(0, 30))
    def truncate(self, name: str, length: int) -> None:
        if (content := self.now.get(name)) is not None:
            with self.room.opened(name) as descriptor:
                self.room.disk.truncate(descriptor, length)
            del content[length:]
            content.extend(bytes(length - len(content)))

    @rule(name=NAMES)
    def sync(self, name: str) -> None:
        if (content := self.now.get(name)) is not None:
            with self.room.opened(name) as descriptor:
                self.room.disk.fdatasync(descriptor)
            self.synced[id(content)] = bytes(content)

    @rule(name=NAMES)
    def unlink(self, name: str) -> None:
        if self.now.pop(name, None) is not None:
            self.room.disk.unlink(self.room.root / name)

    @rule(old=NAMES, new=NAMES)
    def rename(self, old: str, new: str) -> None:
        if old != new and old in self.now:
            self.room.disk.rename(self.room.root / old, self.room.root / new)
            self.now[new] = self.now.pop(old)

    @rule()
    def sync_names(self) -> None:
        self.room.disk.sync_dir(self.room.root)
        self.durable_names = dict(self.now)

    @rule()
    def forget(self) -> None:
        self.room.disk.forget()
        for content in self.durable_names.values():
            content[:] = self.synced[id(content)]
        self.now = dict(self.durable_names)

    @invariant()
    def the_files_are_those_of_the_model(self) -> None:
        assert self.room.found() == {name: bytes(content) for name, content in self.now.items()}


DiskMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestDiskMachine = DiskMachine.TestCase
