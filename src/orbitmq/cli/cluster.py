"""`orbitmq cluster`."""

from __future__ import annotations

import click

from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.connection import administered, name_server_options
from orbitmq.cli.output import emit, output_option


@click.group("cluster", cls=CommandGroup)
def group() -> None:
    """List clusters and their brokers."""


@group.command("list")
@name_server_options
@output_option
def list_(name_servers: str, timeout_ms: int, output: str) -> None:
    """List the registered brokers of all clusters.

    \b
    Examples:
      orbitmq cluster list
      orbitmq cluster list -n 10.0.0.1:9876 -o json
    """
    brokers = administered(name_servers, timeout_ms, lambda admin: admin.cluster.brokers())
    rows = [
        {
            "cluster": place.cluster,
            "broker": place.name,
            "id": place.broker_id,
            "role": "master" if place.is_master else "slave",
            "address": place.address,
        }
        for place in brokers
    ]
    emit(rows, ["cluster", "broker", "id", "role", "address"], output)
