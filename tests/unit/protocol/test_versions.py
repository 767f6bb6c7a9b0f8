"""Version ordinals match the names that the original prints."""

from __future__ import annotations

import pytest

from orbitmq.protocol import versions


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (0, "V3_0_0_SNAPSHOT"),
        (6, "V3_0_0_BETA5"),
        (8, "V3_0_0_BETA6"),
        (15, "V3_0_0_FINAL"),
        (16, "V3_0_1_SNAPSHOT"),
        (45, "V3_0_15"),
        (46, "V3_1_0_SNAPSHOT"),
        (85, "V3_2_9"),
        (86, "V3_3_1_SNAPSHOT"),
        (211, "V3_9_9"),
        (212, "V4_0_0_SNAPSHOT"),
        (408, "V4_9_8_SNAPSHOT"),
        (513, "V5_5_0"),
        (611, "V5_9_9"),
        (612, "HIGHER_VERSION"),
        (65535, "HIGHER_VERSION"),
    ],
)
def test_a_version_is_described_as_the_original_prints_it(version: int, name: str) -> None:
    assert versions.describe(version) == name


def test_the_named_gates_stand_where_their_names_say() -> None:
    gates = {
        name: value
        for name, value in vars(versions).items()
        if name.startswith("V") and isinstance(value, int)
    }
    assert len(gates) > 5
    assert {name: versions.describe(value) for name, value in gates.items()} == {
        name: name for name in gates
    }
    assert versions.describe(versions.CURRENT_VERSION) == "V5_5_0"


def test_the_formula_and_the_list_of_names_agree() -> None:
    for version in range(213, versions.HIGHER_VERSION, 2):
        major, minor, patch = map(int, versions.describe(version).removeprefix("V").split("_"))
        assert versions.ordinal(major, minor, patch) == version


def test_before_4_0_0_there_is_no_formula() -> None:
    with pytest.raises(ValueError, match=r"before 4\.0\.0"):
        versions.ordinal(3, 4, 9)
