"""The namespace of a client: a prefix of its topic and group names that brokers see and the
application does not.

`orders` in namespace `shop` is `shop%orders` to brokers; retry and dead-letter topics keep their
prefix in front. RocketMQ's system names are unchanged. Pure. Rule for the whole client: names that
an application gives or reads (`Message.topic`, a subscription, a group) are without the namespace;
a `MessageQueue` has the broker's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orbitmq.common.topic_names import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPICS,
)

SEPARATOR: Final = "%"
_SYSTEM_PREFIXES: Final = (SYSTEM_GROUP_PREFIX, "rmq_sys_")


@dataclass(frozen=True, slots=True)
class Namespace:
    """Maps names between application and broker; an empty namespace leaves them unchanged."""

    name: str = ""

    def wire(self, name: str) -> str:
        """Return the broker's name of the topic or group `name`."""
        if not self.name or not name or name in SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIXES):
            return name
        prefix, rest = _split(name)
        own = self.name + SEPARATOR
        return name if rest.startswith(own) else prefix + own + rest

    def own(self, name: str) -> str:
        """Return the application's name of the broker's topic or group `name`."""
        if not self.name:
            return name
        prefix, rest = _split(name)
        return prefix + rest.removeprefix(self.name + SEPARATOR)


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
