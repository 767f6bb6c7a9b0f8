"""What the verbs of `orbitmq spark` share: how Spark and a cluster are reached, a session for as
long as a job lasts, and its progress.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from orbitmq.cli.arguments import key_values, together
from orbitmq.cli.connection import name_server_options
from orbitmq.cli.credentials import chosen_credentials
from orbitmq.cli.endings import EXIT_INTERRUPTED
from orbitmq.cli.output import say
from orbitmq.common.visible import visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from orbitmq.spark.jobs.runner import JobRunner, StepListener
    from orbitmq.spark.pipeline.cluster_session import SessionSettings

F = TypeVar("F", bound=Callable[..., Any])
LINE_INTERVAL_S: Final = 10.0
_KEYS: Final = frozenset({"accesskey", "secretkey", "securitytoken"})
_PLACE: Final = re.compile(
    r"(?:(?P<servers>[^/]+:\d+(?:;[^/]+:\d+)*)/)?(?P<topic>[%|a-zA-Z0-9_-]+)"
)


@dataclass(frozen=True, slots=True)
class SparkWanted:
    """The Spark master and its settings."""

    master: str
    conf: Mapping[str, str]

    def settings(self) -> SessionSettings:
        from orbitmq.spark.pipeline.cluster_session import SessionSettings

        return SessionSettings(master=self.master, conf=self.conf)


spark_options = together(
    SparkWanted,
    click.option(
        "--master", metavar="URL", default="local[*]", show_default=True, help="Where Spark runs."
    ),
    click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        callback=lambda _ctx, _param, pairs: key_values(pairs, "--conf"),
        help="A setting of Spark; repeatable.",
    ),
)


def cluster_options(command: F) -> F:
    """`-n`, `--timeout-ms`, and whatever else the format `rocketmq` takes."""
    option = click.option(
        "--option",
        "options",
        multiple=True,
        metavar="KEY=VALUE",
        help="Option of the rocketmq format, such as accessKey or tlsEnable; repeatable.",
    )
    return name_server_options(option(command))


def format_options(
    options: tuple[str, ...],
    timeout_ms: int,
    name: str = "--option",
    default: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the options of a read or write, except its topics. Spark and Arrow must be installed.

    `default` applies to options that are not given; if None, the command's timeout and credentials.
    """
    from orbitmq.spark.option_reader import OptionReader
    from orbitmq.spark.options import CONNECTION_OPTIONS, SINK_OPTIONS, SOURCE_OPTIONS
    from orbitmq.spark.runtime import check_packages

    check_packages()
    chosen = key_values(options, name)
    OptionReader(chosen).check_names((*CONNECTION_OPTIONS, *SOURCE_OPTIONS, *SINK_OPTIONS))
    given = {option.lower() for option in chosen}
    if not given.isdisjoint(_KEYS):
        given |= _KEYS  # they belong together
    base = {"requestTimeout": f"{timeout_ms}ms", **_keys()} if default is None else default
    return {
        **{option: text for option, text in base.items() if option.lower() not in given},
        **chosen,
    }


def _keys() -> dict[str, str]:
    """The keys that the command signs its requests with, as options of the format."""
    found = chosen_credentials()
    if found is None:
        return {}
    token = {"securityToken": found.security_token} if found.security_token else {}
    return {"accessKey": found.access_key, "secretKey": found.secret_key, **token}


def same_cluster(options: Mapping[str, str]) -> dict[str, str]:
    """Of the options of a read those that a write to the same cluster needs too."""
    from orbitmq.spark.options import CONNECTION_OPTIONS

    known = {name.lower() for name in CONNECTION_OPTIONS}
    return {name: text for name, text in options.items() if name.lower() in known}


def place(text: str, name_servers: str, option: str) -> tuple[str, str]:
    """Name servers and topic of `[HOST:PORT/]TOPIC`."""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise click.BadParameter(
            f"{text!r} is neither a TOPIC nor HOST:PORT/TOPIC", param_hint=option
        )
    return found["servers"] or name_servers, found["topic"]


@contextmanager
def job(name: str, wanted: SparkWanted) -> Iterator[JobRunner]:
    """Spark for one job, ended with it unless it was there before. Signals stop the job."""
    from orbitmq.spark.jobs.runner import JobRunner, JobStoppedError
    from orbitmq.spark.pipeline.cluster_session import start_session
    from orbitmq.spark.pipeline.stopping import StoppedEarly, StopRequest

    stop = StopRequest()
    try:
        with _watcher() as watcher, stop.by_signal(), ended_after():
            watcher.on_begin("starting Spark")
            with stop.starting():
                spark = start_session(name, {}, wanted.settings())
            watcher.on_end(f"{spark.version} at {wanted.master}")
            yield JobRunner(spark, watcher, stop)
    except (JobStoppedError, StoppedEarly) as problem:
        say(f"orbitmq: {problem or 'it was stopped before it began'}", err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from problem


@contextmanager
def ended_after() -> Iterator[None]:
    from pyspark.sql import SparkSession

    was_there = SparkSession.getActiveSession() is not None
    try:
        yield
    finally:
        with suppress(Exception):  # its Java may be what has failed
            if not was_there and (spark := SparkSession.getActiveSession()) is not None:
                spark.stop()


@contextmanager
def _watcher() -> Iterator[StepListener]:
    """On the standard error: what a command found goes to the other."""
    if not sys.stderr.isatty():
        yield StepLines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as bar:
        yield StepBar(bar)


class StepLines:
    """For a pipe: a line for each step, and one now and then while it lasts."""

    def __init__(self) -> None:
        self._step = ""
        self._told_s = 0.0

    def on_begin(self, step: str) -> None:
        self._step, self._told_s = step, time.monotonic()

    def on_progress(self, done: int, whole: int) -> None:
        if time.monotonic() - self._told_s >= LINE_INTERVAL_S:
            self._told_s = time.monotonic()
            say(f"{self._step}: {_share(done, whole) or 'goes on'}", err=True)

    def on_end(self, result: str) -> None:
        say(f"{self._step}: {result}", err=True)


class StepBar:
    """For a terminal: a bar for the step that goes on, and a line for each that is over."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._step = ""
        self._task: TaskID | None = None

    def on_begin(self, step: str) -> None:
        from rich.markup import escape

        self._step = step
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(escape(visible(step)), total=None, done="")

    def on_progress(self, done: int, whole: int) -> None:
        assert self._task is not None, "a step begins before it goes on"
        self._bar.update(self._task, completed=done, total=whole or None, done=_share(done, whole))

    def on_end(self, result: str) -> None:
        self._bar.console.print(visible(f"{self._step}: {result}"), markup=False)


def _share(done: int, whole: int) -> str:
    return f"{done} of {whole}" if whole else str(done) if done else ""
