"""Every frame written by real peers is read, and written again byte for byte."""

from __future__ import annotations

from collections import Counter

from orbitmq.protocol import frame
from orbitmq.protocol.command import SerializeType
from support.common import golden_data
from support.common.golden_data import GoldenFrame


def _folder(golden: GoldenFrame) -> str:
    return golden.name.partition("/")[0]


def test_every_golden_frame_is_written_again_byte_for_byte() -> None:
    different = [
        golden.name
        for golden in golden_data.frames()
        if frame.encode(frame.decode_one(golden.frame)) != golden.frame
    ]
    assert different == []


def test_every_golden_frame_says_what_its_name_says() -> None:
    for golden in golden_data.frames():
        command = frame.decode_one(golden.frame)
        assert command.is_response is not golden.is_request, golden
        assert command.serialize_type is (
            SerializeType.ROCKETMQ if "binary" in golden.name else SerializeType.JSON
        ), golden
        said = (
            golden.request_code
            if golden.is_request
            else int(golden.name.removesuffix(".bin").rpartition("code")[2])
        )
        assert command.code == said, golden


def test_the_golden_frames_are_all_there() -> None:
    frames = golden_data.frames()
    assert Counter(map(_folder, frames)) == {
        "frames-4.9.8": 289,
        "frames-4.9.8-binary": 527,
        "frames-5.5.0": 734,
        "ha-4.9.8": 49,
    }
    assert {frame.decode_one(golden.frame).version for golden in frames} == {409, 513}
