"""`orbitmq broker`."""

from __future__ import annotations

import click

from orbitmq.cli.connection import connected, name_server_options
from orbitmq.cli.output import emit, output_option
from orbitmq.cli.server_process import ServerOptions, serve, server_options
from orbitmq.common.errors import NotFound


@click.group("broker")
def group() -> None:
    """Run brokers, and what name servers know of them."""


@group.command("run")
@server_options(
    click.option("-n", "--name-servers", metavar="LIST", help="namesrvAddr: where to register, host:port;host:port."),
    click.option("--port", metavar="N", help="listenPort.  [default: 10911]"),
    click.option("--store", metavar="DIR", help="storePathRootDir.  [default: ~/store]"),
)
def run(options: ServerOptions, name_servers: str | None, port: str | None, store: str | None) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    \b
    Examples:
      orbitmq broker run -n 127.0.0.1:9876
      orbitmq broker run -c broker.conf --set brokerIP1=10.0.0.7
    """
    from orbitmq.broker.broker import Broker
    from orbitmq.broker.config import load_broker

    flags = options.flags(namesrvAddr=name_servers, listenPort=port, storePathRootDir=store)
    loaded = load_broker(file=options.config_file, flags=flags)
    if options.is_printed(loaded):
        return
    config = loaded.settings
    options.set_up_logs("broker", config.rocketmq_home)

    def ready(host: str, listen_port: int) -> None:
        known = f"name servers: {config.namesrv_addr}" if config.namesrv_addr else "no name server knows it: see -n"
        click.echo(f"The broker {config.broker_name} listens on {host}:{listen_port}; {known}; messages in {config.store_path_root_dir}.")

    serve("broker", Broker(config), loaded.warnings, ready)


@group.command("wipe-write-perm")
@click.argument("name")
@name_server_options
@output_option
def wipe_write_perm(name_servers: str, timeout_ms: int, output: str, name: str) -> None:
    """Let producers pass over broker NAME, on every name server: before it is stopped.

    The next registration of a changed topic table gives the permission back.

    \b
    Example:
      orbitmq broker wipe-write-perm broker-a -n '10.0.0.1:9876;10.0.0.2:9876'
    """
    from orbitmq.admin import name_servers as admin

    _show(connected(name_servers, lambda client: admin.wipe_write_perm(client, name, timeout_ms)), name, output)


@group.command("add-write-perm")
@click.argument("name")
@name_server_options
@output_option
def add_write_perm(name_servers: str, timeout_ms: int, output: str, name: str) -> None:
    """Let producers send to broker NAME again, on every name server.

    \b
    Example:
      orbitmq broker add-write-perm broker-a
    """
    from orbitmq.admin import name_servers as admin

    _show(connected(name_servers, lambda client: admin.add_write_perm(client, name, timeout_ms)), name, output)


def _show(changed: dict[str, int], name: str, output: str) -> None:
    if not any(changed.values()):
        raise NotFound(f"nothing was changed: no name server knows queues of a broker {name}; see orbitmq cluster list for the names")
    rows = [{"name_server": address, "topics_changed": count} for address, count in changed.items()]
    emit(rows, ["name_server", "topics_changed"], output)
