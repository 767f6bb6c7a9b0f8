"""Version ordinals: the number that each peer reports in its frames, and the features that depend
on it.

An ordinal is an index into the original's list of versions, where every release follows its
snapshot. From 3.0.1 on the list is regular, so it is kept as runs of consecutive patch numbers, not
as 613 names.
"""

from bisect import bisect_right
from typing import Final

CURRENT_VERSION: Final = 513  # V5_5_0

# The versions at which a peer's behaviour changes.
V3_0_7_SNAPSHOT: Final = 28  # from here on clients accept reset-offset requests
V3_0_11: Final = 37  # from here on the body of a registration is RegisterBrokerBody
V3_1_8_SNAPSHOT: Final = 62  # from here on clients report their running info
V3_4_9: Final = 121  # from here on maxReconsumeTimes of send and send-back is honoured
V4_1_0_SNAPSHOT: Final = 232  # from here on brokers filter by SQL92
V4_9_3: Final = 399  # up to here _UNIQUE_KEY_QUERY is not signed
V4_9_4: Final = 401  # from here on clients read routes as standard JSON
V5_0_0: Final = 413  # from here on a compressed registration ends with queue mappings
V5_3_1: Final = 475  # after this one clients understand GO_AWAY
HIGHER_VERSION: Final = 612

_BEFORE_3_0_1: Final = (
    "V3_0_0_SNAPSHOT",
    "V3_0_0_ALPHA1",
    *(f"V3_0_0_BETA{beta}" for beta in range(1, 6)),
    *(f"V3_0_0_BETA{beta}{suffix}" for beta in range(6, 10) for suffix in ("_SNAPSHOT", "")),
    "V3_0_0_FINAL",
)


def _runs() -> list[tuple[int, int, int, int]]:
    """Return every (ordinal of the run's first snapshot, major, minor, first patch), by ordinal."""
    patches = [
        (3, 0, range(1, 16)),
        (3, 1, range(10)),
        (3, 2, range(10)),
        *((3, minor, range(1, 10)) for minor in range(3, 10)),
    ]
    patches += [(major, minor, range(10)) for major in (4, 5) for minor in range(10)]
    runs, start = [], len(_BEFORE_3_0_1)
    for major, minor, numbers in patches:
        runs.append((start, major, minor, numbers.start))
        start += 2 * len(numbers)
    assert start == HIGHER_VERSION, start
    return runs


_RUNS: Final = _runs()
_RUN_STARTS: Final = [run[0] for run in _RUNS]


def ordinal(major: int, minor: int, patch: int) -> int:
    """Return the ordinal of release `major.minor.patch`, from 4.0.0 on; that of its snapshot is one
    less.
    """
    if major < 4:
        raise ValueError(
            f"version {major}.{minor}.{patch} lies before 4.0.0, where ordinals follow no formula"
        )
    return 213 + 200 * (major - 4) + 20 * minor + 2 * patch


def describe(version: int) -> str:
    """Return the version's name as the original prints it: `V5_5_0`, `V4_9_8_SNAPSHOT`;
    HIGHER_VERSION for unknown ones.
    """
    if version >= HIGHER_VERSION or version < 0:
        return "HIGHER_VERSION"
    if version < len(_BEFORE_3_0_1):
        return _BEFORE_3_0_1[version]
    start, major, minor, first_patch = _RUNS[bisect_right(_RUN_STARTS, version) - 1]
    patch, is_release = divmod(version - start, 2)
    return f"V{major}_{minor}_{first_patch + patch}{'' if is_release else '_SNAPSHOT'}"
