"""`Offsets` against a dict, with saves that stop between any two steps, kills, restarts, and runs
of the original in between.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orbitmq.protocol.bodies.nameserver import DataVersion
from orbitmq.protocol.bodies.offsets import ConsumerOffsets
from support.broker.offsets import OffsetsRoom, State

groups = st.sampled_from(["g", "h", "i"])
topics = st.sampled_from(["A", "B", "C"])
queues = st.integers(0, 2)
offsets = st.integers(0, 9)


class OffsetsMachine(RuleBasedStateMachine):
    """`model` is what was committed by group@topic, `flushed` what of it must survive a kill."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="orbitmq-offsets-"))
        self.model: State = {}
        self.flushed: State = {}
        self.resets: dict[tuple[str, str, int], int] = {}
        self.runs_of_the_original = 0
        self._start()

    def _start(self) -> None:
        self.room = OffsetsRoom(self.folder)
        self.room.worker.holds = True

    @rule(group=groups, topic=topics, queue_id=queues, offset=offsets)
    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.room.offsets.commit(group, topic, queue_id, offset)
        self.model.setdefault(f"{group}@{topic}", {})[queue_id] = offset

    @rule(group=groups, topic=topics, queue_id=queues, offset=offsets)
    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.room.offsets.assign_reset(group, topic, queue_id, offset)
        self.model.setdefault(f"{group}@{topic}", {})[queue_id] = offset
        self.resets[group, topic, queue_id] = offset

    @rule(group=groups, topic=topics, queue_id=queues)
    def take_reset(self, group: str, topic: str, queue_id: int) -> None:
        assert self.room.offsets.take_reset(group, topic, queue_id) == self.resets.pop(
            (group, topic, queue_id), None
        )

    @rule(source=groups, to=groups, topic=topics)
    def clone(self, source: str, to: str, topic: str) -> None:
        self.room.offsets.clone(source, to, topic)
        if f"{source}@{topic}" in self.model:
            self.model[f"{to}@{topic}"] = dict(self.model[f"{source}@{topic}"])
            if self.model[f"{to}@{topic}"]:  # the journal is flushed with them
                self.flushed = copy.deepcopy(self.model)

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        self.room.offsets.delete_topic(topic)
        self.model = {
            key: queues for key, queues in self.model.items() if key.split("@")[1] != topic
        }
        self.resets = {key: offset for key, offset in self.resets.items() if key[1] != topic}

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        self.room.offsets.delete_group(group)
        self.model = {
            key: queues for key, queues in self.model.items() if key.split("@")[0] != group
        }
        self.resets = {key: offset for key, offset in self.resets.items() if key[0] != group}

    @rule()
    def flush(self) -> None:
        assert self.room.offsets.flush()
        self.flushed = copy.deepcopy(self.model)

    @rule()
    def save_soon(self) -> None:
        self.flush()
        self.room.offsets.save_soon()

    @rule(steps=st.integers(1, 4))
    def go_on_with_the_save(self, steps: int) -> None:
        self.flush()
        for _ in range(steps):
            self.room.worker.work() or self.room.loop.step()

    @rule()
    def stop_and_start(self) -> None:
        self.room.worker.holds = False
        while self.room.worker.work():
            pass
        self.room.offsets.close()
        self.room.journal_path.unlink()
        self.flushed, self.resets = copy.deepcopy(self.model), {}
        self._start()

    @rule()
    def be_killed_and_start(self) -> None:
        self.model, self.resets = copy.deepcopy(self.flushed), {}
        self.room.be_killed()
        self._start()

    @rule(offset=st.integers(100, 109))
    def be_killed_while_the_original_runs_and_start(self, offset: int) -> None:
        self.model, self.resets = {"g@A": {0: offset}}, {}
        self.flushed = copy.deepcopy(self.model)
        self.room.be_killed()
        self.runs_of_the_original += 1
        version = DataVersion(self.runs_of_the_original)
        self.room.path.write_bytes(
            ConsumerOffsets({"A@g": {0: offset}}, version=version).encode(pretty=True)
        )
        self._start()

    @invariant()
    def all_offsets_are_as_the_model_has_them(self) -> None:
        state = {key: queues for key, queues in self.room.state().items() if queues}
        assert state == {key: queues for key, queues in self.model.items() if queues}
        for group, topic, queue_id in [("g", "A", 0), ("h", "B", 1)]:
            expected = self.resets.get(
                (group, topic, queue_id), self.model.get(f"{group}@{topic}", {}).get(queue_id)
            )
            assert self.room.offsets.query(group, topic, queue_id) == expected

    def teardown(self) -> None:
        self.room.be_killed()
        shutil.rmtree(self.folder)


TestOffsetsMachine = OffsetsMachine.TestCase
TestOffsetsMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
