"""The key-value configuration survives restarts, crashes and damage of its file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.common import atomic_file
from orbitmq.common.errors import DamagedFile
from orbitmq.nameserver.kv_config import KvConfig


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


def put(kv_config: KvConfig, namespace: str, key: str, value: str) -> None:
    asyncio.run(kv_config.put(namespace, key, value))


def test_each_change_is_in_the_file_as_the_original_writes_it_and_the_last_one_in_the_backup(path: Path) -> None:
    kv_config = KvConfig(path)
    put(kv_config, "n", "k", "v é")
    assert path.read_text("utf-8") == '{"configTable":{"n":{"k":"v é"}}}'
    asyncio.run(kv_config.delete("n", "k"))
    assert path.read_text("utf-8") == '{"configTable":{"n":{}}}'
    assert atomic_file.backup_path(path).read_text("utf-8") == '{"configTable":{"n":{"k":"v é"}}}'


def test_values_are_there_after_a_restart(path: Path) -> None:
    put(KvConfig(path), "n", "k", "v")
    assert KvConfig(path).get("n", "k") == "v"
    assert KvConfig(path).table("n") == {"k": "v"}
    assert KvConfig(path).table("x") is None


@pytest.mark.parametrize("damaged", [b"", b"{", b'{"configTable":7}', b'{"configTable":{"n":3}}', b"\xff"])
def test_a_damaged_file_is_replaced_by_its_backup(path: Path, damaged: bytes) -> None:
    kv_config = KvConfig(path)
    put(kv_config, "n", "k", "old")
    put(kv_config, "n", "k", "new")
    path.write_bytes(damaged)
    assert KvConfig(path).get("n", "k") == "old"


def test_damage_of_both_is_told_instead_of_starting_empty(path: Path) -> None:
    put(KvConfig(path), "n", "k", "v")
    path.write_bytes(b"{")
    with pytest.raises(DamagedFile):
        KvConfig(path)


def test_changes_at_the_same_moment_share_writes_and_all_are_on_disk_when_they_return(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    original = atomic_file.write

    def counted(target: Path, data: bytes, *, keep_backup: bool) -> None:
        writes.append(data)
        original(target, data, keep_backup=keep_backup)

    monkeypatch.setattr(atomic_file, "write", counted)

    async def scenario() -> None:
        kv_config = KvConfig(path)
        await asyncio.gather(*(kv_config.put("n", f"k{number}", "v") for number in range(50)))

    asyncio.run(scenario())
    assert KvConfig(path).table("n") == {f"k{number}": "v" for number in range(50)}
    assert len(writes) == 2


def test_a_change_that_cannot_be_written_is_an_error_and_the_next_one_writes_both(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kv_config = KvConfig(path)

    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(atomic_file, "write", full)
        with pytest.raises(OSError, match="No space"):
            put(kv_config, "n", "k1", "v")
    put(kv_config, "n", "k2", "v")
    assert KvConfig(path).table("n") == {"k1": "v", "k2": "v"}
