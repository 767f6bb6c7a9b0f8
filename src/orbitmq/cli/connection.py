"""The way from a command to name servers: the options that name them, and a client for as long as the command runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from orbitmq.remoting.client import RemotingClient

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def name_server_options(command: F) -> F:
    """`-n` and `--timeout-ms`, of every command that asks name servers."""
    command = click.option("--timeout-ms", type=click.IntRange(min=1), default=3000, show_default=True, help="How long one call may take.")(
        command
    )
    return click.option(
        "-n",
        "--name-servers",
        metavar="HOST:PORT[;HOST:PORT]",
        envvar="NAMESRV_ADDR",
        show_envvar=True,
        default="127.0.0.1:9876",
        show_default=True,
        help="The name servers to ask.",
    )(command)


def connected(name_servers: str, operation: Callable[[RemotingClient], Awaitable[T]]) -> T:
    """Run `operation` with a client of `name_servers`; its settings (`tls.*` and the like) come from the environment."""
    from orbitmq.common.clock import SystemClock
    from orbitmq.common.config import load
    from orbitmq.common.config.remoting import RemotingSettings
    from orbitmq.remoting.client import RemotingClient
    from orbitmq.remoting.name_servers import NameServerList, parse_list
    from orbitmq.remoting.settings import client_config

    config = client_config(load(RemotingSettings).settings)

    async def run() -> T:
        async with RemotingClient(config, SystemClock(), name_servers=NameServerList(parse_list(name_servers))) as client:
            return await operation(client)

    return asyncio.run(run())
