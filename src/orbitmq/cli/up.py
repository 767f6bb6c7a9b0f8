"""`orbitmq up`: a name server and brokers in one process."""

from __future__ import annotations

from pathlib import Path

import click

from orbitmq.cli.arguments import key_values
from orbitmq.cli.endings import announce
from orbitmq.cli.log_options import log_options, set_up_logs
from orbitmq.cli.output import json_text, say

_PORT = 9876
_BROKER_PORT = 10911


@click.command("up")
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    help=f"Name server port (0 = any free port).  [default: {_PORT}]",
)
@click.option(
    "--broker-port",
    metavar="N",
    type=click.IntRange(0, 65534),
    help=f"Port of the first broker (0 = any); others are 10 apart.  [default: {_BROKER_PORT}]",
)
@click.option(
    "--brokers",
    metavar="N",
    type=click.IntRange(1, 26),
    default=1,
    help="Number of brokers: broker-a, broker-b, …  [default: 1]",
)
@click.option(
    "--store",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Directory for messages.  [default: ~/store]",
)
@click.option(
    "--ephemeral",
    is_flag=True,
    help="Use a temporary store, removed at exit, and free ports unless given.",
)
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set any key of the brokers' configuration; repeatable.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the addresses as one line of JSON once everything is up.",
)
@log_options("warning")
@click.option(
    "--exit-with-parent",
    is_flag=True,
    help="Stop when the parent process ends.",
)
def group(
    port: int | None,
    broker_port: int | None,
    brokers: int,
    folder: Path | None,
    ephemeral: bool,
    pairs: tuple[str, ...],
    as_json: bool,
    log_level: str,
    log_format: str,
    log_file: str | None,
    exit_with_parent: bool,
) -> None:
    """Run a name server and one or more brokers in one process.

    They run until SIGTERM or Ctrl-C.

    \b
    Examples:
      orbitmq up
      orbitmq up --store /var/orbitmq --set flushDiskType=SYNC_FLUSH
      orbitmq up --ephemeral --json --exit-with-parent   # for tests of any language
    """
    import asyncio

    from orbitmq.common.service import Services, raise_file_limit, run_until_signal
    from orbitmq.embedded.cluster import ClusterSettings, EmbeddedCluster, broker_names

    if ephemeral and folder is not None:
        raise click.UsageError("--ephemeral has no --store: it keeps nothing")
    settings = ClusterSettings(
        name_server_port=(0 if ephemeral else _PORT) if port is None else port,
        broker_port=(0 if ephemeral else _BROKER_PORT) if broker_port is None else broker_port,
        store=None if ephemeral else (folder or Path("~/store")).expanduser(),
        brokers=broker_names(brokers),
        broker=key_values(pairs),
    )
    set_up_logs("up", None, level=log_level, log_format=log_format, file=log_file)
    cluster = EmbeddedCluster(settings)

    def ready() -> None:
        places = {
            name: {"address": cluster.address(name), "store": str(cluster.store_of(name))}
            for name in settings.brokers
        }
        if as_json:
            first = {"broker": cluster.broker_address, "store": str(cluster.store)}
            say(json_text({"nameServer": cluster.name_server_address, **first, "brokers": places}))
            return
        for name, place in places.items():
            say(f"The broker {name} listens on {place['address']}; messages in {place['store']}.")
        say(
            f"Point any RocketMQ client at the name server {cluster.name_server_address}; Ctrl-C"
            " stops it."
        )

    raise_file_limit()
    services = Services()
    services.add("cluster", start=cluster.start, stop=cluster.stop)
    asyncio.run(
        run_until_signal(services, ready=lambda: announce(ready), with_parent=exit_with_parent)
    )
