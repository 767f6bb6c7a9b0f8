"""Settings: the typed view of a server's configuration that code reads as attributes, and the
original's text face of the same values.

A settings class is a frozen dataclass made of sections (base classes with a `SECTION`), whose
fields are keys. Code never sets an attribute; `update` does, for the keys that are declared
dynamic, all of them or none. Knows neither files of defaults nor environment (`layers` does) and
takes no path from an update: keys that hold one are not dynamic.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import logging
import threading
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final

from orbitmq.common import atomic_file, properties
from orbitmq.common.config.keys import Key, Use, Value, expanded, key_of, to_text
from orbitmq.common.errors import (
    ConfigurationError,
    RequestRefusedError,
    UnusableConfigurationError,
)

log = logging.getLogger(__name__)

SYSTEM_ERROR = 1
NO_PERMISSION = 16
BLACK_LIST_REMARK = "Can not update config in black list."
MASK = "******"
# how much of two names has to be the same for one to be taken for a misspelling of the other
_ALIKE: Final = 0.8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of every settings class and of its sections."""

    SECTION: ClassVar[str] = ""
    SHOWN_SECTIONS: ClassVar[tuple[str, ...]] = ()
    """The sections whose keys `render` always lists; of the others it lists those that the file
    sets.
    """
    STORE_PATH: ClassVar[str] = ""
    """The attribute that names the file which updates are kept in; a configuration file that was
    loaded takes its place.
    """
    BLACK_LIST: ClassVar[frozenset[str]] = frozenset()
    """Keys that the original never updates."""
    NO_KEYS: ClassVar[Mapping[str, str]] = {}
    """Names that many files have and that are keys of no release, and what to say of them."""

    def __post_init__(self) -> None:
        for key in self.all_keys():
            try:
                key.check(getattr(self, key.attribute))
            except ValueError as error:
                raise ConfigurationError(
                    f"{key.name}={getattr(self, key.attribute)}: allowed is {error}"
                ) from None
        if problems := tuple(self._problems()):
            raise UnusableConfigurationError(*problems)
        object.__setattr__(self, "_in_file", {})
        object.__setattr__(self, "_kept", {})
        object.__setattr__(self, "_has_file", False)
        object.__setattr__(self, "_update_lock", threading.Lock())

    def _problems(self) -> Iterator[tuple[str, str]]:
        """What cannot work, alone or together: the name of a key, and a sentence about it."""
        for key in self.all_keys():
            value = getattr(self, key.attribute)
            if (why := key.refusal(value)) is not None:
                shown = _shown(key, to_text(value) or "")
                yield key.name, f"{key.name}={shown} is refused: {why}"

    @classmethod
    @functools.cache
    def all_keys(cls) -> tuple[Key, ...]:
        """Every key, section by section in the order of the bases, each in the order of its
        declaration.
        """
        fields = {
            field.name: field
            for field in dataclasses.fields(cls)
            if "declaration" in field.metadata
        }
        annotations = typing.get_type_hints(cls, include_extras=True)
        return tuple(
            key_of(fields[name], annotations[name], base.SECTION)
            for base in cls.__mro__
            if issubclass(base, Settings)
            for name in inspect.get_annotations(base)
            if name in fields
        )

    @classmethod
    @functools.cache
    def keys_by_name(cls) -> Mapping[str, Key]:
        """Every key under its name in files."""
        return {key.name: key for key in cls.all_keys()}

    @classmethod
    def hint(cls, name: str) -> str:
        """Which key may be meant by a name that is none: first of those that matter most, then of
        those that are used, then of all.
        """
        if name in cls.NO_KEYS:
            return cls.NO_KEYS[name]
        used = [key for key in cls.all_keys() if key.declared.use is Use.USED]
        for keys in ([key for key in used if key.declared.important], used, cls.all_keys()):
            lower = {key.name.lower(): key.name for key in keys}
            if near := difflib.get_close_matches(name.lower(), lower, n=1, cutoff=_ALIKE):
                return f"did you mean {lower[near[0]]}?"
        return "no key has a name like it."

    def remember_file(self, in_file: Mapping[str, str]) -> None:
        """Keep what the configuration file said, unknown keys too, so that no update discards
        it.
        """
        object.__setattr__(self, "_in_file", dict(in_file))
        object.__setattr__(self, "_has_file", True)

    def remember_updates(self, kept: Mapping[str, str]) -> None:
        """Keep what earlier updates changed, of a server without a configuration file, so that no
        later update discards it.
        """
        object.__setattr__(self, "_kept", dict(kept))

    @classmethod
    def updates_path(cls, texts: Mapping[str, str]) -> str | None:
        """The file of the updates of a server without a configuration file, by the texts of keys
        that are set otherwise.
        """
        store = next((key for key in cls.all_keys() if key.attribute == cls.STORE_PATH), None)
        return (
            None
            if store is None
            else expanded(texts.get(store.name) or to_text(store.default) or "")
        )

    def render(self, *, with_secrets: bool = False) -> str:
        """The sorted `key=value` lines that the original answers to "get config"; secrets are
        masked.
        """
        return "".join(
            f"{name}={text}\n" for name, text in self._texts({}, with_secrets=with_secrets).items()
        )

    def rows(self, *, important_only: bool = False) -> list[tuple[str, str]]:
        """Every key, or every important one, with its value as text, in the order of declaration;
        secrets are masked.
        """
        chosen = [key for key in self.all_keys() if key.declared.important or not important_only]
        texts = [(key, to_text(getattr(self, key.attribute))) for key in chosen]
        return [(key.name, _shown(key, text)) for key, text in texts if text is not None]

    def changed_rows(self) -> list[tuple[str, str]]:
        """The rows of keys that have another value than their default."""
        defaults = {key.name: _shown(key, to_text(key.default) or "") for key in self.all_keys()}
        return [(name, text) for name, text in self.rows() if text != defaults[name]]

    def update(self, properties_text: str) -> None:
        """Change dynamic keys while the server runs, and keep that in the configuration file;
        blocking, from any thread.

        Everything is checked before anything changes: RequestRefusedError names the key that cannot
        be changed, and means that nothing was. A configuration file gets the whole configuration,
        as in the original; without one, the file of updates gets what they changed.
        """
        lock: threading.Lock = self._update_lock  # type: ignore[attr-defined]
        with lock:
            changes = self._checked(properties_text)
            if not changes:
                return
            self._persist(changes)
            self.remember_updates(self._with_updates(changes))
            for key, value in changes.items():
                log.info(
                    "config_updated key=%s old=%s new=%s",
                    key.name,
                    to_text(getattr(self, key.attribute)),
                    to_text(value),
                )
                object.__setattr__(self, key.attribute, value)

    def _checked(self, properties_text: str) -> dict[Key, Value]:
        """The changes that an update asks for, or RequestRefusedError."""
        try:
            wanted = {entry.key: entry.value for entry in properties.parse(properties_text)}
        except properties.PropertiesError as error:
            raise RequestRefusedError(SYSTEM_ERROR, f"string2Properties error: {error}") from None
        known = self.keys_by_name()
        for name in wanted:
            if name in self.black_list():
                raise RequestRefusedError(NO_PERMISSION, BLACK_LIST_REMARK)
            if name not in known:
                raise RequestRefusedError(
                    SYSTEM_ERROR, f"unknown key {name}: {self.hint(name)} Nothing was changed."
                )
            if not known[name].declared.dynamic:
                raise RequestRefusedError(
                    NO_PERMISSION,
                    f"{BLACK_LIST_REMARK} {_why_fixed(known[name])}. Nothing was changed.",
                )
        changes = {}
        for name, text in wanted.items():
            try:
                value = known[name].parse(text)
            except ValueError as error:
                raise RequestRefusedError(
                    SYSTEM_ERROR,
                    f"{name}={text} cannot be used: allowed is {error}. Nothing was changed.",
                ) from None
            changes[known[name]] = value
        return changes

    def black_list(self) -> frozenset[str]:
        """Names of keys that no update may touch, known or not."""
        return self.BLACK_LIST

    def _persist(self, changes: Mapping[Key, Value]) -> None:
        path = Path(str(getattr(self, self.STORE_PATH)))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            has_file: bool = self._has_file  # type: ignore[attr-defined]
            texts = (
                self._texts(changes, with_secrets=True) if has_file else self._with_updates(changes)
            )
            atomic_file.write(
                path,
                properties.write(texts).encode(),
                # of a file that somebody wrote, the first backup stays: later ones are ours
                keep_backup=not (has_file and atomic_file.backup_path(path.resolve()).exists()),
            )
        except OSError as error:
            raise RequestRefusedError(
                SYSTEM_ERROR,
                f"The configuration cannot be kept in {path} ({error.strerror}). Nothing was"
                " changed.",
            ) from error

    def _with_updates(self, changes: Mapping[Key, Value]) -> dict[str, str]:
        """Name → text of what updates changed so far, sorted, with `changes`."""
        kept: dict[str, str] = self._kept  # type: ignore[attr-defined]
        return dict(
            sorted(
                (kept | {key.name: to_text(value) or "" for key, value in changes.items()}).items()
            )
        )

    def _texts(self, changes: Mapping[Key, Value], *, with_secrets: bool) -> dict[str, str]:
        """Name → text of what `render` lists, sorted, with `changes` in place."""
        in_file: dict[str, str] = self._in_file  # type: ignore[attr-defined]
        texts = dict(in_file)
        for key in self.all_keys():
            if key.section not in self.SHOWN_SECTIONS and key.name not in in_file:
                continue
            text = to_text(changes.get(key, getattr(self, key.attribute)))
            if text is None:
                texts.pop(key.name, None)
            else:
                texts[key.name] = text if with_secrets else _shown(key, text)
        return dict(sorted(texts.items()))


def _why_fixed(key: Key) -> str:
    """Why an update may not change a key."""
    declared = key.declared
    if declared.use is Use.NO_EFFECT:
        return f"{key.name} has no effect here: {declared.doc.rstrip('.')}"
    if declared.use is Use.REFUSED:
        return f"{key.name} is refused: {declared.doc.rstrip('.')}"
    return (
        f"{key.name} cannot be changed while the server runs: set it in the configuration file and"
        " restart"
    )


def _shown(key: Key, text: str) -> str:
    return MASK if key.declared.secret and text else text
