"""`orbitmq broker`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orbitmq.cli.arguments import key_values
from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.connection import administered, name_server_options
from orbitmq.cli.output import emit, moment, output_option, say, show_unreachable
from orbitmq.cli.server_process import ServerOptions, serve, server_options
from orbitmq.common.errors import NotFoundError

if TYPE_CHECKING:
    from orbitmq.admin import Admin
    from orbitmq.admin.calls import BrokerInstance, GatheredReplies
    from orbitmq.admin.cluster import BrokerRuntime


@click.group("broker", cls=CommandGroup, old_names={"status": "show"})
def group() -> None:
    """Run, inspect and configure brokers."""


@group.command("run")
@server_options(
    click.option(
        "-n",
        "--name-servers",
        metavar="LIST",
        help="Name servers to register with (namesrvAddr).",
    ),
    click.option("--port", metavar="N", help="Port to listen on (listenPort).  [default: 10911]"),
    click.option(
        "--store",
        metavar="DIR",
        help="Directory for messages (storePathRootDir).  [default: ~/store]",
    ),
)
def run(
    options: ServerOptions, name_servers: str | None, port: str | None, store: str | None
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    \b
    Examples:
      orbitmq broker run -n 127.0.0.1:9876
      orbitmq broker run -c broker.conf --set brokerIP1=10.0.0.7
    """
    from orbitmq.broker.broker import Broker
    from orbitmq.broker.config.broker_config import load_broker

    flags = options.flags(namesrvAddr=name_servers, listenPort=port, storePathRootDir=store)
    loaded = load_broker(file=options.config_file, flags=flags)
    if options.is_printed(loaded):
        return
    config = loaded.settings
    options.set_up_logs("broker", config.rocketmq_home)

    def ready(host: str, listen_port: int) -> None:
        known = (
            f"name servers: {config.namesrv_addr}"
            if config.namesrv_addr
            else "no name server knows it: see -n"
        )
        say(
            f"The broker {config.broker_name} listens on {host}:{listen_port}; {known}; messages in"
            f" {config.store_path_root_dir}."
        )

    serve("broker", Broker(config), loaded, ready, exit_with_parent=options.exit_with_parent)


@group.command("show")
@click.option("--cluster", metavar="NAME", help="Only brokers of this cluster.")
@name_server_options
@output_option
def show(name_servers: str, timeout_ms: int, output: str, cluster: str | None) -> None:
    """Show the throughput, disk use and version of each broker.

    -o json and -o yaml show everything that a broker reports.

    \b
    Examples:
      orbitmq broker show
      orbitmq broker show --cluster DefaultCluster -o json
    """

    async def look(admin: Admin) -> tuple[list[BrokerInstance], GatheredReplies[BrokerRuntime]]:
        return await admin.cluster.brokers(cluster), await admin.cluster.runtimes(cluster)

    places, runtimes = administered(name_servers, timeout_ms, look)
    rows = [
        {
            "broker": place.name,
            "id": place.broker_id,
            "address": place.address,
            "version": runtime.version,
            "put_per_s": runtime.put_per_s,
            "get_per_s": runtime.get_per_s,
            "put_today": runtime.put_today,
            "got_today": runtime.got_today,
            "disk_used": runtime.disk_ratio,
            "started": moment(runtime.boot_ms),
            "entries": dict(runtime.entries),
        }
        for place in places
        if (runtime := runtimes.found.get(place.address)) is not None
    ]
    columns = [
        "broker",
        "id",
        "address",
        "version",
        "put_per_s",
        "get_per_s",
        "put_today",
        "got_today",
        "disk_used",
        "started",
    ]
    emit(rows, columns, output)
    show_unreachable(runtimes.unreachable)


@group.command("config")
@click.argument("broker")
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a dynamic key; repeatable.",
)
@name_server_options
@output_option
def config(
    name_servers: str, timeout_ms: int, output: str, broker: str, pairs: tuple[str, ...]
) -> None:
    """Show the configuration of BROKER (name or address), or change it with --set.

    \b
    Examples:
      orbitmq broker config broker-a
      orbitmq broker config 10.0.0.7:10911 --set fileReservedTime=48
    """
    values = key_values(pairs)

    async def act(admin: Admin) -> tuple[str, dict[str, str]]:
        address = await admin.cluster.address(broker)
        if values:
            await admin.cluster.update_config(address, values)
            return address, {}
        return address, await admin.cluster.config(address)

    address, found = administered(name_servers, timeout_ms, act)
    if values:
        say(f"updated {', '.join(values)} at {address}", err=True)
    else:
        emit(
            [{"key": key, "value": value} for key, value in found.items()], ["key", "value"], output
        )


@group.command("wipe-write-perm")
@click.argument("name")
@name_server_options
@output_option
def wipe_write_perm(name_servers: str, timeout_ms: int, output: str, name: str) -> None:
    """Remove the write permission of broker NAME, so that producers skip it.

    Do so on every name server before the broker is stopped for maintenance.

    The next registration of a changed topic table restores the permission.

    \b
    Example:
      orbitmq broker wipe-write-perm broker-a -n '10.0.0.1:9876;10.0.0.2:9876'
    """
    _show(
        administered(
            name_servers, timeout_ms, lambda admin: admin.name_servers.wipe_write_perm(name)
        ),
        name,
        output,
    )


@group.command("add-write-perm")
@click.argument("name")
@name_server_options
@output_option
def add_write_perm(name_servers: str, timeout_ms: int, output: str, name: str) -> None:
    """Restore the write permission of broker NAME on every name server.

    \b
    Example:
      orbitmq broker add-write-perm broker-a
    """
    _show(
        administered(
            name_servers, timeout_ms, lambda admin: admin.name_servers.add_write_perm(name)
        ),
        name,
        output,
    )


def _show(changed: dict[str, int], name: str, output: str) -> None:
    if not any(changed.values()):
        raise NotFoundError(
            f"nothing was changed: no name server knows queues of a broker {name}; see orbitmq"
            " cluster list for the names"
        )
    rows = [{"name_server": address, "topics_changed": count} for address, count in changed.items()]
    emit(rows, ["name_server", "topics_changed"], output)
