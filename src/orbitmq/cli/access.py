"""`orbitmq access`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orbitmq.cli.connection import administered, name_server_options, target_options
from orbitmq.cli.output import emit, output_option

if TYPE_CHECKING:
    from orbitmq.admin.access import Where

F = TypeVar("F", bound=Callable[..., Any])


@click.group("access")
def group() -> None:
    """Users, and what they may do.

    At brokers with authenticationEnabled=true; with --at-name-servers at name servers that have it.
    """


@group.group("user")
def user() -> None:
    """Who may sign requests.

    \b
    Example:
      orbitmq access user create alice
    """


@group.group("acl")
def acl() -> None:
    """What users may do with topics, groups and clusters.

    \b
    Example:
      orbitmq access acl create alice --resource Topic:orders --action Pub
    """


def _places(command: F) -> F:
    """Where users and rules are: of every command here."""
    option = click.option("--at-name-servers", is_flag=True, help="Every name server, instead of brokers.")
    return name_server_options(target_options(option(command)))


def _where(cluster: str | None, broker: str | None, at_name_servers: bool) -> Where:
    from orbitmq.admin.access import Where

    return Where(cluster, broker, at_name_servers)


@user.command("ls")
@click.option("--filter", "text", default="", metavar="TEXT", help="Only names that hold it.")
@_places
@output_option
def list_users(
    name_servers: str, timeout_ms: int, output: str, cluster: str | None, broker: str | None, at_name_servers: bool, text: str
) -> None:
    """List users; passwords are not shown.

    \b
    Example:
      orbitmq access user ls --access-key admin --secret-key ...
    """
    where = _where(cluster, broker, at_name_servers)
    found = administered(name_servers, timeout_ms, lambda admin: admin.access.users(text, where))
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
    help="What it signs with; asked for when it is not given.",
)
@click.option("--super", "is_super", is_flag=True, help="Rules do not bind it.")
@_places
def create_user(
    name_servers: str,
    timeout_ms: int,
    cluster: str | None,
    broker: str | None,
    at_name_servers: bool,
    name: str,
    password: str,
    is_super: bool,
) -> None:
    """Make the user NAME, who may do nothing yet unless it is a super user.

    \b
    Example:
      orbitmq access user create alice
    """
    from orbitmq.access.users import UserType

    where, kind = _where(cluster, broker, at_name_servers), UserType.SUPER if is_super else UserType.NORMAL
    _done(f"created {name}", administered(name_servers, timeout_ms, lambda admin: admin.access.create_user(name, password, kind, where)))


@user.command("update")
@click.argument("name")
@click.option("--password", envvar="ORBITMQ_USER_PASSWORD", show_envvar=True, help="What it signs with from now on.")
@click.option("--type", "type_", type=click.Choice(["Super", "Normal"]), help="Whether rules bind it.")
@click.option("--status", type=click.Choice(["enable", "disable"]), help="Whether it is let in.")
@_places
def update_user(
    name_servers: str,
    timeout_ms: int,
    cluster: str | None,
    broker: str | None,
    at_name_servers: bool,
    name: str,
    password: str | None,
    type_: str | None,
    status: str | None,
) -> None:
    """Change the password, the type or the status of the user NAME.

    \b
    Example:
      orbitmq access user update alice --status disable
    """
    from orbitmq.access.users import UserStatus, UserType

    if password is None and type_ is None and status is None:
        raise click.UsageError("say what to change: --password, --type or --status")
    where = _where(cluster, broker, at_name_servers)
    kind, state = UserType(type_) if type_ else None, UserStatus(status) if status else None
    changed = administered(name_servers, timeout_ms, lambda admin: admin.access.update_user(name, password, kind, state, where))
    _done(f"updated {name}", changed)


@user.command("delete")
@click.argument("name")
@_places
def delete_user(name_servers: str, timeout_ms: int, cluster: str | None, broker: str | None, at_name_servers: bool, name: str) -> None:
    """Forget the user NAME and its rules.

    \b
    Example:
      orbitmq access user delete alice
    """
    where = _where(cluster, broker, at_name_servers)
    _done(f"deleted {name}", administered(name_servers, timeout_ms, lambda admin: admin.access.delete_user(name, where)))


@acl.command("ls")
@click.option("--user", "text", default="", metavar="TEXT", help="Only users whose names hold it.")
@click.option("--resource", default="", metavar="TEXT", help="Only resources that hold it, such as Topic:orders.")
@_places
@output_option
def list_acls(
    name_servers: str,
    timeout_ms: int,
    output: str,
    cluster: str | None,
    broker: str | None,
    at_name_servers: bool,
    text: str,
    resource: str,
) -> None:
    """List rules.

    \b
    Example:
      orbitmq access acl ls --user alice
    """
    from orbitmq.access.requests import Action

    where = _where(cluster, broker, at_name_servers)
    found = administered(name_servers, timeout_ms, lambda admin: admin.access.acls(text, resource, where))
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


def _rule_options(command: F) -> F:
    """What a rule says."""
    for option in (
        click.option(
            "--source", "sources", multiple=True, metavar="ADDRESS", help="Only from here, such as 10.0.0.0/8; may be given again."
        ),
        click.option("--allow/--deny", "is_allowed", default=True, show_default=True, help="Whether it may."),
        click.option(
            "--action", "actions", multiple=True, required=True, metavar="ACTION", help="Pub, Sub, Get, ..., All; may be given again."
        ),
        click.option("--resource", "resources", multiple=True, required=True, metavar="KIND:NAME", help="Such as Topic:orders or Group:*."),
    ):
        command = option(command)
    return command


@acl.command("create")
@click.argument("name")
@_rule_options
@_places
def create_acl(
    name_servers: str,
    timeout_ms: int,
    cluster: str | None,
    broker: str | None,
    at_name_servers: bool,
    name: str,
    resources: tuple[str, ...],
    actions: tuple[str, ...],
    is_allowed: bool,
    sources: tuple[str, ...],
) -> None:
    """Say what the user NAME may do, or may not.

    \b
    Examples:
      orbitmq access acl create alice --resource Topic:orders --action Pub --action Sub
      orbitmq access acl create alice --resource 'Group:*' --action Sub --source 10.0.0.0/8
    """
    _put(False, name_servers, timeout_ms, _where(cluster, broker, at_name_servers), name, resources, actions, is_allowed, sources)


@acl.command("update")
@click.argument("name")
@_rule_options
@_places
def update_acl(
    name_servers: str,
    timeout_ms: int,
    cluster: str | None,
    broker: str | None,
    at_name_servers: bool,
    name: str,
    resources: tuple[str, ...],
    actions: tuple[str, ...],
    is_allowed: bool,
    sources: tuple[str, ...],
) -> None:
    """Say anew what the user NAME may do with resources; what it may do with others stays.

    \b
    Example:
      orbitmq access acl update alice --resource Topic:orders --action Sub
    """
    _put(True, name_servers, timeout_ms, _where(cluster, broker, at_name_servers), name, resources, actions, is_allowed, sources)


@acl.command("delete")
@click.argument("name")
@click.option("--resource", metavar="KIND:NAME", help="Only the rule for it.  [default: all rules]")
@_places
def delete_acl(
    name_servers: str, timeout_ms: int, cluster: str | None, broker: str | None, at_name_servers: bool, name: str, resource: str | None
) -> None:
    """Forget rules of the user NAME.

    \b
    Example:
      orbitmq access acl delete alice --resource Topic:orders
    """
    where = _where(cluster, broker, at_name_servers)
    deleted = administered(name_servers, timeout_ms, lambda admin: admin.access.delete_acl(name, resource, where))
    _done(f"deleted rules of {name}", deleted)


def _put(
    is_update: bool,
    name_servers: str,
    timeout_ms: int,
    where: Where,
    name: str,
    resources: tuple[str, ...],
    actions: tuple[str, ...],
    is_allowed: bool,
    sources: tuple[str, ...],
) -> None:
    from orbitmq.admin.access import policy_entry

    entries = policy_entry(resources, actions, "Allow" if is_allowed else "Deny", sources)
    put = administered(
        name_servers,
        timeout_ms,
        lambda admin: admin.access.update_acl(name, entries, where) if is_update else admin.access.create_acl(name, entries, where),
    )
    _done(f"changed rules of {name}", put)


def _done(what: str, addresses: list[str]) -> None:
    click.echo(f"{what} at {', '.join(addresses)}", err=True)
