"""`Topics` against a dict, with restarts and kills, and attribute changes against the rules said
once more.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orbitmq.broker.metadata.attributes import TOPIC_ATTRIBUTES, altered, parse_changes
from orbitmq.broker.metadata.persistent_file import ConfigFile
from orbitmq.broker.metadata.topic_names import check_group, check_topic, is_valid_group
from orbitmq.broker.metadata.topics import TopicRules, Topics, own_topics
from orbitmq.common.errors import RefusedError
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.testing.manual_clock import ManualClock
from support.broker.manual_worker import InlineWorker, ManualLoop

RULES = TopicRules(broker_name="b", cluster_name="c")
names = st.sampled_from(["T1", "T2", "T3", "%RETRY%g"])
counts = st.integers(-1, 20)
attribute_changes = st.sampled_from(
    [{}, {"+message.type": "FIFO"}, {"+message.type": "NORMAL"}, {"-message.type": ""}]
)


class TopicsMachine(RuleBasedStateMachine):
    """`model` is what there must be, `saved` what must be there after a kill."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="orbitmq-topics-"))
        self.model = own_topics(RULES)
        self.saved = dict(self.model)
        self.changes = self.saved_changes = 0
        self._start()

    def _start(self) -> None:
        self.loop = ManualLoop()
        self.registered: list[str] = []
        self.file = ConfigFile(self.folder / "topics.json", InlineWorker(), self.loop)
        self.topics = Topics(RULES, self.file, ManualClock(), self.registered.extend)
        self.topics.load()

    def _put(self, config: TopicConfig) -> None:
        self.model[config.name] = config
        self.changes += 1

    @rule(
        name=names,
        queues=counts,
        default=st.sampled_from(["TBW102", "c", "b", "T1", "none"]),
        unit_mode=st.booleans(),
    )
    def send(self, name: str, queues: int, default: str, unit_mode: bool) -> None:
        found = self.topics.for_send(name, default, queues, unit_mode=unit_mode)
        flag = (2 if name.startswith("%RETRY%") else 1) if unit_mode else 0
        if name not in self.model:
            limit = {"TBW102": 8, "c": 16, "b": 1}.get(default)
            if limit is not None:
                size = max(0, min(queues, limit))
                self._put(TopicConfig(name, size, size, 6, "SINGLE_TAG", flag))
            elif name.startswith("%RETRY%"):
                self._put(TopicConfig(name, 1, 1, 6, "SINGLE_TAG", flag))
        assert found == self.model.get(name)

    @rule(name=names, queues=st.integers(1, 3), order=st.booleans())
    def send_back(self, name: str, queues: int, order: bool) -> None:
        old = self.model.get(name)
        if old is None:
            self._put(TopicConfig(name, queues, queues, 6, order=order))
        elif old.order != order:
            self._put(old._replace(order=order))
        assert self.topics.for_send_back(name, queues, 6, order=order) == self.model[name]

    @rule(
        name=names,
        read=st.integers(1, 4),
        perm=st.sampled_from([2, 4, 6]),
        changes=attribute_changes,
    )
    def update(self, name: str, read: int, perm: int, changes: dict[str, str]) -> None:
        old = self.model.get(name)
        attributes = dict(old.attributes) if old else {}
        for key, value in changes.items():
            if key[0] == "-" and key[1:] not in attributes:
                with pytest.raises(RefusedError):
                    self.topics.update(TopicConfig(name, read, read, perm, attributes=changes))
                return
            attributes.pop(key[1:], None)
            if key[0] == "+":
                attributes[key[1:]] = value
        wanted = TopicConfig(name, read, read, perm, attributes=attributes)
        assert self.topics.update(wanted._replace(attributes=changes)) == (
            [] if wanted == old else [name]
        )
        if wanted != old:
            self._put(wanted)

    @rule(name=names)
    def delete(self, name: str) -> None:
        assert self.topics.delete(name) == (name in self.model)
        self.changes += self.model.pop(name, None) is not None

    @rule(marked=st.lists(names))
    def mark_ordered(self, marked: list[str]) -> None:
        changed = {name for name in marked if name in self.model and not self.model[name].order}
        self.topics.mark_ordered(marked)
        self.model.update({name: self.model[name]._replace(order=True) for name in changed})
        self.changes += bool(changed)

    @rule()
    def let_it_be_saved(self) -> None:
        self.loop.run()
        self._is_saved()

    @rule()
    def stop_and_start(self) -> None:
        self.file.save_now()
        self._is_saved()
        self._start()

    @rule()
    def be_killed_and_start(self) -> None:
        self.model, self.changes = dict(self.saved), self.saved_changes
        self._start()

    def _is_saved(self) -> None:
        self.saved, self.saved_changes = dict(self.model), self.changes

    @invariant()
    def topics_and_version_are_as_the_model_has_them(self) -> None:
        assert self.topics.table == self.model
        assert self.topics.data_version.counter == self.changes
        assert set(self.registered) <= {"T1", "T2", "T3", "%RETRY%g"}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


TestTopicsMachine = TopicsMachine.TestCase
TestTopicsMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@given(st.text(max_size=40) | st.text(alphabet="+-=,.abmesgtypF", max_size=40))
def test_whatever_the_text_of_a_change_is_it_is_taken_or_refused(text: str) -> None:
    with suppress(RefusedError):
        assert set(altered(TOPIC_ATTRIBUTES, None, parse_changes(text))) <= set(TOPIC_ATTRIBUTES)


@given(st.text(max_size=300) | st.text(alphabet="ab%|_-9", max_size=300))
def test_a_name_is_taken_or_refused_with_a_reason_and_both_ways_to_ask_agree(name: str) -> None:
    taken = {check for check in (check_topic, check_group) if _is_taken(check, name)}
    assert (check_group in taken) == is_valid_group(name)
    assert not taken or (name.isascii() and not any(char.isspace() for char in name))


def _is_taken(check: Callable[[str], None], name: str) -> bool:
    try:
        check(name)
    except RefusedError:
        return False
    return True
