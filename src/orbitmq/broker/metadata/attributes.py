"""Attributes of topics and groups: their names and values, and changes by `+name=value,-name`.

Pure: the current attributes and the requested changes go in, the new attributes or a refusal come
out. Rules and codes are those of RocketMQ 5.5.0; our remarks begin with its remarks. A value that
Apache RocketMQ accepts and this broker does not serve is refused; in a file written by Apache
RocketMQ it stays, with a warning in the log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from orbitmq.common.errors import Refusal, RefusedError

_FORM: Final = "write +name=value to set an attribute and -name to remove it, separated by commas"
_LONG_MAX: Final = (1 << 63) - 1
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,100}")
_EXPIRATION_MINUTES_MAX: Final = 30 * 24 * 60
_HOUR_MS: Final = 3_600_000
_RESERVE_TIME: Final = "reserve.time"
_COMPACTION: Final = (
    "compaction is not supported: old messages are deleted, also the last one of a key; omit the"
    " attribute, and set fileReservedTime or the topic attribute reserve.time to how long"
    " messages are needed"
)
_PRIORITY: Final = "priorities require pop consumption, which is not supported; omit the attribute"
_LITE: Final = "lite topics are not supported; omit the attribute, and use a topic for each"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: `fault` returns what is wrong with a value, or None; a fixed one is set when
    its owner is created, or never.

    `unserved` maps values without effect here to the reason; `None` stands for all values except
    `default`, which changes nothing.
    """

    fault: Callable[[str], str | None]
    is_fixed: bool = False
    unserved: Mapping[str | None, str] = field(default_factory=dict)
    default: str | None = None

    def why_unserved(self, value: str) -> str | None:
        """Return why a value has no effect here; None if it has one, or needs none."""
        return None if value == self.default else self.unserved.get(value, self.unserved.get(None))


def _one_of(*values: str) -> Callable[[str], str | None]:
    return lambda value: None if value in values else f"value is not in set: [{', '.join(values)}]"


def _number(least: int, most: int) -> Callable[[str], str | None]:
    def fault(value: str) -> str | None:
        if not _WHOLE_NUMBER.fullmatch(value) or abs(int(value)) > _LONG_MAX:
            return f'For input string: "{value}", which is no whole number'
        return None if least <= int(value) <= most else f"value is not in range({least}, {most})"

    return fault


def _truth(value: str) -> str | None:
    return (
        None
        if value.lower() in ("true", "false")
        else "boolean attribute format is wrong. It is true or false"
    )


def _any_text(_value: str) -> str | None:
    return None


TOPIC_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    "queue.type": Attribute(_one_of("SimpleCQ", "BatchCQ"), is_fixed=True),
    "cleanup.policy": Attribute(
        _one_of("DELETE", "COMPACTION"), is_fixed=True, unserved={"COMPACTION": _COMPACTION}
    ),
    "message.type": Attribute(
        _one_of(
            "UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE", "MIXED"
        ),
        unserved={"PRIORITY": _PRIORITY, "LITE": _LITE},
    ),
    _RESERVE_TIME: Attribute(_number(-1, _LONG_MAX)),
    "lite.topic.expiration": Attribute(
        _number(-1, _EXPIRATION_MINUTES_MAX), unserved={None: _LITE}, default="-1"
    ),
}
GROUP_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    "priority.factor": Attribute(_number(0, 100), unserved={None: _PRIORITY}, default="100"),
    "lite.bind.topic": Attribute(_any_text, unserved={None: _LITE}),
    "lite.sub.model": Attribute(
        _one_of("Shared", "Exclusive"), unserved={None: _LITE}, default="Shared"
    ),
    "lite.sub.reset.offset.exclusive": Attribute(_truth, unserved={None: _LITE}, default="false"),
    "lite.sub.reset.offset.unsubscribe": Attribute(_truth, unserved={None: _LITE}, default="false"),
    "lite.sub.client.quota": Attribute(
        _number(-1, _LONG_MAX), unserved={None: _LITE}, default="2000"
    ),
    "lite.sub.client.max.event.cnt": Attribute(_number(10, _LONG_MAX), unserved={None: _LITE}),
    "lite.sub.wildcard": Attribute(_any_text, unserved={None: _LITE}),
}


def reserve_ms(attributes: Mapping[str, str]) -> int | None:
    """Return how long a topic keeps messages, by its attribute in hours; None if that is not
    set.
    """
    value = attributes.get(_RESERVE_TIME)
    if value is None or TOPIC_ATTRIBUTES[_RESERVE_TIME].fault(value):
        return None
    return int(value) * _HOUR_MS if int(value) > 0 else None


def warn_of_unserved(
    known: Mapping[str, Attribute], owner: str, attributes: Mapping[str, str]
) -> None:
    """Log a warning for each attribute from a file that has no effect here; `owner` is `topic=T` or
    `group=g`.
    """
    for name, value in attributes.items():
        attribute = known.get(name)
        why = (
            "no such attribute"
            if attribute is None
            else attribute.fault(value) or attribute.why_unserved(value)
        )
        if why:
            log.warning(
                "attribute_without_effect %s attribute=%s value=%s why='%s'",
                owner,
                name,
                value,
                why,
            )


def parse_changes(text: str | None) -> dict[str, str]:
    """Parse `+name=value,-name` into changes by signed name."""
    changes: dict[str, str] = {}
    for item in (text or "").rstrip(",").split(",") if text and text.strip(",") else ():
        key, equals, rest = item.partition("=")
        if equals and "+" not in key:
            raise _refused(f"add/alter attribute format is wrong: {key}; {_FORM}")
        if equals and not rest:
            raise _refused(f"add/alter attribute format is wrong: {key} has no value; {_FORM}")
        if not equals and "-" not in key:
            raise _refused(f"delete attribute format is wrong: {key}; {_FORM}")
        if key in changes:
            raise _refused(f"key duplication: {key}; name each attribute once")
        changes[key] = rest.partition("=")[0]
    return changes


def altered(
    known: Mapping[str, Attribute], current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Return the attributes after the changes; `current` is None if their owner is being
    created.
    """
    result = dict(current or {})
    names: set[str] = set()
    for key, value in changes.items():
        sign, name = (key[0], key[1:]) if key.startswith(("+", "-")) else ("", key)
        if not name or "+" in name or "-" in name:
            raise _refused(f"kv string format wrong. Found {key!r}: {_FORM}")
        if name in names:
            raise _refused(f"alter duplication key. key: {name}; name each attribute once")
        names.add(name)
        _check_sign(sign, name, current)
        attribute = known.get(name)
        if attribute is None:
            raise _refused(f"unsupported key: {name}; known are {', '.join(known)}")
        if attribute.is_fixed and current is not None:
            raise _refused(
                f"attempt to update an unchangeable attribute. key: {name}; it is fixed when the"
                " topic is created"
            )
        if sign == "-":
            del result[name]
        elif fault := attribute.fault(value):
            raise _refused(f"{fault} (attribute {name})")
        elif unserved := attribute.why_unserved(value):
            raise _refused(f"{name}={value} is refused: {unserved}")
        else:
            result[name] = value
    return result


def _check_sign(sign: str, name: str, current: Mapping[str, str] | None) -> None:
    if sign == "+":
        return
    if current is None:
        raise _refused(
            f"only add attribute is supported while creating topic. key: {name}; {_FORM}"
        )
    if sign != "-":
        raise _refused(f"wrong format key: {name}; {_FORM}")
    if name not in current:
        raise _refused(
            f"attempt to delete a nonexistent key: {name}; the topic or group has"
            f" {', '.join(current) or 'no attributes'}"
        )


def _refused(remark: str) -> RefusedError:
    return RefusedError(Refusal.FAILED, remark)
