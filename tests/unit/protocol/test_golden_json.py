"""JSON written by real brokers, in bodies and configuration files, is read and written again byte
for byte.
"""

from __future__ import annotations

from typing import Any

from orbitmq.protocol import frame
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.fastjson import dumps, dumps_pretty, loads
from support.common import golden_data

COMPACT_FILES = ("transactionMetrics",)
BINARY_FILES = ("timercheck", "timermetrics")


def _as_java_held_it(value: Any, name: str = "") -> Any:
    """Return the value with its original key and array types: numbers as keys, arrays of plain
    ints.
    """
    if isinstance(value, dict):
        members = {
            key: _as_java_held_it(member, key if isinstance(key, str) else "")
            for key, member in value.items()
        }
        if members and all(isinstance(key, str) and key.isdecimal() for key in members):
            return {int(key): member for key, member in members.items()}
        return members
    if isinstance(value, list):
        return tuple(value) if name == "bitPos" else [_as_java_held_it(item) for item in value]
    return value


def test_every_golden_json_body_is_written_again_byte_for_byte() -> None:
    different, checked = [], 0
    for golden in golden_data.frames():
        body = frame.decode_one(golden.frame).body
        if body is None or body[:1] not in (b"{", b"["):
            continue
        is_route = golden.request_code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        if dumps(_as_java_held_it(loads(body)), standard_keys=is_route) != body:
            different.append(golden.name)
        checked += 1
    assert different == []
    assert checked == 295


def test_every_golden_configuration_file_of_5_5_0_is_written_again_byte_for_byte() -> None:
    different, checked = [], 0
    for path, content in golden_data.files("store-5.5.0").items():
        name = path.rpartition("/")[2]
        if "/config/" not in path or not content or name.startswith(BINARY_FILES):
            continue
        write = dumps if name.startswith(COMPACT_FILES) else dumps_pretty
        if write(_as_java_held_it(loads(content))) != content:
            different.append(path)
        checked += 1
    assert different == []
    assert checked > 150


def test_configuration_files_of_4_9_with_maps_on_one_line_are_read() -> None:
    offsets = loads(
        golden_data.files("store-4.9.8")["store-4.9.8/clean/store/config/consumerOffset.json"]
    )
    assert offsets["offsetTable"]["GoldenA@CG_a"] == {"0": 4, "1": 4, "2": 5, "3": 4}
