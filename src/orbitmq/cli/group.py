"""`orbitmq group`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from orbitmq.cli.arguments import TIME_FORMS, chosen_queue, to_place, together
from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.connection import administered, name_server_options, target_options
from orbitmq.cli.output import emit, moment, output_option, say, show_unreachable

if TYPE_CHECKING:
    from orbitmq.admin import Admin
    from orbitmq.admin.group_values import GroupConnections, GroupProgress
    from orbitmq.admin.offsets import PlannedReset
    from orbitmq.admin.positions import Position
    from orbitmq.protocol.bodies.groups import GroupConfig

_CONFIG_COLUMNS = ["broker", "consumes", "broadcasts", "orderly", "retry_queues", "retry_max_times"]
_MEMBER_COLUMNS = ["client_id", "address", "language", "version", "brokers"]
_QUEUE_COLUMNS = [
    "topic",
    "broker",
    "queue",
    "broker_offset",
    "consumer_offset",
    "lag",
    "last_consumed",
    "owner",
]


@click.group("group", cls=CommandGroup)
def group() -> None:
    """Manage consumer groups, their members, offsets and lag."""


@group.command("list")
@click.option("--all", "with_system", is_flag=True, help="Include RocketMQ's system groups.")
@name_server_options
@output_option
def list_(name_servers: str, timeout_ms: int, output: str, with_system: bool) -> None:
    """List the consumer groups.

    \b
    Examples:
      orbitmq group list
      orbitmq group list --all -o json
    """
    from orbitmq.common.topic_names import PREDEFINED_GROUPS, SYSTEM_GROUP_PREFIX

    names = administered(name_servers, timeout_ms, lambda admin: admin.groups.names())
    own = [
        name
        for name in names
        if with_system or not (name in PREDEFINED_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX))
    ]
    emit([{"group": name} for name in own], ["group"], output)


@group.command("show")
@click.argument("name", metavar="GROUP")
@click.option("--topic", metavar="TOPIC", help="Only queues of this topic.")
@name_server_options
@output_option
def show(name_servers: str, timeout_ms: int, output: str, name: str, topic: str | None) -> None:
    """Show the online members of GROUP, and its offset and lag in each queue.

    \b
    Examples:
      orbitmq group show billing
      orbitmq group show billing --topic orders -o json
    """

    async def look(admin: Admin) -> tuple[GroupConnections, GroupProgress]:
        await admin.groups.configs(name)  # or there is no such group
        return await admin.groups.connections(name), await admin.groups.progress(name, topic)

    connections, progress = administered(name_servers, timeout_ms, look)
    members: list[dict[str, object]] = [member._asdict() for member in connections.members]
    queues = [
        {
            "topic": each.queue.topic,
            "broker": each.queue.broker_name,
            "queue": each.queue.queue_id,
            "broker_offset": each.broker_offset,
            "consumer_offset": each.consumer_offset,
            "pull_offset": each.pull_offset,
            "lag": each.lag,
            "last_consumed": moment(each.last_consumed_ms),
            "owner": each.owner,
        }
        for each in progress.queues
    ]
    subscriptions = {of: wanted.sub_string for of, wanted in connections.subscriptions.items()}
    model, kind = connections.message_model, connections.consume_type
    if output != "table":
        found = {
            "group": name,
            "lag": progress.lag,
            "consumed_per_s": progress.consumed_per_s,
            "message_model": model and model.name,
            "consume_type": kind and kind.name,
            "subscriptions": subscriptions,
            "conflicts": list(connections.conflicts),
            "members": members,
            "queues": queues,
        }
        emit([found], [], output)
    else:
        wants = ", ".join(f"{of} ({expression})" for of, expression in subscriptions.items())
        how = (
            f"{len(members)} members ({model.name.lower() if model else 'unknown'}), which want"
            f" {wants}"
            if members
            else "no member online"
        )
        say(
            f"{name}: {progress.lag} messages behind, {round(progress.consumed_per_s, 1):g}"
            f" consumed a second; {how}\n"
        )
        for conflict in connections.conflicts:
            say(f"members subscribe differently, so that messages pass them by: {conflict}\n")
        if members:
            emit(members, _MEMBER_COLUMNS, output)
            say()
        emit(queues, _QUEUE_COLUMNS, output)
    show_unreachable(progress.unreachable)


@group.command("explain")
@click.argument("name", metavar="GROUP")
@click.option("--topic", metavar="TOPIC", help="Only queues of this topic.")
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="How long to watch the offsets.",
)
@click.option("--all", "with_fine", is_flag=True, help="Include queues without lag.")
@name_server_options
@output_option
def explain(
    name_servers: str,
    timeout_ms: int,
    output: str,
    name: str,
    topic: str | None,
    seconds: float,
    with_fine: bool,
) -> None:
    """Explain for each queue of GROUP why it moves, or why not and what to do.

    \b
    Examples:
      orbitmq group explain billing
      orbitmq group explain billing --topic orders --seconds 10
    """
    found = administered(
        name_servers, timeout_ms, lambda admin: admin.groups.explain(name, topic, seconds=seconds)
    )
    rows = [
        {
            "topic": each.queue.topic,
            "broker": each.queue.broker_name,
            "queue": each.queue.queue_id,
            "lag": each.lag,
            "state": each.state.name.lower().replace("_", " "),
            "owner": each.owner,
            "why": each.why,
        }
        for each in found
        if with_fine or each.state.name != "DONE"
    ]
    if not rows and output == "table":
        say(
            f"{name}: everything is consumed"
            if found
            else f"{name}: it has no queues: no member subscribes, and nothing was consumed"
        )
        return
    emit(rows, ["topic", "broker", "queue", "lag", "state", "owner", "why"], output)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is said of a group; None is left as it is."""

    consumes: bool | None
    broadcasts: bool | None
    orderly: bool | None
    retry_queues: int | None
    retry_max_times: int | None

    def applied(self, config: GroupConfig) -> GroupConfig:
        said: dict[str, Any] = {
            "consume_enable": self.consumes,
            "consume_broadcast_enable": self.broadcasts,
            "consume_message_orderly": self.orderly,
            "retry_queue_nums": self.retry_queues,
            "retry_max_times": self.retry_max_times,
        }
        return replace(config, **{name: value for name, value in said.items() if value is not None})


_group_options = together(
    _Wanted,
    click.option("--consumes/--no-consumes", default=None, help="Allow the group to consume."),
    click.option(
        "--broadcasts/--no-broadcasts",
        default=None,
        help="Allow broadcast consumption.",
    ),
    click.option("--orderly/--no-orderly", default=None, help="Consume in order."),
    click.option(
        "--retry-queues",
        metavar="N",
        type=click.IntRange(0),
        help="Number of retry queues.",
    ),
    click.option(
        "--retry-max-times",
        metavar="N",
        type=click.IntRange(-1),
        help="Maximum redeliveries of a message.",
    ),
)


@group.command("create")
@click.argument("name", metavar="GROUP")
@_group_options
@target_options
@name_server_options
@output_option
def create(
    name_servers: str,
    timeout_ms: int,
    output: str,
    name: str,
    wanted: _Wanted,
    cluster: str | None,
    broker: str | None,
) -> None:
    """Create GROUP on every master of a cluster, or on one broker.

    An identical group that exists is left unchanged.

    \b
    Examples:
      orbitmq group create billing
      orbitmq group create billing --retry-max-times 3 --cluster DefaultCluster
    """
    from orbitmq.protocol.bodies.groups import GroupConfig

    config = wanted.applied(GroupConfig(name))
    brokers = administered(
        name_servers,
        timeout_ms,
        lambda admin: admin.groups.create(config, cluster=cluster, broker=broker),
    )
    _show_configs(dict.fromkeys(brokers, config), output)


@group.command("update")
@click.argument("name", metavar="GROUP")
@_group_options
@target_options
@name_server_options
@output_option
def update(
    name_servers: str,
    timeout_ms: int,
    output: str,
    name: str,
    wanted: _Wanted,
    cluster: str | None,
    broker: str | None,
) -> None:
    """Update the given settings of GROUP; leave the others unchanged.

    \b
    Examples:
      orbitmq group update billing --no-consumes
      orbitmq group update billing --retry-max-times 3 --broker broker-a
    """
    _show_configs(
        administered(
            name_servers,
            timeout_ms,
            lambda admin: admin.groups.update(name, wanted.applied, cluster=cluster, broker=broker),
        ),
        output,
    )


@group.command("delete")
@click.argument("name", metavar="GROUP")
@click.option(
    "--cluster", metavar="NAME", help="Only on brokers of this cluster.  [default: the only one]"
)
@click.option(
    "--keep-offsets",
    is_flag=True,
    help="Keep its offsets for a later group of the same name.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@name_server_options
@output_option
def delete(
    name_servers: str,
    timeout_ms: int,
    output: str,
    name: str,
    cluster: str | None,
    keep_offsets: bool,
    yes: bool,
    dry_run: bool,
) -> None:
    """Delete GROUP with its offsets, retry messages and dead letters.

    \b
    Examples:
      orbitmq group delete billing --dry-run
      orbitmq group delete billing --yes
    """

    async def look(
        admin: Admin,
    ) -> tuple[Mapping[str, GroupConfig], GroupConnections, GroupProgress]:
        configs = await admin.groups.configs(name)
        return (
            configs,
            await admin.groups.connections(name),
            await admin.groups.progress(name, with_owners=False),
        )

    configs, connections, progress = administered(name_servers, timeout_ms, look)
    online = len(connections.members)
    if dry_run or not yes:
        rows = [
            {"group": name, "broker": broker, "lag": progress.lag, "members": online}
            for broker in configs
        ]
        emit(rows, ["group", "broker", "lag", "members"], output)
        if dry_run:
            return
        click.confirm(f"Delete group {name}?", abort=True, err=True)
    brokers = administered(
        name_servers,
        timeout_ms,
        lambda admin: admin.groups.delete(name, cluster=cluster, with_offsets=not keep_offsets),
    )
    say(f"deleted {name} at {', '.join(brokers)}", err=True)
    if online:
        say(
            f"{online} members are online: stop them, or they make the group anew with their next"
            " heartbeat",
            err=True,
        )


@group.command("reset")
@click.argument("name", metavar="GROUP")
@click.argument("topic")
@click.option(
    "--to",
    required=True,
    metavar="first|last|TIME|OFFSET",
    callback=partial(to_place, takes_offset=True),
    help=f"New position. A time is {TIME_FORMS}.",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="BROKER:ID",
    help="Only this queue; repeatable.",
)
@click.option("--only-back", is_flag=True, help="Skip queues that would move forward.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
@name_server_options
@output_option
def reset(
    name_servers: str,
    timeout_ms: int,
    output: str,
    name: str,
    topic: str,
    to: Position,
    queues: tuple[str, ...],
    only_back: bool,
    dry_run: bool,
) -> None:
    """Reset the offsets of GROUP in TOPIC.

    Online members follow with their next pull: when a message arrives, or within 15 seconds.

    \b
    Examples:
      orbitmq group reset billing orders --to -2h --dry-run
      orbitmq group reset billing orders --to last
      orbitmq group reset billing orders --to 4711 --queue broker-a:0
    """

    async def act(admin: Admin) -> list[PlannedReset]:
        known = await admin.offsets.queues(topic) if queues else []
        chosen = [chosen_queue(known, text, "--queue") for text in queues]
        operation = admin.offsets.plan_reset if dry_run else admin.offsets.reset
        return await operation(name, topic, to, queues=chosen, force=not only_back)

    plan = administered(name_servers, timeout_ms, act)
    rows = [
        {
            "topic": topic,
            "broker": each.queue.broker_name,
            "queue": each.queue.queue_id,
            "before": each.before,
            "after": each.after,
            "change": each.after - (each.before or 0),
        }
        for each in plan
    ]
    emit(rows, ["topic", "broker", "queue", "before", "after", "change"], output)


def _show_configs(configs: Mapping[str, GroupConfig], output: str) -> None:
    rows = [
        {
            "broker": name,
            "consumes": config.consume_enable,
            "broadcasts": config.consume_broadcast_enable,
            "orderly": config.consume_message_orderly,
            "retry_queues": config.retry_queue_nums,
            "retry_max_times": config.retry_max_times,
        }
        for name, config in sorted(configs.items())
    ]
    emit(rows, _CONFIG_COLUMNS, output)
