"""Requests about users and their rules, 3001 to 3010, of brokers and name servers alike. Replies
are those of Apache 5.5.

Only super users may create or change super users, and read passwords. Without a store access
control is off, and all of them are refused: any peer could prepare a user for the day when it is
turned on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from orbitmq.access.policies import Acl, Match, PolicyType, ResourcePattern, user_of
from orbitmq.access.signatures import is_signed
from orbitmq.access.user_store import UserStore
from orbitmq.access.users import User, UserType, info_of, member, new_acl
from orbitmq.common.errors import (
    AlreadyExistsError,
    NotFoundError,
    ProtocolError,
    RequestRefusedError,
)
from orbitmq.common.slices import Slices, sorted_in_slices
from orbitmq.protocol.bodies.access import AclInfo, UserInfo, encode_list_in_slices
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import auth
from orbitmq.protocol.signature import ACCESS_KEY

Handler = (
    Callable[[object, RemotingCommand], RemotingCommand]
    | Callable[[object, RemotingCommand], Slices[RemotingCommand]]
)
_Serve = Callable[[UserStore, RemotingCommand], RemotingCommand]
_ServeInSlices = Callable[[UserStore, RemotingCommand], Slices[RemotingCommand]]
_BODY_BYTES_MAX: Final = 64 * 1024


_OFF: Final = (
    "there are no users here: access control is off; set authenticationEnabled=true and restart"
)
_ACCOUNTS: Final = (
    "there are no users here, but accounts in 4.9 style (aclEnable=true): see"
    " plain_acl.yml; for users set authenticationEnabled=true and restart"
)


class UserRequests:
    """Handles requests about users and rules."""

    def __init__(self, store: UserStore | None, *, has_accounts: bool = False) -> None:
        self._store = store
        self._why_none = _ACCOUNTS if has_accounts else _OFF

    def handlers(self) -> dict[int, Handler]:
        serves: dict[int, _Serve] = {
            RequestCode.AUTH_CREATE_USER: _create_user,
            RequestCode.AUTH_UPDATE_USER: _update_user,
            RequestCode.AUTH_DELETE_USER: _delete_user,
            RequestCode.AUTH_GET_USER: _get_user,
            RequestCode.AUTH_CREATE_ACL: _put_acl,
            RequestCode.AUTH_UPDATE_ACL: _put_acl,
            RequestCode.AUTH_DELETE_ACL: _delete_acl,
            RequestCode.AUTH_GET_ACL: _get_acl,
        }
        lists: dict[int, _ServeInSlices] = {
            RequestCode.AUTH_LIST_USER: _list_users,
            RequestCode.AUTH_LIST_ACL: _list_acls,
        }
        return {
            **{code: self._handler(serve) for code, serve in serves.items()},
            **{code: self._handler_in_slices(serve) for code, serve in lists.items()},
        }

    def _handler(self, serve: _Serve) -> Handler:
        def handle(_channel: object, request: RemotingCommand) -> RemotingCommand:
            with _refusing(request):
                return serve(self._known(), request)

        return handle

    def _handler_in_slices(self, serve: _ServeInSlices) -> Handler:
        def handle(_channel: object, request: RemotingCommand) -> Slices[RemotingCommand]:
            with _refusing(request):
                return (yield from serve(self._known(), request))

        return handle

    def _known(self) -> UserStore:
        if self._store is None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, self._why_none)
        return self._store


@contextmanager
def _refusing(request: RemotingCommand) -> Iterator[None]:
    try:
        if len(request.body or b"") > _BODY_BYTES_MAX:
            why = (
                f"the body of request {request.code} has {len(request.body or b'')} bytes; up to"
                f" {_BODY_BYTES_MAX} are read"
            )
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"{why}: send rules in parts")
        yield
    except (ValueError, NotFoundError, AlreadyExistsError) as problem:
        raise RequestRefusedError(ResponseCode.NO_PERMISSION, str(problem)) from problem
    except ProtocolError:  # which may quote a part of the body, and so of a password
        why = f"the body of request {request.code} cannot be read; nothing was changed"
        raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, why) from None
    except OSError as problem:
        why = f"it could not be saved: {problem.strerror}; nothing was changed"
        raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, why) from problem


def _create_user(store: UserStore, request: RemotingCommand) -> RemotingCommand:
    info = _user_info(
        request, auth.CreateUserRequestHeader.from_fields(request.ext_fields).username
    )
    if _is_super(info) and not _is_from_super_user(store, request):
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user"
        )
    store.create_user(info)
    return request.reply(ResponseCode.SUCCESS)


def _update_user(store: UserStore, request: RemotingCommand) -> RemotingCommand:
    info = _user_info(
        request, auth.UpdateUserRequestHeader.from_fields(request.ext_fields).username
    )
    only_super = "The super user can only be update by super user"
    if _is_super(info) and not _is_from_super_user(store, request):
        raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, only_super)
    user = store.users.get(info.username or "")
    if user is not None and user.is_super and not _is_from_super_user(store, request):
        raise RequestRefusedError(ResponseCode.NO_PERMISSION, only_super)
    store.update_user(info)
    return request.reply(ResponseCode.SUCCESS)


def _delete_user(store: UserStore, request: RemotingCommand) -> RemotingCommand:
    name = _named(auth.DeleteUserRequestHeader.from_fields(request.ext_fields).username)
    user = store.users.get(name)
    if user is not None and user.is_super and not _is_from_super_user(store, request):
        raise RequestRefusedError(
            ResponseCode.NO_PERMISSION, "The super user can only be update by super user"
        )
    store.delete_user(name)
    return request.reply(ResponseCode.SUCCESS)


def _get_user(store: UserStore, request: RemotingCommand) -> RemotingCommand:
    user = store.users.get(
        _named(auth.GetUserRequestHeader.from_fields(request.ext_fields).username)
    )
    return request.reply(
        ResponseCode.SUCCESS,
        body=None if user is None else _visible(user, _is_from_super_user(store, request)).encode(),
    )


def _list_users(store: UserStore, request: RemotingCommand) -> Slices[RemotingCommand]:
    wanted = auth.ListUsersRequestHeader.from_fields(request.ext_fields).filter or ""
    users = store.users  # replaced, never changed
    is_super = _is_from_super_user(store, request)
    names = yield from sorted_in_slices([name for name in users if wanted in name])
    body = yield from encode_list_in_slices(_visible(users[name], is_super) for name in names)
    return request.reply(ResponseCode.SUCCESS, body=body if names else None)


def _visible(user: User, is_super: bool) -> UserInfo:
    """Return a user as shown to the requester: only super users, who copy users, see the
    password.
    """
    return user.info() if is_super else replace(user.info(), password=None)


def _put_acl(store: UserStore, request: RemotingCommand) -> RemotingCommand:
    subject = auth.CreateAclRequestHeader.from_fields(request.ext_fields).subject
    info = AclInfo.decode(request.body or b"{}")
    store.put_acl(new_acl(info if info.subject else replace(info, subject=subject)))
    return request.reply(ResponseCode.SUCCESS)


def _delete_acl(store: UserStore, request: RemotingCommand) -> RemotingCommand:
    header = auth.DeleteAclRequestHeader.from_fields(request.ext_fields)
    resource = (
        _pattern_to_delete(header.resource) if header.resource and header.resource.strip() else None
    )
    store.delete_acl(
        user_of(header.subject),
        member(PolicyType, header.policy_type or None, PolicyType.CUSTOM),
        resource,
    )
    return request.reply(ResponseCode.SUCCESS)


def _pattern_to_delete(text: str) -> ResourcePattern:
    """Parse the pattern of a rule to delete: a full name may contain `*`, a prefix may not, as it
    would name another rule.
    """
    pattern = ResourcePattern.parse(text)
    return pattern if pattern.match is Match.LITERAL else ResourcePattern.of_new_rule(text)


def _get_acl(store: UserStore, request: RemotingCommand) -> RemotingCommand:
    name = user_of(auth.GetAclRequestHeader.from_fields(request.ext_fields).subject)
    if name not in store.users:
        raise NotFoundError("The subject is not exist.")
    acl = store.acls.get(name)
    return request.reply(ResponseCode.SUCCESS, body=None if acl is None else info_of(acl).encode())


def _list_acls(store: UserStore, request: RemotingCommand) -> Slices[RemotingCommand]:
    header = auth.ListAclsRequestHeader.from_fields(request.ext_fields)
    found: list[Acl] = yield from store.find_acls(
        header.subject_filter or "", header.resource_filter or ""
    )
    body = yield from encode_list_in_slices(map(info_of, found))
    return request.reply(ResponseCode.SUCCESS, body=body if found else None)


def _named(name: str | None) -> str:
    if not name or not name.strip():
        raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, "The username is blank")
    return name


def _user_info(request: RemotingCommand, name: str | None) -> UserInfo:
    return replace(UserInfo.decode(request.body or b"{}"), username=_named(name))


def _is_super(info: UserInfo) -> bool:
    return info.user_type is not None and member(UserType, info.user_type, None) is UserType.SUPER


def _is_from_super_user(store: UserStore, request: RemotingCommand) -> bool:
    """Whether a super user signed; checked here too, since no guard does for the codes of
    `authenticationWhitelist`.
    """
    fields = request.ext_fields or {}
    user = store.users.get(fields.get(ACCESS_KEY, ""))
    return (
        user is not None
        and user.is_enabled_super
        and is_signed(fields, request.body, user.password)
    )
