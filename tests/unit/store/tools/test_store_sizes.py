"""The sizes of a store are found out from its files, or told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.common.errors import StoreError
from orbitmq.store.index_file import IndexShape
from orbitmq.store.tools.read_only import ReadOnlyLayer
from orbitmq.store.tools.sizes import Extent, StoreLayout, file_size, index_shape, read_config
from support.store import golden_stores
from support.store.indexes import Keyed, UnsyncedLayer, make_index, put_all
from support.store.tools import checked, damage, directory, filled, golden

NOWHERE = StoreLayout(root=Path("nowhere"))


@pytest.mark.parametrize("folder", golden_stores.folders())
def test_the_sizes_of_golden_stores_are_found_out(folder: str, tmp_path: Path) -> None:
    told, found = golden_stores.settings(folder), directory(golden(tmp_path, folder))
    assert found.log_file_size == told["mappedFileSizeCommitLog"]
    assert found.queue_file_size == -(-told["mappedFileSizeConsumeQueue"] // 20) * 20
    assert found.index_shape == IndexShape(told["maxHashSlotNum"], told["maxIndexNum"])
    assert found.release().startswith("5.x" if folder.startswith("store-5") else "4.x")
    if found.ext:
        assert found.ext_file_size == told["mappedFileSizeConsumeQueueExt"]
    if found.batch:
        assert found.batch_file_size == told["mapperFileSizeBatchConsumeQueue"]


@given(st.integers(1, 60), st.integers(2, 60), st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_the_shape_of_any_index_that_was_stopped_is_found_out(
    slots: int, entries: int, count: int
) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder, shape = Path(name), IndexShape(slots, entries)
        index = make_index(folder / "index", UnsyncedLayer(), shape)
        put_all(
            index, [Keyed(100 * number + 1, unique_key=f"key {number}") for number in range(count)]
        )
        index.stop()
        paths = sorted((folder / "index").iterdir())
        found = index_shape(ReadOnlyLayer(), paths, NOWHERE)
        assert found is not None
        assert found.file_size == shape.file_size
        if count > 3 and entries > 4:
            assert found == shape


def test_without_files_nothing_is_known_and_defaults_are_the_original_s(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    found = directory(tmp_path)
    assert (
        found.log_file_size,
        found.queue_file_size,
        found.batch_file_size,
        found.index_shape,
    ) == (1 << 30, 6_000_000, 13_800_000, None)


def test_the_size_that_most_files_tell_counts() -> None:
    def extents(*pairs: tuple[int, int]) -> list[Extent]:
        return [Extent(start, length, Path("x")) for start, length in pairs]

    assert file_size([]) is None
    assert file_size([extents((0, 100), (100, 7))]) == 100  # a last file that is short
    assert file_size([extents((0, 100), (200, 100))]) == 100  # one is missing between
    assert file_size([extents((0, 100)), extents((0, 50)), extents((0, 100))]) == 100


def test_a_broker_s_configuration_tells_the_sizes(tmp_path: Path) -> None:
    root = tmp_path / "store"
    filled(root)
    config = tmp_path / "broker.conf"
    config.write_text(
        f"brokerName=b\nstorePathRootDir={root}\nmappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=190\nmaxHashSlotNum=11\nmaxIndexNum=60\nmessageDelayLevel=1s"
        " 2m 3h 1d\n"
    )
    told = read_config(config)
    assert told == StoreLayout(
        root=root, log_file_size=4096, queue_file_size=200, index_slots=11, index_entries=60,
        delay_levels_ms=(1_000, 120_000, 10_800_000, 86_400_000),
    )  # fmt: skip
    assert read_config(config, StoreLayout(root=tmp_path)).root == tmp_path


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("brokerName=b\n", "no storePathRootDir"),
        ("storePathRootDir=/x\nmaxIndexNum=many\n", "maxIndexNum=many .* is not a size"),
        ("storePathRootDir=/x\nmappedFileSizeCommitLog=0\n", "is not a size"),
        ("storePathRootDir=/x\nmessageDelayLevel=soon\n", "is not of the form"),
        ("storePathRootDir=\\u00x\n", "is not a properties file"),
    ],
)
def test_a_configuration_that_is_of_no_use_is_told(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text(text)
    with pytest.raises(StoreError, match=told):
        read_config(tmp_path / "broker.conf")


def test_logs_in_several_folders_are_one_log(tmp_path: Path) -> None:
    root = tmp_path / "store"
    filled(root)
    other = tmp_path / "other"
    other.mkdir()
    (root / "commitlog/00000000000000004096").rename(other / "00000000000000004096")
    assert damage(checked(root))
    assert damage(checked(root, log_folders=(root / "commitlog", other))) == []


def test_a_log_of_which_the_length_of_files_is_told_wrong_is_found_damaged(tmp_path: Path) -> None:
    filled(tmp_path)
    assert {finding.kind for finding in damage(checked(tmp_path, log_file_size=8192))} >= {
        "log-length",
        "log-name",
    }
