"""Version ordinals: the number that each peer states in its frames, and the gates that depend on it.

An ordinal is a place in the original's list of versions, where every release follows its snapshot. From 3.0.1 on the
list is regular, so it is kept as runs of consecutive patch numbers, not as 613 names.
"""

from bisect import bisect_right
from typing import Final

CURRENT_VERSION: Final = 513  # V5_5_0

# The versions at which a peer's behaviour changes.
V3_0_7_SNAPSHOT: Final = 28  # from here a client takes reset-offset requests
V3_0_11: Final = 37  # from here a registration's body is RegisterBrokerBody
V3_1_8_SNAPSHOT: Final = 62  # from here a client tells its running info
V3_4_9: Final = 121  # from here maxReconsumeTimes of send and send-back is honoured
V4_1_0_SNAPSHOT: Final = 232  # from here a broker filters by SQL92
V4_9_3: Final = 399  # up to here _UNIQUE_KEY_QUERY is not signed
V4_9_4: Final = 401  # from here a client reads routes as standard JSON
V5_0_0: Final = 413  # from here a compressed registration ends with queue mappings
V5_3_1: Final = 475  # after this one a client understands GO_AWAY
HIGHER_VERSION: Final = 612

_BEFORE_3_0_1: Final = (
    "V3_0_0_SNAPSHOT",
    "V3_0_0_ALPHA1",
    *(f"V3_0_0_BETA{beta}" for beta in range(1, 6)),
    *(f"V3_0_0_BETA{beta}{suffix}" for beta in range(6, 10) for suffix in ("_SNAPSHOT", "")),
    "V3_0_0_FINAL",
)


def _runs() -> list[tuple[int, int, int, int]]:
    """Every (ordinal of the run's first snapshot, major, minor, first patch), in order of ordinals."""
    patches = [(3, 0, range(1, 16)), (3, 1, range(10)), (3, 2, range(10)), *((3, minor, range(1, 10)) for minor in range(3, 10))]
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
    """The ordinal of release `major.minor.patch`, from 4.0.0 on; its snapshot's is one less."""
    if major < 4:
        raise ValueError(f"version {major}.{minor}.{patch} lies before 4.0.0, where ordinals follow no formula")
    return 213 + 200 * (major - 4) + 20 * minor + 2 * patch


def describe(version: int) -> str:
    """The version's name as the original prints it: `V5_5_0`, `V4_9_8_SNAPSHOT`; HIGHER_VERSION for what is not known yet."""
    if version >= HIGHER_VERSION or version < 0:
        return "HIGHER_VERSION"
    if version < len(_BEFORE_3_0_1):
        return _BEFORE_3_0_1[version]
    start, major, minor, first_patch = _RUNS[bisect_right(_RUN_STARTS, version) - 1]
    patch, is_release = divmod(version - start, 2)
    return f"V{major}_{minor}_{first_patch + patch}{'' if is_release else '_SNAPSHOT'}"
