"""The way from a command to a cluster: the options that name it, and an admin or a client for as
long as the command runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orbitmq.cli.credentials import chosen_credentials, credential_options

if TYPE_CHECKING:
    from orbitmq.admin import Admin
    from orbitmq.client.settings import ClientSettings

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def name_server_options(command: F) -> F:
    """`-n`, `--timeout-ms` and the keys of access control, of every command that asks servers."""
    command = credential_options(command)
    command = click.option(
        "--timeout-ms",
        type=click.IntRange(min=1),
        default=3000,
        show_default=True,
        help="Timeout of one call.",
    )(command)
    return click.option(
        "-n",
        "--name-servers",
        metavar="HOST:PORT[;HOST:PORT]",
        envvar="NAMESRV_ADDR",
        show_envvar=True,
        default="127.0.0.1:9876",
        show_default=True,
        help="Name server addresses.",
    )(command)


def target_options(command: F) -> F:
    """`--cluster` and `--broker`, of every command that changes something at brokers."""
    command = click.option(
        "--broker", metavar="NAME", help="Only this broker, by name or address."
    )(command)
    return click.option(
        "--cluster", metavar="NAME", help="All masters of this cluster.  [default: the only one]"
    )(command)


def client_settings(name_servers: str, timeout_ms: int) -> ClientSettings:
    """How a command reaches the cluster; what is not said by options (`tls.*` and the like) comes
    from the environment.
    """
    from orbitmq.client.settings import ClientSettings
    from orbitmq.common.config import load
    from orbitmq.common.config.remoting import RemotingSettings
    from orbitmq.remoting.settings import client_config

    if not click.get_current_context().find_root().params.get("debug"):
        # a command reports its errors itself: log lines before them only confuse
        logging.getLogger("orbitmq").addHandler(logging.NullHandler())
    return ClientSettings(
        name_servers=name_servers,
        timeout_ms=timeout_ms,
        credentials=chosen_credentials(),
        remoting=client_config(load(RemotingSettings).settings),
    )


def administered(
    name_servers: str, timeout_ms: int, operation: Callable[[Admin], Awaitable[T]]
) -> T:
    """Run `operation` with an admin of the cluster."""
    from orbitmq.admin import Admin

    settings = client_settings(name_servers, timeout_ms)

    async def run() -> T:
        async with Admin(settings) as admin:
            return await operation(admin)

    return asyncio.run(run())
