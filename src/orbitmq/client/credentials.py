"""Who a client is to servers with access control: keys that sign every request."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from orbitmq.common import properties
from orbitmq.common.errors import ConfigurationError
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, signature


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key and its secret, which is never printed; with a token for keys that were lent for some time."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Those of a file with the lines AccessKey=…, SecretKey=… and perhaps SecurityToken=…, as Java clients read it."""
        try:
            found = {entry.key: entry.value for entry in properties.parse(path.read_text())}
        except OSError as problem:
            raise ConfigurationError(f"the key file {path} cannot be read: {problem.strerror}") from problem
        missing = [name for name in (ACCESS_KEY, "SecretKey") if not found.get(name)]
        if missing:
            raise ConfigurationError(
                f"the key file {path} has no {' and no '.join(missing)}; it needs the lines AccessKey=… and SecretKey=…"
            )
        return cls(found[ACCESS_KEY], found["SecretKey"], found.get(SECURITY_TOKEN))


class RequestSigner:
    """Signs what a client sends. The last of its hooks: whatever changes a request after it spoils the signature."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def before(self, remote_address: str, request: RemotingCommand) -> None:
        credentials = self._credentials
        fields = request.ext_fields = {**(request.ext_fields or {}), ACCESS_KEY: credentials.access_key}
        if credentials.security_token:
            fields[SECURITY_TOKEN] = credentials.security_token
        fields[SIGNATURE] = signature(fields, request.body, credentials.secret_key)

    def after(self, remote_address: str, request: RemotingCommand, response: RemotingCommand | None) -> None: ...
