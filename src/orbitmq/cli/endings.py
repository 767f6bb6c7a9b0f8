"""How a program of the command line ends when the system stands in its way: a file it may not use,
a reader that is gone.

Knows streams and errors of the system, no commands. `orbitmq`, `mqnamesrv` and `mqbroker` run
everything inside `output_guard`.
"""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

EXIT_INTERRUPTED: Final = 130  # as shells say it of SIGINT
EXIT_READER_GONE: Final = 141  # as shells say it of SIGPIPE


class ReaderGoneError(Exception):
    """The reader of the output is gone: the program ends silently."""


def open_streams() -> None:
    """Give a program that was started without standard streams (`>&-`) some that lead nowhere: no
    file may get their descriptors.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - for as long as the process runs


@contextmanager
def output_guard() -> Iterator[None]:
    """Run a program and flush its output. Raises ReaderGoneError if the reader is gone."""
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if error.errno == errno.EPIPE and _drop_unread():
            raise ReaderGoneError from error
        raise


def announce(show: Callable[[], object]) -> None:
    """Print where a server listens; it serves even if the reader of the output is gone."""
    try:
        with output_guard():
            show()
    except ReaderGoneError:
        pass


def _drop_unread() -> bool:
    """Drop what is printed to a reader that is gone, also what the interpreter flushes at its exit.
    Returns whether there is one.
    """
    is_dropped = False
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # streams that are closed, or no files
            descriptor = stream.fileno()
            poll = select.poll()
            poll.register(descriptor, 0)
            if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
                is_dropped = True
    return is_dropped
