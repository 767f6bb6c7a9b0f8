"""Selects the transaction service and the transaction checks: those of the one package that offers
them, or the broker's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from orbitmq.broker.plugins.interfaces import (
    TRANSACTION_CHECKS,
    TRANSACTION_SERVICES,
    TransactionChecks,
    TransactionService,
)
from orbitmq.common.errors import ConfigurationError, InvalidMessageError, StoreError
from orbitmq.common.installed import Installed, PartGroup
from orbitmq.message.flags import TransactionType
from orbitmq.message.record_write import MessageRecord
from orbitmq.message.stored_message import StoredMessage
from orbitmq.remoting.hooks import naming
from orbitmq.store.types import LogOffset

Part = TypeVar("Part")


def checks_in_force(own: TransactionChecks) -> TransactionChecks:
    """Return the installed checks, else the broker's own."""
    found = _only(TRANSACTION_CHECKS, own)
    return own if found is None else found.part


def service_in_force(own: TransactionService, checks: TransactionChecks) -> TransactionService:
    """Return the installed service, else the broker's own."""
    found = _only(TRANSACTION_SERVICES, own, checks)
    return own if found is None else _NamedService(found)


def _only(group: PartGroup[Part], *arguments: object) -> Installed[Part] | None:
    """Return the part of the only package that offers one; None if there is none. Raises
    ConfigurationError if there are several.
    """
    offered = group.offered()
    if len(offered) > 1:
        raise ConfigurationError(
            f"a broker has one {group.kind}, and {len(offered)} packages offer one:"
            f" {', '.join(f'{point.name} ({point.value})' for point in offered)}; uninstall all"
            " but one"
        )
    return group.load(offered[0], *arguments) if offered else None


class _NamedService:
    """A service of another package; replies to its unexpected exceptions name it."""

    def __init__(self, service: Installed[TransactionService]) -> None:
        self._label = service.label
        self._service = service.part
        self.load, self.tick = self._service.load, self._service.tick

    def prepare(self, message: MessageRecord, found: Mapping[str, str]) -> MessageRecord | None:
        with naming(self._label, InvalidMessageError):
            return self._service.prepare(message, found)

    def end(self, half: StoredMessage, kind: TransactionType) -> LogOffset:
        with naming(self._label, InvalidMessageError, StoreError):
            return self._service.end(half, kind)

    def is_undone(self, half: StoredMessage) -> bool:
        with naming(self._label):
            return self._service.is_undone(half)

    def resume(self, stored: StoredMessage) -> LogOffset:
        with naming(self._label, InvalidMessageError, StoreError):
            return self._service.resume(stored)
