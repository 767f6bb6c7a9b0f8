"""Whatever bytes stand in the files of queues, index and checkpoint: they open, they answer, and
they can be written to again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.store.batch_consume_queue import BatchEntry
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.consume_queue import Boundary
from orbitmq.store.queues import Queues
from orbitmq.store.types import LogOffset, QueueOffset, StoreTimeMs
from support.store.indexes import ALWAYS, SHAPE, TIME_MS, Keyed, UnsyncedLayer, make_index, put_all

ENTRIES = 12
Damage = Callable[[bytes], bytes]
EXAMPLES = settings(max_examples=100)


@st.composite
def damages(draw: st.DrawFn) -> Damage:
    """A change of a file's content that keeps its length: all of it, some bytes, or the end
    of it.
    """
    kind = draw(st.sampled_from(["all", "some", "zeros"]))
    seed = draw(st.binary(min_size=1, max_size=64))
    places = draw(st.lists(st.integers(0, 1000), max_size=8))
    first = draw(st.integers(0, 100))

    def damage(content: bytes) -> bytes:
        if kind == "all":
            return (seed * (len(content) // len(seed) + 1))[: len(content)]
        if kind == "zeros":
            kept = first * len(content) // 100
            return content[:kept] + bytes(len(content) - kept)
        changed = bytearray(content)
        for number, place in enumerate(places):
            changed[place % len(content)] = seed[number % len(seed)]
        return bytes(changed)

    return damage


def damaged(folder: Path, damage: Damage) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            path.write_bytes(damage(path.read_bytes()))


def make_queues(root: Path) -> Queues:
    return Queues(UnsyncedLayer(), root, file_size=100, ext_file_size=64, batch_file_size=230)


@EXAMPLES
@given(damages(), damages(), st.sampled_from([0, 500, 1 << 62]), st.integers(0, 2000))
def test_queues(damage: Damage, ext_damage: Damage, log_end: int, log_min: int) -> None:
    with tempfile.TemporaryDirectory(prefix="orbitmq-damage-") as folder:
        root = Path(folder)
        queues = make_queues(root)
        queue, batch = queues.plain.obtain("Topic", 0), queues.batch.obtain("Topic", 0)
        for number in range(ENTRIES):
            queue.put(number * 100, 100, number, number, TIME_MS + number, bytes(number % 5))
            batch.put(
                BatchEntry(
                    LogOffset(number * 100),
                    100,
                    number,
                    StoreTimeMs(TIME_MS + number),
                    QueueOffset(2 * number),
                    2,
                )
            )
        queue.commit()
        batch.commit()
        queues.close()
        damaged(root / "consumequeue", damage)
        damaged(root / "batchconsumequeue", damage)
        damaged(root / "consumequeue_ext", ext_damage)

        queues = make_queues(root)
        queues.load()
        queues.bound(LogOffset(log_min), LogOffset(log_end))
        queue, batch = queues.plain.obtain("Topic", 0), queues.batch.obtain("Topic", 0)
        assert 0 <= queue.min_offset <= queue.max_offset
        assert batch.min_offset >= 0
        for offset in map(QueueOffset, range(-1, 3 * ENTRIES)):
            entry = queue.get(offset)
            assert (entry is not None) == (queue.min_offset <= offset < queue.max_offset)
            if entry is not None:
                queue.ext_unit(entry.tags_code)
            batch.get(offset)
            batch.entries(offset, 3)
        for boundary in Boundary:
            for time_ms in map(StoreTimeMs, (0, TIME_MS + 5, 1 << 62)):
                found = queue.offset_by_time(
                    time_ms,
                    boundary,
                    lambda offset, size: TIME_MS + offset // 100,
                    LogOffset(log_min),
                )
                assert queue.min_offset <= found <= queue.max_offset
                batch.offset_by_time(time_ms, boundary)
        for _ in queues.delete_before(LogOffset(log_min)):
            pass
        queue.truncate_physical(log_end // 2)
        batch.truncate_physical(log_end // 2)
        queue.destroy()
        batch.destroy()
        for number in range(ENTRIES):
            queue.put(number * 100, 100, number, number, TIME_MS + number)
        queue.commit()
        assert queue.max_offset == ENTRIES
        queues.close()


@EXAMPLES
@given(damages(), st.booleans(), st.integers(0, 5000))
def test_index(damage: Damage, is_vouched_for: bool, log_end: int) -> None:
    with tempfile.TemporaryDirectory(prefix="orbitmq-damage-") as folder:
        root = Path(folder)
        index = make_index(root, UnsyncedLayer())
        records = [Keyed(100 * n, TIME_MS + 1000 * n, keys=f"same key{n}") for n in range(25)]
        put_all(index, records)
        index.stop()
        states = index.states
        damaged(root, damage)

        index = make_index(root, UnsyncedLayer())
        index.load(states if is_vouched_for else None)
        for key in ("same", "key3", "other"):
            for begin_ms, end_ms in (ALWAYS, (TIME_MS + 3000, TIME_MS + 5000)):
                assert len(index.query("Topic", key, 64, begin_ms, end_ms).offsets) <= 64
        index.truncate(LogOffset(log_end))
        assert index.end_offset < max(log_end, 1)
        put_all(
            index, [record for record in records if log_end > record.log_offset >= index.end_offset]
        )
        if is_vouched_for:
            expected = [
                record.log_offset for record in reversed(records) if record.log_offset < log_end
            ]
            assert index.query("Topic", "same", 64, *ALWAYS).offsets == expected
        end = index.end_offset + 1
        index.put(Keyed(end, TIME_MS + 100_000, keys="after").cursor())
        assert end in index.query("Topic", "after", 64, *ALWAYS).offsets
        index.delete_before(LogOffset(1 << 62))
        index.stop()
        assert all(path.stat().st_size == SHAPE.file_size for path in root.iterdir())


@EXAMPLES
@given(
    st.binary(max_size=64)
    | st.binary(min_size=48, max_size=48).map(lambda head: head + bytes(4048))
)
def test_checkpoint(content: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="orbitmq-damage-") as folder:
        path = Path(folder) / "checkpoint"
        path.write_bytes(content)
        checkpoint = Checkpoint(UnsyncedLayer(), path)
        checkpoint.load()
        assert (
            min(
                checkpoint.log_time_ms,
                checkpoint.queues_time_ms,
                checkpoint.index_time_ms,
                checkpoint.queues_offset,
            )
            >= 0
        )
        checkpoint.log_time_ms = checkpoint.queues_time_ms = 5000
        checkpoint.flush()
        checkpoint.close()
        again = Checkpoint(UnsyncedLayer(), path)
        again.load()
        assert (again.log_time_ms, again.min_time_ms, path.stat().st_size) == (5000, 2000, 4096)
        again.close()
