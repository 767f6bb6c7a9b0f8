"""Finds the stores to read, directories of one or several brokers, and the name of each broker.

Changes nothing. The broker name is the given one, else the one the broker left in its directory
(the identity assigned by a controller, or the topic named after the broker), else the name of the
directory.
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
from orbitmq.common.errors import ConfigurationError, CorruptFileError
from orbitmq.common.topic_names import SYNC_MEMBERS_PREFIX, SYSTEM_TOPICS
from orbitmq.protocol.bodies.nameserver import PERM_INHERIT
from orbitmq.protocol.bodies.topics import decode_topic_file
from orbitmq.spark.commitlog.options import CommitLogOptions
from orbitmq.store.tools.directory import StoreDirectory
from orbitmq.store.tools.sizes import StoreLayout, read_config

_LOG_FOLDER: Final = "commitlog"
_NAME_SIZE: Final = 20
# The index is not read here, so its geometry does not matter.
_INDEX_UNUSED: Final[Mapping[str, Any]] = {"index_slots": 1, "index_entries": 1}


class BrokerStore(NamedTuple):
    """The store of one broker."""

    broker_name: str
    directory: StoreDirectory


def find_stores(options: CommitLogOptions) -> list[BrokerStore]:
    """Return all stores; raises ConfigurationError or StoreError if one is invalid, or if two have
    the same broker name.
    """
    found = list(_layouts(options))
    if options.broker_names and len(options.broker_names) != len(found):
        raise ConfigurationError(
            f"option brokerName has {len(options.broker_names)} names for {len(found)} stores "
            f"({', '.join(str(layout.root) for layout in found)}): give one per store, in order"
        )
    names = options.broker_names or tuple(_broker_name(layout, options) for layout in found)
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        same = " and ".join(
            str(layout.root) for layout, each in zip(found, names, strict=True) if each == name
        )
        raise ConfigurationError(
            f"{same} are stores of the same broker, {name}: read only one of them, or name them"
            " with brokerName=a,b"
        )
    return [
        BrokerStore(name, StoreDirectory(layout)) for name, layout in zip(names, found, strict=True)
    ]


def _layouts(options: CommitLogOptions) -> Iterator[StoreLayout]:
    paths = list(_expanded(options))
    if options.config is None:
        yield from map(_store_at, paths)
        return
    if len(paths) > 1:
        raise ConfigurationError(
            f"option config={options.config!r} applies to one store, but {len(paths)} are given:"
            " read that store alone"
        )
    layout = read_config(Path(options.config), StoreLayout(root=paths[0]) if paths else None)
    yield replace(layout, **_INDEX_UNUSED)


def _expanded(options: CommitLogOptions) -> Iterator[Path]:
    for path in options.paths:
        matches = [path] if Path(path).exists() else sorted(glob.glob(path))  # noqa: PTH207 - the pattern may be absolute
        if not matches:
            raise ConfigurationError(
                f"path {path} does not exist: give the directory that contains {_LOG_FOLDER}/, as"
                " this machine sees it"
            )
        yield from map(Path, matches)


def _store_at(path: Path) -> StoreLayout:
    """Return the layout of a store, or of a commit log alone."""
    folder = path / _LOG_FOLDER
    if not folder.is_dir() and any(_is_log_file(each) for each in path.glob("*")):
        root = path.parent if path.name == _LOG_FOLDER else path
        return StoreLayout(root=root, log_folders=(path,), **_INDEX_UNUSED)
    if not folder.is_dir():
        raise ConfigurationError(
            f"{path} is not a store: it contains no {_LOG_FOLDER}/; if that is elsewhere, give the"
            " broker's configuration file as config"
        )
    return StoreLayout(root=path, **_INDEX_UNUSED)


def _is_log_file(path: Path) -> bool:
    return len(path.name) == _NAME_SIZE and path.name.isdecimal()


def _broker_name(layout: StoreLayout, options: CommitLogOptions) -> str:
    if options.config is not None:
        pairs = {
            entry.key: entry.value
            for entry in properties.parse(properties.decode(Path(options.config).read_bytes()))
        }
        if name := pairs.get("brokerName", "").strip():
            return name
    return (
        _name_by_identity(layout.root) or _name_by_topics(layout.root) or layout.root.resolve().name
    )


def _name_by_identity(root: Path) -> str | None:
    """Return the broker of `cluster#broker#id`."""
    with suppress(OSError, UnicodeDecodeError, IndexError):
        return (root / "brokerIdentity").read_text().strip().split("#")[1] or None
    return None


def _name_by_topics(root: Path) -> str | None:
    """Return the broker name from its topics: 5.x has a topic with a known prefix, in other
    releases the topic named after the broker stands out by its permission.
    """
    try:
        found = atomic_file.read_or_backup(root / "config" / "topics.json", decode_topic_file)
    except (CorruptFileError, OSError):
        return None
    topics = {} if found is None else found[0]
    names = [
        name.removeprefix(SYNC_MEMBERS_PREFIX)
        for name in topics
        if name.startswith(SYNC_MEMBERS_PREFIX)
    ] or [
        name
        for name, topic in topics.items()
        if topic.perm & PERM_INHERIT
        and (topic.read_queue_nums, topic.write_queue_nums) == (1, 1)
        and name not in SYSTEM_TOPICS
    ]
    return names[0] if len(names) == 1 else None
