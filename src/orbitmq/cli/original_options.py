"""Command lines as the original's servers read them, for the drop-ins `mqnamesrv` and `mqbroker`:
options, usage, exit codes.

0 = help, printed configuration, or a clean stop; 1 = the command line is wrong; 253 = the
configuration or the store cannot be used; 255 = it cannot start. The original's 254, no
ROCKETMQ_HOME, does not occur: that need not be set. 130 = Ctrl-C before the start; 141 = the reader
of the output is gone.
"""

from __future__ import annotations

import getopt
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from orbitmq.cli.endings import EXIT_INTERRUPTED, EXIT_READER_GONE, ReaderGoneError, output_guard
from orbitmq.common.errors import (
    CorruptFileError,
    OrbitError,
    StoreError,
    StoreLockedError,
    UnusableConfigurationError,
    os_error_text,
)

EXIT_USAGE = 1
EXIT_CANNOT_START = 255
EXIT_NOT_INITIALISED = 253
_WITH_ARGUMENT = "cn"

Options = Mapping[str, str]


def run(
    program: str,
    usage: str,
    long_options: Options,
    arguments: Sequence[str],
    start: Callable[[Options], None],
) -> int:
    """Do what the command line asks, by `start` with the argument of each option letter; returns
    the exit code.
    """
    try:
        with output_guard():
            return _run(program, usage, long_options, arguments, start)
    except ReaderGoneError:
        return EXIT_READER_GONE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        print(f"{program}: {os_error_text(error)}", file=sys.stderr)
        return EXIT_CANNOT_START


def _run(
    program: str,
    usage: str,
    long_options: Options,
    arguments: Sequence[str],
    start: Callable[[Options], None],
) -> int:
    try:
        options = _parse(long_options, arguments)
    except getopt.GetoptError as error:
        name = error.opt if len(error.opt) > 1 else long_options.get(error.opt, error.opt)
        dashes = "-" if len(name) == 1 else "--"
        missing = "requires argument" in error.msg
        print(
            (
                f"Missing argument for option: {long_options.get(name, name)}"
                if missing
                else f"Unrecognized option: {dashes}{name}"
            ),
            file=sys.stderr,
        )
        print(usage)
        return EXIT_USAGE
    if "h" in options:
        print(usage)
        return 0
    try:
        start(options)
    except OrbitError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return _exit_code(error)
    return 0


def _exit_code(error: BaseException | None) -> int:
    """The original's code for an error, by whatever it follows from."""
    while error is not None:
        if isinstance(error, StoreLockedError):
            return EXIT_CANNOT_START
        if isinstance(error, UnusableConfigurationError | StoreError | CorruptFileError):
            return EXIT_NOT_INITIALISED
        error = error.__cause__
    return EXIT_CANNOT_START


def set_up_logs_from_environment(name: str, home: str | None) -> None:
    """Log as ORBITMQ_LOG_LEVEL, ORBITMQ_LOG_FORMAT and ORBITMQ_LOG_FILE say: the original's command
    line has no options for it.
    """
    from orbitmq.cli.log_options import set_up_logs

    set_up_logs(
        name,
        home,
        level=os.environ.get("ORBITMQ_LOG_LEVEL", "info"),
        log_format=os.environ.get("ORBITMQ_LOG_FORMAT", "text"),
        file=os.environ.get("ORBITMQ_LOG_FILE"),
    )


def _parse(long_options: Options, arguments: Sequence[str]) -> dict[str, str]:
    """Option letter → argument; a long name may stand after one dash, and what is no option is
    passed over.
    """
    two_dashed = [
        "-" + text if text[:1] == "-" and text[1:].split("=")[0] in long_options else text
        for text in arguments
    ]
    letters = "".join(letter + ":" * (letter in _WITH_ARGUMENT) for letter in long_options.values())
    longs = [name + "=" * (letter in _WITH_ARGUMENT) for name, letter in long_options.items()]
    pairs, _ = getopt.gnu_getopt(two_dashed, letters, longs)
    return {
        long_options.get(name.lstrip("-"), name.lstrip("-")): argument for name, argument in pairs
    }
