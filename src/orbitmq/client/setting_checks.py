"""Refuses settings that cannot be used, when they are made: what is wrong is told where it was written, and not when it is first needed."""

from __future__ import annotations

from orbitmq.common.errors import ConfigurationError


def at_least(least: int, settings: object, *names: str) -> None:
    """ConfigurationError for the first of these settings that is no number, or a smaller one."""
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigurationError(f"{type(settings).__name__}: {name}={value!r} cannot be; it is a whole number, at least {least}")
