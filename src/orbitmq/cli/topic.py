"""`orbitmq topic`."""

from __future__ import annotations

import click

from orbitmq.cli.connection import connected, name_server_options
from orbitmq.cli.output import emit, output_option

READ, WRITE = 4, 2


@click.group("topic")
def group() -> None:
    """Topics and where their queues are."""


@group.command("list")
@click.option("--cluster", help="Only topics with queues on brokers of this cluster.")
@name_server_options
@output_option
def list_(name_servers: str, timeout_ms: int, output: str, cluster: str | None) -> None:
    """List the topics that the name servers know.

    \b
    Examples:
      orbitmq topic list
      orbitmq topic list --cluster DefaultCluster -o yaml
    """
    from orbitmq.admin import name_servers as admin

    topics = connected(name_servers, lambda client: admin.topics(client, cluster, timeout_ms))
    emit([{"topic": topic} for topic in sorted(topics)], ["topic"], output)


@group.command("route")
@click.argument("topic")
@name_server_options
@output_option
def route(name_servers: str, timeout_ms: int, output: str, topic: str) -> None:
    """Show which brokers hold the queues of TOPIC.

    \b
    Examples:
      orbitmq topic route TopicTest
      orbitmq topic route TopicTest -n 10.0.0.1:9876 -o json
    """
    from orbitmq.admin import name_servers as admin

    data = connected(name_servers, lambda client: admin.topic_route(client, topic, timeout_ms))
    addresses = {broker.broker_name: broker for broker in data.broker_datas}
    rows = [
        {
            "broker": queues.broker_name,
            "cluster": addresses[queues.broker_name].cluster if queues.broker_name in addresses else None,
            "read_queues": queues.read_queue_nums,
            "write_queues": queues.write_queue_nums,
            "permission": ("R" if queues.perm & READ else "-") + ("W" if queues.perm & WRITE else "-"),
            "addresses": [f"{number}={text}" for number, text in sorted(addresses[queues.broker_name].broker_addrs.items())]
            if queues.broker_name in addresses
            else [],
        }
        for queues in sorted(data.queue_datas, key=lambda queues: queues.broker_name)
    ]
    emit(rows, ["broker", "cluster", "read_queues", "write_queues", "permission", "addresses"], output)
