"""The scanner reads what ordinary clients send, and leaves the rest to the general decoder, its
specification.
"""

from __future__ import annotations

import pytest

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol import header_json, header_scan
from support.common import golden_data

ORDINARY = b'{"code":105,"extFields":{"topic":"T","n":"1"},"flag":0,"language":"JAVA","opaque":-7,"remark":"r","version":479}'


def scan(header: bytes) -> object:
    """Scan a header in the middle of a buffer."""
    return header_scan.scan(b'{"' + header + b'"}', 2, 2 + len(header))


def agrees(header: bytes) -> bool:
    """Return whether the scanner read a header; if so, the general decoder must agree."""
    quick = scan(header)
    if quick is not None:
        assert quick == header_json.decode_general(header)
    return quick is not None


def test_the_scanner_takes_every_json_header_of_real_peers() -> None:
    headers = [
        golden.frame[8 : 8 + int.from_bytes(golden.frame[5:8], "big")]
        for golden in golden_data.frames()
        if golden.frame[4] == 0
    ]
    assert len(headers) > 1000
    assert [header for header in headers if not agrees(header)] == []


@pytest.mark.parametrize(
    "header",
    [
        ORDINARY,
        b"{}",
        b'{"code":0}',
        b'{"code":-2147483648,"version":2147483647}',
        b'{"extFields":{}}',
        b'{"extFields":{"a":"b"}}',
        b'{"extFields":{"":""}}',
        b'{"remark":"\\u00e9\\n\\"\\\\","extFields":{"k":"\\ud83d\\ude00"}}',
        b'{"serializeTypeCurrentRPC":"JSON"}',
        '{"remark":"é漢😀","extFields":{"é":"漢"}}'.encode(),
        b'{"code":1,"code":2}',
        b'{"opaque":-0}',
    ],
)
def test_the_scanner_takes_plain_headers(header: bytes) -> None:
    assert agrees(header)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b" {}",
        b"{} ",
        b"{",
        b"{,}",
        b'{"code":1,}',
        b'{"code":01}',
        b'{"code":1.0}',
        b'{"code":1e1}',
        b'{"code":-}',
        b'{"code":}',
        b'{"code":2147483648}',
        b'{"code":99999999999}',
        b'{"code":"1"}',
        b'{"code":null}',
        b'{"code" :1}',
        b'{"code": 1}',
        b'{"c\\u006fde":1}',
        b'{"unknown":1}',
        b'{"unknown":"x"}',
        b'{"remark":null}',
        b'{"extFields":{"a":1}}',
        b'{"extFields":{"a":{}}}',
        b'{"extFields":{"a":"b"}',
        b'{"extFields":{"a":"b"}"code":1}',
        b'{"extFields":{"a":"b",}}',
        b'{"extFields":{},"extFields":{}}',
        b'{"extFields":null}',
        b'{"language":"J\\u0041VA"}',
        b'{"serializeTypeCurrentRPC":"\\q"}',
        b'{"serializeTypeCurrentRPC":"\xff"}',
        b'{"serializeTypeCurrentRPC":"NOISE"}',
        b'{"remark":"\\x41"}',
        b'{"remark":"\\"}',
        b'{"remark":"a\nb"}',
        b'{"remark":"\xff"}',
        b'{"extFields":{"\xff":"a"}}',
        b'{"code":1}{"code":2}',
        b"[]",
    ],
)
def test_the_scanner_leaves_everything_else(header: bytes) -> None:
    assert scan(header) is None


def test_a_header_cut_or_changed_anywhere_is_read_as_the_general_decoder_reads_it() -> None:
    for at in range(len(ORDINARY)):
        assert not agrees(ORDINARY[:at])
        for byte in range(256):
            changed = ORDINARY[:at] + bytes([byte]) + ORDINARY[at + 1 :]
            try:
                agrees(changed)
            except ProtocolError:
                pytest.fail(f"the scanner took what the general decoder refuses: {changed!r}")
