"""Text sent by peers cannot control a terminal, forge a line or reverse text direction."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.common.visible import visible, visible_json, visible_lines

BAD = [
    chr(code)
    for code in range(0x110000)
    if unicodedata.category(chr(code)) in ("Cc", "Zl", "Zp", "Cs")
]
TURNING = [
    chr(code)
    for code in range(0x110000)
    if unicodedata.bidirectional(chr(code))
    in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
]
MARKS = ["\u061c", "\u200e", "\u200f"]


def test_every_control_character_and_every_mark_of_direction_is_escaped() -> None:
    for char in (*BAD, *TURNING, *MARKS):
        shown = visible(f"a{char}b")
        assert shown.startswith("a\\"), f"U+{ord(char):04X}"
        assert shown.isprintable()
        assert len(shown.splitlines()) == 1


def test_escapes_say_what_was_there() -> None:
    assert visible("\x1b[31mred\x00\x7f\x9b") == r"\x1b[31mred\x00\x7f\x9b"
    assert visible("a\tb\nc\rd") == r"a\tb\nc\rd"
    assert visible("\u2028\u202e\ud800") == r"\u2028\u202e\ud800"
    assert visible("größe 经纪人 🎈 \\") == "größe 经纪人 🎈 \\", "what is text stays"
    assert visible_lines("a\n\tb\r\n") == "a\n\\tb\\r\n"


@given(st.text() | st.lists(st.sampled_from([*BAD[:70], *TURNING, *MARKS, '"', "\\"])).map("".join))
def test_json_spells_the_same_values(text: str) -> None:
    spelled = visible_json(json.dumps({"a": text}, ensure_ascii=False))
    assert json.loads(spelled) == {"a": text}
    assert visible(spelled) == spelled
