"""Layers: where the values of a settings class come from, and which one wins.

From weak to strong: declared default < variable that the original reads (`ROCKETMQ_HOME`) < `-c`
file or, without one, what earlier run-time updates changed < file named by `tls.config.file` (its
keys only) < `ORBITMQ_*` environment < command line. A value that cannot be used stops the start
with a ConfigurationError that says where it stands, together with all others; a key that does not
exist is a warning that names the nearest one that does, and so is a key that a file sets twice.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from orbitmq.common import properties
from orbitmq.common.config.keys import Key, Use, expanded
from orbitmq.common.config.settings import MASK, Settings
from orbitmq.common.config.tls import DEFAULT_TLS_CONFIG_FILE, TlsSettings
from orbitmq.common.errors import (
    ConfigurationError,
    UnusableConfigurationError,
    file_cause,
    listed_problems,
)

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """Settings, and what their author should know about what was written."""

    settings: S
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Text:
    """A value as it was written, and where."""

    text: str
    where: str


def load(
    kind: type[S],
    *,
    file: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Loaded[S]:
    """The settings of a server; `flags` are key names with the texts of the command line."""
    environment = os.environ if environment is None else environment
    known = kind.keys_by_name()
    warnings: list[str] = []
    written: dict[str, _Text] = {}
    for key in known.values():
        if key.declared.original_env is not None and environment.get(key.declared.original_env):
            written[key.name] = _Text(
                environment[key.declared.original_env], key.declared.original_env
            )
    in_file = _read(file) if file is not None else []
    _add(
        kind,
        written,
        ((entry.key, _Text(entry.value, f"{file}:{entry.line}")) for entry in in_file),
        warnings,
    )
    if file is not None and kind.STORE_PATH:
        store_key = next(key for key in known.values() if key.attribute == kind.STORE_PATH)
        written[store_key.name] = _Text(str(Path(file).absolute()), "-c")
    strong = {
        key.name: _Text(environment[key.env], f"environment variable {key.env}")
        for key in known.values()
        if key.env in environment
    }
    warnings.extend(_misspelt_variables(known.values(), environment))
    _add(
        kind,
        strong,
        ((name, _Text(text, "command line")) for name, text in (flags or {}).items()),
        warnings,
    )
    if issubclass(kind, TlsSettings):
        _add(kind, written, _tls_file(kind, {**written, **strong}), warnings)
    kept = _updates(kind, written | strong) if file is None else {}
    warnings.extend(
        f"{kept[name].where}: {name} as an update left it is not used: {strong[name].where} sets"
        " it too"
        for name in kept
        if name in strong and kept[name].text != strong[name].text
    )
    written |= kept | strong
    settings = _settings(kind, written)
    if file is not None:
        settings.remember_file({entry.key: entry.value for entry in in_file})
    else:
        settings.remember_updates({name: text.text for name, text in kept.items()})
    warnings.extend(_without_effect(settings, written))
    return Loaded(settings, tuple(warnings))


def _read(file: str) -> list[properties.Property]:
    try:
        return properties.parse(properties.decode(Path(file).read_bytes()))
    except OSError as error:
        raise ConfigurationError(
            f"configuration file {file} cannot be read: {file_cause(error)}"
        ) from error
    except properties.PropertiesError as error:
        raise ConfigurationError(f"{file}:{error.line}: {error.problem}") from None


def _updates(kind: type[Settings], written: Mapping[str, _Text]) -> dict[str, _Text]:
    """What updates changed before, of a server without a configuration file; of that file no other
    key counts.
    """
    path = kind.updates_path({name: text.text for name, text in written.items()})
    if path is None or not Path(path).is_file():
        return {}
    known = kind.keys_by_name()
    found = [
        entry for entry in _read(path) if entry.key in known and known[entry.key].declared.dynamic
    ]
    return {entry.key: _Text(entry.value, f"{path}:{entry.line}") for entry in found}


def _add(
    kind: type[Settings],
    written: dict[str, _Text],
    entries: Iterable[tuple[str, _Text]],
    warnings: list[str],
) -> None:
    """Lay `entries` over what is written; a key that does not exist, or comes twice, becomes a
    warning.
    """
    known = kind.keys_by_name()
    here: dict[str, _Text] = {}
    for name, text in entries:
        if name in here:
            warnings.append(f"{text.where}: {name} is set again: {here[name].where} is ignored")
        here[name] = text
        if name in known:
            written[name] = text
        else:
            warnings.append(f"{text.where}: unknown key {name} is ignored: {kind.hint(name)}")


def _settings(kind: type[S], written: Mapping[str, _Text]) -> S:
    """The settings of what is written; ConfigurationError names every problem, and where it
    stands: an UnusableConfigurationError when all values could at least be read.
    """
    known = kind.keys_by_name()
    values: dict[str, Any] = {}
    unread: dict[str, str] = {}
    for name, text in written.items():
        try:
            values[known[name].attribute] = known[name].parse(text.text)
        except ValueError as error:
            shown = MASK if known[name].declared.secret else text.text
            unread[name] = f"{text.where}: {name}={shown} cannot be used: allowed is {error}"
    try:
        settings = kind(**values)
    except UnusableConfigurationError as error:
        found = [
            (name, f"{written[name].where}: {text}" if name in written else text)
            for name, text in error.problems
            if not any(other in text for other in unread)  # whose value is not known
        ]
        if not unread:
            raise UnusableConfigurationError(*found) from None
        unread |= dict(found)
    if unread:
        raise ConfigurationError(listed_problems(tuple(unread.values())))
    return settings


def _tls_file(kind: type[Settings], written: Mapping[str, _Text]) -> list[tuple[str, _Text]]:
    """The entries of the file that `tls.config.file` names, but for the keys that the original does
    not read there.
    """
    named = written.get("tls.config.file")
    path = expanded(named.text.strip()) if named is not None else DEFAULT_TLS_CONFIG_FILE
    if not path or (not Path(path).is_file() and path == DEFAULT_TLS_CONFIG_FILE):
        return []
    elsewhere = {"tls.config.file", "tls.enable", "tls.server.mode"}
    return [
        (entry.key, _Text(entry.value, f"{path}:{entry.line}"))
        for entry in _read(path)
        if entry.key not in elsewhere
    ]


def _misspelt_variables(keys: Iterable[Key], environment: Mapping[str, str]) -> list[str]:
    """A warning for each `ORBITMQ_*` variable that is nearly, but not quite, one of ours; the
    others belong to somebody else.
    """
    variables = {key.env for key in keys}
    near = {
        name: difflib.get_close_matches(name, variables, n=1, cutoff=0.9)
        for name in environment
        if name.startswith("ORBITMQ_")
    }
    return [
        f"environment variable {name}: unknown key is ignored: did you mean {close[0]}?"
        for name, close in sorted(near.items())
        if close and name not in variables
    ]


def _without_effect(settings: Settings, written: Mapping[str, _Text]) -> list[str]:
    """A warning for each key without effect that has another value than it would have by itself; a
    server that keeps an update writes all values into its file, derived ones too.
    """
    known = settings.keys_by_name()
    inert = {name for name in written if known[name].declared.use is Use.NO_EFFECT}
    plain = type(settings)(
        **{
            known[name].attribute: known[name].parse(text.text)
            for name, text in written.items()
            if name not in inert
        }
    )
    return [
        f"{text.where}: {name} has no effect: {known[name].declared.doc}"
        for name, text in written.items()
        if name in inert
        and getattr(settings, known[name].attribute)
        not in (known[name].default, getattr(plain, known[name].attribute))
    ]
