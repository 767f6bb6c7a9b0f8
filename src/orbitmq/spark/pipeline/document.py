"""A YAML document whose values know their position, so that errors name file and line and make a
suggestion.

Knows nothing of pipelines. A value from the command line (`--set path=value`) takes its place in
the same tree, and errors name it as such. Only strings are read and nothing is constructed, so no
YAML tag can run code.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from orbitmq.common.errors import ConfigurationError, file_cause

_SET: Final = "--set "
_UNITS_MS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("week", "weeks"), 7 * 86_400_000),
}
_DURATION: Final = re.compile(r"(\d{1,12})\s*([a-z]+)\s*")
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class YamlEntry:
    """One value of the document."""

    __slots__ = ("_node", "path")

    def __init__(self, node: yaml.Node, path: str) -> None:
        self._node = node
        self.path = path  # for example sinks.0.options

    @property
    def place(self) -> str:
        """File and line, or the setting of the command line."""
        return _place(self._node)

    @property
    def is_of_command_line(self) -> bool:
        """Whether the value comes from `--set`."""
        return str(self._node.start_mark.name).startswith(_SET)

    def problem(self, text: str) -> ConfigurationError:
        """Return the error to raise for this value."""
        return ConfigurationError(f"{self.place}: {text}")

    def block(self, known: Collection[str], what: str = "") -> YamlTable:
        """Return a table with known keys; `what` names its kind if that determines the keys."""
        return YamlTable(self, self._members(), known, what)

    def table(self) -> dict[str, YamlEntry]:
        """Return the members of a table with any keys."""
        return {name: entry for name, (_, entry) in self._members().items()}

    def items(self) -> list[YamlEntry]:
        """Return the members of a non-empty list."""
        node = self._node
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise self._type_error("a list with at least one member")
        return [
            YamlEntry(member, f"{self.path}.{number}") for number, member in enumerate(node.value)
        ]

    def text(self, wanted: str = "a string") -> str:
        """Return a non-empty string; numbers and the like as they are written."""
        node = self._node
        if not isinstance(node, yaml.ScalarNode) or not str(node.value).strip():
            raise self._type_error(wanted)
        return str(node.value).strip()

    def expanded(self, environment: Mapping[str, str], wanted: str = "a string") -> str:
        """Return a string with `${NAME}` and `${NAME:-default}` replaced by variables."""

        def value(found: re.Match[str]) -> str:
            text = environment.get(found[1], found[2])
            if text is None:
                raise self.problem(
                    f"{self.path}: the variable {found[1]} is not set; set it, or give a default"
                    f" with ${{{found[1]}:-default}}"
                )
            return text

        return _VARIABLE.sub(value, self.text(wanted))

    def texts(self, wanted: str) -> tuple[str, ...]:
        """Return a list of strings; a single string counts as a list of one."""
        if isinstance(self._node, yaml.ScalarNode):
            return (self.text(wanted),)
        return tuple(member.text(wanted) for member in self.items())

    def choice(self, allowed: Sequence[str], context: str = "") -> str:
        """Return one of the allowed words; `context` says where they apply."""
        found = self.text(f"one of {', '.join(allowed)}")
        if found not in allowed:
            raise self.problem(
                f"{self.path} is {found} but must be"
                f" {_listed(allowed)}{context or _suggestion(found, allowed)}"
            )
        return found

    def flag(self) -> bool:
        """Return true or false."""
        text = self.text("true or false")
        if text not in ("true", "false"):
            raise self._type_error("true or false")
        return text == "true"

    def whole(self, low: int, high: int) -> int:
        """Return a whole number within bounds."""
        text = self.text("a whole number")
        if not text.isdecimal() or not low <= int(text) <= high:
            raise self.problem(
                f"{self.path} is {text} but must be a whole number from {low} to {high}"
            )
        return int(text)

    def duration_ms(self) -> int:
        """Return a duration such as `5 seconds`, `1 hour 30 minutes` or `500 ms`."""
        text = self.text("a duration such as 5 seconds").lower()
        parts = _DURATION.findall(text)
        if not parts or _DURATION.sub("", text) or any(unit not in _UNITS_MS for _, unit in parts):
            raise self.problem(
                f"{self.path} is {text} but must be a duration such as 500 ms, 5 seconds, 1 hour 30"
                " minutes or 1 day"
            )
        return sum(int(count) * _UNITS_MS[unit] for count, unit in parts)

    def _members(self) -> dict[str, tuple[yaml.Node, YamlEntry]]:
        node = self._node
        if not isinstance(node, yaml.MappingNode):
            raise self._type_error("a table of key: value")
        found: dict[str, tuple[yaml.Node, YamlEntry]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigurationError(
                    f"{_place(key)}: a key of {_name(self.path)} is not a string"
                )
            if key.value in found:
                first = _place(found[key.value][0])
                raise ConfigurationError(
                    f"{_place(key)}: {_name(self.path)} has the key {key.value} twice, first"
                    f" at {first}"
                )
            found[key.value] = (key, YamlEntry(value, f"{self.path}.{key.value}".lstrip(".")))
        return found

    def _type_error(self, wanted: str) -> ConfigurationError:
        node = self._node
        if isinstance(node, yaml.ScalarNode):
            kind = f"the string {node.value!r}" if node.value.strip() else "empty"
        else:
            kind = (
                "a table"
                if isinstance(node, yaml.MappingNode)
                else "a list"
                if node.value
                else "an empty list"
            )
        return self.problem(f"{_name(self.path)} is {kind} but must be {wanted}")


class YamlTable:
    """A table of the document with known keys."""

    def __init__(
        self,
        entry: YamlEntry,
        members: Mapping[str, tuple[yaml.Node, YamlEntry]],
        known: Collection[str],
        what: str,
    ) -> None:
        for name, (key, _) in members.items():
            if name not in known:
                hint = _suggestion(name, known) or f"; allowed keys: {', '.join(known)}"
                raise ConfigurationError(
                    f"{_place(key)}: {_name(entry.path)}{what and f' ({what})'} has no key"
                    f" {name}{hint}"
                )
        self._entry = entry
        self._members = members

    @property
    def place(self) -> str:
        return self._entry.place

    def get(self, name: str) -> YamlEntry | None:
        """Return a value, or None."""
        found = self._members.get(name)
        return None if found is None else found[1]

    def need(self, name: str, what: str) -> YamlEntry:
        """Return a required value; `what` describes it in the error."""
        found = self.get(name)
        if found is None:
            raise self._entry.problem(f"{_name(self._entry.path)} has no {name}: {what}")
        return found

    def problem(self, text: str) -> ConfigurationError:
        return self._entry.problem(text)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)


def load(file: Path, settings: Sequence[str] = ()) -> YamlEntry:
    """Load the file and apply `settings` of the form `path=value`."""
    try:
        text = file.read_bytes().decode()
    except UnicodeDecodeError as problem:
        raise ConfigurationError(
            f"{file}: not valid UTF-8: {problem.reason} at byte {problem.start}"
        ) from None
    except OSError as problem:
        raise ConfigurationError(f"{file} cannot be read: {file_cause(problem)}") from problem
    root = _composed(text, os.fspath(file))
    if root is None:
        raise ConfigurationError(f"{file}: the file is empty")
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals or not all(path.split(".")):
            raise ConfigurationError(
                f"{_SET}{setting}: must be path=value, for example"
                " source.options.nameServer=10.0.0.1:9876"
            )
        label = f"{_SET}{path}"
        node = _composed(value, label)
        _put(root, path.split("."), node or _composed("''", label), label)
    return YamlEntry(root, "")


def _composed(text: str, name: str) -> yaml.Node | None:
    try:
        loader = yaml.SafeLoader(text)
        loader.name = name
        node: yaml.Node | None = loader.get_single_node()
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        what = " ".join(part for part in (problem.context, problem.problem) if part)
        raise ConfigurationError(
            f"{name}:{mark.line + 1 if mark else 1}: invalid YAML: {what}"
        ) from None
    except yaml.reader.ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        raise ConfigurationError(
            f"{name}:{line}: invalid YAML: the character #x{problem.character:04x} is not allowed"
        ) from None
    return node


def _put(node: yaml.Node, path: Sequence[str], value: yaml.Node | None, label: str) -> None:
    """Set the value at `path`; creates missing tables."""
    name, rest = path[0], path[1:]
    assert value is not None, "an empty string is a node"
    if isinstance(node, yaml.SequenceNode):
        if not name.isdecimal() or int(name) >= len(node.value):
            numbers = f"0 to {len(node.value) - 1}" if node.value else "none"
            raise ConfigurationError(
                f"{label}: the list there has no member {name}; its members are {numbers}"
            )
        if rest:
            _put(node.value[int(name)], rest, value, label)
        else:
            node.value[int(name)] = value
        return
    if not isinstance(node, yaml.MappingNode):
        raise ConfigurationError(f"{label}: the parent of {name} is not a table")
    child = next((member for key, member in node.value if key.value == name), None)
    if child is None or not rest:
        key = yaml.ScalarNode("tag:yaml.org,2002:str", name, value.start_mark, value.end_mark)
        child = (
            yaml.MappingNode("tag:yaml.org,2002:map", [], value.start_mark, value.end_mark)
            if rest
            else value
        )
        node.value = [pair for pair in node.value if pair[0].value != name] + [(key, child)]
    if rest:
        _put(child, rest, value, label)


def _place(node: yaml.Node) -> str:
    mark = node.start_mark
    return str(mark.name) if mark.name.startswith(_SET) else f"{mark.name}:{mark.line + 1}"


def _name(path: str) -> str:
    return path or "the file"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _suggestion(name: str, known: Collection[str]) -> str:
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""
