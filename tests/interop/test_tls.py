"""The real Java client and a real broker speak TLS with our name server, also while its certificate
is replaced.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from interop import apache, programs, subject
from interop.apache import Release, Server
from interop.frames import Closed, Connection, Request
from support.common.waiting import wait_until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.needs("java", "maven"),
    pytest.mark.skipif(
        subject.IS_ORIGINAL, reason="the original takes its TLS settings from system properties"
    ),
]

RELOAD_WITHIN_S = 30.0


class Files:
    """The certificate and key files of one server, issued by one authority."""

    def __init__(self, folder: Path) -> None:
        self._authority = trustme.CA()
        self.trust = folder / "ca.pem"
        self.certificate = folder / "server.pem"
        self.key = folder / "server.key"
        self._authority.cert_pem.write_to_path(self.trust)
        self.issue()

    def issue(self) -> None:
        """Write a new certificate, then its key: between the two they do not fit, as when an
        operator copies files.
        """
        issued = self._authority.issue_cert("localhost", "127.0.0.1")
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)  # Java reads PKCS#8 only
        self.certificate.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        self.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    def server_settings(self) -> dict[str, str]:
        return {
            "tls.test.mode.enable": "false",
            "tls.server.keyPath": str(self.key),
            "tls.server.certPath": str(self.certificate),
        }

    def java_options(self) -> tuple[str, ...]:
        """Client and server of a JVM: it speaks TLS with everybody and trusts the authority
        alone.
        """
        client = {
            "tls.enable": "true",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": str(self.trust),
        }
        return tuple(
            f"-D{key}={value}" for key, value in {**self.server_settings(), **client}.items()
        )

    def connect(self, server: Server) -> ssl.SSLSocket:
        """A TLS connection to a server whose certificate must be the authority's."""
        context = ssl.create_default_context(cafile=str(self.trust))
        return context.wrap_socket(
            socket.create_connection(("127.0.0.1", server.port), 5), server_hostname="127.0.0.1"
        )

    def serial_shown(self, server: Server) -> int:
        """The serial number of the certificate that a new connection is shown."""
        with self.connect(server) as secured:
            shown = secured.getpeercert()
        assert shown is not None
        return int(str(shown["serialNumber"]), 16)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def name_server(files: Files, module_home: Path) -> Iterator[Server]:
    server = subject.name_server(
        module_home / "names", {"tls.server.mode": "enforcing", **files.server_settings()}
    )
    with apache.running(server):
        yield server


@pytest.fixture(scope="module")
def broker(
    files: Files, apache_5: Release, name_server: Server, module_home: Path
) -> Iterator[Server]:
    server = apache.broker(
        apache_5, module_home / "broker", [name_server.address], options=files.java_options()
    )
    with apache.running(server):
        with Connection(
            files.connect(name_server)
        ) as connection:  # its port accepts before it has registered
            wait_until(
                lambda: connection.ask(Request(105, {"topic": "TBW102"})).code == 0,
                "the broker registers over TLS",
            )
        yield server


def test_plaintext_is_cut_off_where_tls_is_enforced(name_server: Server) -> None:
    with Connection(name_server.address) as connection:
        connection.send(Request(106))
        with pytest.raises(Closed):
            connection.receive()


def test_the_real_client_sends_and_consumes_over_tls(
    release: Release, files: Files, broker: Server, name_server: Server, tmp_path: Path
) -> None:
    topic = "Secret-" + release.version.replace(".", "_")
    lines = programs.round_trip(
        release, tmp_path, name_server.address, topic, 10, files.java_options()
    )
    assert {line["key"] for line in lines if line["event"] == "consumed" and line["whole"]} == {
        f"key-{number}" for number in range(10)
    }
    assert lines[-1] == {"event": "done", "complete": True}


def test_a_certificate_is_replaced_under_load_and_no_request_fails(
    release: Release, files: Files, broker: Server, name_server: Server, tmp_path: Path
) -> None:
    before = files.serial_shown(name_server)
    with programs.load(
        release, tmp_path, name_server.address, "Loaded", files.java_options()
    ) as load:
        load.wait_for_routes(3)
        files.issue()
        wait_until(
            lambda: files.serial_shown(name_server) != before,
            "the new certificate is shown",
            seconds=RELOAD_WITHIN_S,
        )
        load.wait_for_routes(5)  # connections that were shown the new one
        closing = load.finish()
    assert closing["failures"] == []
    assert closing["sends"] > 0
    assert closing["routes"] >= 8
