"""Whatever happens to the files that follow from the commit log, a start gives exactly the messages
of the present life of each topic.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.store.types import QueueKey
from support.store import derived_files
from support.store.damage import QUEUES, STEPS, Damage, Lives, Stored, damages, inflict, run_steps

DERIVED = ("consumequeue", "index", "checkpoint", "queues.manifest")


@settings(max_examples=80, deadline=None)
@given(STEPS, st.booleans(), st.lists(st.tuples(st.integers(0, 50), damages()), max_size=4))
def test_any_damage_to_derived_files_costs_no_message(
    steps: list[tuple],  # type: ignore[type-arg]
    is_clean: bool,
    wanted: list[tuple[int, Damage]],
) -> None:
    with tempfile.TemporaryDirectory(prefix="orbitmq-damaged-") as folder:
        root, older, other = Path(folder, "store"), Path(folder, "older"), Path(folder, "other")
        others = Stored(other, Lives())
        for number, queue in enumerate(QUEUES):
            others.put(queue, 5 + 7 * number)
        others.store.close()
        stored = Stored(root, Lives())
        run_steps(stored, steps, older)
        if is_clean:
            stored.store.close()
        else:
            stored.store.abandon()
        proof = contents(root)
        inflict(root, older, other, derived_files.queue_files, wanted)
        if stored.is_refused():
            assert is_clean
            assert contents(root) != proof
            return
        stored.check()
        stored.put(QUEUES[0], 1)
        stored.check()
        stored.store.close()
        stored.open()
        stored.check()
        stored.store.close()


def contents(root: Path) -> list[bytes | None]:
    """What says how long the log is."""
    paths = (root / "queues.manifest", root / "checkpoint")
    return [path.read_bytes() if path.exists() else None for path in paths]


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(QUEUES), st.integers(1, 20)), min_size=1, max_size=4),
    st.sampled_from(["log first", "log last"]),
)
def test_a_copy_of_an_open_store_has_what_its_copy_of_the_log_has(
    puts: list[tuple[QueueKey, int]], way: str
) -> None:
    with tempfile.TemporaryDirectory(prefix="orbitmq-copied-") as folder:
        stored, copy = Stored(Path(folder, "store"), Lives()), Path(folder, "copy")
        half = len(puts) // 2
        for queue, count in puts[:half]:
            stored.put(queue, count)
        stored.store.close()
        stored.open()
        first, last = (("commitlog",), DERIVED) if way == "log first" else (DERIVED, ("commitlog",))
        expected = {queue: list(found) for queue, found in stored.expected.items()}
        _copy(stored.root, copy, (*first, "abort"))
        for queue, count in puts[half:]:
            stored.put(queue, count)
        if way == "log last":
            expected = stored.expected
        _copy(stored.root, copy, last)
        copied = Stored(copy, stored.lives)
        copied.expected.update(expected)
        copied.check()
        copied.store.close()
        stored.store.close()


def _copy(root: Path, to: Path, names: tuple[str, ...]) -> None:
    to.mkdir(exist_ok=True)
    for name in names:
        if (root / name).is_dir():
            shutil.copytree(root / name, to / name)
        elif (root / name).exists():
            shutil.copy(root / name, to / name)


@pytest.mark.parametrize("which", ["missing", "zeroed"])
def test_a_start_says_which_queue_it_rebuilt(
    which: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = Stored(tmp_path, Lives())
    stored.put(QUEUES[0], 150)
    stored.store.close()
    file = tmp_path / "consumequeue/orders/0" / f"{800:020}"
    file.unlink() if which == "missing" else file.write_bytes(bytes(400))
    stored.open()
    stored.check()
    stored.store.close()
    assert [
        record.getMessage() for record in caplog.records if "queue_rebuilt" in record.message
    ] == [
        "queue_rebuilt topic=orders queue=0 from=12601 reason=the file from 800 on is missing or"
        " corrupt"
    ]
