"""Who a caller is to servers with access control: keys that sign every request, and where they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from orbitmq.common import properties
from orbitmq.common.errors import ConfigurationError, ProtocolError, file_cause
from orbitmq.protocol import fastjson
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
        """Those of a file with the lines AccessKey=… and SecretKey=…, as Java clients read it, or of YAML as `tools.yml` of mqadmin."""
        is_yaml = path.suffix in (".yml", ".yaml")
        try:
            found = _yaml_keys(path) if is_yaml else {entry.key: entry.value for entry in properties.parse(path.read_text())}
        except OSError as problem:
            raise ConfigurationError(f"the key file {path} cannot be read: {file_cause(problem)}") from problem
        missing = [name for name in (ACCESS_KEY, "SecretKey") if not found.get(name)]
        if missing:
            lines = "accessKey: … and secretKey: …" if is_yaml else "AccessKey=… and SecretKey=…"
            raise ConfigurationError(f"the key file {path} has no {' and no '.join(missing)}; it needs the lines {lines}")
        return cls(found[ACCESS_KEY], found["SecretKey"], found.get(SECURITY_TOKEN))

    @classmethod
    def from_json(cls, text: str, key: str) -> Self:
        """Those that a configuration key spells as {"accessKey":"…","secretKey":"…"}; the error does not repeat what it spells."""
        try:
            found = fastjson.loads(text)
        except ProtocolError:
            found = None
        names = ("accessKey", "secretKey")
        if not isinstance(found, dict) or not all(isinstance(found.get(name), str) and found[name] for name in names):
            raise ConfigurationError(f'{key} cannot be used: write it as {{"accessKey":"…","secretKey":"…"}}')
        token = found.get("securityToken")
        return cls(found["accessKey"], found["secretKey"], token if isinstance(token, str) and token else None)


def _yaml_keys(path: Path) -> dict[str, str]:
    import yaml  # few need it, and no client should wait for it

    try:
        found: Any = yaml.safe_load(path.read_bytes())
    except yaml.YAMLError:  # what it says may hold a part of the secret
        raise ConfigurationError(f"the key file {path} is no YAML; it needs the lines accessKey: … and secretKey: …") from None
    named = found if isinstance(found, Mapping) else {}
    return {name[:1].upper() + name[1:]: str(value) for name, value in named.items() if isinstance(name, str) and value is not None}


class RequestSigner:
    """Signs what is sent to servers. The last of the hooks: whatever changes a request after it spoils the signature."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def before(self, remote_address: str, request: RemotingCommand) -> None:
        credentials = self._credentials
        fields = request.ext_fields = {**(request.ext_fields or {}), ACCESS_KEY: credentials.access_key}
        if credentials.security_token:
            fields[SECURITY_TOKEN] = credentials.security_token
        fields[SIGNATURE] = signature(fields, request.body, credentials.secret_key)

    def after(self, remote_address: str, request: RemotingCommand, response: RemotingCommand | None) -> None: ...
