"""Which stores a read is of: directories of one or several brokers, and the name of the broker that wrote each.

Looks, and changes nothing. The broker's name is the one given, else what the broker left in its directory: the identity that a controller
gave it, or a topic that every broker has for itself; else the name of the directory.
"""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from orbitmq.common import atomic_file, properties
from orbitmq.common.errors import ConfigurationError, DamagedFile
from orbitmq.common.topic_names import SYNC_MEMBERS_PREFIX, SYSTEM_TOPICS
from orbitmq.protocol.bodies.nameserver import PERM_INHERIT
from orbitmq.protocol.bodies.topics import decode_topic_file
from orbitmq.spark.commitlog_options import CommitLogOptions
from orbitmq.store.tools.directory import StoreDirectory
from orbitmq.store.tools.sizes import Told, read_config

_LOG_FOLDER: Final = "commitlog"
_NAME_SIZE: Final = 20
_NO_INDEX: Final[Mapping[str, Any]] = {"index_slots": 1, "index_entries": 1}  # is read here, so nobody needs to find out its shape


class Store(NamedTuple):
    """One broker's store."""

    broker_name: str
    directory: StoreDirectory


def find_stores(options: CommitLogOptions) -> list[Store]:
    """All of them; ConfigurationError or StoreError when one is none, or when two have one name."""
    found = list(_told(options))
    if options.broker_names and len(options.broker_names) != len(found):
        raise ConfigurationError(
            f"option brokerName has {len(options.broker_names)} names for {len(found)} stores "
            f"({', '.join(str(told.root) for told in found)}): give one for each, in this order"
        )
    names = options.broker_names or tuple(_broker_name(told, options) for told in found)
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        same = " and ".join(str(told.root) for told, each in zip(found, names, strict=True) if each == name)
        raise ConfigurationError(f"{same} are stores of one broker, {name}: read one of them, or tell them apart by brokerName=a,b")
    return [Store(name, StoreDirectory(told)) for name, told in zip(names, found, strict=True)]


def _told(options: CommitLogOptions) -> Iterator[Told]:
    paths = list(_expanded(options))
    if options.config is None:
        yield from map(_store_at, paths)
        return
    if len(paths) > 1:
        raise ConfigurationError(f"option config={options.config!r} is of one store, and {len(paths)} are named: read it alone")
    told = read_config(Path(options.config), Told(root=paths[0]) if paths else None)
    yield replace(told, **_NO_INDEX)


def _expanded(options: CommitLogOptions) -> Iterator[Path]:
    for path in options.paths:
        matches = [path] if Path(path).exists() else sorted(glob.glob(path))  # noqa: PTH207 - the pattern may be absolute
        if not matches:
            raise ConfigurationError(f"path {path} is not there: name the directory that holds {_LOG_FOLDER}/, as this machine sees it")
        yield from map(Path, matches)


def _store_at(path: Path) -> Told:
    """A store, or its log alone."""
    folder = path / _LOG_FOLDER
    if not folder.is_dir() and any(_is_log_file(each) for each in path.glob("*")):
        root = path.parent if path.name == _LOG_FOLDER else path
        return Told(root=root, log_folders=(path,), **_NO_INDEX)
    if not folder.is_dir():
        raise ConfigurationError(f"{path} is no store: it holds no {_LOG_FOLDER}/; if that is elsewhere, give the broker's file as config")
    return Told(root=path, **_NO_INDEX)


def _is_log_file(path: Path) -> bool:
    return len(path.name) == _NAME_SIZE and path.name.isdecimal()


def _broker_name(told: Told, options: CommitLogOptions) -> str:
    if options.config is not None:
        pairs = {entry.key: entry.value for entry in properties.parse(properties.decode(Path(options.config).read_bytes()))}
        if name := pairs.get("brokerName", "").strip():
            return name
    return _name_by_identity(told.root) or _name_by_topics(told.root) or told.root.resolve().name


def _name_by_identity(root: Path) -> str | None:
    """The second part of `cluster#broker#id`."""
    with suppress(OSError, UnicodeDecodeError, IndexError):
        return (root / "brokerIdentity").read_text().strip().split("#")[1] or None
    return None


def _name_by_topics(root: Path) -> str | None:
    """The topic that is called as its broker: releases of 5 have one more that says so, in others it stands out by its permission."""
    try:
        found = atomic_file.read_or_backup(root / "config" / "topics.json", decode_topic_file)
    except (DamagedFile, OSError):
        return None
    topics = {} if found is None else found[0]
    names = [name.removeprefix(SYNC_MEMBERS_PREFIX) for name in topics if name.startswith(SYNC_MEMBERS_PREFIX)] or [
        name
        for name, topic in topics.items()
        if topic.perm & PERM_INHERIT and (topic.read_queue_nums, topic.write_queue_nums) == (1, 1) and name not in SYSTEM_TOPICS
    ]
    return names[0] if len(names) == 1 else None
