"""The files of accounts of a server: `plain_acl.yml` and every YAML file below `acl/`, read again when they change, written when told to.

A file that breaks while the server runs keeps the rules that it had, and the log says line and reason; one that is gone has none. An
access key that stands in several files is that of the first, by the order of their names, `plain_acl.yml` last. Writing is blocking, an
operator's rare act, and loses nothing that an editor wrote: files are read again before, and one that cannot be used is not written.
Crash rule: that of `common.atomic_file`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from orbitmq.access.account_file import ACCESS_KEY, ACCOUNTS, WHITE_ADDRESSES, AccountFile, BadAccountFile, account_of, encode
from orbitmq.access.accounts import Account, Accounts
from orbitmq.access.addresses import pattern
from orbitmq.access.requests import TopicAt, nowhere
from orbitmq.common import atomic_file
from orbitmq.common.errors import ConfigurationError, NotFound
from orbitmq.protocol.bodies.nameserver import DataVersion

CHECK_PERIOD_S: Final = 1.0

log = logging.getLogger(__name__)


class _Stamp(NamedTuple):
    """What differs when a file was changed."""

    modified_ns: int
    size: int
    inode: int


class AccountFiles:
    """From `load`, `accounts` is what all files say."""

    def __init__(self, folder: Path, now_ms: Callable[[], int], topic_at: TopicAt = nowhere, reply_topic: str | None = None) -> None:
        self.default_path = folder / "plain_acl.yml"
        self.accounts = Accounts({}, ())
        self._folder = folder / "acl"
        self._now_ms = now_ms
        self._topic_at = topic_at
        self._reply_topic = reply_topic
        self._files: dict[Path, AccountFile] = {}
        self._stamps: dict[Path, _Stamp] = {}
        self._unusable: dict[Path, str] = {}  # why they do not count as they are now
        self._of_key: dict[str, Path] = {}

    # -- reading

    def load(self) -> None:
        """Read everything; ConfigurationError when a file cannot be used."""
        stamps = self._found()
        files = {}
        for path in stamps:
            try:
                files[path] = AccountFile.decode(path.read_bytes())
            except (OSError, BadAccountFile) as problem:
                raise ConfigurationError(f"{path} cannot be used: {problem}; mend it, or set aclEnable=false") from problem
        self._stamps, self._files, self._unusable = stamps, files, {}
        self._combine()
        if not self.accounts.by_key:
            log.warning("no_accounts file=%s hint='nobody may do anything until it names one with admin: true'", self.default_path)

    def reload_if_changed(self) -> None:
        """Read again what changed since, and what could not be read then."""
        stamps = self._found()
        if stamps == self._stamps:
            return
        read, unread = self._read([path for path, stamp in stamps.items() if self._stamps.get(path) != stamp])
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
        """What these files say, without those that are broken; and those that could not be read, which the log says once."""
        read: dict[Path, AccountFile] = {}
        unread: set[Path] = set()
        for path in paths:
            try:
                read[path] = AccountFile.decode(path.read_bytes())
                self._unusable.pop(path, None)
                log.info("accounts_loaded file=%s accounts=%d", path, len(read[path].accounts))
            except BadAccountFile as problem:
                self._unusable[path] = str(problem)
                log.error("account_file_broken file=%s line=%d reason=%r kept='the rules that it had'", path, problem.line, problem.reason)
            except OSError as problem:
                unread.add(path)
                why = problem.strerror or "it cannot be read"
                if self._unusable.get(path) != why:
                    log.error("account_file_unreadable file=%s reason=%r kept='the rules that it had'", path, why)
                self._unusable[path] = why
        return read, unread

    def _found(self) -> dict[Path, _Stamp]:
        below = [path for path in self._folder.rglob("*") if path.suffix in (".yml", ".yaml")] if self._folder.is_dir() else []
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
                        "account_repeated access_key=%s file=%s counts=%s", account.access_key, path, self._of_key[account.access_key]
                    )
        white = [matches for file in self._files.values() for matches in file.white]
        self.accounts = Accounts(accounts, white, self._topic_at, self._reply_topic)

    # -- telling

    @property
    def version(self) -> DataVersion:
        """Of the default file."""
        return self._files.get(self.default_path, AccountFile()).version

    @property
    def versions(self) -> dict[Path, DataVersion]:
        return {path: file.version for path, file in self._files.items()}

    @property
    def white_addresses(self) -> list[str]:
        return [address for file in self._files.values() for address in file.white_addresses]

    def account_members(self) -> list[dict[str, Any]]:
        """Every account as its file spells it."""
        return [
            members
            for path, file in self._files.items()
            for members in file.account_members()
            if self._of_key.get(str(members.get(ACCESS_KEY)).strip()) == path
        ]

    # -- writing

    def put(self, members: dict[str, Any]) -> None:
        """Make an account, or change those of its members that are given; ValueError when it could not be used, and nothing changed."""
        self.reload_if_changed()
        key = str(members[ACCESS_KEY])
        path = self._of_key.get(key, self.default_path)
        others = self._files.get(path, AccountFile()).account_members()
        old = next((each for each in others if str(each.get(ACCESS_KEY)).strip() == key), None)
        merged = {**(old or {}), **members}
        account_of(merged)
        self._write(path, {ACCOUNTS: [*(each for each in others if each is not old), merged]})

    def delete(self, key: str) -> None:
        """Forget an account; NotFound when there is none."""
        self.reload_if_changed()
        path = self._of_key.get(key)
        if path is None:
            raise NotFound(f"no account has the accessKey {key}")
        others = self._files[path].account_members()
        self._write(path, {ACCOUNTS: [each for each in others if str(each.get(ACCESS_KEY)).strip() != key]})

    def set_white(self, addresses: Sequence[str], path: Path | None = None) -> None:
        """Let a file, the default one if none is named, name these addresses, all patterns; only files that are read are written."""
        for address in addresses:
            pattern(address)
        self.reload_if_changed()
        target = self.default_path if path is None else path
        if target != self.default_path and target not in self._files:
            raise NotFound(f"{target} is none of the files that accounts are read from; they are {', '.join(map(str, self._files))}")
        self._write(target, {WHITE_ADDRESSES: list(addresses)})

    def _write(self, path: Path, changes: dict[str, Any]) -> None:
        """Replace members of a file and count its version up; rules follow at once. ValueError when what stands in it would be lost."""
        if path in self._unusable:
            raise ValueError(f"{path} cannot be used as it is now, and would be overwritten: {self._unusable[path]}; mend it first")
        file = self._files.get(path, AccountFile())
        members = {WHITE_ADDRESSES: [], ACCOUNTS: [], **(file.members or {}), **changes}
        data = encode(members, DataVersion(counter=file.version.counter + 1, timestamp=self._now_ms()))
        decoded = AccountFile.decode(data)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write(path, data, new_mode=atomic_file.PRIVATE)
        self._files[path] = decoded
        if (stamp := self._found().get(path)) is not None:
            self._stamps[path] = stamp
        self._combine()
