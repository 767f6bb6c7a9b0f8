"""A short run of the frame fuzzer with fixed seeds: what it found once it would find again."""

from __future__ import annotations

import itertools
import random

import pytest

from fuzz import frame_target
from orbitmq.protocol import frame


def test_the_corpus_is_of_real_frames() -> None:
    frames = [path.read_bytes() for path in sorted(frame_target.CORPUS.iterdir())]
    assert len(frames) > 40
    assert {frame.decode_one(data).serialize_type for data in frames} == {0, 1}


def test_the_corpus_itself_breaks_nothing() -> None:
    for data in frame_target.corpus():
        frame_target.one_input(data)


@pytest.mark.parametrize("seed", range(8))
def test_mutated_frames_break_nothing(seed: int) -> None:
    for data in itertools.islice(
        frame_target.mutations(frame_target.corpus(), random.Random(seed)), 2500
    ):
        frame_target.one_input(data)


def test_every_prefix_of_every_frame_breaks_nothing() -> None:
    for path in sorted(frame_target.CORPUS.iterdir()):
        data = path.read_bytes()
        for end in range(len(data)):
            assert frame.frame_end(data, 0, end, frame_target.LIMITS) == 0
        for end in range(8, len(data), 7):
            frame_target.one_input((end - 4).to_bytes(4, "big") + data[4:end])
