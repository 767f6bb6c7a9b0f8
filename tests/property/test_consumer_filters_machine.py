"""Filters of groups against a model of the original's rules, through heartbeats, departures, time,
restarts and crashes.

A crash loses what was not saved; what the file then says is what is known. Invariant: what is saved
is what is known.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orbitmq.broker.metadata.bloom import Bloom
from orbitmq.broker.metadata.consumer_filters import LOADED_DEAD_MS, ConsumerFilters
from orbitmq.broker.metadata.persistent_file import ConfigFile
from orbitmq.common.slices import finish
from orbitmq.protocol.bodies.subscriptions import SubscriptionData
from orbitmq.testing.manual_clock import ManualClock
from support.broker.manual_worker import InlineWorker, ManualLoop

CLEAN_MS = 100_000
BLOOM = Bloom.of(20, 32)
GOOD = ("a > 1", "b = 'x'")
BAD = "a > > 1"

topics, groups = st.sampled_from(["T", "U"]), st.sampled_from(["g", "h"])
subscriptions = st.builds(
    SubscriptionData,
    topics,
    st.sampled_from([*GOOD, BAD, ""]),
    st.integers(0, 4),
    expression_type=st.sampled_from(["SQL92", "SQL92", "SQL92", "TAG", None, "WRONG"]),
)

Key = tuple[str, str]
Known = dict[str, Any]  # expression, version, born, dead


class Filters(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.model: dict[Key, Known] = {}
        self.saved: dict[Key, Known] = {}

    @initialize()
    def open(self) -> None:
        self.loop = ManualLoop()
        file = ConfigFile(Path(self.folder.name) / "consumerFilter.json", InlineWorker(), self.loop)
        self.filters = ConsumerFilters(BLOOM, file, self.clock, CLEAN_MS)
        self.filters.load()

    @rule(
        group=groups, wanted=st.lists(subscriptions, max_size=3, unique_by=lambda each: each.topic)
    )
    def hear(self, group: str, wanted: list[SubscriptionData]) -> None:
        finish(self.filters.heard(group, wanted))
        for each in wanted:
            if each.expression_type not in ("TAG", None) and each.sub_string:
                self._register((each.topic, group), each)
        for topic, of_group in list(self.model):
            if of_group == group and topic not in [each.topic for each in wanted]:
                self._die((topic, group))

    @rule(group=groups)
    def leave(self, group: str) -> None:
        self.filters.left(group)
        for key in self.model:
            if key[1] == group:
                self._die(key)

    @rule(ms=st.sampled_from([1, 40_000, CLEAN_MS]))
    def wait(self, ms: int) -> None:
        self.clock.advance_ms(ms)

    @rule()
    def clean(self) -> None:
        self.filters.clean()
        now_ms = self.clock.now_ms()
        for key, known in list(self.model.items()):
            if self._is_dead(known) and now_ms - known["dead"] >= CLEAN_MS:
                del self.model[key]

    @rule()
    def save(self) -> None:
        self.loop.run()
        self.saved = {key: dict(known) for key, known in self.model.items()}

    @rule()
    def restart(self) -> None:
        self.save()
        self._reopen()

    @rule()
    def crash(self) -> None:
        self._reopen()

    @invariant()
    def is_what_the_model_says(self) -> None:
        found = (
            {(each.data.topic, each.data.group): each for each in self.filters}
            if hasattr(self, "filters")
            else {}
        )
        told = {
            key: {
                "expression": each.data.expression,
                "version": each.data.client_version,
                "born": each.data.born_time_ms,
                "dead": each.data.dead_time_ms,
            }
            for key, each in found.items()
        }
        assert told == self.model
        for (topic, group), each in found.items():
            assert self.filters.find(topic, group) is each
            assert each.expression.text == each.data.expression
            assert each.data.is_dead is self._is_dead(self.model[topic, group])
            assert each.data.bloom is not None
            assert each.data.bloom.positions == BLOOM.positions(f"{group}#{topic}")

    def teardown(self) -> None:
        self.folder.cleanup()

    # -- the original's rules

    def _register(self, key: Key, wanted: SubscriptionData) -> None:
        known = self.model.get(key)
        is_usable = wanted.expression_type == "SQL92" and wanted.sub_string in GOOD
        if known is not None and wanted.sub_version <= known["version"]:
            if wanted.sub_version == known["version"] and self._is_dead(known):
                known["dead"] = 0
        elif (
            known is not None
            and wanted.sub_string == known["expression"]
            and wanted.expression_type == "SQL92"
        ):
            known["version"] = wanted.sub_version
            known["dead"] = 0
        elif is_usable:
            self.model[key] = {
                "expression": wanted.sub_string,
                "version": wanted.sub_version,
                "born": self.clock.now_ms(),
                "dead": 0,
            }
        else:
            self.model.pop(key, None)

    def _die(self, key: Key) -> None:
        if not self._is_dead(self.model[key]):
            self.model[key]["dead"] = self.clock.now_ms()

    def _is_dead(self, known: Known) -> bool:
        return bool(known["dead"] >= known["born"])

    def _reopen(self) -> None:
        self.open()
        now_ms = self.clock.now_ms()
        self.model = {key: dict(known) for key, known in self.saved.items()}
        for known in self.model.values():
            known["dead"] = known["dead"] or max(now_ms - LOADED_DEAD_MS, known["born"])


TestFilters = Filters.TestCase
