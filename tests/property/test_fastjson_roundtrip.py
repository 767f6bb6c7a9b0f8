"""Any value that is written reads back, and no text at all breaks the reader; in slices all is as
in one call, and no slice is long.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import Slices, finish
from orbitmq.protocol import fastjson, json_reader
from orbitmq.protocol.fastjson import (
    NESTING_MAX,
    Entries,
    Items,
    ObjectKey,
    dumps,
    dumps_in_slices,
    dumps_pretty,
    dumps_pretty_in_slices,
    loads,
    loads_in_slices,
)

texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.booleans() | numbers | texts
object_keys = st.dictionaries(texts, scalars, min_size=1, max_size=3).map(ObjectKey)
keys = texts | object_keys
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(st.none() | inner, max_size=5) | st.dictionaries(keys, inner, max_size=5)
    ),
    max_leaves=30,
)
plain_values = st.recursive(
    st.booleans() | st.integers() | texts,
    lambda inner: (
        st.lists(st.none() | inner, max_size=5) | st.dictionaries(texts, inner, max_size=5)
    ),
    max_leaves=30,
)
fragments = st.lists(
    st.sampled_from(
        [
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            '"',
            "'",
            "\\",
            "\\x4",
            "\\u00",
            "0",
            "-1",
            "1.",
            "a",
            "null",
            "NaN",
            " ",
            "\n",
            '"k"',
            "é",
        ]
    )
).map("".join)


@given(values)
def test_a_value_reads_back_as_it_was_written(value: Any) -> None:
    assert loads(dumps(value)) == value
    assert loads(dumps_pretty(value)) == value


@given(plain_values)
def test_a_value_that_standard_json_can_say_is_written_as_standard_json(value: Any) -> None:
    assert dumps(value).decode() == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@given(st.dictionaries(st.integers(), values, max_size=5))
def test_numbers_as_keys_read_back_as_texts_in_both_spellings(table: dict[int, Any]) -> None:
    expected = {str(key): value for key, value in table.items()}
    assert loads(dumps(table)) == expected
    assert loads(dumps(table, standard_keys=True)) == expected


@given(fragments | st.text() | st.binary())
@example("{" * 3000)
@example('{"a":"' + "\\x41" * 1000)
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    with contextlib.suppress(ProtocolError):
        loads(text)


def outcome(read: Any, text: str | bytes) -> tuple[Any, str]:
    try:
        return repr(read(text)), ""
    except ProtocolError as problem:
        return None, str(problem)


def in_slices(text: str | bytes, window_chars: int) -> Any:
    """Read the text as a large one, with small windows and slices, so that short texts have cuts
    everywhere.
    """
    with (
        patch.object(fastjson, "LARGE_CHARS", -1),
        patch.object(fastjson, "_DECODED_BYTES", 4),
        patch.object(json_reader, "SLICE_CHARS", 3),
        patch.object(
            json_reader.JsonReader.__init__, "__kwdefaults__", {"window_chars": window_chars}
        ),
    ):
        return finish(loads_in_slices(text))


json_texts = values.map(lambda value: dumps(value).decode()) | values.map(
    lambda value: dumps_pretty(value).decode()
)


@given(json_texts | fragments | st.text() | st.binary(), st.integers(2, 40))
@example("[[1L],[2,],{0:1}]", 40)
@example('{"a":[Infinity,-Infinity,NaN],b:1}', 40)
@example("[" * 300 + "]" * 300, 8)
@example('{"a":' * 300 + "1" + "}" * 300, 1000)
@example("é" * 9 + "\x00", 8)
@example("éé".encode() + b"\xff", 8)
@example(b"\xf0\x9f\x98\x80\x80\x80\x80\x80", 8)
@example('{"' + "k" * 5000 + '":"' + "v" * 5000 + '"}', 8)
def test_a_text_read_in_slices_gives_the_value_or_the_error_of_one_call(
    text: str | bytes, window_chars: int
) -> None:
    assert outcome(lambda given: in_slices(given, window_chars), text) == outcome(loads, text)


@given(values, st.integers(1, 8))
def test_a_value_written_in_slices_has_the_bytes_of_one_call(value: Any, nodes: int) -> None:
    with patch.object(fastjson, "_NODES_PER_SLICE", nodes):
        assert finish(dumps_in_slices(value)) == dumps(value)
        assert finish(dumps_pretty_in_slices(value)) == dumps_pretty(value)


@given(
    st.dictionaries(st.text(max_size=3), values, max_size=6),
    st.lists(st.none() | values, max_size=6),
)
def test_entries_and_items_are_written_as_the_maps_and_arrays_they_stand_for(
    table: dict[str, Any], array: list[Any]
) -> None:
    lazy = {
        "t": Entries((key, Items([item])) for key, item in table.items()),
        "a": Items(iter(array)),
    }
    made = {"t": {key: [item] for key, item in table.items()}, "a": array}
    assert finish(dumps_in_slices(lazy)) == dumps(made)
    lazy = {
        "t": Entries((key, Items([item])) for key, item in table.items()),
        "a": Items(iter(array)),
    }
    assert finish(dumps_pretty_in_slices(lazy)) == dumps_pretty(made)


def test_many_small_tables_in_a_table_are_written_in_slices_too() -> None:
    made = {f"group-{number}": [{"topic": {"0": number}}] for number in range(5000)}
    lazy = Entries(
        (group, Items({"topic": Entries(each["topic"].items())} for each in topics))
        for group, topics in made.items()
    )
    slices = sum(1 for _ in dumps_in_slices(lazy))
    assert slices >= 50
    lazy = Entries(
        (group, Items({"topic": Entries(each["topic"].items())} for each in topics))
        for group, topics in made.items()
    )
    assert finish(dumps_in_slices(lazy)) == dumps(made)


TOPIC = {
    "attributes": {},
    "order": False,
    "perm": 6,
    "readQueueNums": 8,
    "topicFilterType": "SINGLE_TAG",
    "writeQueueNums": 8,
}
LARGE = {
    "standard": json.dumps({"a": {"t": {f"topic-{number}": TOPIC for number in range(20_000)}}}),
    "bare keys": "{" + ",".join(f'{number}:{{"q":[1,2],0:3}}' for number in range(50_000)) + "}",
    "object keys": (
        '{"t":{'
        + ",".join(
            f'{{"brokerName":"b","queueId":{number},"topic":"T"}}:5' for number in range(30_000)
        )
        + "}}"
    ),
    "a long text": '["' + "x" * 3_000_000 + '"]',
    "a text of escapes": "['" + "\\n" * 300_000 + "']",
    "white space": "[" + " " * 3_000_000 + "]",
    "numbers": "[" + "1," * 300_000 + "1]",
    "deep and long": "[" * 200 + "1," * 300_000 + "]" * 200,
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_text_is_read_in_many_slices(name: str) -> None:
    text = LARGE[name]
    slices = 0

    def counted() -> Slices[Any]:
        nonlocal slices
        work = loads_in_slices(text)
        while True:
            try:
                next(work)
            except StopIteration as end:
                return end.value
            slices += 1
            yield

    assert finish(counted()) == loads(text)
    assert slices >= len(text) // json_reader.SLICE_CHARS - 1


def test_a_small_text_is_read_in_one_slice() -> None:
    with pytest.raises(StopIteration):
        next(loads_in_slices(b'{"a":[1,2,3]}'))


@pytest.mark.parametrize("opening", ["[", '{"a":', "{0:"])
def test_nesting_is_limited_whichever_way_a_text_is_read(opening: str) -> None:
    def nested(levels: int) -> str:
        return opening * levels + "1" + ("]" if opening == "[" else "}") * levels

    for read in (loads, lambda text: in_slices(text, 40), lambda text: in_slices(text, 100_000)):
        read(nested(NESTING_MAX))
        for levels in (NESTING_MAX + 1, 600, 100_000):
            with pytest.raises(ProtocolError, match=f"at most {NESTING_MAX} levels of nesting"):
                read(nested(levels))


def test_an_object_as_key_has_a_limited_number_of_members() -> None:
    def keyed(members: int) -> str:
        return "{{" + ",".join(f'"m{number}":1' for number in range(members)) + "}:5}"

    (key,) = loads(keyed(json_reader.KEY_MEMBERS_MAX))
    assert isinstance(key, ObjectKey)
    with pytest.raises(ProtocolError, match="may have at most"):
        loads(keyed(json_reader.KEY_MEMBERS_MAX + 1))
