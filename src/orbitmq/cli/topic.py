"""`orbitmq topic`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from orbitmq.cli.arguments import key_values, together
from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.connection import administered, name_server_options, target_options
from orbitmq.cli.output import emit, moment, output_option, say, show_unreachable

if TYPE_CHECKING:
    from orbitmq.admin import Admin
    from orbitmq.admin.group_values import GroupConnections
    from orbitmq.admin.topics import TopicStats
    from orbitmq.protocol.bodies.nameserver import TopicConfig

READ, WRITE = 4, 2
PERMISSIONS = {"rw": READ | WRITE, "r": READ, "w": WRITE, "none": 0}
QUEUES_DEFAULT = 8
_CONFIG_COLUMNS = ["broker", "read_queues", "write_queues", "permission", "order", "attributes"]


@click.group("topic", cls=CommandGroup)
def group() -> None:
    """Manage topics and show their queues."""


@group.command("list")
@click.option("--cluster", help="Only topics of this cluster.")
@name_server_options
@output_option
def list_(name_servers: str, timeout_ms: int, output: str, cluster: str | None) -> None:
    """List the topics.

    \b
    Examples:
      orbitmq topic list
      orbitmq topic list --cluster DefaultCluster -o yaml
    """
    topics = administered(name_servers, timeout_ms, lambda admin: admin.topics.names(cluster))
    emit([{"topic": topic} for topic in topics], ["topic"], output)


@group.command("route")
@click.argument("topic")
@name_server_options
@output_option
def route(name_servers: str, timeout_ms: int, output: str, topic: str) -> None:
    """Show the brokers and queues of TOPIC.

    \b
    Examples:
      orbitmq topic route TopicTest
      orbitmq topic route TopicTest -n 10.0.0.1:9876 -o json
    """
    data = administered(name_servers, timeout_ms, lambda admin: admin.topics.route(topic))
    addresses = {broker.broker_name: broker for broker in data.broker_datas}
    rows = [
        {
            "broker": queues.broker_name,
            "cluster": (
                addresses[queues.broker_name].cluster if queues.broker_name in addresses else None
            ),
            "read_queues": queues.read_queue_nums,
            "write_queues": queues.write_queue_nums,
            "permission": _permission(queues.perm),
            "addresses": (
                [
                    f"{number}={text}"
                    for number, text in sorted(addresses[queues.broker_name].broker_addrs.items())
                ]
                if queues.broker_name in addresses
                else []
            ),
        }
        for queues in sorted(data.queue_datas, key=lambda queues: queues.broker_name)
    ]
    emit(
        rows,
        ["broker", "cluster", "read_queues", "write_queues", "permission", "addresses"],
        output,
    )


@group.command("show")
@click.argument("topic")
@name_server_options
@output_option
def show(name_servers: str, timeout_ms: int, output: str, topic: str) -> None:
    """Show the settings, message count and consumer groups of TOPIC.

    \b
    Examples:
      orbitmq topic show TopicTest
      orbitmq topic show TopicTest -o json
    """

    async def look(
        admin: Admin,
    ) -> tuple[Mapping[str, TopicConfig], TopicStats, Mapping[str, GroupConnections]]:
        return (
            await admin.topics.configs(topic),
            await admin.topics.stats(topic),
            await admin.groups.of_topic(topic),
        )

    configs, stats, consumers = administered(name_servers, timeout_ms, look)
    rows = _config_rows(configs)
    groups = {
        name: [member.client_id for member in found.members] for name, found in consumers.items()
    }
    if output != "table":
        found = {
            "topic": topic,
            "messages": stats.message_count,
            "messages_per_s": stats.put_per_s,
            "groups": groups,
            "brokers": rows,
        }
        emit([found], [], output)
    else:
        online = (
            ", ".join(f"{name} ({len(clients)} online)" for name, clients in groups.items())
            or "none"
        )
        say(
            f"{topic}: {stats.message_count} messages, {round(stats.put_per_s, 1):g} per second;"
            f" groups: {online}\n"
        )
        emit(rows, _CONFIG_COLUMNS, output)
    show_unreachable(stats.unreachable)


@group.command("stats")
@click.argument("topic")
@name_server_options
@output_option
def stats(name_servers: str, timeout_ms: int, output: str, topic: str) -> None:
    """Show the offsets and the last store time of each queue of TOPIC.

    \b
    Examples:
      orbitmq topic stats TopicTest
      orbitmq topic stats TopicTest -o json
    """
    found = administered(name_servers, timeout_ms, lambda admin: admin.topics.stats(topic))
    rows = [
        {
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "first_offset": ends.min_offset,
            "end_offset": ends.max_offset,
            "messages": ends.max_offset - ends.min_offset,
            "last_update": moment(ends.last_update_timestamp),
        }
        for queue, ends in found.queues.items()
    ]
    emit(rows, ["broker", "queue", "first_offset", "end_offset", "messages", "last_update"], output)
    show_unreachable(found.unreachable)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is said of a topic; None is left as it is."""

    queues: int | None
    read_queues: int | None
    write_queues: int | None
    permission: str | None
    order: bool | None
    attributes: tuple[str, ...]
    removed: tuple[str, ...]

    def applied(self, config: TopicConfig) -> TopicConfig:
        kept = {
            name: value for name, value in config.attributes.items() if name not in self.removed
        }
        said: dict[str, Any] = {
            "read_queue_nums": self.queues if self.read_queues is None else self.read_queues,
            "write_queue_nums": self.queues if self.write_queues is None else self.write_queues,
            "perm": None if self.permission is None else PERMISSIONS[self.permission],
            "order": self.order,
            "attributes": (
                kept
                | key_values([text.removeprefix("+") for text in self.attributes], "--attribute")
            ),
        }
        return config._replace(**{name: value for name, value in said.items() if value is not None})


_topic_options = together(
    _Wanted,
    click.option(
        "--queues",
        metavar="N",
        type=click.IntRange(0),
        help="Number of read and write queues.",
    ),
    click.option(
        "--read-queues",
        metavar="N",
        type=click.IntRange(0),
        help="Number of read queues, where it differs.",
    ),
    click.option(
        "--write-queues",
        metavar="N",
        type=click.IntRange(0),
        help="Number of write queues, where it differs.",
    ),
    click.option(
        "--permission", type=click.Choice(list(PERMISSIONS)), help="Permission of clients."
    ),
    click.option(
        "--order/--no-order",
        default=None,
        help="Keep the order configuration of the topic at name servers.",
    ),
    click.option(
        "--attribute",
        "attributes",
        multiple=True,
        metavar="KEY=VALUE",
        help="Set an attribute, as message.type=FIFO; repeatable.",
    ),
    click.option(
        "--remove-attribute",
        "removed",
        multiple=True,
        metavar="KEY",
        help="Remove an attribute; repeatable.",
    ),
)


@group.command("create")
@click.argument("topic")
@_topic_options
@target_options
@name_server_options
@output_option
def create(
    name_servers: str,
    timeout_ms: int,
    output: str,
    topic: str,
    wanted: _Wanted,
    cluster: str | None,
    broker: str | None,
) -> None:
    """Create TOPIC on every master of a cluster, or on one broker.

    By default it has 8 queues on each, readable and writable. An identical topic that exists is
    left unchanged.

    \b
    Examples:
      orbitmq topic create orders --queues 4
      orbitmq topic create events --broker broker-a --attribute message.type=FIFO
    """
    from orbitmq.protocol.bodies.nameserver import TopicConfig

    config = wanted.applied(TopicConfig(topic, QUEUES_DEFAULT, QUEUES_DEFAULT))
    brokers = administered(
        name_servers,
        timeout_ms,
        lambda admin: admin.topics.create(config, cluster=cluster, broker=broker),
    )
    emit(_config_rows(dict.fromkeys(brokers, config)), _CONFIG_COLUMNS, output)


@group.command("update")
@click.argument("topic")
@_topic_options
@target_options
@name_server_options
@output_option
def update(
    name_servers: str,
    timeout_ms: int,
    output: str,
    topic: str,
    wanted: _Wanted,
    cluster: str | None,
    broker: str | None,
) -> None:
    """Update the given settings of TOPIC; leave the others unchanged.

    \b
    Examples:
      orbitmq topic update orders --queues 16
      orbitmq topic update orders --permission r --broker broker-a
    """
    configs = administered(
        name_servers,
        timeout_ms,
        lambda admin: admin.topics.update(topic, wanted.applied, cluster=cluster, broker=broker),
    )
    emit(_config_rows(configs), _CONFIG_COLUMNS, output)


@group.command("delete")
@click.argument("topic")
@click.option(
    "--cluster", metavar="NAME", help="Only on brokers of this cluster.  [default: the only one]"
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@name_server_options
@output_option
def delete(
    name_servers: str,
    timeout_ms: int,
    output: str,
    topic: str,
    cluster: str | None,
    yes: bool,
    dry_run: bool,
) -> None:
    """Delete TOPIC with its messages and the offsets of its groups.

    \b
    Examples:
      orbitmq topic delete orders --dry-run
      orbitmq topic delete orders --yes
    """

    async def look(admin: Admin) -> tuple[Mapping[str, TopicConfig], TopicStats, list[str]]:
        return (
            await admin.topics.configs(topic),
            await admin.topics.stats(topic),
            await admin.topics.groups(topic),
        )

    if dry_run or not yes:
        configs, found, groups = administered(name_servers, timeout_ms, look)
        counts = dict.fromkeys(configs, 0)
        for queue, ends in found.queues.items():
            counts[queue.broker_name] = (
                counts.get(queue.broker_name, 0) + ends.max_offset - ends.min_offset
            )
        rows = [
            {"topic": topic, "broker": name, "messages": count, "groups": groups}
            for name, count in counts.items()
        ]
        emit(rows, ["topic", "broker", "messages", "groups"], output)
        if dry_run:
            return
        click.confirm(
            f"Delete topic {topic} with {found.message_count} messages?", abort=True, err=True
        )
    brokers = administered(
        name_servers, timeout_ms, lambda admin: admin.topics.delete(topic, cluster=cluster)
    )
    say(
        f"deleted {topic} at {', '.join(brokers) or 'name servers only: no broker had it'}",
        err=True,
    )


def _config_rows(configs: Mapping[str, TopicConfig]) -> list[dict[str, object]]:
    return [
        {
            "broker": name,
            "read_queues": config.read_queue_nums,
            "write_queues": config.write_queue_nums,
            "permission": _permission(config.perm),
            "order": config.order,
            "attributes": [f"{key}={value}" for key, value in sorted(config.attributes.items())],
        }
        for name, config in sorted(configs.items())
    ]


def _permission(perm: int) -> str:
    return ("R" if perm & READ else "-") + ("W" if perm & WRITE else "-")
