"""The options that a user gives to Spark, as texts, read into values. Pure.

Names are known whatever their case: Spark hands them on in lower case. Every bad value is a ConfigurationError that names the option, its
value and what is allowed; the value of a secret is never told.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

from orbitmq.common.errors import ConfigurationError

# What Spark itself takes from, or adds to, the options of any format.
_OF_SPARK: Final = frozenset({"path", "paths", "checkpointlocation", "queryname", "mode"})
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d{1,15})\s*([a-z]*)")
_WHOLE: Final = re.compile(r"-?\d{1,18}")


class OptionTexts:
    """The options of one read or write."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._texts = {name.lower(): text for name, text in options.items()}

    def check_names(self, known: Collection[str]) -> None:
        """Refuse names that nobody knows: a misspelt one would be passed over in silence."""
        by_lower = {name.lower(): name for name in known}
        for name in self._texts:
            if name in by_lower or name in _OF_SPARK or name.startswith("spark."):
                continue
            near = difflib.get_close_matches(name, by_lower, n=1, cutoff=0.7)
            hint = f"did you mean {by_lower[near[0]]}?" if near else f"known are {', '.join(sorted(known))}"
            raise ConfigurationError(f"option {name} is not known; {hint}")

    def has(self, name: str) -> bool:
        return name.lower() in self._texts

    def given(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that are there."""
        return [name for name in names if self.has(name)]

    def only_one(self, names: Iterable[str]) -> str | None:
        """Which of `names` is there, if any; they exclude each other."""
        found = self.given(names)
        if len(found) > 1:
            raise ConfigurationError(f"options {' and '.join(found)} exclude each other; give one of them")
        return next(iter(found), None)

    def text(self, name: str, default: str = "") -> str:
        """A text that is not empty, or the default."""
        if not self.has(name):
            return default
        found = self._texts[name.lower()].strip()
        if not found:
            raise ConfigurationError(f"option {name} is empty; give it a value, or leave it out")
        return found

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false"):
            raise self.refused(name, "it is true or false")
        return text == "true"

    def number(self, name: str, low: int, high: int = (1 << 63) - 1) -> int | None:
        """A whole number within bounds; None when it is not there."""
        if not self.has(name):
            return None
        text = self.text(name)
        if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
            bounds = f"from {low} to {high}" if high < (1 << 63) - 1 else f"from {low} on"
            raise self.refused(name, f"it is a whole number {bounds}")
        return int(text)

    def duration_ms(self, name: str, default_ms: int, low_ms: int = 0) -> int:
        """`500ms`, `10s`, `15m`, `1h`; a number alone is in milliseconds."""
        if not self.has(name):
            return default_ms
        found = _DURATION.fullmatch(self.text(name).lower())
        unit = _UNITS_MS.get(found[2] or "ms") if found else None
        if found is None or unit is None:
            raise self.refused(name, "it is a time as 500ms, 10s, 15m or 1h")
        if int(found[1]) * unit < low_ms:
            raise self.refused(name, f"it is {low_ms} ms at least")
        return int(found[1]) * unit

    def time_ms(self, name: str) -> int:
        """Milliseconds since 1970, or a time in ISO 8601 with its offset from UTC."""
        text = self.text(name)
        if _WHOLE.fullmatch(text) and int(text) >= 0:
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise self.refused(name, "it is in milliseconds since 1970, or as 2026-01-31T12:00:00Z or 2026-01-31T12:00:00+02:00")
        return round(moment.timestamp() * 1000)

    def refused(self, name: str, allowed: str) -> ConfigurationError:
        """What to raise when an option's value will not do."""
        return ConfigurationError(f"option {name}={self._texts[name.lower()]!r}: {allowed}")
