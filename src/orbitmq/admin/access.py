"""Users and access rules, at brokers and name servers with access control as of RocketMQ 5.x.

Changes are sent to every master of a cluster, to one broker, or to every name server, because
servers do not replicate them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orbitmq.access.policies import (
    Acl,
    Decision,
    Policy,
    PolicyEntry,
    PolicyType,
    ResourcePattern,
    subject_of,
)
from orbitmq.access.requests import Action
from orbitmq.access.users import User, UserStatus, UserType, acl_of, info_of, member, received_user
from orbitmq.admin.calls import Calls
from orbitmq.common.errors import ConfigurationError, NotFoundError
from orbitmq.protocol.bodies.access import UserInfo, decode_acls, decode_users
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import HeaderFields
from orbitmq.protocol.headers import auth


@dataclass(frozen=True, slots=True)
class TargetServers:
    """The servers to use; by default every master of the only cluster."""

    cluster: str | None = None
    broker: str | None = None
    name_servers: bool = False


ALL_MASTERS = TargetServers()


def policy_entry(
    resources: Sequence[str], actions: Sequence[str], decision: str, sources: Sequence[str] = ()
) -> list[PolicyEntry]:
    """Return the same rule for each resource, parsed from text; raise ConfigurationError for
    invalid text.
    """
    try:
        wanted = frozenset(member(Action, each, None) for each in actions)
        said = member(Decision, decision, None)
        return [
            PolicyEntry(ResourcePattern.of_new_rule(each), wanted, said, tuple(sources))
            for each in resources
        ]
    except ValueError as problem:
        raise ConfigurationError(str(problem)) from problem


class AccessOperations:
    """Lists and changes users and access rules."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def users(
        self, filter: str = "", where: TargetServers = ALL_MASTERS
    ) -> dict[str, list[User]]:
        """Return the users whose names contain `filter`, by server address; only super users see
        passwords.
        """
        header = auth.ListUsersRequestHeader(filter=filter)

        async def ask(address: str) -> list[User]:
            body = (await self._calls.ask(address, RequestCode.AUTH_LIST_USER, header)).body
            return [received_user(info) for info in decode_users(body)] if body else []

        return await self._calls.for_each_server(await self._addresses(where), ask)

    async def create_user(
        self,
        name: str,
        password: str,
        type: UserType = UserType.NORMAL,
        where: TargetServers = ALL_MASTERS,
    ) -> list[str]:
        """Create a user; return the addresses of the servers that did."""
        info = UserInfo(username=name, password=password, user_type=type.value)
        return await self._change(
            where,
            RequestCode.AUTH_CREATE_USER,
            auth.CreateUserRequestHeader(username=name),
            info.encode(),
        )

    async def update_user(
        self,
        name: str,
        password: str | None = None,
        type: UserType | None = None,
        status: UserStatus | None = None,
        where: TargetServers = ALL_MASTERS,
    ) -> list[str]:
        """Update the given settings of a user; leave the others unchanged."""
        info = UserInfo(
            username=name,
            password=password,
            user_type=None if type is None else type.value,
            user_status=None if status is None else status.value,
        )
        return await self._change(
            where,
            RequestCode.AUTH_UPDATE_USER,
            auth.UpdateUserRequestHeader(username=name),
            info.encode(),
        )

    async def delete_user(self, name: str, where: TargetServers = ALL_MASTERS) -> list[str]:
        """Delete a user and its rules; raise NotFoundError if no server has it."""
        found = await self.users(name, where)
        if not any(user.name == name for users in found.values() for user in users):
            raise NotFoundError(
                f"there is no user {name} at {', '.join(found)}: nothing was changed"
            )
        return await self._change(
            where, RequestCode.AUTH_DELETE_USER, auth.DeleteUserRequestHeader(username=name)
        )

    async def acls(
        self, user: str = "", resource: str = "", where: TargetServers = ALL_MASTERS
    ) -> dict[str, list[Acl]]:
        """Return the rules whose user and resource contain these texts, by server address."""
        header = auth.ListAclsRequestHeader(subject_filter=user, resource_filter=resource)

        async def ask(address: str) -> list[Acl]:
            body = (await self._calls.ask(address, RequestCode.AUTH_LIST_ACL, header)).body
            return [acl_of(info) for info in decode_acls(body)] if body else []

        return await self._calls.for_each_server(await self._addresses(where), ask)

    async def create_acl(
        self, user: str, entries: Sequence[PolicyEntry], where: TargetServers = ALL_MASTERS
    ) -> list[str]:
        """Add rules; they replace those for the same resources."""
        header = auth.CreateAclRequestHeader(subject=subject_of(user))
        return await self._change(where, RequestCode.AUTH_CREATE_ACL, header, _rules(user, entries))

    async def update_acl(
        self, user: str, entries: Sequence[PolicyEntry], where: TargetServers = ALL_MASTERS
    ) -> list[str]:
        """Change rules; those for other resources stay."""
        header = auth.UpdateAclRequestHeader(subject=subject_of(user))
        return await self._change(where, RequestCode.AUTH_UPDATE_ACL, header, _rules(user, entries))

    async def delete_acl(
        self, user: str, resource: str | None = None, where: TargetServers = ALL_MASTERS
    ) -> list[str]:
        """Delete the rule for a resource, or all rules of a user if none is given."""
        header = auth.DeleteAclRequestHeader(
            subject=subject_of(user), policy_type=PolicyType.CUSTOM.value, resource=resource
        )
        return await self._change(where, RequestCode.AUTH_DELETE_ACL, header)

    async def _change(
        self, where: TargetServers, code: int, header: HeaderFields, body: bytes | None = None
    ) -> list[str]:
        return list(
            await self._calls.for_each_server(
                await self._addresses(where),
                lambda address: self._calls.ask(address, code, header, body),
            )
        )

    async def _addresses(self, where: TargetServers) -> list[str]:
        if where.name_servers:
            return self._calls.session.client.name_servers.in_order()
        if where.broker is not None and ":" in where.broker:
            return [where.broker]
        return list((await self._calls.masters(where.cluster, where.broker)).values())


def _rules(user: str, entries: Sequence[PolicyEntry]) -> bytes:
    return info_of(Acl(user, (Policy(PolicyType.CUSTOM, tuple(entries)),))).encode()
