"""Java's hash of texts, and the codes derived from it."""

from __future__ import annotations

import pytest

from orbitmq.message.tags import index_hash, java_hash, tags_code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("hello world", 1794106052),
        ("polygenelubricants", -(1 << 31)),
        ("\xff", 255),
        ("北京", 679541),
        ("\U0001f600", 31 * 0xD83D + 0xDE00),
        ("\ud800", 0xD800),
    ],
)
def test_a_text_has_the_hash_that_java_gives_it(text: str, expected: int) -> None:
    assert java_hash(text) == tags_code(text) == expected


def test_no_tags_have_the_code_0() -> None:
    assert tags_code(None) == tags_code("") == 0


def test_the_hash_of_an_index_entry_is_never_negative() -> None:
    assert (java_hash("T#key"), index_hash("T", "key")) == (78724528, 78724528)
    assert (java_hash("SomeTopic#key"), index_hash("SomeTopic", "key")) == (-10628521, 10628521)
    assert (java_hash("T#E8Hcafb"), index_hash("T", "E8Hcafb")) == (-(1 << 31), 0)
