"""Hooks around every request, and the handling of exceptions raised by plug-ins of other packages.

A package provides a hook by an entry point of group `orbitmq.rpc_hooks` that names a class or
function without parameters which returns an `RpcHook`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from orbitmq.common.errors import RefusedError, RequestRefusedError
from orbitmq.common.installed import Installed, PartGroup
from orbitmq.common.slices import Slices
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RemotingCommand

_REFUSALS: Final = (RefusedError, RequestRefusedError)

log = logging.getLogger(__name__)


class RpcHook(Protocol):
    """Sees each request and its response. Both methods run on the loop thread and must not block:
    all connections wait for them.
    """

    def before(self, remote_address: str, request: RemotingCommand) -> None:
        """Called before the handler of a request; RequestRefusedError prevents its handling and
        becomes its response.
        """

    def after(
        self, remote_address: str, request: RemotingCommand, response: RemotingCommand | None
    ) -> None:
        """Called before a response is sent, including refusals; None if it is sent later.
        RequestRefusedError replaces the response, if there is one.
        """


class RpcGuard(RpcHook, Protocol):
    """A hook that may refuse a request, and reads large ones in slices to decide."""

    def before_in_slices(self, remote_address: str, request: RemotingCommand) -> Slices[None]:
        """Do what `before` does, in slices; called in its place for handlers that run in slices."""


RPC_HOOKS: Final[PartGroup[RpcHook]] = PartGroup(
    "orbitmq.rpc_hooks", "RPC hook", ("before", "after")
)


def installed_hooks() -> list[RpcHook]:
    """Return the hooks of installed packages, ordered by name; their failures are logged by name
    and never suppress a response.
    """
    return [_InstalledHook(hook) for hook in RPC_HOOKS.installed()]


class _InstalledHook:
    """A hook of another package, whose unexpected exceptions are contained."""

    def __init__(self, hook: Installed[RpcHook]) -> None:
        self._label = hook.label
        self._hook = hook.part

    def before(self, remote_address: str, request: RemotingCommand) -> None:
        with naming(self._label):
            self._hook.before(remote_address, request)

    def after(
        self, remote_address: str, request: RemotingCommand, response: RemotingCommand | None
    ) -> None:
        with logging_failures(self._label, *_REFUSALS):
            self._hook.after(remote_address, request, response)


@contextmanager
def naming(label: str, *expected: type[Exception]) -> Iterator[None]:
    """Convert unexpected exceptions of a plug-in into a refusal that names it; refusals, and
    `expected`, pass.
    """
    try:
        yield
    except Exception as problem:
        if isinstance(problem, (*_REFUSALS, *expected)):
            raise
        log.exception("plug_in_failed name=%r", label)
        remark = (
            f"the {label} failed, see the server's log (plug_in_failed); fix or uninstall the"
            " package that offers it"
        )
        raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark) from problem


@contextmanager
def logging_failures(label: str, *expected: type[Exception]) -> Iterator[None]:
    """Log the exceptions of a plug-in that is called after the fact, and suppress them; `expected`
    pass.
    """
    try:
        yield
    except expected:
        raise
    except Exception:
        log.exception("plug_in_failed name=%r", label)
