"""Valid names of topics and groups: the rules of Apache RocketMQ's TopicValidator.

Pure: names in, a refusal out. The remarks begin as in Apache RocketMQ, since tools show and match
them, and end with the remedy.
"""

from __future__ import annotations

import re
from typing import Final

from orbitmq.common.errors import Refusal, RefusedError
from orbitmq.common.topic_names import DEAD_LETTER_PREFIX, RETRY_PREFIX

TOPIC_CHARS_MAX: Final = 127
RETRY_TOPIC_CHARS_MAX: Final = 255
GROUP_CHARS_MAX: Final = 120  # so that the names of its retry and dead-letter topics fit

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def check_topic(topic: str) -> None:
    """Raise RefusedError unless the name is valid for a topic."""
    _check(topic, "topic")
    if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        if len(topic) > RETRY_TOPIC_CHARS_MAX:
            raise _refused(
                f"The specified topic is DLQ or Retry topic: {topic}, and it's longer than topic"
                f" max length: {RETRY_TOPIC_CHARS_MAX}; it has {len(topic)} characters: use a"
                " shorter group name"
            )
    elif len(topic) > TOPIC_CHARS_MAX:
        raise _refused(
            f"The specified topic: {topic}, is longer than topic max length: {TOPIC_CHARS_MAX}; "
            f"it has {len(topic)} characters: use a shorter name"
        )


def check_group(group: str) -> None:
    """Raise RefusedError unless the name is valid for a consumer group."""
    _check(group, "group")
    if len(group) > GROUP_CHARS_MAX:
        raise _refused(
            f"The specified group: {group}, is longer than group max length: {GROUP_CHARS_MAX}; "
            f"it has {len(group)} characters: use a shorter name"
        )


def is_valid_group(group: str) -> bool:
    """Return whether the name is valid for a consumer group."""
    return len(group) <= GROUP_CHARS_MAX and _NAME.fullmatch(group) is not None


def _check(name: str, what: str) -> None:
    if _NAME.fullmatch(name) is not None:
        return
    if not name or name.isspace():
        raise _refused(
            f"The specified {what} is blank. Give a name of letters, digits, %, |, _ or -"
        )
    wrong = next(char for char in name if not _NAME.match(char))
    raise _refused(
        f"The specified {what}: {name}, contains illegal characters, allowing only"
        f" ^[%|a-zA-Z0-9_-]+$; the first is {wrong!r}"
    )


def _refused(remark: str) -> RefusedError:
    return RefusedError(Refusal.INVALID_PARAMETER, remark)
