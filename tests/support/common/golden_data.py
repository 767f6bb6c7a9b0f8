"""The golden bytes of `tests/golden`, unpacked in memory and kept: what real RocketMQ servers and
clients wrote.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

_FOLDER = Path(__file__).parents[2] / "golden"
_FRAME_NAME = re.compile(
    r"(?P<folder>.+)/(?P<code>\d{6})-(?P<request>\w+)-(?P<opener>\w+)-.*\.(?P<kind>req|resp-code-?\d+)\.bin"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenFrame:
    """One captured frame, its length word included; `request_code` is also that of the request that
    an answer answers.
    """

    name: str
    request_code: int
    is_request: bool
    frame: bytes

    def __str__(self) -> str:
        return self.name


@cache
def files(archive: str) -> Mapping[str, bytes]:
    """Every file of one archive (`frames`, `ha-4.9.8`, `ha-5.5.0`, `store-4.9.8`, `store-5.5.0`) by
    its path in it.
    """
    with tarfile.open(_FOLDER / f"{archive}.tar.xz") as tar:
        return MappingProxyType(
            {member.name: _content(tar, member) for member in tar if member.isfile()}
        )


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(member)
    assert stream is not None, member.name
    return stream.read()


@cache
def frames() -> tuple[GoldenFrame, ...]:
    """Every captured frame: JSON and binary headers of 4.9.8, JSON headers of 5.5.0, and what a
    4.9.8 slave asks its master.
    """
    return tuple(_frames("frames")) + tuple(_frames("ha-4.9.8"))


def _frames(archive: str) -> Iterator[GoldenFrame]:
    for path, content in files(archive).items():
        if match := _FRAME_NAME.fullmatch(path):
            yield GoldenFrame(
                name=path,
                request_code=int(match["code"]),
                is_request=match["kind"] == "req",
                frame=content,
            )


# How many records each commit log holds, so that none is passed over in silence.
RECORDS_IN_LOG = {
    "ha-4.9.8/master-commitlog": 412,
    "ha-4.9.8/slave-commitlog-1": 372,
    "ha-4.9.8/slave-commitlog-2": 412,
    "ha-4.9.8/slave-commitlog-3": 153,
    "store-4.9.8/badcrc/recovered": 539,
    "store-4.9.8/badcrc/store": 539,
    "store-4.9.8/clean/store": 342,
    "store-4.9.8/crash/recovered": 544,
    "store-4.9.8/crash/store": 544,
    "store-4.9.8/ext/store": 342,
    "store-4.9.8/ipv6/store": 212,
    "store-4.9.8/tiny/store": 300,
    "store-4.9.8/torn/recovered": 543,
    "store-4.9.8/torn/store": 543,
    "store-5.5.0/badcrc/recovered": 540,
    "store-5.5.0/badcrc/store": 540,
    "store-5.5.0/clean/store": 345,
    "store-5.5.0/crash/recovered": 545,
    "store-5.5.0/crash/store": 545,
    "store-5.5.0/ext/store": 341,
    "store-5.5.0/ipv6/store": 211,
    "store-5.5.0/poplong/store": 12,
    "store-5.5.0/propcrc/store": 101,
    "store-5.5.0/timer/store": 104,
    "store-5.5.0/tiny/store": 300,
    "store-5.5.0/torn/recovered": 544,
    "store-5.5.0/torn/store": 544,
}
