"""`orbitmq nameserver`: run one, look at and change the configuration of running ones."""

from __future__ import annotations

import click

from orbitmq.cli.arguments import key_values
from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.connection import administered, name_server_options
from orbitmq.cli.output import emit, output_option, say
from orbitmq.cli.server_process import ServerOptions, serve, server_options


@click.group("nameserver", cls=CommandGroup)
def group() -> None:
    """Run and configure name servers."""


@group.command("run")
@server_options(
    click.option(
        "--port", metavar="N", help="Name server port (0 = any free port).  [default: 9876]"
    ),
    click.option(
        "--bind",
        metavar="ADDRESS",
        help="Address to listen on (0.0.0.0 or :: = all interfaces).  [default: 127.0.0.1]",
    ),
)
def run(options: ServerOptions, port: str | None, bind: str | None) -> None:
    """Run a name server until SIGTERM or Ctrl-C.

    \b
    Examples:
      orbitmq nameserver run
      orbitmq nameserver run -c namesrv.conf --bind 0.0.0.0
      ORBITMQ_LISTEN_PORT=19876 orbitmq nameserver run --set enableTopicList=false
    """
    from orbitmq.common.config import load
    from orbitmq.nameserver.config import NameServerConfig
    from orbitmq.nameserver.name_server import NameServer

    loaded = load(
        NameServerConfig,
        file=options.config_file,
        flags=options.flags(listenPort=port, bindAddress=bind),
    )
    if options.is_printed(loaded):
        return
    config = loaded.settings
    options.set_up_logs("namesrv", config.rocketmq_home)

    def ready(host: str, listen_port: int) -> None:
        address = f"[{host}]:{listen_port}" if ":" in host else f"{host}:{listen_port}"
        here = f"127.0.0.1:{listen_port}" if host in ("0.0.0.0", "::") else address  # noqa: S104 - compared, not bound
        say(
            f"The name server listens on {address} (TLS {config.tls_server_mode.value}); Ctrl-C"
            " stops it."
        )
        say(f"Brokers join it with namesrvAddr={here}. Try: orbitmq cluster list -n {here}")

    serve(
        "name server",
        NameServer(config),
        loaded,
        ready,
        exit_with_parent=options.exit_with_parent,
    )


@group.command("config")
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a dynamic key on every name server; repeatable.",
)
@name_server_options
@output_option
def config(name_servers: str, timeout_ms: int, output: str, pairs: tuple[str, ...]) -> None:
    """Show the configuration of running name servers, or change it with --set.

    \b
    Examples:
      orbitmq nameserver config -n 10.0.0.1:9876
      orbitmq nameserver config -n '10.0.0.1:9876;10.0.0.2:9876' --set enableTopicList=false
    """
    values = key_values(pairs)
    if values:
        administered(
            name_servers, timeout_ms, lambda admin: admin.name_servers.update_config(values)
        )
        say(f"updated {', '.join(values)}", err=True)
        return
    found = administered(name_servers, timeout_ms, lambda admin: admin.name_servers.configs())
    rows = [
        {"name_server": address, "key": key, "value": text}
        for address, texts in found.items()
        for key, text in texts.items()
    ]
    emit(rows, ["name_server", "key", "value"] if len(found) > 1 else ["key", "value"], output)
