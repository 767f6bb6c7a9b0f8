"""Patterns of white lists and networks of policies: which addresses they match, and which texts are
none.
"""

from __future__ import annotations

import pytest

from orbitmq.access.addresses import host_of, network, pattern


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("*", ["10.0.0.1", "::1"], []),
        ("*.*.*.*", ["10.0.0.1"], []),
        ("*:*:*:*:*:*:*:*", ["2001:db8::1"], []),
        ("", [], ["10.0.0.1", "::1", ""]),
        ("  ", [], ["10.0.0.1"]),
        ("10.0.0.1", ["10.0.0.1"], ["10.0.0.10", "110.0.0.1", "::1", "nonsense"]),
        ("2001:db8::A", ["2001:db8::a", "2001:0db8:0:0:0:0:0:000a"], ["2001:db8::b"]),
        ("10.0.0.1,10.0.0.2", ["10.0.0.1", "10.0.0.2"], ["10.0.0.3"]),
        ("10.0.0.1, 2001:db8::1", ["10.0.0.1", "2001:db8::1"], ["10.0.0.2"]),
        ("10.0.0.{1,2}", ["10.0.0.1", "10.0.0.2"], ["10.0.0.3", "10.0.0.12"]),
        ("2001:db8::{1,ab}", ["2001:db8::1", "2001:db8::ab"], ["2001:db8::2"]),
        ("10.0.0.*", ["10.0.0.0", "10.0.0.255"], ["10.0.1.0"]),
        ("10.0.*.*", ["10.0.1.2", "10.0.255.255"], ["10.1.0.0"]),
        ("10.0.1-5.*", ["10.0.1.9", "10.0.5.0"], ["10.0.0.9", "10.0.6.1"]),
        ("10.0.0.8-9", ["10.0.0.8", "10.0.0.9"], ["10.0.0.7", "10.0.0.10", "10.0.0.89"]),
        ("10.0.1-5.7", ["10.0.3.7"], ["10.0.3.8"]),
        ("2001:db8::1:*", ["2001:db8::1:0", "2001:db8::1:ffff"], ["2001:db8::2:0"]),
        (
            "2001:db8::1-ff:*",
            ["2001:db8::1:7", "2001:db8::ff:ffff"],
            ["2001:db8::100:7", "2001:db8::7"],
        ),
        ("2001:db8::10-20", ["2001:db8::10", "2001:db8::20"], ["2001:db8::21", "2001:db8:1::10"]),
    ],
)
def test_a_pattern_matches_what_the_original_says(
    text: str, inside: list[str], outside: list[str]
) -> None:
    matches = pattern(text)
    assert [host for host in inside if not matches(host)] == []
    assert [host for host in outside if matches(host)] == []


@pytest.mark.parametrize(
    "text",
    [
        *(
            "10.0.0",
            "10.0.0.256",
            "host",
            "10.0.0.1,host",
            "10.0.0.{1,x}",
            "{1,2}",
            "10.0.0{1}",
            "*.0.0.1",
            "10.0.5-1.*",
            "10.0.0.-5",
        ),
        *(
            "10.0.0.1-999",
            "2001:*:db8::1",
            "2001:db8::1-zz",
            "10.0.a.*",
            "10.0.0.0.*",
            "a:b-c:*:*",
            ",",
        ),
    ],
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        pattern(text)


def test_a_network_matches_its_addresses_and_no_others() -> None:
    assert network("10.0.0.0/8")("10.255.0.1")
    assert network("10.1.2.3/8")(
        "10.255.0.1"
    )  # bits behind the mask do not count, as in the original
    assert not network("10.0.0.0/8")("11.0.0.1")
    assert network("127.0.0.1")("127.0.0.1")
    assert not network("127.0.0.1")("::1")
    assert network("2001:db8::/32")("2001:db8:1::1")
    assert not network("2001:db8::/32")("nonsense")
    for text in ("", "host", "10.0.0.0/33", "10.0.0.0/x", "*"):
        with pytest.raises(ValueError, match="is neither an address nor a network"):
            network(text)


def test_the_port_of_a_peer_is_taken_off_its_address() -> None:
    assert host_of("10.0.0.1:4711") == "10.0.0.1"
    assert host_of("[2001:db8::1]:4711") == "2001:db8::1"
    assert host_of("unknown") == "unknown"
