"""A caller's credentials for servers with access control, where they are kept, and the signing of
requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from orbitmq.common import properties
from orbitmq.common.errors import (
    ConfigurationError,
    ProtocolError,
    RequestRefusedError,
    file_cause,
)
from orbitmq.protocol import fastjson
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, signature

_ACCESS_REMARK: Final = re.compile(
    r"AclException|signature|username cannot be null|User:\S* ?is (?:not found|disabled)|No acl"
    r" config|accessKey|has no permission to access",
    re.IGNORECASE,
)


def is_access_refusal(refused: RequestRefusedError) -> bool:
    """Whether a server of 4.9 or 5.x refused a request for its credentials or permissions."""
    return _ACCESS_REMARK.search(refused.remark) is not None


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key and its secret, which is never printed; with a token for temporary keys."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a file with the lines AccessKey=… and SecretKey=…, like Java clients, or YAML like
        `tools.yml` of mqadmin.
        """
        is_yaml = path.suffix in (".yml", ".yaml")
        try:
            found = (
                _yaml_keys(path)
                if is_yaml
                else {entry.key: entry.value for entry in properties.parse(path.read_text())}
            )
        except OSError as problem:
            raise ConfigurationError(
                f"the key file {path} cannot be read: {file_cause(problem)}"
            ) from problem
        missing = [name for name in (ACCESS_KEY, "SecretKey") if not found.get(name)]
        if missing:
            lines = "accessKey: … and secretKey: …" if is_yaml else "AccessKey=… and SecretKey=…"
            raise ConfigurationError(
                f"the key file {path} has no {' and no '.join(missing)}; it needs the lines {lines}"
            )
        return cls(found[ACCESS_KEY], found["SecretKey"], found.get(SECURITY_TOKEN))

    @classmethod
    def from_json(cls, text: str, key: str) -> Self:
        """Parse the value of a configuration key, {"accessKey":"…","secretKey":"…"}; the error does
        not quote it.
        """
        try:
            found = fastjson.loads(text)
        except ProtocolError:
            found = None
        names = ("accessKey", "secretKey")
        if not isinstance(found, dict) or not all(
            isinstance(found.get(name), str) and found[name] for name in names
        ):
            raise ConfigurationError(
                f'{key} cannot be used: write it as {{"accessKey":"…","secretKey":"…"}}'
            )
        token = found.get("securityToken")
        return cls(
            found["accessKey"],
            found["secretKey"],
            token if isinstance(token, str) and token else None,
        )


def _yaml_keys(path: Path) -> dict[str, str]:
    import yaml  # rarely needed, and slow to import

    try:
        found: Any = yaml.safe_load(path.read_bytes())
    except yaml.YAMLError:  # its text may quote a part of the secret
        raise ConfigurationError(
            f"the key file {path} is not YAML; it needs the lines accessKey: … and secretKey: …"
        ) from None
    named = found if isinstance(found, Mapping) else {}
    return {
        name[:1].upper() + name[1:]: str(value)
        for name, value in named.items()
        if isinstance(name, str) and value is not None
    }


class RequestSigner:
    """Signs requests. Must be the last hook: any later change of a request invalidates the
    signature.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def before(self, remote_address: str, request: RemotingCommand) -> None:
        credentials = self._credentials
        fields = request.ext_fields = {
            **(request.ext_fields or {}),
            ACCESS_KEY: credentials.access_key,
        }
        if credentials.security_token:
            fields[SECURITY_TOKEN] = credentials.security_token
        fields[SIGNATURE] = signature(fields, request.body, credentials.secret_key)

    def after(
        self, remote_address: str, request: RemotingCommand, response: RemotingCommand | None
    ) -> None: ...
