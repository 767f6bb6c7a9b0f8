"""Headers of the requests about users and access rules (5.x) and about accounts (4.9)."""

from dataclasses import dataclass

from orbitmq.protocol.headers.base import Header


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateUserRequestHeader(Header):
    """Request header of AUTH_CREATE_USER: create the user in the body."""

    username: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateUserRequestHeader(Header):
    """Request header of AUTH_UPDATE_USER: update a user."""

    username: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteUserRequestHeader(Header):
    """Request header of AUTH_DELETE_USER: delete a user."""

    username: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetUserRequestHeader(Header):
    """Request header of AUTH_GET_USER: return a user."""

    username: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListUsersRequestHeader(Header):
    """Request header of AUTH_LIST_USER: list the users whose name contains `filter`."""

    filter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclRequestHeader(Header):
    """Request header of AUTH_CREATE_ACL: create the access rules in the body."""

    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAclRequestHeader(Header):
    """Request header of AUTH_UPDATE_ACL: update access rules."""

    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclRequestHeader(Header):
    """Request header of AUTH_DELETE_ACL: delete access rules."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAclRequestHeader(Header):
    """Request header of AUTH_GET_ACL: return the access rules of a subject."""

    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAclsRequestHeader(Header):
    """Request header of AUTH_LIST_ACL: list the access rules that match both filters."""

    subject_filter: str | None = None
    resource_filter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAccessConfigRequestHeader(Header):
    """Request header of UPDATE_AND_CREATE_ACL_CONFIG: create or update an account."""

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
    """Request header of DELETE_ACL_CONFIG: delete an account."""

    access_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerAclConfigResponseHeader(Header):
    """Response header of GET_BROKER_CLUSTER_ACL_INFO."""

    version: str
    broker_name: str
    broker_addr: str
    cluster_name: str
    all_acl_file_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateGlobalWhiteAddrsConfigRequestHeader(Header):
    """Request header of UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: set the addresses that need
    no account.
    """

    global_white_addrs: str
    acl_file_full_path: str | None = None
