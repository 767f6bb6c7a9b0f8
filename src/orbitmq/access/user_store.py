"""The users and rules of a server, and the two JSON files, `users.json` and `acls.json`, that
follow every change.

The files are lists in wire form, readable for their owner only; Apache keeps both in RocksDB.
Writes block: they are rare, by an operator. Crash rule: that of `common.atomic_file`; an
acknowledged change is on disk, one that could not be written did not happen.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from orbitmq.access.policies import Acl, Policy, PolicyType, ResourcePattern
from orbitmq.access.users import User, UserType, acl_of, info_of, new_user
from orbitmq.common import atomic_file
from orbitmq.common.errors import AlreadyExistsError, NotFoundError, reason_of
from orbitmq.common.slices import Slices, slices_of, sorted_in_slices
from orbitmq.protocol.bodies.access import UserInfo, decode_acls, decode_users, encode_list

log = logging.getLogger(__name__)

_ACLS_PER_SLICE: Final = 50


class UserStore:
    """After `load`: users by name, and the rules of users that have any."""

    def __init__(self, folder: Path) -> None:
        self._users_path = folder / "users.json"
        self._acls_path = folder / "acls.json"
        self._users: dict[str, User] = {}
        self._acls: dict[str, Acl] = {}

    @property
    def users(self) -> Mapping[str, User]:
        return self._users

    @property
    def acls(self) -> Mapping[str, Acl]:
        return self._acls

    def load(self) -> None:
        """Read both files; CorruptFileError if one of them and its backup are corrupt."""
        users = atomic_file.read_or_backup(
            self._users_path, lambda data: [new_user(info) for info in decode_users(data)]
        )
        acls = atomic_file.read_or_backup(
            self._acls_path, lambda data: [acl_of(info) for info in decode_acls(data)]
        )
        self._users = {user.name: user for user in users or ()}
        self._acls = {acl.user: acl for acl in acls or ()}

    def ensure_super(self, name: str, password: str) -> None:
        """Create a super user of that name, unless it exists."""
        if name not in self._users:
            self._set_users({**self._users, name: User(name, password, UserType.SUPER)})
            log.info("user_created name=%s type=%s", name, UserType.SUPER.value)

    # -- users

    def create_user(self, info: UserInfo) -> None:
        """Add a user; AlreadyExistsError if the name is taken, ValueError if it is illegal."""
        user = new_user(info)
        if user.name in self._users:
            raise AlreadyExistsError("The user is existed")
        self._set_users({**self._users, user.name: user})
        log.info("user_created name=%s type=%s", user.name, user.type.value)

    def update_user(self, info: UserInfo) -> None:
        """Update a user; NotFoundError if it does not exist, ValueError if the change is
        illegal.
        """
        user = self._users.get(info.username or "")
        if user is None:
            raise NotFoundError("The user is not exist")
        users = {**self._users, user.name: user.changed(replace(info, username=user.name))}
        self._check_super_user_left(users, user.name)
        self._set_users(users)
        log.info("user_updated name=%s", user.name)

    def delete_user(self, name: str) -> None:
        """Delete a user, if it exists, and its rules; ValueError if it is the last enabled super
        user.
        """
        users = {each: user for each, user in self._users.items() if each != name}
        self._check_super_user_left(users, name)
        acls = self._acls
        if name in acls:  # first: a later user of that name must not get them
            self._set_acls({each: acl for each, acl in acls.items() if each != name})
        if name in self._users:
            try:
                self._set_users(users)
            except OSError as failure:
                self._restore_acls(acls, name, failure)
                raise
            log.info("user_deleted name=%s", name)

    def _restore_acls(self, acls: dict[str, Acl], name: str, failure: OSError) -> None:
        """Undo the deletion of a user's rules; ValueError if that cannot be saved either."""
        try:
            if acls is not self._acls:
                self._set_acls(acls)
        except OSError as error:
            raise ValueError(
                f"{name} could not be deleted ({reason_of(failure)}), and its rules, which were,"
                f" could not be restored ({reason_of(error)}): free or repair the disk, then delete"
                " it again"
            ) from failure

    def _check_super_user_left(self, users: Mapping[str, User], name: str) -> None:
        if _super_users(self._users) and not _super_users(users):
            raise ValueError(
                f"{name} is the last enabled super user, and only super users can change users;"
                " create another one first"
            )

    # -- rules

    def put_acl(self, acl: Acl) -> None:
        """Merge these entries into the rules of a user, replacing those for the same resources;
        NotFoundError without that user.
        """
        if acl.user not in self._users:
            raise NotFoundError(f"The subject of {acl.subject} is not exist.")
        merged = self._acls.get(acl.user, Acl(acl.user, ())).with_policies(acl.policies)
        self._set_acls({**self._acls, acl.user: merged})
        log.info("acl_changed subject=%s", acl.subject)

    def delete_acl(self, user: str, type_: PolicyType, resource: ResourcePattern | None) -> None:
        """Delete the entry of a resource, or without one all rules of a user; NotFoundError if
        there are none.
        """
        if user not in self._users:
            raise NotFoundError("The subject is not exist.")
        acl = self._acls.get(user)
        if acl is None:
            raise NotFoundError("The acl is not exist.")
        left = Acl(user, ()) if resource is None else acl.without(type_, resource)
        others = {each: other for each, other in self._acls.items() if each != user}
        self._set_acls({**others, user: left} if left.policies else others)
        log.info("acl_deleted subject=%s resource=%s", acl.subject, resource)

    def find_acls(self, subject_filter: str, resource_filter: str) -> Slices[list[Acl]]:
        """Return the rules whose subject contains one text and, unless the subject does too, only
        the entries whose resource contains the other.
        """
        acls = self._acls  # replaced, never changed
        found = []
        for part in slices_of((yield from sorted_in_slices(acls)), _ACLS_PER_SLICE):
            for acl in (acls[user] for user in part):
                if subject_filter not in acl.subject:
                    continue
                if resource_filter not in acl.subject:
                    kept = [
                        Policy(
                            policy.type,
                            tuple(e for e in policy.entries if resource_filter in str(e.resource)),
                        )
                        for policy in acl.policies
                    ]
                    acl = Acl(acl.user, tuple(policy for policy in kept if policy.entries))
                if acl.policies:
                    found.append(acl)
            if len(part) == _ACLS_PER_SLICE:
                yield
        return found

    # -- files

    def _set_users(self, users: dict[str, User]) -> None:
        _write(self._users_path, encode_list((user.info() for user in users.values()), pretty=True))
        self._users = users

    def _set_acls(self, acls: dict[str, Acl]) -> None:
        _write(self._acls_path, encode_list((info_of(acl) for acl in acls.values()), pretty=True))
        self._acls = acls


def _super_users(users: Mapping[str, User]) -> list[User]:
    return [user for user in users.values() if user.is_enabled_super]


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write(path, data, new_mode=atomic_file.PRIVATE)
