"""Logging set-up: `event key=value` lines to standard error and, optionally, to a rotating file;
importing has no side effects.

The only module that touches the root logger; all others log to `getLogger(__name__)`. Called once,
by a command.

Records and tracebacks may contain data sent by peers: control characters are escaped here, for all
loggers. A line that does not start with a blank starts a record.
"""

from __future__ import annotations

import json
import logging
import sys
from enum import Enum
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from orbitmq.common.visible import visible, visible_json, visible_lines

FILE_BYTES_MAX = 128 * 1024 * 1024
FILES_KEPT = 10
DETAIL: Final = "is_detail"  # marks, by `extra`, a record that is for files and not for terminals


class LogFormat(Enum):
    """The format of a log line."""

    TEXT = "text"
    JSON = "json"


def set_up(
    *, level: str = "INFO", log_format: LogFormat = LogFormat.TEXT, file: Path | None = None
) -> None:
    """Send records of `level` and above to standard error and to `file`; replaces the previous
    set-up.
    """
    formatter = _JsonFormatter() if log_format is LogFormat.JSON else _TextFormatter()
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if sys.stderr.isatty():
        handlers[0].addFilter(lambda record: not getattr(record, DETAIL, False))
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(
            RotatingFileHandler(
                file, maxBytes=FILE_BYTES_MAX, backupCount=FILES_KEPT, encoding="utf-8"
            )
        )
    for handler in handlers:
        handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=handlers, force=True)


class _TextFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.123 INFO orbitmq.room event key=value`, one line per record; traceback
    lines are indented.
    """

    default_msec_format = "%s.%03d"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.message = visible(record.getMessage())
        record.asctime = self.formatTime(record)
        more = [
            record.exc_text or "" if not record.exc_info else self.formatException(record.exc_info),
            record.stack_info or "",
        ]
        lines = [line for text in more if text for line in visible_lines(text).split("\n")]
        return "\n  ".join([self.formatMessage(record), *lines])


class _JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time_ms": int(record.created * 1000),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return visible_json(json.dumps(fields, ensure_ascii=False))
