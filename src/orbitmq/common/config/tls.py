"""The `tls.*` keys of servers and clients, with the original's names and defaults.

The original takes them from JVM system properties and from the file that `tls.config.file` names,
where the file wins (for all but `tls.enable`, `tls.server.mode` and `tls.config.file`). Here they
stand in the `-c` file, in that file or in the environment.
"""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from orbitmq.common.config.keys import APACHE_5, Use, key
from orbitmq.common.config.settings import Settings

_LIBRARY = (
    "Versions and cipher suites are those of Python's own TLS defaults: TLS 1.2 and 1.3 with suites"
    " that are held safe."
)
DEFAULT_TLS_CONFIG_FILE = "/etc/rocketmq/tls.properties"


class TlsMode(Enum):
    """Which connections a server takes on its one port."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(Enum):
    """Whether a server asks its clients for a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, kw_only=True)
class TlsSettings(Settings):
    """Certificates and modes of TLS."""

    SECTION: ClassVar[str] = "tls"

    tls_server_mode: TlsMode = key(
        TlsMode.PERMISSIVE,
        "`disabled` takes plaintext only, `permissive` both, `enforcing` TLS only.",
        name="tls.server.mode",
        important=True,
    )
    tls_enable: bool | None = key(
        None,
        "Whether this server speaks TLS to others, unless `useTLS` says so.",
        name="tls.enable",
    )
    tls_config_file: str = key(
        DEFAULT_TLS_CONFIG_FILE,
        "Properties file with further `tls.*` keys, stronger than the `-c` file. The default one"
        " may be missing, one that is named not.",
        name="tls.config.file",
    )
    tls_test_mode_enable: bool = key(
        True,
        "A self-signed certificate made at start, and no check of the peer's: for tests. Set false"
        " to use the files below.",
        name="tls.test.mode.enable",
        important=True,
    )
    tls_server_need_client_auth: ClientAuth = key(
        ClientAuth.NONE,
        "Whether the server asks a client for its certificate.",
        name="tls.server.need.client.auth",
    )
    tls_server_key_path: str | None = key(
        None, "Private key of the server, PEM (PKCS#8).", name="tls.server.keyPath", is_path=True
    )
    tls_server_key_password: str | None = key(
        None, "Password of that key.", name="tls.server.keyPassword", secret=True
    )
    tls_server_cert_path: str | None = key(
        None, "Certificate chain of the server, PEM.", name="tls.server.certPath", is_path=True
    )
    tls_server_auth_client: bool = key(
        False,
        "Whether a client's certificate is checked against `tls.server.trustCertPath`.",
        name="tls.server.authClient",
    )
    tls_server_trust_cert_path: str | None = key(
        None,
        "Certificates, PEM, that vouch for clients.",
        name="tls.server.trustCertPath",
        is_path=True,
    )
    tls_client_key_path: str | None = key(
        None, "Private key of the client, PEM (PKCS#8).", name="tls.client.keyPath", is_path=True
    )
    tls_client_key_password: str | None = key(
        None, "Password of that key.", name="tls.client.keyPassword", secret=True
    )
    tls_client_cert_path: str | None = key(
        None, "Certificate chain of the client, PEM.", name="tls.client.certPath", is_path=True
    )
    tls_client_auth_server: bool = key(
        False,
        "Whether the server's certificate is checked against `tls.client.trustCertPath`.",
        name="tls.client.authServer",
    )
    tls_client_trust_cert_path: str | None = key(
        None,
        "Certificates, PEM, that vouch for servers.",
        name="tls.client.trustCertPath",
        is_path=True,
    )
    tls_ciphers: str | None = key(
        None, _LIBRARY, name="tls.ciphers", use=Use.REFUSED, releases=APACHE_5
    )
    tls_protocols: str | None = key(
        None, _LIBRARY, name="tls.protocols", use=Use.REFUSED, releases=APACHE_5
    )
