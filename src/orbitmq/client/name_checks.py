"""Refuses names of topics and groups that no broker takes: with one of them a consumer would wait for messages without end.

Pure. The rules are those of the brokers. Names are checked as brokers see them, with their namespace.
"""

from __future__ import annotations

import re
from typing import Final

from orbitmq.common.errors import WrongCall
from orbitmq.common.topic_names import DEAD_LETTER_PREFIX, RETRY_PREFIX

_GROUP_CHARS_MAX: Final = 120
_TOPIC_CHARS_MAX: Final = 127
_RETRY_TOPIC_CHARS_MAX: Final = 255
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def check_group(name: str) -> None:
    """WrongCall unless a group may have that name."""
    _check("group", name, _GROUP_CHARS_MAX)


def check_topic(name: str) -> None:
    """WrongCall unless a topic may have that name."""
    named_after_a_group = isinstance(name, str) and name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    _check("topic", name, _RETRY_TOPIC_CHARS_MAX if named_after_a_group else _TOPIC_CHARS_MAX)


def _check(what: str, name: str, chars_max: int) -> None:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise WrongCall(f"{name!r} cannot be the name of a {what}: it needs letters, digits, %, |, _ or -, and nothing else")
    if len(name) > chars_max:
        raise WrongCall(f"{name!r} cannot be the name of a {what}: it has {len(name)} characters, and brokers take {chars_max}")
