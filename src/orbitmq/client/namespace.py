"""The namespace of a client: a name before the names of its topics and groups, which brokers see and the application does not.

`orders` in namespace `shop` is `shop%orders` to brokers; retry and dead-letter topics keep their prefix in front. Names of RocketMQ's own
stay as they are. Pure. One rule for the whole client: names that an application gives or reads (`Message.topic`, a subscription, a group)
are its own; a `MessageQueue` has the broker's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orbitmq.common.topic_names import DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX, SYSTEM_TOPICS

SEPARATOR: Final = "%"
_SYSTEM_PREFIXES: Final = (SYSTEM_GROUP_PREFIX, "rmq_sys_")


@dataclass(frozen=True, slots=True)
class Namespace:
    """See above; without a name every name stays as it is."""

    name: str = ""

    def wire(self, name: str) -> str:
        """What brokers call the topic or group `name`."""
        if not self.name or not name or name in SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIXES):
            return name
        prefix, rest = _split(name)
        own = self.name + SEPARATOR
        return name if rest.startswith(own) else prefix + own + rest

    def own(self, name: str) -> str:
        """What the application calls what brokers call `name`."""
        if not self.name:
            return name
        prefix, rest = _split(name)
        return prefix + rest.removeprefix(self.name + SEPARATOR)


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
