"""Any value that is written reads back, and no text at all breaks the reader."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol.fastjson import ObjectKey, dumps, dumps_pretty, loads

texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.booleans() | numbers | texts
object_keys = st.dictionaries(texts, scalars, min_size=1, max_size=3).map(ObjectKey)
keys = texts | object_keys
values = st.recursive(
    scalars,
    lambda inner: st.lists(st.none() | inner, max_size=5) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=30,
)
plain_values = st.recursive(
    st.booleans() | st.integers() | texts,
    lambda inner: st.lists(st.none() | inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=30,
)
fragments = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", ",", ":", '"', "'", "\\", "\\x4", "\\u00", "0", "-1", "1.", "a", "null", "NaN", " ", "\n", '"k"', "é"]
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
