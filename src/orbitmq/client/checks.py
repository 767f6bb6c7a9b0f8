"""Rejects invalid arguments early: names of topics and groups that no broker accepts, and settings
out of range.

Pure. The naming rules are those of the brokers: a consumer with an invalid name would wait for
messages forever. Names are checked as brokers see them, with their namespace. Settings are checked
when they are constructed, so that the error points at the code that set them.
"""

from __future__ import annotations

import re
from typing import Final

from orbitmq.common.errors import ConfigurationError, InvalidStateError
from orbitmq.common.topic_names import DEAD_LETTER_PREFIX, RETRY_PREFIX

_GROUP_CHARS_MAX: Final = 120
_TOPIC_CHARS_MAX: Final = 127
_RETRY_TOPIC_CHARS_MAX: Final = 255
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def check_group(name: str) -> None:
    """Raise InvalidStateError unless `name` is a valid group name."""
    _check("group", name, _GROUP_CHARS_MAX)


def check_topic(name: str) -> None:
    """Raise InvalidStateError unless `name` is a valid topic name."""
    has_group_prefix = isinstance(name, str) and name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    _check("topic", name, _RETRY_TOPIC_CHARS_MAX if has_group_prefix else _TOPIC_CHARS_MAX)


def _check(what: str, name: str, chars_max: int) -> None:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidStateError(
            f"{name!r} is not a valid {what} name: use only letters, digits, %, |, _ and -"
        )
    if len(name) > chars_max:
        raise InvalidStateError(
            f"{name!r} is not a valid {what} name: it has {len(name)} characters, brokers accept at"
            f" most {chars_max}"
        )


def require_at_least(least: int, settings: object, *names: str) -> None:
    """Raise ConfigurationError for the first setting that is not an integer or is below `least`."""
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigurationError(
                f"{type(settings).__name__}: {name}={value!r} is invalid: set an integer of at"
                f" least {least}"
            )
