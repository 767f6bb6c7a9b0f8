"""The life of a server process, shared by `orbitmq nameserver run`, `orbitmq broker run`, and the drop-ins `mqnamesrv` and `mqbroker`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from orbitmq.common import logs
from orbitmq.common.config.settings import Settings
from orbitmq.common.errors import ConfigurationError
from orbitmq.common.service import Services, raise_file_limit, run_until_signal

log = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., Any])


class Server(Protocol):
    """What is run."""

    @property
    def address(self) -> tuple[str, int]: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def log_options(command: F) -> F:
    """The options of every command that runs a server, about what it logs and where."""
    level = click.Choice(["debug", "info", "warning", "error"])
    options = (
        click.option("--log-level", type=level, default="info", show_default=True, envvar="ORBITMQ_LOG_LEVEL", show_envvar=True),
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            envvar="ORBITMQ_LOG_FORMAT",
            show_envvar=True,
        ),
        click.option("--log-file", metavar="FILE", envvar="ORBITMQ_LOG_FILE", show_envvar=True, help="Log here too; rotated."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def set_up_logs(name: str, home: str | None, *, level: str, log_format: str, file: str | None) -> None:
    """Log to standard error and to `file`; without one to `logs/<name>.log` in `home`, which is rocketmqHome, if that is set."""
    path = Path(file) if file else Path(home) / "logs" / f"{name}.log" if home else None
    try:
        logs.set_up(level=level, log_format=logs.LogFormat(log_format), file=path)
    except OSError as error:
        raise ConfigurationError(f"log file {path} cannot be written: {error.strerror}; set --log-file or ORBITMQ_LOG_FILE") from error
    except ValueError as error:
        raise ConfigurationError(f"logging cannot be set up: {error}; see ORBITMQ_LOG_LEVEL and ORBITMQ_LOG_FORMAT") from error


def print_settings(settings: Settings, warnings: Sequence[str], *, important_only: bool) -> None:
    """Show every key, or the important ones, and what is doubtful about them."""
    for name, text in settings.rows(important_only=important_only):
        click.echo(f"{name}={text}")
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def serve(name: str, server: Server, warnings: Sequence[str], ready: Callable[[str, int], object]) -> None:
    """Run a server until SIGTERM or SIGINT; `ready` is told where it listens."""
    for warning in warnings:
        log.warning("configuration %s", warning)
    log.debug("file_limit open_files_max=%d", raise_file_limit())
    services = Services()
    services.add(name, start=server.start, stop=server.stop)
    asyncio.run(run_until_signal(services, ready=lambda: ready(*server.address)))
