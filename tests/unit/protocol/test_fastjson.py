"""The JSON dialect matches what fastjson 1.2.69 and fastjson2 2.0.59 read and write."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol.fastjson import NESTING_MAX, ObjectKey, bean, dumps, dumps_pretty, loads

QUEUE = ObjectKey({"topic": "T", "queueId": 0, "brokerName": "b"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",1:"b"}', {"0": "a", "1": "b"}),
        ("{-1:2}", {"-1": 2}),
        ("{ 0 : 1 , 1 : 2 }", {"0": 1, "1": 2}),
        ("{1.5:2,true:3,a_b$1:4}", {"1.5": 2, "true": 3, "a_b$1": 4}),
        ('{"t":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}', {"t": {QUEUE: 5}}),
        ('{{"topic":"T","queueId":0,"brokerName":"b"}:{0:1}}', {QUEUE: {"0": 1}}),
        ("{'a':'it\\'s \"x\"'}", {"a": 'it\'s "x"'}),
        ('{"a":1,}', {"a": 1}),
        ("[1,2,]", [1, 2]),
        ('{"a":"\\x41\\v\\0\\7\\/\\\'\\u00e9\\F"}', {"a": "A\v\0\7/'é\f"}),
        ('{0:"\\ud83d\\ude00 \\ude00"}', {"0": "😀 \ude00"}),
        ('{"a":"\ttab\n"}', {"a": "\ttab\n"}),
        ('{"a":undefined,"b":NaN}', {"a": None, "b": None}),
        (
            '{"a":[+1,01,1.,.5,-.5,1L,1F,2.5D,1e2]}',
            {"a": [1, 1, 1.0, 0.5, -0.5, 1, 1.0, 2.5, 100.0]},
        ),
        ("{0:12345678901234567890123}", {"0": 12345678901234567890123}),
        ("{0:1,0:2}", {"0": 2}),
        ("{}", {}),
        ('{0:[],1:{},2:"",3:null,4:false}', {"0": [], "1": {}, "2": "", "3": None, "4": False}),
    ],
)
def test_what_fastjson_reads_is_read(text: str, value: Any) -> None:
    assert loads(text) == value
    assert loads(text.encode()) == value


def test_quoted_and_bare_numbers_as_keys_read_the_same() -> None:
    assert loads('{"0":{"1":2}}') == loads("{0:{1:2}}")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("nul", 0),
        ('{"a":1', 6),
        ("[1", 2),
        ('"x', 0),
        ("{'x", 1),
        ('{"a" 1}', 5),
        ('{"a":1 "b":2}', 7),
        ('{"a":}', 5),
        ('{"a":abc}', 5),
        ('{"a":0x1F}', 5),
        ("{:1}", 1),
        ("{123abc:1}", 4),
        ("{[1]:2}", 1),
        ('{{"a":[1]}:2}', 1),
        ('{{{"a":1}:1,"b":2}:2}', 1),
        ('{"a":1} x', 8),
        ('{"a":1}}', 7),
        ('{"a":"\\u12"}', 7),
        ('{"a":"\\q"}', 7),
        ('{"a":/*c*/1}', 5),
        ('{"a":Set[1]}', 5),
        ("{0:" + "9" * 5000 + "}", 3),
        ("\ufeff{}", 0),
    ],
)
def test_what_is_no_json_is_refused_with_its_position(text: str, position: int) -> None:
    with pytest.raises(ProtocolError, match=f"at character {position} of {len(text)}"):
        loads(text)


def test_bytes_that_are_not_utf8_are_refused_with_their_position() -> None:
    with pytest.raises(ProtocolError, match="byte 6 of 9"):
        loads(b'{"a":"\xff"}')


@pytest.mark.parametrize("opening", ["[", '{"a":', "{0:", "{", "{{"])
def test_nesting_without_end_is_refused(opening: str) -> None:
    with pytest.raises(ProtocolError):
        loads(opening * 100_000)


def test_lenient_nesting_is_read_up_to_its_limit() -> None:
    def nested(levels: int) -> str:
        return "{0:" * levels + "1" + "}" * levels

    assert loads(nested(NESTING_MAX)).keys() == {"0"}
    with pytest.raises(ProtocolError, match=f"at most {NESTING_MAX} levels"):
        loads(nested(NESTING_MAX + 1))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": None, "b": [None, 1]}, '{"b":[null,1]}'),
        ({10: "x", -3: True, 2: None}, '{10:"x",-3:true}'),
        ({"t": {QUEUE: 5}}, '{"t":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}'),
        ({True: 1, 1.5: 2}, "{true:1,1.5:2}"),
        ({"x": (1, 2), "s": {"q"}}, '{"x":[1,2],"s":["q"]}'),
        (
            "\0\x1f\b\t\n\f\r\"\\/\x7f\u2028é<>'",
            '"\\u0000\\u001f\\b\\t\\n\\f\\r\\"\\\\/\x7f\u2028é<>\'"',
        ),
        (
            {0: "\0\x1f\b\t\n\f\r\"\\/\x7f\u2028é<>'"},
            '{0:"\\u0000\\u001f\\b\\t\\n\\f\\r\\"\\\\/\x7f\u2028é<>\'"}',
        ),
        ("😀", '"😀"'),
        ("x\ude00y", '"x?y"'),
        (2**63 - 1, "9223372036854775807"),
        ([], "[]"),
        ({}, "{}"),
        (None, "null"),
    ],
)
def test_values_are_written_as_the_original_writes_them(value: Any, text: str) -> None:
    assert dumps(value).decode() == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.5, "1.5"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1e6, "1000000.0"),
        (1e7, "1.0E7"),
        (-12345678.9, "-1.23456789E7"),
        (123456789012345678.0, "1.2345678901234568E17"),
        (3.4028234663852886e38, "3.4028234663852886E38"),
        (float("nan"), "null"),
        (float("-inf"), "null"),
    ],
)
def test_doubles_are_written_as_java_prints_them(value: float, text: str) -> None:
    assert dumps(value).decode() == text
    assert dumps({"tps": value}).decode() == f'{{"tps":{text}}}'


@pytest.mark.parametrize(
    ("last", "text"), [(1, "1"), (0.5, "0.5")], ids=["by the standard encoder", "by our own"]
)
def test_standard_keys_are_quoted_and_sorted_numbers_by_value(last: float, text: str) -> None:
    value: dict[str, Any] = {"z": {100: "é", 33: "<", 2: 0, -1: last}, "a": {}}
    assert (
        dumps(value, standard_keys=True).decode()
        == '{"a":{},"z":{"-1":' + text + ',"2":0,"33":"<","100":"é"}}'
    )


def test_objects_as_keys_stay_objects_also_among_standard_keys() -> None:
    assert (
        dumps({QUEUE: {1: 2}}, standard_keys=True)
        == b'{{"brokerName":"b","queueId":0,"topic":"T"}:{"1":2}}'
    )


def test_the_pretty_form_is_indented_by_tabs_and_keeps_arrays_of_numbers_on_one_line() -> None:
    value: dict[str, Any] = {
        "x": (1, 2),
        "e": {},
        "l": [],
        "m": {0: "a", 1: [1, [2]]},
        "k": {ObjectKey({"q": 3}): 5},
        "none": None,
    }
    assert (
        dumps_pretty(value).decode()
        == '{\n\t"x":[1,2],\n\t"e":{},\n\t"l":[\n\t\t\n\t],\n\t"m":{\n\t\t0:"a",\n\t\t1:[\n\t\t\t1,\n\t\t\t[\n\t\t\t\t2\n\t\t\t]\n\t\t]\n\t},'  # noqa: E501
        '\n\t"k":{\n\t\t{\n\t\t\t"q":3\n\t\t}:5\n\t}\n}'
    )


def test_what_is_empty_takes_lines_unless_it_is_a_map_or_an_array_of_numbers() -> None:
    value: dict[str, Any] = {"policy": bean(type=None), "list": [], "map": {}, "numbers": ()}
    assert (
        dumps_pretty(value).decode()
        == '{\n\t"policy":{\n\t\t\n\t},\n\t"list":[\n\t\t\n\t],\n\t"map":{},\n\t"numbers":[]\n}'
    )
    assert dumps(value) == b'{"policy":{},"list":[],"map":{},"numbers":[]}'


def test_a_bean_is_sorted_by_name_and_has_no_empty_members() -> None:
    assert list(bean(topic="T", brokerName="b", zoneName=None, queueId=0).items()) == [
        ("brokerName", "b"),
        ("queueId", 0),
        ("topic", "T"),
    ]


def test_what_has_no_json_form_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="bytes has no JSON form"):
        dumps({"a": b"x"})


def test_an_object_key_is_a_read_only_mapping_equal_whatever_its_order() -> None:
    assert loads('{{"queueId":0,"topic":"T","brokerName":"b"}:1}')[QUEUE] == 1
    assert ObjectKey({"brokerName": "b", "queueId": 0, "topic": "T"}) == QUEUE
    assert dict(QUEUE) == {"brokerName": "b", "queueId": 0, "topic": "T"}
    assert ObjectKey({"brokerName": "b", "queueId": 1, "topic": "T"}) != QUEUE
