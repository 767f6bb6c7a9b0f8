"""`orbitmq broker`."""

from __future__ import annotations

import click

from orbitmq.cli.connection import connected, name_server_options
from orbitmq.cli.output import emit, output_option
from orbitmq.common.errors import NotFound


@click.group("broker")
def group() -> None:
    """Brokers, as the name servers see them."""


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
