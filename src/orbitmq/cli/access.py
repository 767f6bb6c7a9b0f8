"""`orbitmq access`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.connection import administered, name_server_options, target_options
from orbitmq.cli.output import emit, output_option, say

if TYPE_CHECKING:
    from orbitmq.access.policies import PolicyEntry
    from orbitmq.admin.access import AccessOperations, TargetServers

T = TypeVar("T")
Command = Callable[..., None]


@click.group("access", cls=CommandGroup)
def group() -> None:
    """Manage users and what they may do.

    Needs authenticationEnabled=true at brokers or, with --at-name-servers, at name servers.
    """


@group.group("user", cls=CommandGroup, old_names={"ls": "list"})
def user() -> None:
    """Manage users.

    \b
    Example:
      orbitmq access user create alice
    """


@group.group("acl", cls=CommandGroup, old_names={"ls": "list"})
def acl() -> None:
    """Manage what users may do with topics, groups and clusters.

    \b
    Example:
      orbitmq access acl create alice --resource Topic:orders --action Pub
    """


class _Servers(NamedTuple):
    """Those that a command is about, and how to reach them."""

    name_servers: str
    timeout_ms: int
    where: TargetServers

    def ask(self, operation: Callable[[AccessOperations, TargetServers], Awaitable[T]]) -> T:
        return administered(
            self.name_servers, self.timeout_ms, lambda admin: operation(admin.access, self.where)
        )

    def change(
        self,
        what: str,
        operation: Callable[[AccessOperations, TargetServers], Awaitable[list[str]]],
    ) -> None:
        """Run a change, and print on which servers it was made."""
        say(f"{what} at {', '.join(self.ask(operation))}", err=True)


def _places(command: Command) -> Command:
    """Where users and rules are: the options of every command here, which is given `servers` for
    them.
    """

    @wraps(command)
    def taken(
        name_servers: str,
        timeout_ms: int,
        cluster: str | None,
        broker: str | None,
        at_name_servers: bool,
        **others: object,
    ) -> None:
        from orbitmq.admin.access import TargetServers

        command(
            _Servers(name_servers, timeout_ms, TargetServers(cluster, broker, at_name_servers)),
            **others,
        )

    option = click.option(
        "--at-name-servers", is_flag=True, help="Use name servers instead of brokers."
    )
    return name_server_options(target_options(option(taken)))


@user.command("list")
@click.option("--filter", "text", default="", metavar="TEXT", help="Only names that contain TEXT.")
@_places
@output_option
def list_users(servers: _Servers, output: str, text: str) -> None:
    """List users, without their passwords.

    \b
    Example:
      orbitmq access user list --access-key admin --secret-key ...
    """
    found = servers.ask(lambda access, where: access.users(text, where))
    rows = [
        {"user": each.name, "type": each.type.value, "status": each.status.value, "server": address}
        for address, users in found.items()
        for each in users
    ]
    emit(rows, ["user", "type", "status", "server"], output)


@user.command("create")
@click.argument("name")
@click.option(
    "--password",
    envvar="ORBITMQ_USER_PASSWORD",
    show_envvar=True,
    prompt=True,
    hide_input=True,
    confirmation_prompt=True,
    help="Secret key of the user; prompted for if omitted.",
)
@click.option(
    "--super", "is_super", is_flag=True, help="Create a super user, who may do everything."
)
@_places
def create_user(servers: _Servers, name: str, password: str, is_super: bool) -> None:
    """Create the user NAME, without any permission unless --super is given.

    \b
    Example:
      orbitmq access user create alice
    """
    from orbitmq.access.users import UserType

    kind = UserType.SUPER if is_super else UserType.NORMAL
    servers.change(
        f"created {name}", lambda access, where: access.create_user(name, password, kind, where)
    )


@user.command("update")
@click.argument("name")
@click.option(
    "--password",
    envvar="ORBITMQ_USER_PASSWORD",
    show_envvar=True,
    help="New secret key of the user.",
)
@click.option(
    "--type", "type_", type=click.Choice(["Super", "Normal"]), help="Super users may do everything."
)
@click.option(
    "--status", type=click.Choice(["enable", "disable"]), help="Enable or disable the user."
)
@_places
def update_user(
    servers: _Servers, name: str, password: str | None, type_: str | None, status: str | None
) -> None:
    """Update the password, type or status of the user NAME.

    \b
    Example:
      orbitmq access user update alice --status disable
    """
    from orbitmq.access.users import UserStatus, UserType

    if password is None and type_ is None and status is None:
        raise click.UsageError("say what to change: --password, --type or --status")
    kind, state = UserType(type_) if type_ else None, UserStatus(status) if status else None
    servers.change(
        f"updated {name}",
        lambda access, where: access.update_user(name, password, kind, state, where),
    )


@user.command("delete")
@click.argument("name")
@_places
def delete_user(servers: _Servers, name: str) -> None:
    """Delete the user NAME and its rules.

    \b
    Example:
      orbitmq access user delete alice
    """
    servers.change(f"deleted {name}", lambda access, where: access.delete_user(name, where))


@acl.command("list")
@click.option(
    "--user", "text", default="", metavar="TEXT", help="Only users whose names contain TEXT."
)
@click.option(
    "--resource",
    default="",
    metavar="TEXT",
    help="Only resources that contain TEXT, such as Topic:orders.",
)
@_places
@output_option
def list_acls(servers: _Servers, output: str, text: str, resource: str) -> None:
    """List the rules of users.

    \b
    Example:
      orbitmq access acl list --user alice
    """
    from orbitmq.access.requests import Action

    found = servers.ask(lambda access, where: access.acls(text, resource, where))
    rows = [
        {
            "user": each.user,
            "resource": str(entry.resource),
            "actions": [action.value for action in Action if action in entry.actions],
            "decision": entry.decision.value,
            "sources": list(entry.sources),
            "policy": policy.type.value,
            "server": address,
        }
        for address, acls in found.items()
        for each in acls
        for policy in each.policies
        for entry in policy.entries
    ]
    emit(rows, ["user", "resource", "actions", "decision", "sources", "policy", "server"], output)


def _rule_options(command: Command) -> Command:
    """What a rule says: the options of a command that is given `entries` for them."""

    @wraps(command)
    def taken(
        *arguments: object,
        resources: list[str],
        actions: list[str],
        is_allowed: bool,
        sources: list[str],
        **others: object,
    ) -> None:
        from orbitmq.admin.access import policy_entry

        command(
            *arguments,
            entries=policy_entry(resources, actions, "Allow" if is_allowed else "Deny", sources),
            **others,
        )

    ruled: Command = taken
    for option in (
        click.option(
            "--source",
            "sources",
            multiple=True,
            metavar="ADDRESS",
            help="Source address, such as 10.0.0.0/8; repeatable.",
        ),
        click.option(
            "--allow/--deny",
            "is_allowed",
            default=True,
            show_default=True,
            help="Decision of the rule.",
        ),
        click.option(
            "--action",
            "actions",
            multiple=True,
            required=True,
            metavar="ACTION",
            help="Pub, Sub, Create, Update, Delete, Get, List, Any or All; repeatable.",
        ),
        click.option(
            "--resource",
            "resources",
            multiple=True,
            required=True,
            metavar="KIND:NAME",
            help="Resource, such as Topic:orders or Group:*; repeatable.",
        ),
    ):
        ruled = option(ruled)
    return ruled


@acl.command("create")
@click.argument("name")
@_rule_options
@_places
def create_acl(servers: _Servers, name: str, entries: list[PolicyEntry]) -> None:
    """Create rules that allow or deny the user NAME actions on resources.

    \b
    Examples:
      orbitmq access acl create alice --resource Topic:orders --action Pub --action Sub
      orbitmq access acl create alice --resource 'Group:*' --action Sub --source 10.0.0.0/8
    """
    servers.change(
        f"changed rules of {name}", lambda access, where: access.create_acl(name, entries, where)
    )


@acl.command("update")
@click.argument("name")
@_rule_options
@_places
def update_acl(servers: _Servers, name: str, entries: list[PolicyEntry]) -> None:
    """Update the rules of the user NAME for the given resources; leave the others unchanged.

    \b
    Example:
      orbitmq access acl update alice --resource Topic:orders --action Sub
    """
    servers.change(
        f"changed rules of {name}", lambda access, where: access.update_acl(name, entries, where)
    )


@acl.command("delete")
@click.argument("name")
@click.option(
    "--resource",
    metavar="KIND:NAME",
    help="Delete only the rule for this resource.  [default: all rules]",
)
@_places
def delete_acl(servers: _Servers, name: str, resource: str | None) -> None:
    """Delete rules of the user NAME.

    \b
    Example:
      orbitmq access acl delete alice --resource Topic:orders
    """
    servers.change(
        f"deleted rules of {name}", lambda access, where: access.delete_acl(name, resource, where)
    )
