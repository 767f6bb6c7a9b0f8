"""`orbitmq kv`."""

from __future__ import annotations

import click

from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.connection import administered, name_server_options
from orbitmq.cli.output import emit, output_option, say


@click.group("kv", cls=CommandGroup, old_names={"get": "show", "put": "update"})
def group() -> None:
    """Manage the KV configuration of name servers.

    Changes go to every name server that -n names: name servers do not replicate.
    """


@group.command("show")
@click.argument("namespace")
@click.argument("key")
@name_server_options
def show(name_servers: str, timeout_ms: int, namespace: str, key: str) -> None:
    """Show the value of KEY in NAMESPACE.

    \b
    Example:
      orbitmq kv show ORDER_TOPIC_CONFIG TopicTest
    """
    say(
        administered(
            name_servers, timeout_ms, lambda admin: admin.name_servers.kv_get(namespace, key)
        )
    )


@group.command("update")
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@name_server_options
def update(name_servers: str, timeout_ms: int, namespace: str, key: str, value: str) -> None:
    """Update, or create, KEY in NAMESPACE with VALUE.

    \b
    Example:
      orbitmq kv update ORDER_TOPIC_CONFIG TopicTest 'broker-a:8;broker-b:8'
    """
    administered(
        name_servers, timeout_ms, lambda admin: admin.name_servers.kv_put(namespace, key, value)
    )


@group.command("delete")
@click.argument("namespace")
@click.argument("key")
@name_server_options
def delete(name_servers: str, timeout_ms: int, namespace: str, key: str) -> None:
    """Delete KEY of NAMESPACE; succeed if it does not exist.

    \b
    Example:
      orbitmq kv delete ORDER_TOPIC_CONFIG TopicTest
    """
    administered(
        name_servers, timeout_ms, lambda admin: admin.name_servers.kv_delete(namespace, key)
    )


@group.command("list")
@click.argument("namespace")
@name_server_options
@output_option
def list_(name_servers: str, timeout_ms: int, output: str, namespace: str) -> None:
    """List the keys and values of NAMESPACE.

    \b
    Example:
      orbitmq kv list ORDER_TOPIC_CONFIG -o json
    """
    table = administered(
        name_servers, timeout_ms, lambda admin: admin.name_servers.kv_list(namespace)
    )
    emit(
        [{"key": key, "value": value} for key, value in sorted(table.items())],
        ["key", "value"],
        output,
    )
