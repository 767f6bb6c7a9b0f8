"""Headers of users and access control: 30xx of 5.x, 5x of the 4.9 line."""

from dataclasses import dataclass

from orbitmq.protocol.headers.base import Header


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateUserRequestHeader(Header):
    """3001: create the user in the body."""

    username: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateUserRequestHeader(Header):
    """3002: change a user."""

    username: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteUserRequestHeader(Header):
    """3003: delete a user."""

    username: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetUserRequestHeader(Header):
    """3004: ask for a user."""

    username: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListUsersRequestHeader(Header):
    """3005: the users whose name holds `filter`."""

    filter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclRequestHeader(Header):
    """3006: create the access rules in the body."""

    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAclRequestHeader(Header):
    """3007: change access rules."""

    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclRequestHeader(Header):
    """3008: delete access rules."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAclRequestHeader(Header):
    """3009: a subject's access rules."""

    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAclsRequestHeader(Header):
    """3010: the access rules that match both filters."""

    subject_filter: str | None = None
    resource_filter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAccessConfigRequestHeader(Header):
    """50: create or change an account."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAccessConfigRequestHeader(Header):
    """51: delete an account."""

    access_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerAclConfigResponseHeader(Header):
    """Answer to 52."""

    version: str
    broker_name: str
    broker_addr: str
    cluster_name: str
    all_acl_file_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateGlobalWhiteAddrsConfigRequestHeader(Header):
    """53: addresses that need no account."""

    global_white_addrs: str
    acl_file_full_path: str | None = None
