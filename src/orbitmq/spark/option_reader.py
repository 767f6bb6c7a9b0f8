"""Reads the options of a Spark data source, which are strings, into typed values. Pure.

Option names are case-insensitive: Spark passes them on in lower case. Every bad value raises a
ConfigurationError that names the option, its value and what is allowed. Secrets are never part of
an error.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

from orbitmq.common.errors import ConfigurationError

# Options that Spark itself reads from, or adds to, those of any format.
_SPARK_OPTIONS: Final = frozenset({"path", "paths", "checkpointlocation", "queryname", "mode"})
_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_DURATION: Final = re.compile(r"(\d{1,15})\s*([a-z]*)")
_WHOLE: Final = re.compile(r"-?\d{1,18}")


class OptionReader:
    """The options of one read or write."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._texts = {name.lower(): text for name, text in options.items()}

    def check_names(self, known: Collection[str]) -> None:
        """Refuse unknown options: a misspelt one would be ignored silently."""
        by_lower = {name.lower(): name for name in known}
        for name in self._texts:
            if name in by_lower or name in _SPARK_OPTIONS or name.startswith("spark."):
                continue
            near = difflib.get_close_matches(name, by_lower, n=1, cutoff=0.7)
            hint = (
                f"did you mean {by_lower[near[0]]}?"
                if near
                else f"known options: {', '.join(sorted(known))}"
            )
            raise ConfigurationError(f"unknown option {name}; {hint}")

    def has(self, name: str) -> bool:
        """Return whether the option was given."""
        return name.lower() in self._texts

    def given(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` that were given."""
        return [name for name in names if self.has(name)]

    def only_one(self, names: Iterable[str]) -> str | None:
        """Return which of the mutually exclusive `names` was given, or None."""
        found = self.given(names)
        if len(found) > 1:
            raise ConfigurationError(
                f"options {' and '.join(found)} exclude each other; give only one"
            )
        return next(iter(found), None)

    def text(self, name: str, default: str = "") -> str:
        """Return a non-empty string, or the default if the option is missing."""
        if not self.has(name):
            return default
        found = self._texts[name.lower()].strip()
        if not found:
            raise ConfigurationError(f"option {name} is empty; give it a value or leave it out")
        return found

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean, or the default if the option is missing."""
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false"):
            raise self.invalid(name, "must be true or false")
        return text == "true"

    def number(self, name: str, low: int, high: int = (1 << 63) - 1) -> int | None:
        """Return a whole number within bounds, or None if the option is missing."""
        if not self.has(name):
            return None
        text = self.text(name)
        if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
            bounds = f"from {low} to {high}" if high < (1 << 63) - 1 else f"of at least {low}"
            raise self.invalid(name, f"must be a whole number {bounds}")
        return int(text)

    def duration_ms(self, name: str, default_ms: int, low_ms: int = 0) -> int:
        """Parse a duration such as `500ms`, `10s` or `1h`; a bare number is in milliseconds."""
        if not self.has(name):
            return default_ms
        found = _DURATION.fullmatch(self.text(name).lower())
        unit = _UNITS_MS.get(found[2] or "ms") if found else None
        if found is None or unit is None:
            raise self.invalid(name, "must be a duration such as 500ms, 10s, 15m or 1h")
        if int(found[1]) * unit < low_ms:
            raise self.invalid(name, f"must be at least {low_ms} ms")
        return int(found[1]) * unit

    def time_ms(self, name: str) -> int:
        """Parse milliseconds since 1970, or an ISO 8601 time with its UTC offset."""
        text = self.text(name)
        if _WHOLE.fullmatch(text) and int(text) >= 0:
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise self.invalid(
                name,
                "must be milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z or"
                " 2026-01-31T12:00:00+02:00",
            )
        return round(moment.timestamp() * 1000)

    def invalid(self, name: str, allowed: str) -> ConfigurationError:
        """Return the error to raise for an invalid value; `allowed` says what is allowed."""
        return ConfigurationError(f"option {name}={self._texts[name.lower()]!r}: {allowed}")
