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
from orbitmq.cli.credentials import with_remedy
from orbitmq.cli.endings import EXIT_INTERRUPTED, EXIT_READER_GONE, ReaderGone, open_streams, output_guard
from orbitmq.common.errors import OrbitError, RemoteError, SendFailed, os_error_text
from orbitmq.common.visible import visible_lines
from orbitmq.version import ROCKETMQ_VERSION, __version__

NOUNS = {
    "access": "Users, and what they may do.",
    "broker": "Run brokers, see what they do, and configure them.",
    "cluster": "Clusters and their brokers.",
    "dlq": "Dead letters: who has them, what they are, and back with them.",
    "group": "Consumer groups: who consumes, how far they are behind, and why.",
    "kv": "The KV configuration that name servers keep.",
    "message": "Send messages, follow them, and find them again.",
    "nameserver": "Run and configure name servers.",
    "pipeline": "Spark pipelines that YAML files describe.",
    "spark": "Ready Spark jobs on topics, and whether Spark can run here.",
    "store": "Look at, check and repair the files of a store.",
    "timer": "Messages that wait for their time, and taking them back.",
    "topic": "Topics, where their queues are, and how full.",
    "tx": "Transactions that have not ended, and how they are ended by hand.",
    "up": "Run a name server and a broker, or several, in one process.",
}

EXIT_FAILED = 1
EXIT_UNREACHABLE = 3


class Failure(click.ClickException):
    """An error of ours, told in one message."""

    exit_code = EXIT_FAILED

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(visible_lines(f"orbitmq: {self.message}"), file=file or sys.stderr)


class Unreachable(Failure):
    """A server that brought no answer."""

    exit_code = EXIT_UNREACHABLE


class Unread(click.ClickException):
    """Nobody reads what is printed, so nothing is said of it either."""

    exit_code = EXIT_READER_GONE

    def show(self, file: IO[Any] | None = None) -> None:
        pass


_OF_SPARK = ("pipeline", "spark")  # nouns whose libraries the extra `spark` brings


def _is_unreachable(error: OrbitError) -> bool:
    return isinstance(error.__cause__ if isinstance(error, SendFailed) else error, RemoteError)


@contextmanager
def _told(ctx: click.Context | None = None) -> Iterator[None]:
    """Make of each error that users can do something about one message and an exit code; not with `--debug`."""

    def debug() -> bool:
        return ctx is not None and bool(ctx.params["debug"])

    try:
        with output_guard():
            yield
    except ReaderGone as error:
        raise Unread("nobody reads what is printed") from error
    except OrbitError as error:
        if debug():
            raise
        raise (Unreachable if _is_unreachable(error) else Failure)(with_remedy(str(error))) from error
    except ModuleNotFoundError as error:
        package = (error.name or "orbitmq").partition(".")[0]
        if debug() or package == "orbitmq":
            raise
        needed = "'orbitmq[spark]'" if ctx is not None and ctx.invoked_subcommand in _OF_SPARK else "orbitmq"
        raise Failure(f"this command needs {package}, which is not installed here: pip install {needed}") from error
    except OSError as error:
        if debug():
            raise
        raise Failure(os_error_text(error)) from error
    except KeyboardInterrupt:
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


class Root(click.Group):
    """The group of nouns."""

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            with output_guard():  # of errors too, which click prints
                return super().main(*args, **extra)
        except ReaderGone:
            sys.exit(EXIT_READER_GONE)

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any) -> click.Context:
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
    return f"orbitmq {__version__} (Apache RocketMQ {ROCKETMQ_VERSION} protocol, kernels {kernels.mode()}, Python {python})"


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(version_line())
        ctx.exit()


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version and exit.")
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
      141  nobody reads what is printed, as behind `| head -1`

    \b
    Examples:
      orbitmq nameserver run                  a name server on 127.0.0.1:9876
      orbitmq cluster list -n 10.0.0.1:9876   which brokers are registered
      orbitmq topic route TopicTest -o json   where a topic's queues are
      orbitmq message tail TopicTest          the messages as they come
    """


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    click.echo(visible_lines("".join(traceback.format_exception(kind, error, trace))), err=True, nl=False)


def main() -> None:
    """Entry point of `orbitmq`."""
    open_streams()
    sys.excepthook = _print_traceback  # of --debug, and of what nobody expected; it may hold what a peer sent
    cli(prog_name="orbitmq")
