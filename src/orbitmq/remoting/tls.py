"""TLS contexts for both sides, and certificates that are reloaded when their files change.

Knows files and `ssl`, nothing of sockets. A changed pair of files that does not load (a new
certificate whose key is not written yet) leaves the old context in force until the pair is valid,
so replacing it under load fails no handshake.
"""

from __future__ import annotations

import datetime
import logging
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from orbitmq.common.config.tls import ClientAuth, TlsMode
from orbitmq.common.errors import ConfigurationError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """TLS settings of a server: `test_mode` generates a self-signed certificate for this run."""

    mode: TlsMode = TlsMode.PERMISSIVE
    test_mode: bool = True
    key_path: str | None = None
    key_password: str | None = None
    cert_path: str | None = None
    client_auth: ClientAuth = ClientAuth.NONE
    verify_client: bool = False
    trust_cert_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """TLS settings of a client: in test mode any server is trusted."""

    enabled: bool = False
    test_mode: bool = True
    key_path: str | None = None
    key_password: str | None = None
    cert_path: str | None = None
    verify_server: bool = False
    trust_cert_path: str | None = None


class ServerContext:
    """The server's current TLS context, created on first use and replaced
    by `reload_if_changed`.
    """

    def __init__(self, settings: ServerTls) -> None:
        self.settings = settings
        self._context: ssl.SSLContext | None = None
        self._seen = self._fingerprint()
        if not settings.test_mode and settings.mode is not TlsMode.DISABLED:
            self._context = self._build()  # a bad file fails the start, not the first handshake

    def get(self) -> ssl.SSLContext:
        """Return the context for the next handshake."""
        if self._context is None:
            self._context = self._build()
        return self._context

    def reload_if_changed(self) -> bool:
        """Reload the files if one of them changed and all are valid; return whether the context was
        replaced.
        """
        seen = self._fingerprint()
        if self._context is None or seen == self._seen:
            return False
        try:
            self._context = self._build()
        except ConfigurationError as problem:
            log.warning(
                "changed certificate not loaded, the old one stays in force why=%s", problem
            )
            return False
        finally:
            self._seen = seen
        log.info("certificate reloaded file=%s", self.settings.cert_path)
        return True

    def _fingerprint(self) -> tuple[object, ...]:
        settings = self.settings
        if settings.test_mode:
            return ()
        return tuple(
            _stamp(path)
            for path in (settings.key_path, settings.cert_path, settings.trust_cert_path)
        )

    def _build(self) -> ssl.SSLContext:
        settings = self.settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if settings.test_mode:
            certificate, key = self_signed()
            with tempfile.TemporaryDirectory() as folder:
                pem = Path(folder, "server.pem")
                pem.touch(mode=0o600)
                pem.write_bytes(key + certificate)
                context.load_cert_chain(pem)
            return context
        if settings.cert_path is None or settings.key_path is None:
            raise ConfigurationError(
                "TLS needs tls.server.certPath and tls.server.keyPath; set both, or"
                " tls.test.mode.enable=true for a self-signed certificate, or"
                " tls.server.mode=disabled"
            )
        _load_pair(context, settings.cert_path, settings.key_path, settings.key_password)
        if settings.client_auth is not ClientAuth.NONE and settings.verify_client:
            context.verify_mode = (
                ssl.CERT_REQUIRED
                if settings.client_auth is ClientAuth.REQUIRE
                else ssl.CERT_OPTIONAL
            )
            _load_trust(context, settings.trust_cert_path, "tls.server.trustCertPath")
        elif settings.client_auth is not ClientAuth.NONE:
            log.warning(
                "clients are not asked for certificates: tls.server.need.client.auth has an effect"
                " only with tls.server.authClient=true"
            )
        return context


def client_context(settings: ClientTls) -> ssl.SSLContext:
    """Return the context for connections to servers; as in the original, the host name is not
    checked.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if settings.test_mode or not settings.verify_server:
        context.verify_mode = ssl.CERT_NONE
    else:
        _load_trust(context, settings.trust_cert_path, "tls.client.trustCertPath")
    if not settings.test_mode and settings.cert_path is not None and settings.key_path is not None:
        _load_pair(context, settings.cert_path, settings.key_path, settings.key_password)
    return context


def self_signed() -> tuple[bytes, bytes]:
    """Return a new self-signed certificate and its key as PEM, for tests."""
    # Imported here: servers that do not need it start faster and use less memory.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "orbitmq test mode")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365))
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _load_pair(
    context: ssl.SSLContext, cert_path: str, key_path: str, password: str | None
) -> None:
    try:
        context.load_cert_chain(cert_path, key_path, password=password or "")
    except (OSError, ssl.SSLError) as problem:
        raise ConfigurationError(
            f"certificate {cert_path} with key {key_path} cannot be loaded: {problem}; both are PEM"
            " files that fit each other"
        ) from problem


def _load_trust(context: ssl.SSLContext, path: str | None, key: str) -> None:
    if not path:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as problem:
        raise ConfigurationError(
            f"{key}={path} cannot be loaded: {problem}; it is a PEM file of certificates to trust"
        ) from problem


def _stamp(path: str | None) -> tuple[int, int, int] | None:
    """Return a value that changes with the file; None if it does not exist."""
    if not path:
        return None
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
