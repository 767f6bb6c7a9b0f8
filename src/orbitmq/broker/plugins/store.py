"""The store with plug-ins around it: selects those that the configuration names, in order, and
contains their failures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from typing import ParamSpec, TypeVar

from orbitmq.broker.plugins.interfaces import STORE_PLUGINS, PluggableReads, PluggableStore
from orbitmq.common.errors import ConfigurationError, InvalidMessageError, StoreError
from orbitmq.common.installed import Installed
from orbitmq.message.record_write import MessageRecord
from orbitmq.remoting.hooks import naming
from orbitmq.store.log_batch import Appended
from orbitmq.store.message_store import MessageStore

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def plugged(store: MessageStore, names: str) -> PluggableStore:
    """Return `store` wrapped in the plug-ins that `messageStorePlugIn` names, the first one
    outermost; the store itself if there are none.
    """
    wrapped: PluggableStore = store
    for point in reversed(_chosen(names)):
        wrapped = _Guarded(STORE_PLUGINS.load(point, wrapped), store.log.discard)
    return wrapped


def _chosen(names: str) -> list[EntryPoint]:
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    offered = STORE_PLUGINS.offered() if wanted else []
    chosen = []
    for name in wanted:
        found = [point for point in offered if point.name == name]
        if len(found) != 1:
            problem = (
                f"is offered by {len(found)} packages: uninstall all but one"
                if found
                else "is not an installed store plug-in"
            )
            raise ConfigurationError(
                f"messageStorePlugIn={names} cannot be used: {name} {problem}. Installed are:"
                f" {', '.join(f'{point.name} ({point.value})' for point in offered) or 'none'};"
                " install the package that offers it as an entry point of group"
                f" {STORE_PLUGINS.name}, or take the name out"
            )
        chosen += found
    return chosen


class _Guarded:
    """A plug-in whose unexpected exceptions are answered with its name, and leave no appended
    message behind that is never acknowledged.
    """

    def __init__(self, plugin: Installed[PluggableStore], discard: Callable[[], None]) -> None:
        self._plugin = plugin.part
        self._label = plugin.label
        self._discard = discard
        self.reads = _GuardedReads(plugin.label, plugin.part.reads)

    def append(self, message: MessageRecord) -> Appended:
        with self._all_or_nothing():
            return self._plugin.append(message)

    def append_batch(self, messages: Sequence[MessageRecord]) -> list[Appended]:
        with self._all_or_nothing():
            return self._plugin.append_batch(messages)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        try:
            with naming(self._label, InvalidMessageError, StoreError):
                yield
        except Exception:
            # sends are committed one by one if there are plug-ins, so no other message is pending
            self._discard()
            raise


class _GuardedReads:
    """The same for a plug-in's reads."""

    def __init__(self, label: str, reads: PluggableReads) -> None:
        self.get = _named(label, reads.get)
        self.record_at = _named(label, reads.record_at)
        self.query_records = _named(label, reads.query_records)


def _named(label: str, call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    def guarded(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        with naming(
            label, StoreError, OSError
        ):  # the store's own files may be what could not be read
            return call(*arguments, **named)

    return guarded
