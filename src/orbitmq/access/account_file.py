"""One file of accounts in YAML, as in 4.9: reading, with the line of each mistake, and writing.
Bytes in, values out.

    globalWhiteRemoteAddresses: [pattern, …]
    accounts: [{accessKey, secretKey, whiteRemoteAddress, admin, defaultTopicPerm, defaultGroupPerm,
    topicPerms: [name=PERM], groupPerms}]
    dataVersion: [{counter, timestamp}]

Every scalar is read as text, so that a key 0123456 stays what it is. Unknown names are kept. No
error quotes the file: a secret in the wrong place stays there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from orbitmq.access.accounts import DENY, KEY_LENGTH_MIN, PERMISSIONS, Account, Permission
from orbitmq.access.addresses import Matches, pattern
from orbitmq.access.requests import Resource, group
from orbitmq.protocol.bodies.nameserver import DataVersion
from orbitmq.protocol.headers.named_resources import ResourceKind

WHITE_ADDRESSES: Final = "globalWhiteRemoteAddresses"
ACCOUNTS: Final = "accounts"
VERSION: Final = "dataVersion"
ACCESS_KEY: Final = "accessKey"
ADMIN: Final = "admin"
_WHITE_ADDRESS: Final = "whiteRemoteAddress"

Members = dict[str, Any]
_UNVERSIONED: Final = DataVersion()
_NO_YAML: Final = (
    "it is not YAML from there on; indent with spaces, close brackets, put quotes around texts"
    " with *, &, !, %, { or }"
)


class InvalidAccountFileError(ValueError):
    """A file that cannot be used; `line` says where, counted from 1."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(f"line {line}: {reason}")
        self.reason = reason
        self.line = line


@dataclass(frozen=True, slots=True)
class AccountFile:
    """The content of one file; `members` is all of it, for rewriting it."""

    accounts: tuple[Account, ...] = ()
    white: tuple[Matches, ...] = ()
    version: DataVersion = _UNVERSIONED
    members: Mapping[str, Any] | None = None

    @property
    def white_addresses(self) -> list[str]:
        return list((self.members or {}).get(WHITE_ADDRESSES) or [])

    def account_members(self) -> list[Members]:
        """Return the accounts as spelled in the file."""
        return [dict(each) for each in (self.members or {}).get(ACCOUNTS) or []]

    @classmethod
    def decode(cls, data: bytes) -> AccountFile:
        """Decode a file; InvalidAccountFileError if it is invalid."""
        try:
            node = yaml.compose(data, Loader=yaml.BaseLoader)
        except yaml.MarkedYAMLError as problem:
            mark = problem.problem_mark or problem.context_mark
            raise InvalidAccountFileError(_NO_YAML, 1 if mark is None else mark.line + 1) from None
        except (yaml.YAMLError, UnicodeDecodeError):
            raise InvalidAccountFileError("it is not text in UTF-8", 1) from None
        if node is None or (isinstance(node, yaml.ScalarNode) and not node.value):
            return cls(members={})
        members = _plain(node)
        if not isinstance(members, dict):
            raise InvalidAccountFileError(
                f"it is not a mapping; write {ACCOUNTS}: and below it one account after another",
                node.start_mark.line + 1,
            )
        lines = _lines(node)
        white = []
        for address in _list(members, WHITE_ADDRESSES, lines):
            try:
                white.append(pattern(_text(address)))
            except ValueError:
                raise InvalidAccountFileError(
                    _no_address(WHITE_ADDRESSES), lines[WHITE_ADDRESSES][0]
                ) from None
        accounts = []
        for number, account in enumerate(_list(members, ACCOUNTS, lines)):
            try:
                accounts.append(account_of(account))
            except ValueError as problem:
                raise InvalidAccountFileError(str(problem), lines[ACCOUNTS][number + 1]) from None
        return cls(tuple(accounts), tuple(white), _version(members.get(VERSION)), members)


def encode(members: Mapping[str, Any], version: DataVersion) -> bytes:
    """Encode a file with these members and that version."""
    whole = dict(members)
    whole[ACCOUNTS] = [
        {name: value == "true" if name == ADMIN else value for name, value in each.items()}
        for each in whole[ACCOUNTS]
    ]
    whole[VERSION] = [{"counter": version.counter, "timestamp": version.timestamp}]
    return yaml.safe_dump(whole, sort_keys=False, allow_unicode=True).encode()


def account_of(members: Any) -> Account:
    """Return the account of these members; ValueError says what is wrong, and quotes none
    of them.
    """
    if not isinstance(members, dict):
        raise ValueError("an account is not a mapping; it needs accessKey and secretKey")
    key, secret = _text(members.get(ACCESS_KEY)), _text(members.get("secretKey"))
    if len(key) < KEY_LENGTH_MIN or len(secret) < KEY_LENGTH_MIN:
        raise ValueError(
            "The accessKey and its secretKey cannot be null and length should longer than 6"
        )
    white = _text(members.get(_WHITE_ADDRESS))
    try:
        is_white = pattern(white)
    except ValueError:
        raise ValueError(_no_address(_WHITE_ADDRESS)) from None
    permissions = {
        **_permissions(members, "groupPerms", group),
        **_permissions(members, "topicPerms", lambda name: Resource(ResourceKind.TOPIC, name)),
    }
    return Account(
        access_key=key,
        secret_key=secret,
        is_admin=_text(members.get(ADMIN)).lower() == "true",
        white_address=white or None,
        is_white=is_white,
        topic_permission=_permission(_text(members.get("defaultTopicPerm"))),
        group_permission=_permission(_text(members.get("defaultGroupPerm"))),
        permissions=permissions,
    )


def check_permissions(texts: list[str]) -> None:
    """Raise ValueError unless each is like `name=PUB|SUB`: a typo would deny what was meant to be
    allowed.
    """
    for text in texts:
        name, _, permission = text.partition("=")
        if not name.strip() or permission.strip() not in PERMISSIONS:
            raise ValueError(
                f"Parse resource permission error for {text}. Write name=PERMISSION with one of"
                f" {', '.join(PERMISSIONS)}"
            )


def _no_address(name: str) -> str:
    return (
        f"{name} has an invalid address pattern; write 192.168.0.1, 192.168.0.{{1,2}},"
        " 192.168.1-5.* or 2001:db8::1"
    )


def _permission(text: str) -> Permission:
    return PERMISSIONS.get(text.strip(), DENY)  # unknown ones deny, as in Apache


def _permissions(members: Members, name: str, of: Any) -> dict[Resource, Permission]:
    found: dict[Resource, Permission] = {}
    listed = members.get(name)
    for text in listed if isinstance(listed, list) else []:
        parts = [part for part in _text(text).split("=") if part]
        if len(parts) != 2:
            raise ValueError(
                f"Parse resource permission failed for {name}; write name=PUB, name=SUB,"
                " name=PUB|SUB or name=DENY"
            )
        found[of(parts[0].strip())] = _permission(parts[1])
    return found


def _version(listed: Any) -> DataVersion:
    first = listed[0] if isinstance(listed, list) and listed else {}
    numbers = [
        first.get(name, "0") if isinstance(first, dict) else "0"
        for name in ("counter", "timestamp")
    ]
    counter, timestamp = (
        int(text) if isinstance(text, str) and text.isdecimal() else 0 for text in numbers
    )
    return DataVersion(counter=counter, timestamp=timestamp)


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _list(members: Members, name: str, lines: dict[str, list[int]]) -> list[Any]:
    listed = members.get(name)
    if listed is None or listed == "":
        return []
    if not isinstance(listed, list):
        raise InvalidAccountFileError(
            f"{name} is not a list; begin each line below it with -", lines[name][0]
        )
    return listed


def _plain(node: yaml.Node) -> Any:
    loader = yaml.BaseLoader("")
    try:
        return loader.construct_document(node)
    except yaml.YAMLError:
        raise InvalidAccountFileError("a name is not text", node.start_mark.line + 1) from None
    finally:
        loader.dispose()


def _lines(node: yaml.Node) -> dict[str, list[int]]:
    """Return for each member of the document the line of its value, then those of its items."""
    found: dict[str, list[int]] = {}
    for key, value in node.value:
        items = value.value if isinstance(value, yaml.SequenceNode) else []
        found[str(key.value)] = [
            value.start_mark.line + 1,
            *(item.start_mark.line + 1 for item in items),
        ]
    return found
