"""The account files of a server: `plain_acl.yml` and every YAML file below `acl/`, reloaded when
they change, rewritten by requests.

A file that becomes invalid while the server runs keeps its previous rules, and line and reason are
logged; a deleted one has none. An access key in several files belongs to the first, in the order of
their names, `plain_acl.yml` last. Writes block: they are rare, by an operator. They lose no edit:
files are reloaded before, and an invalid one is not written. Crash rule: that of
`common.atomic_file`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from orbitmq.access.account_file import (
    ACCESS_KEY,
    ACCOUNTS,
    WHITE_ADDRESSES,
    AccountFile,
    InvalidAccountFileError,
    account_of,
    encode,
)
from orbitmq.access.accounts import Account, Accounts
from orbitmq.access.addresses import pattern
from orbitmq.access.requests import TopicAt, nowhere
from orbitmq.common import atomic_file
from orbitmq.common.errors import ConfigurationError, NotFoundError
from orbitmq.protocol.bodies.nameserver import DataVersion

CHECK_PERIOD_S: Final = 1.0

log = logging.getLogger(__name__)


class _Stamp(NamedTuple):
    """What differs after a file was changed."""

    modified_ns: int
    size: int
    inode: int


class AccountFiles:
    """After `load`, `accounts` combines all files."""

    def __init__(
        self,
        folder: Path,
        now_ms: Callable[[], int],
        topic_at: TopicAt = nowhere,
        reply_topic: str | None = None,
    ) -> None:
        self.default_path = folder / "plain_acl.yml"
        self.accounts = Accounts({}, ())
        self._folder = folder / "acl"
        self._now_ms = now_ms
        self._topic_at = topic_at
        self._reply_topic = reply_topic
        self._files: dict[Path, AccountFile] = {}
        self._stamps: dict[Path, _Stamp] = {}
        self._unusable: dict[Path, str] = {}  # why their current content is not used
        self._of_key: dict[str, Path] = {}

    # -- reading

    def load(self) -> None:
        """Read all files; ConfigurationError if one is invalid."""
        stamps = self._found()
        files = {}
        for path in stamps:
            try:
                files[path] = AccountFile.decode(path.read_bytes())
            except (OSError, InvalidAccountFileError) as problem:
                raise ConfigurationError(
                    f"{path} cannot be used: {problem}; fix it, or set aclEnable=false"
                ) from problem
        self._stamps, self._files, self._unusable = stamps, files, {}
        self._combine()
        if not self.accounts.by_key:
            log.warning(
                "no_accounts file=%s hint='all requests are denied until it has an account with"
                " admin: true'",
                self.default_path,
            )

    def reload_if_changed(self) -> None:
        """Read the files that changed, and those that could not be read before."""
        stamps = self._found()
        if stamps == self._stamps:
            return
        read, unread = self._read(
            [path for path, stamp in stamps.items() if self._stamps.get(path) != stamp]
        )
        gone = self._files.keys() - stamps.keys()
        for path in gone:
            log.warning("account_file_gone file=%s", path)
        self._stamps = {path: stamp for path, stamp in stamps.items() if path not in unread}
        self._unusable = {path: why for path, why in self._unusable.items() if path in stamps}
        if read or gone:
            files = {**self._files, **read}
            self._files = {path: files[path] for path in stamps if path in files}
            self._combine()

    def _read(self, paths: Sequence[Path]) -> tuple[dict[Path, AccountFile], set[Path]]:
        """Return the content of these files, without invalid ones; and the unreadable ones, which
        are logged once.
        """
        read: dict[Path, AccountFile] = {}
        unread: set[Path] = set()
        for path in paths:
            try:
                read[path] = AccountFile.decode(path.read_bytes())
                self._unusable.pop(path, None)
                log.info("accounts_loaded file=%s accounts=%d", path, len(read[path].accounts))
            except InvalidAccountFileError as problem:
                self._unusable[path] = str(problem)
                log.error(
                    "account_file_broken file=%s line=%d reason=%r kept='its previous rules'",
                    path,
                    problem.line,
                    problem.reason,
                )
            except OSError as problem:
                unread.add(path)
                why = problem.strerror or "it cannot be read"
                if self._unusable.get(path) != why:
                    log.error(
                        "account_file_unreadable file=%s reason=%r kept='its previous rules'",
                        path,
                        why,
                    )
                self._unusable[path] = why
        return read, unread

    def _found(self) -> dict[Path, _Stamp]:
        below = (
            [path for path in self._folder.rglob("*") if path.suffix in (".yml", ".yaml")]
            if self._folder.is_dir()
            else []
        )
        stamps = {}
        for path in [*sorted(below), self.default_path]:
            try:
                status = path.stat()
            except OSError:
                continue
            stamps[path] = _Stamp(status.st_mtime_ns, status.st_size, status.st_ino)
        return stamps

    def _combine(self) -> None:
        accounts: dict[str, Account] = {}
        self._of_key = {}
        for path, file in self._files.items():
            for account in file.accounts:
                if self._of_key.setdefault(account.access_key, path) == path:
                    accounts[account.access_key] = account
                else:
                    log.warning(
                        "account_repeated access_key=%s file=%s counts=%s",
                        account.access_key,
                        path,
                        self._of_key[account.access_key],
                    )
        white = [matches for file in self._files.values() for matches in file.white]
        self.accounts = Accounts(accounts, white, self._topic_at, self._reply_topic)

    # -- queries

    @property
    def version(self) -> DataVersion:
        """The version of the default file."""
        return self._files.get(self.default_path, AccountFile()).version

    @property
    def versions(self) -> dict[Path, DataVersion]:
        return {path: file.version for path, file in self._files.items()}

    @property
    def white_addresses(self) -> list[str]:
        return [address for file in self._files.values() for address in file.white_addresses]

    def account_members(self) -> list[dict[str, Any]]:
        """Return every account as its file spells it."""
        return [
            members
            for path, file in self._files.items()
            for members in file.account_members()
            if self._of_key.get(str(members.get(ACCESS_KEY)).strip()) == path
        ]

    # -- writing

    def put(self, members: dict[str, Any]) -> None:
        """Create an account, or change the given members of one; ValueError if the result is
        invalid, and nothing is changed.
        """
        self.reload_if_changed()
        key = str(members[ACCESS_KEY])
        path = self._of_key.get(key, self.default_path)
        others = self._files.get(path, AccountFile()).account_members()
        old = next((each for each in others if str(each.get(ACCESS_KEY)).strip() == key), None)
        merged = {**(old or {}), **members}
        account_of(merged)
        self._write(path, {ACCOUNTS: [*(each for each in others if each is not old), merged]})

    def delete(self, key: str) -> None:
        """Delete an account; NotFoundError if there is none."""
        self.reload_if_changed()
        path = self._of_key.get(key)
        if path is None:
            raise NotFoundError(f"no account has the accessKey {key}")
        others = self._files[path].account_members()
        self._write(
            path, {ACCOUNTS: [each for each in others if str(each.get(ACCESS_KEY)).strip() != key]}
        )

    def set_white(self, addresses: Sequence[str], path: Path | None = None) -> None:
        """Set the white-listed addresses of a file, by default the default one; only files in use
        are written.
        """
        for address in addresses:
            pattern(address)
        self.reload_if_changed()
        target = self.default_path if path is None else path
        if target != self.default_path and target not in self._files:
            raise NotFoundError(
                f"{target} is not one of the account files: {', '.join(map(str, self._files))}"
            )
        self._write(target, {WHITE_ADDRESSES: list(addresses)})

    def _write(self, path: Path, changes: dict[str, Any]) -> None:
        """Replace members of a file and increment its version; the rules apply at once. ValueError
        if an invalid file would be overwritten.
        """
        if path in self._unusable:
            raise ValueError(
                f"{path} cannot be used as it is now, and would be overwritten:"
                f" {self._unusable[path]}; fix it first"
            )
        file = self._files.get(path, AccountFile())
        members = {WHITE_ADDRESSES: [], ACCOUNTS: [], **(file.members or {}), **changes}
        data = encode(
            members, DataVersion(counter=file.version.counter + 1, timestamp=self._now_ms())
        )
        decoded = AccountFile.decode(data)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write(path, data, new_mode=atomic_file.PRIVATE)
        self._files[path] = decoded
        if (stamp := self._found().get(path)) is not None:
            self._stamps[path] = stamp
        self._combine()
