"""The `orbitmq` command: nouns, verbs, and what becomes of errors.

Nouns are imported when they are used, so that no command waits for the libraries of another.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Any

import click

from orbitmq import kernels
from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.credentials import with_remedy
from orbitmq.cli.endings import (
    EXIT_INTERRUPTED,
    EXIT_READER_GONE,
    ReaderGoneError,
    open_streams,
    output_guard,
)
from orbitmq.common.errors import OrbitError, RemoteError, SendFailedError, os_error_text
from orbitmq.common.visible import visible_lines
from orbitmq.version import ROCKETMQ_VERSION, __version__

NOUNS = {
    "access": "Manage users and what they may do.",
    "broker": "Run, inspect and configure brokers.",
    "cluster": "List clusters and their brokers.",
    "dlq": "List, inspect and redrive dead letters.",
    "group": "Manage consumer groups, their members, offsets and lag.",
    "kv": "Manage the KV configuration of name servers.",
    "message": "Send, follow and find messages.",
    "nameserver": "Run and configure name servers.",
    "pipeline": "Run and check Spark pipelines that YAML files describe.",
    "spark": "Run Spark jobs on topics, and check the Spark installation.",
    "store": "Look at, check and repair the files of a store.",
    "timer": "List and cancel scheduled messages.",
    "topic": "Manage topics and show their queues.",
    "tx": "List open transactions and end them by hand.",
    "up": "Run a name server and one or more brokers in one process.",
}

EXIT_FAILED = 1
EXIT_UNREACHABLE = 3


class Failure(click.ClickException):
    """An expected error, shown as one message."""

    exit_code = EXIT_FAILED

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(visible_lines(f"orbitmq: {self.message}"), file=file or sys.stderr)


class Unreachable(Failure):
    """A server did not reply."""

    exit_code = EXIT_UNREACHABLE


class Unread(click.ClickException):
    """The reader of the output is gone: nothing is shown."""

    exit_code = EXIT_READER_GONE

    def show(self, file: IO[Any] | None = None) -> None:
        pass


_OF_SPARK = ("pipeline", "spark")  # nouns whose libraries the extra `spark` brings
SPARK_INSTALL = "pip install 'orbitmq[spark]', or in a checkout: pip install '.[spark]'"


def _is_unreachable(error: OrbitError) -> bool:
    return isinstance(error.__cause__ if isinstance(error, SendFailedError) else error, RemoteError)


@contextmanager
def _told(ctx: click.Context | None = None) -> Iterator[None]:
    """Make of each error that users can do something about one message and an exit code; not with
    `--debug`.
    """

    def debug() -> bool:
        return ctx is not None and bool(ctx.params["debug"])

    try:
        with output_guard():
            yield
    except ReaderGoneError as error:
        raise Unread("the reader of the output is gone") from error
    except OrbitError as error:
        if debug():
            raise
        raise (Unreachable if _is_unreachable(error) else Failure)(
            with_remedy(str(error))
        ) from error
    except ModuleNotFoundError as error:
        package = (error.name or "orbitmq").partition(".")[0]
        if debug() or package == "orbitmq":
            raise
        package = "pyspark" if package == "py4j" else package  # a part of it
        needed = (
            SPARK_INSTALL
            if ctx is not None and ctx.invoked_subcommand in _OF_SPARK
            else "pip install orbitmq"
        )
        raise Failure(
            f"this command needs {package}, which is not installed here: {needed}"
        ) from error
    except OSError as error:
        if debug():
            raise
        raise Failure(os_error_text(error)) from error
    except KeyboardInterrupt:
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


class Root(CommandGroup):
    """The group of nouns."""

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            with output_guard():  # of errors too, which click prints
                return super().main(*args, **extra)
        except ReaderGoneError:
            sys.exit(EXIT_READER_GONE)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        with _told():  # of help and version, which print here
            return super().make_context(info_name, args, parent, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NOUNS:
            return None
        group: click.Command = importlib.import_module(f"orbitmq.cli.{cmd_name}").group
        return group

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):  # known without importing any
            formatter.write_dl(list(NOUNS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        with _told(ctx):
            return super().invoke(ctx)


def version_line() -> str:
    """What `--version` prints."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    return (
        f"orbitmq {__version__} (Apache RocketMQ {ROCKETMQ_VERSION} protocol, kernels"
        f" {kernels.mode()}, Python {python})"
    )


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(version_line())
        ctx.exit()


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
@click.option("--debug", is_flag=True, help="Print the traceback of an error.")
def cli(debug: bool) -> None:
    """OrbitMQ: RocketMQ in Python.

    \b
    Exit codes:
      0  done
      1  the operation failed, or was refused
      2  the command line is wrong
      3  a server cannot be reached, or did not answer in time
      130  Ctrl-C
      141  the reader of the output is gone, as after `| head -1`

    \b
    Examples:
      orbitmq up                              run a name server and a broker
      orbitmq cluster list -n 10.0.0.1:9876   list the registered brokers
      orbitmq topic route TopicTest -o json   show where a topic's queues are
      orbitmq message tail TopicTest          print messages as they arrive
    """


def _print_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    click.echo(
        visible_lines("".join(traceback.format_exception(kind, error, trace))), err=True, nl=False
    )


def main() -> None:
    """Entry point of `orbitmq`."""
    open_streams()
    sys.excepthook = (
        _print_traceback  # of --debug and unexpected errors; it may contain bytes of a peer
    )
    cli(prog_name="orbitmq")
