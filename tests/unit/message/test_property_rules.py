"""The table of properties knows every property that there is, and fails closed."""

from __future__ import annotations

from typing import Final

import pytest

from orbitmq.message import properties, property_rules
from orbitmq.message.property_rules import RULES, DeferralKind, Need, rule_of

NOT_NAMES: Final = {"NAME_END", "VALUE_END", "KEY_SEPARATOR", "TRANSIENT_PREFIX"}
NAMES: Final = {
    constant: value
    for constant, value in vars(properties).items()
    if constant.isupper() and isinstance(value, str) and constant not in NOT_NAMES
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_every_property_has_a_rule(name: str) -> None:
    assert name in RULES


def test_the_table_has_nothing_but_properties() -> None:
    assert set(RULES) == set(NAMES.values())


@pytest.mark.parametrize("kind", DeferralKind)
def test_every_kind_of_deferral_is_asked_for_by_a_property(kind: DeferralKind) -> None:
    assert [name for name, rule in RULES.items() if rule == (Need.DEFER, kind)]


@pytest.mark.parametrize("prefix", property_rules.RESERVED_PREFIXES)
def test_an_unknown_reserved_name_needs_the_general_path(prefix: str) -> None:
    assert rule_of(prefix + "NEW_IN_6").need is Need.GENERAL


@pytest.mark.parametrize("name", ["colour", "T", "_", "D", "DELAYED", "TRANSIT", "é", "POP"])
def test_a_name_of_an_application_is_plain(name: str) -> None:
    assert rule_of(name).need is Need.PLAIN


@pytest.mark.parametrize("name", [*NAMES.values(), "__NEW", "TIMERS", "colour", "T", "DELAYED"])
def test_the_packed_table_says_the_same(name: str) -> None:
    entries, starts = property_rules.packed()
    raw, found = name.encode(), property_rules.CODE_PLAIN
    at, stop = (
        int.from_bytes(starts[2 * each : 2 * each + 2], "little") for each in (raw[0], raw[0] + 1)
    )
    while at < stop:
        code, is_prefix, length = entries[at : at + 3]
        known = entries[at + 3 : at + 3 + length]
        if raw == known or (is_prefix and raw.startswith(known)):
            found = code
            break
        at += 3 + length
    assert found == property_rules.code_of(rule_of(name))
