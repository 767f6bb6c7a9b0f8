"""Hooks around every request, and how those of other packages are found.

A package offers a hook by an entry point of group `orbitmq.rpc_hooks` that names a class or function without parameters which
gives an `RpcHook`.
"""

from __future__ import annotations

import logging
from importlib.metadata import entry_points
from typing import Protocol

from orbitmq.common.errors import ConfigurationError
from orbitmq.protocol.command import RemotingCommand

log = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "orbitmq.rpc_hooks"


class RpcHook(Protocol):
    """Sees each request before it is handled and each answer before it is sent; `before` may raise RequestRefused."""

    def before(self, remote_address: str, request: RemotingCommand) -> None: ...

    def after(self, remote_address: str, request: RemotingCommand, response: RemotingCommand | None) -> None: ...


def installed_hooks() -> list[RpcHook]:
    """The hooks that installed packages offer, in the order of their names."""
    hooks: list[RpcHook] = []
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        try:
            hooks.append(point.load()())
        except Exception as problem:
            raise ConfigurationError(
                f"the hook {point.name} ({point.value}) of group {ENTRY_POINT_GROUP} cannot be loaded: {problem}; "
                f"mend or uninstall the package that offers it"
            ) from problem
        log.info("rpc hook loaded name=%s from=%s", point.name, point.value)
    return hooks
