"""`orbitmq cluster`."""

from __future__ import annotations

import click

from orbitmq.cli.connection import connected, name_server_options
from orbitmq.cli.output import emit, output_option


@click.group("cluster")
def group() -> None:
    """Clusters and their brokers."""


@group.command("list")
@name_server_options
@output_option
def list_(name_servers: str, timeout_ms: int, output: str) -> None:
    """List every broker that is registered.

    \b
    Examples:
      orbitmq cluster list
      orbitmq cluster list -n 10.0.0.1:9876 -o json
    """
    from orbitmq.admin import name_servers as admin

    info = connected(name_servers, lambda client: admin.cluster_info(client, timeout_ms))
    rows = [
        {"cluster": cluster, "broker": name, "id": broker_id, "role": "slave" if broker_id else "master", "address": address}
        for cluster, names in sorted(info.clusters.items())
        for name in sorted(names)
        if name in info.brokers
        for broker_id, address in sorted(info.brokers[name].broker_addrs.items())
    ]
    emit(rows, ["cluster", "broker", "id", "role", "address"], output)
