"""Every key of sockets, calls and TLS reaches its field; the effect of the fields is tested with
the code that reads them.
"""

from __future__ import annotations

import dataclasses
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from orbitmq.common.clock import SystemClock
from orbitmq.common.config import load
from orbitmq.common.config.tls import ClientAuth, TlsMode
from orbitmq.common.errors import ConfigurationError, RemoteUnavailableError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.protocol.command import RemotingCommand, SerializeType
from orbitmq.protocol.frame import FrameLimits
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.remoting.server import ServerConfig
from orbitmq.remoting.settings import client_config, server_config
from orbitmq.remoting.tls import ClientTls, ServerTls
from support.remoting.peers import ECHO, Witness, address, run, serving

# Fields that no key sets.
OURS_OF_SERVER = {"believes_preamble_of", "invoke_max"}
OURS_OF_CLIENT = {"unsent_bytes_max"}

OF_SERVER: dict[str, tuple[str, dict[str, Any]]] = {
    "bindAddress": ("127.0.0.9", {"bind_address": "127.0.0.9"}),
    "listenPort": ("7", {"port": 7}),
    "serverSocketBacklog": ("3", {"backlog": 3}),
    "serverChannelMaxIdleTimeSeconds": ("4", {"idle_ms_max": 4000}),
    "maxConnections": ("5", {"connections_max": 5}),
    "writeBufferHighWaterMark": ("6", {"unsent_bytes_max": 6}),
    "maxPendingBytes": ("16777217", {"unfinished_bytes_max": 16_777_217}),
    "maxUnsentBytes": ("16777217", {"unsent_bytes_total_max": 16_777_217}),
    "maxTlsHandshakes": ("11", {"handshakes_max": 11}),
    "tlsHandshakeTimeoutMillis": ("12", {"handshake_ms_max": 12}),
    "frameMaxLength": (
        "1025",
        {"frames": FrameLimits(frame_length_max=1025, header_length_max=1_048_576)},
    ),
    "headerMaxLength": ("257", {"frames": FrameLimits(header_length_max=257)}),
    "serverSocketSndBufSize": ("8", {"send_buffer_bytes": 8}),
    "serverSocketRcvBufSize": ("9", {"receive_buffer_bytes": 9}),
    "enableShutdownGracefully": ("true", {"drain_seconds": 30}),
    "rocketmq.serialize.type": ("ROCKETMQ", {"serialize_type": SerializeType.ROCKETMQ}),
    "tls.server.mode": ("disabled", {"tls": ServerTls(mode=TlsMode.DISABLED)}),
    "tls.test.mode.enable": ("false", {"tls": ServerTls(test_mode=False)}),
    "tls.server.need.client.auth": ("require", {"tls": ServerTls(client_auth=ClientAuth.REQUIRE)}),
    "tls.server.keyPath": ("/k", {"tls": ServerTls(key_path="/k")}),
    "tls.server.keyPassword": ("pw", {"tls": ServerTls(key_password="pw")}),
    "tls.server.certPath": ("/c", {"tls": ServerTls(cert_path="/c")}),
    "tls.server.authClient": ("true", {"tls": ServerTls(verify_client=True)}),
    "tls.server.trustCertPath": ("/t", {"tls": ServerTls(trust_cert_path="/t")}),
}
OF_CLIENT: dict[str, tuple[str, dict[str, Any]]] = {
    "connectTimeoutMillis": ("3", {"connect_timeout_ms": 3}),
    "clientChannelMaxIdleTimeSeconds": ("4", {"idle_ms_max": 4000}),
    "clientAsyncSemaphoreValue": ("5", {"invoke_max": 5}),
    "clientCloseSocketIfTimeout": ("false", {"close_on_timeout": False}),
    "enableReconnectForGoAway": ("false", {"reconnect_on_go_away": False}),
    "frameMaxLength": (
        "1025",
        {"frames": FrameLimits(frame_length_max=1025, header_length_max=1_048_576)},
    ),
    "headerMaxLength": ("257", {"frames": FrameLimits(header_length_max=257)}),
    "rocketmq.serialize.type": ("ROCKETMQ", {"serialize_type": SerializeType.ROCKETMQ}),
    "useTLS": ("true", {"tls": ClientTls(enabled=True)}),
    "tls.enable": ("true", {"tls": ClientTls(enabled=True)}),
    "tls.test.mode.enable": ("false", {"tls": ClientTls(test_mode=False)}),
    "tls.client.keyPath": ("/k", {"tls": ClientTls(key_path="/k")}),
    "tls.client.keyPassword": ("pw", {"tls": ClientTls(key_password="pw")}),
    "tls.client.certPath": ("/c", {"tls": ClientTls(cert_path="/c")}),
    "tls.client.authServer": ("true", {"tls": ClientTls(verify_server=True)}),
    "tls.client.trustCertPath": ("/t", {"tls": ClientTls(trust_cert_path="/t")}),
}


def loaded(**flags: str) -> NameServerConfig:
    return load(NameServerConfig, environment={}, flags=flags).settings


def shown(config: ServerConfig | ClientConfig, **changed: Any) -> dict[str, Any]:
    """Return the fields of a configuration as comparable values, some of them changed."""
    fields = {
        field.name: getattr(config, field.name) for field in dataclasses.fields(config)
    } | changed
    fields.pop("believes_preamble_of", None)  # a function, and set by no key
    return fields | {
        "frames": (fields["frames"].frame_length_max, fields["frames"].header_length_max)
    }


def of_server(**flags: str) -> dict[str, Any]:
    return shown(server_config(loaded(**flags)))


def of_client(**flags: str) -> dict[str, Any]:
    return shown(client_config(loaded(**flags)))


@pytest.mark.parametrize("name", OF_SERVER)
def test_a_key_sets_its_field_of_the_server_and_no_other(name: str) -> None:
    text, fields = OF_SERVER[name]
    assert of_server(**{name: text}) == shown(server_config(loaded()), **fields)
    assert of_server(**{name: text}) != of_server()


@pytest.mark.parametrize("name", OF_CLIENT)
def test_a_key_sets_its_field_of_the_client_and_no_other(name: str) -> None:
    text, fields = OF_CLIENT[name]
    assert of_client(**{name: text}) == shown(client_config(loaded()), **fields)
    assert of_client(**{name: text}) != of_client()


def test_the_time_of_a_graceful_stop_counts_when_there_is_one() -> None:
    assert of_server(shutdownWaitTimeSeconds="7") == of_server()
    assert (
        of_server(shutdownWaitTimeSeconds="7", enableShutdownGracefully="true")["drain_seconds"]
        == 7
    )


def test_every_field_has_a_key() -> None:
    for kind, keys, ours in (
        (ServerConfig, OF_SERVER, OURS_OF_SERVER),
        (ClientConfig, OF_CLIENT, OURS_OF_CLIENT),
    ):
        set_by_keys = {field for _, fields in keys.values() for field in fields}
        assert set_by_keys | ours == {field.name for field in dataclasses.fields(kind)}
    for tls, keys in ((ServerTls, OF_SERVER), (ClientTls, OF_CLIENT)):
        changed = [fields["tls"] for _, fields in keys.values() if "tls" in fields]
        differing = {
            field.name
            for each in changed
            for field in dataclasses.fields(tls)
            if getattr(each, field.name) != getattr(tls(), field.name)
        }
        assert differing == {field.name for field in dataclasses.fields(tls)}


def test_as_many_connections_as_is_said_may_wait_to_be_accepted() -> None:
    async def scenario() -> None:
        async with serving(ServerConfig(backlog=7)) as server:
            listener = server._listener
            assert listener is not None
            (waiting_max,) = struct.unpack_from(
                "I", listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32), 28
            )
            assert waiting_max == 7

    run(scenario)


def test_sockets_have_the_buffers_that_are_said() -> None:
    async def scenario() -> None:
        async with serving(
            ServerConfig(send_buffer_bytes=10_000, receive_buffer_bytes=20_000)
        ) as server:
            listener = server._listener
            assert listener is not None
            sizes = [
                listener.getsockopt(socket.SOL_SOCKET, option)
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)
            ]
            assert sizes == [
                20_000,
                40_000,
            ], "the system doubles them, for its own needs, and accepted sockets inherit them"

    run(scenario)


@pytest.fixture
def tls_keys(tmp_path: Path) -> dict[str, str]:
    """Every key of TLS, of a server and a client that take none but each other; their private keys
    are encrypted.
    """
    authority = trustme.CA()
    trust = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trust))
    keys = {
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": str(trust),
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(trust),
    }
    for name in ("server", "client"):
        issued = authority.issue_cert(name)
        certificate, secret = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        certificate.write_bytes(issued.cert_chain_pems[0].bytes())
        plain = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        encryption = serialization.BestAvailableEncryption(name.encode())
        secret.write_bytes(
            plain.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
            )
        )
        keys |= {
            f"tls.{name}.certPath": str(certificate),
            f"tls.{name}.keyPath": str(secret),
            f"tls.{name}.keyPassword": name,
        }
    return keys


async def exchanged(of_server: ServerConfig, of_client: ClientConfig) -> str:
    """Return how a client is served."""
    witness = Witness()
    async with (
        serving(of_server, listeners=(witness,)) as server,
        RemotingClient(of_client, SystemClock()) as client,
    ):
        try:
            await client.invoke(address(server), RemotingCommand(ECHO), 30_000)
        except RemoteUnavailableError:
            return "not at all"
        return "by TLS" if witness.channels[-1].is_tls else "in plain text"


def who_is_served(keys: dict[str, str]) -> list[str]:
    """Return how the server of a configuration serves its client and one without a certificate,
    and how another server serves its client.
    """

    async def scenario() -> None:
        config = loaded(listenPort="0", **keys)
        own_server, own_client = server_config(config), client_config(config)
        others_server, others_client = ServerConfig(), ClientConfig(tls=ClientTls(enabled=True))
        try:
            for server, client in (
                (own_server, own_client),
                (own_server, others_client),
                (others_server, own_client),
            ):
                found.append(await exchanged(server, client))
        except ConfigurationError:
            found.append("it does not start")

    found: list[str] = []
    run(scenario)
    return found


TLS_KEYS = [
    name
    for name in {**OF_SERVER, **OF_CLIENT}
    if name.startswith("tls.") and name != "tls.server.mode"
]


@pytest.mark.parametrize("name", TLS_KEYS)
def test_each_key_of_tls_decides_who_is_served(tls_keys: dict[str, str], name: str) -> None:
    assert who_is_served(tls_keys) == ["by TLS", "not at all", "not at all"]
    del tls_keys[name]
    assert who_is_served(tls_keys) != ["by TLS", "not at all", "not at all"]
