"""Hooks around every request, and what becomes of the exceptions of parts that other packages put into a server.

A package offers a hook by an entry point of group `orbitmq.rpc_hooks` that names a class or function without parameters which
gives an `RpcHook`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from orbitmq.common.errors import RequestRefused
from orbitmq.common.installed import Installed, PartGroup
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RemotingCommand

log = logging.getLogger(__name__)


class RpcHook(Protocol):
    """Sees each request and its answer. Both methods run on the loop thread and must not block: all connections wait for them."""

    def before(self, remote_address: str, request: RemotingCommand) -> None:
        """Called before the handler of a request; RequestRefused keeps it from being handled and is its answer."""

    def after(self, remote_address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """Called before an answer is sent, refusals too; None: it comes later. RequestRefused is sent in its place, if there is one."""


RPC_HOOKS: Final[PartGroup[RpcHook]] = PartGroup("orbitmq.rpc_hooks", "RPC hook", ("before", "after"))


def installed_hooks() -> list[RpcHook]:
    """The hooks that installed packages offer, in the order of their names; their mistakes are named, and cost no answer."""
    return [_InstalledHook(hook) for hook in RPC_HOOKS.installed()]


class _InstalledHook:
    """A hook of another package, which may fail where it should not."""

    def __init__(self, hook: Installed[RpcHook]) -> None:
        self._label = hook.label
        self._hook = hook.part

    def before(self, remote_address: str, request: RemotingCommand) -> None:
        with naming(self._label):
            self._hook.before(remote_address, request)

    def after(self, remote_address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        with logging_failures(self._label, RequestRefused):
            self._hook.after(remote_address, request, response)


@contextmanager
def naming(label: str, *expected: type[Exception]) -> Iterator[None]:
    """Turn what another package's part raises unexpectedly into an answer that names the part; refusals, and `expected`, pass."""
    try:
        yield
    except Exception as problem:
        if isinstance(problem, (RequestRefused, *expected)):
            raise
        log.exception("plug_in_failed name=%r", label)
        remark = f"the {label} failed, as the server's log tells (plug_in_failed); mend or uninstall the package that offers it"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark) from problem


@contextmanager
def logging_failures(label: str, *expected: type[Exception]) -> Iterator[None]:
    """Let what another package's part raises, after things were done, change nothing but the log; `expected` passes."""
    try:
        yield
    except expected:
        raise
    except Exception:
        log.exception("plug_in_failed name=%r", label)
