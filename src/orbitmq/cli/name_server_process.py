"""The life of a name server process, shared by `orbitmq nameserver run` and `mqnamesrv`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from orbitmq.common import logs
from orbitmq.common.config import Loaded
from orbitmq.common.errors import ConfigurationError
from orbitmq.common.service import Services, raise_file_limit, run_until_signal
from orbitmq.nameserver.config import NameServerConfig

log = logging.getLogger(__name__)


def set_up_logs(config: NameServerConfig, *, level: str, log_format: str, file: str | None) -> None:
    """Log to standard error and to `file`; without one to `logs/namesrv.log` in `rocketmqHome`, if that is set."""
    path = Path(file) if file else Path(config.rocketmq_home) / "logs" / "namesrv.log" if config.rocketmq_home else None
    try:
        logs.set_up(level=level, log_format=logs.LogFormat(log_format), file=path)
    except OSError as error:
        raise ConfigurationError(f"log file {path} cannot be written: {error.strerror}; set --log-file or ORBITMQ_LOG_FILE") from error
    except ValueError as error:
        raise ConfigurationError(f"logging cannot be set up: {error}; see ORBITMQ_LOG_LEVEL and ORBITMQ_LOG_FORMAT") from error


def serve(loaded: Loaded[NameServerConfig], ready: Callable[[str, int], object]) -> None:
    """Run a name server until SIGTERM or SIGINT; `ready` is told where it listens."""
    for warning in loaded.warnings:
        log.warning("configuration %s", warning)
    log.debug("file_limit open_files_max=%d", raise_file_limit())
    asyncio.run(_serve(loaded.settings, ready))


async def _serve(config: NameServerConfig, ready: Callable[[str, int], object]) -> None:
    from orbitmq.nameserver.name_server import NameServer

    server = NameServer(config)
    services = Services()
    services.add("name server", start=server.start, stop=server.stop)
    await run_until_signal(services, ready=lambda: ready(*server.address))
