"""Where the commands that run servers log to, and how."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from orbitmq.common import logs
from orbitmq.common.errors import ConfigurationError


def log_options(level: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--log-level`, by default `level`, `--log-format` and `--log-file` to a command."""
    levels = click.Choice(["debug", "info", "warning", "error"])
    options = (
        click.option(
            "--log-level",
            type=levels,
            default=level,
            show_default=True,
            envvar="ORBITMQ_LOG_LEVEL",
            show_envvar=True,
            help="Log messages of this level and above.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            envvar="ORBITMQ_LOG_FORMAT",
            show_envvar=True,
            help="Format of log lines.",
        ),
        click.option(
            "--log-file",
            metavar="FILE",
            envvar="ORBITMQ_LOG_FILE",
            show_envvar=True,
            help="Also log to this file; rotated.",
        ),
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def set_up_logs(
    name: str, home: str | None, *, level: str, log_format: str, file: str | None
) -> None:
    """Log to standard error and to `file`; without one to `logs/<name>.log` in `home`, which is
    rocketmqHome, if that is set.
    """
    path = (
        Path(file).expanduser() if file else Path(home) / "logs" / f"{name}.log" if home else None
    )
    try:
        logs.set_up(level=level, log_format=logs.LogFormat(log_format), file=path)
    except OSError as error:
        raise ConfigurationError(
            f"log file {path} cannot be written: {error.strerror}; set --log-file or"
            " ORBITMQ_LOG_FILE"
        ) from error
    except ValueError as error:
        raise ConfigurationError(
            f"logging cannot be set up: {error}; see ORBITMQ_LOG_LEVEL and ORBITMQ_LOG_FORMAT"
        ) from error
