"""The life of a server process, shared by `orbitmq nameserver run`, `orbitmq broker run`, and the
drop-ins `mqnamesrv` and `mqbroker`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Protocol

import click

from orbitmq.cli.arguments import key_values
from orbitmq.cli.endings import announce
from orbitmq.cli.log_options import log_options, set_up_logs
from orbitmq.cli.output import say
from orbitmq.common.config import Loaded
from orbitmq.common.logs import DETAIL
from orbitmq.common.service import Services, raise_file_limit, run_until_signal

log = logging.getLogger(__name__)
Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


class Server(Protocol):
    """What is run."""

    @property
    def address(self) -> tuple[str, int]: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of every command that runs a server."""

    config_file: str | None
    pairs: tuple[str, ...]
    print_config: bool
    print_important: bool
    log_level: str
    log_format: str
    log_file: str | None
    exit_with_parent: bool

    def flags(self, **named: str | None) -> dict[str, str]:
        """The keys that are set by options of their own, where they are given, and by --set."""
        return key_values(self.pairs) | {
            name: text for name, text in named.items() if text is not None
        }

    def is_printed(self, loaded: Loaded[Any]) -> bool:
        """Show the keys and what is doubtful about them, if that is asked for: then there is
        nothing to run.
        """
        if not self.print_config and not self.print_important:
            return False
        for name, text in loaded.settings.rows(important_only=not self.print_config):
            say(f"{name}={text}")
        for warning in loaded.warnings:
            say(f"warning: {warning}", err=True)
        return True

    def set_up_logs(self, name: str, home: str | None) -> None:
        set_up_logs(
            name, home, level=self.log_level, log_format=self.log_format, file=self.log_file
        )


_FIRST_OPTIONS = (
    click.option(
        "-c",
        "--config",
        "config_file",
        metavar="FILE",
        help="Configuration file: Java properties with RocketMQ's key names.",
    ),
)
_LAST_OPTIONS = (
    click.option(
        "--set",
        "pairs",
        multiple=True,
        metavar="KEY=VALUE",
        help="Set any key of docs/configuration.md; repeatable.",
    ),
    click.option(
        "-p", "--print-config", is_flag=True, help="Print every key and its value, and exit."
    ),
    click.option(
        "-m",
        "--print-important",
        is_flag=True,
        help="Print the important keys and their values, and exit.",
    ),
    log_options("info"),
    click.option(
        "--exit-with-parent",
        is_flag=True,
        help="Stop when the parent process ends.",
    ),
)


def server_options(*own: Decorator) -> Callable[[Callable[..., None]], Command]:
    """The options of a command that runs a server, around its `own`; the command gets them as its
    `options`.
    """

    def decorate(command: Callable[..., None]) -> Command:
        @functools.wraps(command)
        def gathered(**given: Any) -> None:
            shared = {field.name: given.pop(field.name) for field in fields(ServerOptions)}
            command(ServerOptions(**shared), **given)

        decorated: Command = gathered
        options: tuple[Decorator, ...] = (*_FIRST_OPTIONS, *own, *_LAST_OPTIONS)
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def serve(
    name: str,
    server: Server,
    loaded: Loaded[Any],
    ready: Callable[[str, int], object],
    *,
    exit_with_parent: bool = False,
) -> None:
    """Run a server until SIGTERM or SIGINT, or until its parent ends; `ready` is called with
    its address.
    """
    _log_configuration(loaded)
    log.debug("file_limit open_files_max=%d", raise_file_limit())
    services = Services()
    services.add(name, start=server.start, stop=server.stop)
    asyncio.run(
        run_until_signal(
            services,
            ready=lambda: announce(lambda: ready(*server.address)),
            with_parent=exit_with_parent,
        )
    )


def _log_configuration(loaded: Loaded[Any]) -> None:
    """Log every key and its value, but on a terminal only those that differ from their default;
    then what is doubtful about them.
    """
    rows, changed = loaded.settings.rows(), dict(loaded.settings.changed_rows())
    for name, text in rows:
        log.info("config %s=%s", name, text, extra={DETAIL: name not in changed})
    log.info(
        "config_listed keys=%d changed=%d; -p prints all of them, a log file has them",
        len(rows),
        len(changed),
    )
    for warning in loaded.warnings:
        log.warning("configuration %s", warning)
