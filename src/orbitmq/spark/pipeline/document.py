"""A YAML file whose every value knows where it stands, so that whatever is wrong with it can be told with file, line and a suggestion.

Knows nothing of pipelines. A value of the command line (`--set path=value`) takes its place in the same tree, and is told as such. Nothing
is constructed: only texts are read, so that no tag of YAML can do anything.
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


class Entry:
    """One value of the file."""

    __slots__ = ("_node", "path")

    def __init__(self, node: yaml.Node, path: str) -> None:
        self._node = node
        self.path = path  # as people write it: sinks.0.options

    @property
    def place(self) -> str:
        """File and line, or what was written on the command line."""
        return _place(self._node)

    @property
    def is_of_command_line(self) -> bool:
        return str(self._node.start_mark.name).startswith(_SET)

    def problem(self, text: str) -> ConfigurationError:
        """What to raise about this value."""
        return ConfigurationError(f"{self.place}: {text}")

    def block(self, known: Collection[str], what: str = "") -> Block:
        """A table of these keys; `what` says of which kind it is, where that matters for its keys."""
        return Block(self, self._members(), known, what)

    def table(self) -> dict[str, Entry]:
        """A table with any keys."""
        return {name: entry for name, (_, entry) in self._members().items()}

    def items(self) -> list[Entry]:
        """The members of a list that has some."""
        node = self._node
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise self._wrong("a list with at least one member")
        return [Entry(member, f"{self.path}.{number}") for number, member in enumerate(node.value)]

    def text(self, wanted: str = "a text") -> str:
        """A text that is not empty; numbers and the like count as they are written."""
        node = self._node
        if not isinstance(node, yaml.ScalarNode) or not str(node.value).strip():
            raise self._wrong(wanted)
        return str(node.value).strip()

    def expanded(self, environment: Mapping[str, str], wanted: str = "a text") -> str:
        """A text in which `${NAME}` and `${NAME:-otherwise}` stand for variables."""

        def value(found: re.Match[str]) -> str:
            text = environment.get(found[1], found[2])
            if text is None:
                raise self.problem(f"{self.path}: the variable {found[1]} is not set; set it, or write ${{{found[1]}:-what to use then}}")
            return text

        return _VARIABLE.sub(value, self.text(wanted))

    def texts(self, wanted: str) -> tuple[str, ...]:
        """A list of texts, or one text alone."""
        if isinstance(self._node, yaml.ScalarNode):
            return (self.text(wanted),)
        return tuple(member.text(wanted) for member in self.items())

    def choice(self, allowed: Sequence[str], otherwise: str = "") -> str:
        """One of these words."""
        found = self.text(f"one of {', '.join(allowed)}")
        if found not in allowed:
            raise self.problem(f"{self.path} is {found}, and has to be {_listed(allowed)}{otherwise or _meant(found, allowed)}")
        return found

    def flag(self) -> bool:
        text = self.text("true or false")
        if text not in ("true", "false"):
            raise self._wrong("true or false")
        return text == "true"

    def whole(self, low: int, high: int) -> int:
        """A whole number within bounds."""
        text = self.text("a whole number")
        if not text.isdecimal() or not low <= int(text) <= high:
            raise self.problem(f"{self.path} is {text}, and has to be a whole number from {low} to {high}")
        return int(text)

    def duration_ms(self) -> int:
        """`5 seconds`, `1 hour 30 minutes`, `500 ms`."""
        text = self.text("a time as 5 seconds").lower()
        parts = _DURATION.findall(text)
        if not parts or _DURATION.sub("", text) or any(unit not in _UNITS_MS for _, unit in parts):
            raise self.problem(f"{self.path} is {text}, and has to be a time as 500 ms, 5 seconds, 1 hour 30 minutes or 1 day")
        return sum(int(count) * _UNITS_MS[unit] for count, unit in parts)

    def _members(self) -> dict[str, tuple[yaml.Node, Entry]]:
        node = self._node
        if not isinstance(node, yaml.MappingNode):
            raise self._wrong("a table, as key: value")
        found: dict[str, tuple[yaml.Node, Entry]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigurationError(f"{_place(key)}: a key of {_name(self.path)} is no text")
            if key.value in found:
                first = _place(found[key.value][0])
                raise ConfigurationError(f"{_place(key)}: {_name(self.path)} has the key {key.value} twice, the first time at {first}")
            found[key.value] = (key, Entry(value, f"{self.path}.{key.value}".lstrip(".")))
        return found

    def _wrong(self, wanted: str) -> ConfigurationError:
        node = self._node
        if isinstance(node, yaml.ScalarNode):
            kind = f"the text {node.value!r}" if node.value.strip() else "empty"
        else:
            kind = "a table" if isinstance(node, yaml.MappingNode) else "a list" if node.value else "an empty list"
        return self.problem(f"{_name(self.path)} is {kind}, and has to be {wanted}")


class Block:
    """A table of the file whose keys are known."""

    def __init__(self, entry: Entry, members: Mapping[str, tuple[yaml.Node, Entry]], known: Collection[str], what: str) -> None:
        for name, (key, _) in members.items():
            if name not in known:
                hint = _meant(name, known) or f"; it may have {', '.join(known)}"
                raise ConfigurationError(f"{_place(key)}: {_name(entry.path)}{what and f' ({what})'} has no key {name}{hint}")
        self._entry = entry
        self._members = members

    @property
    def place(self) -> str:
        return self._entry.place

    def get(self, name: str) -> Entry | None:
        found = self._members.get(name)
        return None if found is None else found[1]

    def need(self, name: str, what: str) -> Entry:
        """A value that has to be there; `what` says what it is."""
        found = self.get(name)
        if found is None:
            raise self._entry.problem(f"{_name(self._entry.path)} has no {name}: {what}")
        return found

    def problem(self, text: str) -> ConfigurationError:
        return self._entry.problem(text)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)


def load(file: Path, settings: Sequence[str] = ()) -> Entry:
    """The file, with `settings` of the form `path=value` in place of what it says."""
    try:
        text = file.read_bytes().decode()
    except UnicodeDecodeError as problem:
        raise ConfigurationError(f"{file}: it is no text in UTF-8: {problem.reason} at byte {problem.start}") from None
    except OSError as problem:
        raise ConfigurationError(f"{file} cannot be read: {file_cause(problem)}") from problem
    root = _composed(text, os.fspath(file))
    if root is None:
        raise ConfigurationError(f"{file}: there is nothing in it")
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals or not all(path.split(".")):
            raise ConfigurationError(f"{_SET}{setting}: it is written path=value, as source.options.nameServer=10.0.0.1:9876")
        label = f"{_SET}{path}"
        node = _composed(value, label)
        _put(root, path.split("."), node or _composed("''", label), label)
    return Entry(root, "")


def _composed(text: str, name: str) -> yaml.Node | None:
    try:
        loader = yaml.SafeLoader(text)
        loader.name = name
        node: yaml.Node | None = loader.get_single_node()
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        what = " ".join(part for part in (problem.context, problem.problem) if part)
        raise ConfigurationError(f"{name}:{mark.line + 1 if mark else 1}: it is no YAML: {what}") from None
    except yaml.reader.ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        raise ConfigurationError(f"{name}:{line}: it is no YAML: the character #x{problem.character:04x} is not allowed") from None
    return node


def _put(node: yaml.Node, path: Sequence[str], value: yaml.Node | None, label: str) -> None:
    """Put `value` where `path` leads; tables on the way come to be."""
    name, rest = path[0], path[1:]
    assert value is not None, "an empty text is a node"
    if isinstance(node, yaml.SequenceNode):
        if not name.isdecimal() or int(name) >= len(node.value):
            numbers = f"0 to {len(node.value) - 1}" if node.value else "none"
            raise ConfigurationError(f"{label}: {name} is no member of the list there; its members are {numbers}")
        if rest:
            _put(node.value[int(name)], rest, value, label)
        else:
            node.value[int(name)] = value
        return
    if not isinstance(node, yaml.MappingNode):
        raise ConfigurationError(f"{label}: there is no table that {name} could stand in")
    child = next((member for key, member in node.value if key.value == name), None)
    if child is None or not rest:
        key = yaml.ScalarNode("tag:yaml.org,2002:str", name, value.start_mark, value.end_mark)
        child = yaml.MappingNode("tag:yaml.org,2002:map", [], value.start_mark, value.end_mark) if rest else value
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


def _meant(name: str, known: Collection[str]) -> str:
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""
