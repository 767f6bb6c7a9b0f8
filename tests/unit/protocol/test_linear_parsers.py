"""Every parser that a peer can reach takes linear time, whether it accepts or refuses the input."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import partial

import pytest

from orbitmq.access.account_file import AccountFile
from orbitmq.access.account_requests import _split
from orbitmq.access.addresses import network, pattern
from orbitmq.access.policies import ResourcePattern
from orbitmq.broker.metadata.attributes import parse_changes
from orbitmq.common import properties as properties_text
from orbitmq.common.errors import (
    InvalidMessageError,
    ProtocolError,
    RefusedError,
    RequestRefusedError,
)
from orbitmq.message import batch, properties
from orbitmq.message.message_id import parse_offset_id, parse_unique_id
from orbitmq.message.recall_handle import RecallHandle
from orbitmq.message.tag_expression import CHARS_MAX, tags_of
from orbitmq.protocol import fastjson, header_binary, header_json, header_scan
from orbitmq.protocol.bodies.clients import HeartbeatData, LockBatchBody
from orbitmq.protocol.bodies.nameserver import int_map
from orbitmq.protocol.bodies.subscriptions import TAGS_MAX, SubscriptionData
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.base import Header
from orbitmq.protocol.headers.pull import PullMessageRequestHeader
from support.common.linear_work import assert_linear, outcome

SAME_HASH = (1 << 61) - 1  # Python's hash of each multiple of it is 0


def loads(text: str | bytes) -> object:
    return fastjson.loads(text)


@pytest.mark.parametrize(
    "spelled",
    [
        lambda size: "[" * size,
        lambda size: "[" * 200 + "]" * 200 + "," * size,
        lambda size: "{" * size,
        lambda size: '{"a":' * size,
        lambda size: "[" + "{},[]," * size + "]",
        lambda size: "1" * size,
        lambda size: "[" + "1" * size + "x]",
        lambda size: "[1." + "1" * size + "x]",
        lambda size: "[1e" + "1" * size + "x]",
        lambda size: "[" + "1" * 4_000 + ("," + "1" * 4_000) * (size // 4_000) + ",]",
        lambda size: '"' + "x" * size,
        lambda size: "'" + "x" * size + "'",
        lambda size: "'" + "\\n" * size + "'",
        lambda size: "'" + "\\ud83d\\ude00" * size + "'",
        lambda size: '"' + "\\u12" * size + '"',
        lambda size: "{" + "".join(f"{number}:1," for number in range(size)) + "}",
        lambda size: "{" + "".join(f"a{number}:1," for number in range(size)) + "}",
        lambda size: "{" + "".join(f'{{"a":{number}}}:1,' for number in range(size // 4)) + "}",
        lambda size: (
            "{" + "".join(f'{{"a":{number * SAME_HASH}}}:1,' for number in range(size // 16)) + "}"
        ),
        lambda size: "{" * 200 + "}" * size,
        lambda size: " " * size,
        lambda size: "[" + "null ," * size,
        lambda size: "a" * size + ":1",
    ],
)
def test_json_of_bodies(spelled: Callable[[int], str]) -> None:
    assert_linear(lambda size: outcome(partial(loads, spelled(size)), ProtocolError), 4_000)


def test_numbers_that_have_one_hash_are_no_keys() -> None:
    def members(count: int) -> dict[str, int]:
        return {str(number * SAME_HASH): 1 for number in range(count)}

    assert_linear(lambda size: outcome(partial(int_map, members(size), int), ProtocolError), 1_000)


@pytest.mark.parametrize(
    "spelled",
    [
        lambda size: (
            b'{"code":34,"extFields":{'
            + b",".join(b'"k%d":"v"' % number for number in range(size // 8))
            + b"}}"
        ),
        lambda size: b'{"code":34,"extFields":{"a":"' + b"\\n" * size + b'"}}',
        lambda size: b'{"code":34,"extFields":{"a":"' + b"x" * size,
        lambda size: b'{"code":' + b"1" * size + b"}",
        lambda size: b'{"code":[' + b"[" * size,
        lambda size: b'{"code":' + b"[" * 300 + b"]" * 300 + b',"remark":"' + b"x" * size + b'"}',
        lambda size: b'{"extFields":{"a":' + b"[" * 100 + b"1," * size + b"1" + b"]" * 100 + b"}}",
        lambda size: b'{"' + b'\\"' * size,
        lambda size: b'{"language":"' + b"J" * size + b'"}',
        lambda size: b"{" + b'"a":1,' * size + b"}",
    ],
)
def test_json_headers(spelled: Callable[[int], bytes]) -> None:
    for decode in (header_json.decode, header_scan.scan):

        def work(
            size: int, decode: Callable[[bytes, int, int], object] = decode
        ) -> Callable[[], object]:
            header = spelled(size)
            return outcome(lambda: decode(header, 0, len(header)), ProtocolError)

        assert_linear(work, 4_000)


def test_binary_headers() -> None:
    def work(size: int) -> Callable[[], object]:
        header = header_binary.encode(
            RemotingCommand(1, ext_fields={f"k{number}": "v" for number in range(size)})
        )
        return lambda: header_binary.decode(header, 0, len(header))

    assert_linear(work, 1_000)


@pytest.mark.parametrize("header", [PullMessageRequestHeader])
@pytest.mark.parametrize("value", ["1", "-1", "+1", "x", "\u0661", " "])
def test_numbers_in_header_fields(header: type[Header], value: str) -> None:
    def work(size: int) -> Callable[[], object]:
        fields = dict.fromkeys(
            ("queueId", "queueOffset", "maxMsgNums", "sysFlag", "subVersion"), value * size
        )
        return outcome(lambda: header.from_fields(fields), RequestRefusedError)

    assert_linear(work, 4_000)


@pytest.mark.parametrize(
    ("parse", "spelled"),
    [
        (batch.decode, lambda size: batch.encode([batch.BatchItem(0, b"", b"")] * size)),
        (batch.decode, lambda size: batch.encode([batch.BatchItem(0, b"x", b"")] * size)[:-1]),
        (properties.parse, lambda size: b"\1\2" * size),
        (properties.parse, lambda size: b"a\1b\2" * size),
        (properties.parse, lambda size: b"\1" * size),
        (properties.parse, lambda size: b"\xed\xa0\x80" * size),
        (properties.parse, lambda size: b"\xff" * size),
        (lambda text: properties.without(text, "a"), lambda size: b"a\1b\2" * size),
        (lambda text: properties.without(text, "a"), lambda size: b"a\1" * size),
        (tags_of, lambda size: "a||" * size),
        (tags_of, lambda size: "|" * size),
        (tags_of, lambda size: "||".join(map(str, range(size)))),
        (tags_of, lambda size: " " * size + "|| x"),
        (parse_offset_id, lambda size: "0A" * size),
        (parse_offset_id, lambda size: " " * size),
        (parse_unique_id, lambda size: "zz" * size),
        (RecallHandle.parse, lambda size: "A" * size),
        (RecallHandle.parse, lambda size: urlsafe_b64encode(b" " * size).decode()),
        (
            RecallHandle.parse,
            lambda size: urlsafe_b64encode(b"v1 T b " + b"1" * size + b" id").decode(),
        ),
        (properties_text.parse, lambda size: "a=b\n" * size),
        (properties_text.parse, lambda size: "\\\n" * size),
        (properties_text.parse, lambda size: "a\\\n" * size),
        (properties_text.parse, lambda size: "\\" * size),
        (properties_text.parse, lambda size: "a=" + "\\u0041" * size),
        (properties_text.parse, lambda size: " " * size + "="),
        (properties_text.parse, lambda size: "a" + "\\=" * size),
        (parse_changes, lambda size: "+a=b," * size),
        (parse_changes, lambda size: "," * size),
        (_split, lambda size: "," * size),
        (_split, lambda size: "{,}" * size),
        (_split, lambda size: "}" * size),
        (_split, lambda size: "," * size + "}"),
        (pattern, lambda size: "1.1.1.{" + "1," * size + "1}"),
        (pattern, lambda size: ":" * size + "*"),
        (pattern, lambda size: "1-" * size),
        (pattern, lambda size: "1.1.1.1," * size),
        (network, lambda size: "1" * size + "/8"),
        (ResourcePattern.parse, lambda size: "Topic:" + "a*" * size),
        (ResourcePattern.of_new_rule, lambda size: ":" * size),
    ],
)
def test_texts_of_fields_and_bodies(
    parse: Callable[[object], object], spelled: Callable[[int], object]
) -> None:
    def work(size: int) -> Callable[[], object]:
        text = spelled(size)
        return outcome(
            lambda: parse(text), InvalidMessageError, ValueError, RefusedError, RequestRefusedError
        )

    assert_linear(work, 1_000)


def test_files_of_accounts() -> None:
    def work(size: int) -> Callable[[], object]:
        content = b"accounts:\n" + b"".join(
            b"- accessKey: key%07d\n  secretKey: secret12\n" % number for number in range(size)
        )
        return lambda: AccountFile.decode(content)

    assert_linear(work, 4)


@pytest.mark.parametrize(
    ("decode", "spelled"),
    [
        (
            HeartbeatData.decode,
            lambda size: fastjson.dumps(
                {
                    "clientID": "c",
                    "consumerDataSet": [
                        {
                            "groupName": f"g{number}",
                            "subscriptionDataSet": [
                                {"topic": "T", "codeSet": [1, 2], "tagsSet": ["a", "b"]}
                            ],
                        }
                        for number in range(size)
                    ],
                }
            ),
        ),
        (
            LockBatchBody.decode,
            lambda size: fastjson.dumps(
                {
                    "clientId": "c",
                    "consumerGroup": "g",
                    "mqSet": [
                        {"topic": "T", "brokerName": "b", "queueId": number * 65_536 % 2**31}
                        for number in range(size)
                    ],
                }
            ),
        ),
    ],
)
def test_bodies_of_requests(
    decode: Callable[[bytes], object], spelled: Callable[[int], bytes]
) -> None:
    def work(size: int) -> Callable[[], object]:
        body = spelled(size)
        return lambda: decode(body)

    assert_linear(work, 50)


def test_a_tag_expression_has_a_longest_length() -> None:
    assert len(tags_of("||".join(map(str, range(10_000)))) or ()) == 10_000
    with pytest.raises(InvalidMessageError, match=f"at most {CHARS_MAX} are read"):
        tags_of("a||" * CHARS_MAX)
    for name, value in (("tagsSet", "a"), ("codeSet", 1)):
        SubscriptionData.from_json({"topic": "T", name: [value] * TAGS_MAX})
        with pytest.raises(
            ProtocolError,
            match=f"member {name} has {TAGS_MAX + 1} items, and at most {TAGS_MAX} are read",
        ):
            SubscriptionData.from_json({"topic": "T", name: [value] * (TAGS_MAX + 1)})


def test_values_that_nest_are_not_spelled_out_in_errors() -> None:
    deep = fastjson.loads("[" * fastjson.NESTING_MAX + "]" * fastjson.NESTING_MAX)
    for wrong in (
        {"topic": deep},
        {"topic": "T", "subVersion": deep},
        {"topic": "T", "tagsSet": {"a": deep}},
        {"topic": "T", "codeSet": [deep]},
    ):
        with pytest.raises(ProtocolError, match=r"found an (array|object)"):
            SubscriptionData.from_json(wrong)
    header = b'{"code":' + b"[" * 900 + b"1" * 900 + b"]" * 900 + b"}"
    with pytest.raises(ProtocolError) as refused:
        header_json.decode(header, 0, len(header))
    assert len(str(refused.value)) < 300
