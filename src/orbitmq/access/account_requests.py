"""Requests about accounts in 4.9 style, 50 to 54: they rewrite the YAML files that accounts are
read from.

Invariant: a refused request changes nothing. A path in a request must be that of a file in use, and
no reply but that to 54 holds a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from orbitmq.access.account_file import check_permissions
from orbitmq.access.account_files import AccountFiles
from orbitmq.common.errors import NotFoundError, RequestRefusedError
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.access import encode_accounts
from orbitmq.protocol.bodies.nameserver import DataVersion
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import auth
from orbitmq.protocol.headers.base import wire_fields

Handler = Callable[[object, RemotingCommand], RemotingCommand]
_MARKS: Final = re.compile(r"[,{}]")
_OFF: Final = (
    "there are no accounts here: access control in 4.9 style is off; set aclEnable=true and restart"
)


class AccountRequests:
    """Handles requests about accounts; without files access control in that style is off."""

    def __init__(
        self,
        files: AccountFiles | None,
        *,
        broker_name: str,
        address: Callable[[], str],
        cluster: str,
    ) -> None:
        self._files = files
        self._broker_name = broker_name
        self._address = address
        self._cluster = cluster

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.put_account,
            RequestCode.DELETE_ACL_CONFIG: self.delete_account,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.get_version,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.set_white_addresses,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.get_accounts,
        }

    def put_account(self, _channel: object, request: RemotingCommand) -> RemotingCommand:
        header = auth.CreateAccessConfigRequestHeader.from_fields(request.ext_fields)
        failed = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        # Members that were not sent stay as they are, except `admin`: its absence means false.
        members: dict[str, Any] = {
            **header.to_fields(),
            "admin": "true" if header.admin else "false",
        }
        for name in _LISTS:
            if name in members:
                members[name] = [text.strip() for text in members[name].split(",") if text.strip()]

        def put(files: AccountFiles) -> None:
            for name in _LISTS:
                check_permissions(members.get(name, []))
            files.put(members)

        return self._change(request, failed, put)

    def delete_account(self, _channel: object, request: RemotingCommand) -> RemotingCommand:
        key = auth.DeleteAccessConfigRequestHeader.from_fields(request.ext_fields).access_key
        return self._change(
            request, ResponseCode.DELETE_ACL_CONFIG_FAILED, lambda files: files.delete(key)
        )

    def set_white_addresses(self, _channel: object, request: RemotingCommand) -> RemotingCommand:
        header = auth.UpdateGlobalWhiteAddrsConfigRequestHeader.from_fields(request.ext_fields)
        addresses = [text.strip() for text in _split(header.global_white_addrs) if text.strip()]
        path = Path(header.acl_file_full_path) if header.acl_file_full_path else None
        failed = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        return self._change(request, failed, lambda files: files.set_white(addresses, path))

    def get_version(self, _channel: object, request: RemotingCommand) -> RemotingCommand:
        files = self._known()
        header = auth.GetBrokerAclConfigResponseHeader(
            version=_version_text(files.version),
            broker_name=self._broker_name,
            broker_addr=self._address(),
            cluster_name=self._cluster,
            all_acl_file_version=fastjson.dumps(
                {str(path): _version(version) for path, version in files.versions.items()}
            ).decode(),
        )
        return request.reply(ResponseCode.SUCCESS, header=header)

    def get_accounts(self, _channel: object, request: RemotingCommand) -> RemotingCommand:
        files = self._known()
        return request.reply(
            ResponseCode.SUCCESS,
            body=encode_accounts(files.white_addresses, files.account_members()),
        )

    def _known(self) -> AccountFiles:
        if self._files is None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, _OFF)
        return self._files

    def _change(
        self, request: RemotingCommand, failed: int, change: Callable[[AccountFiles], None]
    ) -> RemotingCommand:
        if self._files is None:
            raise RequestRefusedError(failed, _OFF)
        try:
            change(self._files)
        except (ValueError, NotFoundError) as problem:
            raise RequestRefusedError(failed, f"{problem}; nothing was changed") from problem
        except OSError as problem:
            raise RequestRefusedError(
                failed, f"it could not be saved: {problem.strerror}; nothing was changed"
            ) from problem
        return request.reply(ResponseCode.SUCCESS)


_LISTS: Final = tuple(
    field.wire_name
    for field in wire_fields(auth.CreateAccessConfigRequestHeader)
    if field.name in ("topic_perms", "group_perms")
)


def _split(text: str) -> list[str]:
    """Return the patterns between commas, except for commas within braces."""
    parts: list[str] = []
    end, is_within = len(text), False
    for mark in reversed(list(_MARKS.finditer(text))):
        if mark.group() != ",":
            is_within = mark.group() == "}"
        elif not is_within:
            parts.append(text[mark.end() : end])
            end = mark.start()
    parts.append(text[:end])
    return parts[::-1]


def _version(version: DataVersion) -> dict[str, int]:
    """Return the version as in 4.9: without the state of the store."""
    return {"counter": version.counter, "timestamp": version.timestamp}


def _version_text(version: DataVersion) -> str:
    return fastjson.dumps(_version(version)).decode()
