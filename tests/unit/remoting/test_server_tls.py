"""TLS on the port that also serves plaintext: modes, certificates of both sides, and certificates
that change under load.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl
import weakref
from pathlib import Path

import pytest
import trustme
from cryptography import x509

from orbitmq.common.clock import SystemClock
from orbitmq.common.config.tls import ClientAuth, TlsMode
from orbitmq.common.errors import RemoteUnavailableError
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting import server as server_module
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.remoting.server import RemotingServer, ServerConfig
from orbitmq.remoting.tls import ClientTls, ServerContext, ServerTls, client_context
from support.common.waiting import until
from support.remoting.peers import ECHO, SIZED, Witness, address, connected, request, run, serving

ANYBODY = client_context(ClientTls(enabled=True))


class Files:
    """A certificate authority and the files of a server that it certifies."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.trust, self.cert, self.key = (
            folder / "ca.pem",
            folder / "server.pem",
            folder / "server.key",
        )
        self.client_cert, self.client_key = folder / "client.pem", folder / "client.key"
        self.ca.cert_pem.write_to_path(str(self.trust))
        self.write(self.cert, self.key, self.ca.issue_cert("localhost"))
        self.write(self.client_cert, self.client_key, self.ca.issue_cert("a-client"))

    @staticmethod
    def write(cert: Path, key: Path, issued: trustme.LeafCert) -> None:
        cert.write_bytes(issued.cert_chain_pems[0].bytes())
        key.write_bytes(issued.private_key_pem.bytes())

    def server(
        self, mode: TlsMode = TlsMode.PERMISSIVE, auth: ClientAuth = ClientAuth.NONE
    ) -> ServerConfig:
        return ServerConfig(
            tls=ServerTls(
                mode=mode,
                test_mode=False,
                key_path=str(self.key),
                cert_path=str(self.cert),
                client_auth=auth,
                verify_client=auth is not ClientAuth.NONE,
                trust_cert_path=str(self.trust),
            )
        )

    def client(self, *, certificate: bool = False) -> ClientTls:
        return ClientTls(
            enabled=True,
            test_mode=False,
            verify_server=True,
            trust_cert_path=str(self.trust),
            cert_path=str(self.client_cert) if certificate else None,
            key_path=str(self.client_key) if certificate else None,
        )


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def serves(server: RemotingServer, tls: ssl.SSLContext | None) -> bool:
    """Return whether a peer of this kind gets a response."""
    try:
        async with connected(server, tls) as peer:
            return (await peer.ask(request(ECHO, 1))).opaque == 1
    except (OSError, EOFError):
        return False


@pytest.mark.parametrize(
    ("mode", "tls_served", "plain_served"),
    [
        (TlsMode.DISABLED, False, True),
        (TlsMode.PERMISSIVE, True, True),
        (TlsMode.ENFORCING, True, False),
    ],
)
def test_each_mode_serves_whom_it_should(
    mode: TlsMode, tls_served: bool, plain_served: bool
) -> None:
    async def scenario() -> None:
        witness = Witness()
        async with serving(ServerConfig(tls=ServerTls(mode=mode)), listeners=(witness,)) as server:
            assert await serves(server, ANYBODY) is tls_served
            assert await serves(server, None) is plain_served
            await until(lambda: server.connections == 0)
        assert all(witness.of(channel) == ["connect", "close"] for channel in witness.channels)
        assert [channel.is_tls for channel in witness.channels] == [tls_served, False]
        reasons = {channel.close_reason for channel in witness.channels} - {None}
        assert (
            reasons
            == {
                TlsMode.DISABLED: {"it speaks TLS, which tls.server.mode=disabled refuses"},
                TlsMode.PERMISSIVE: set(),
                TlsMode.ENFORCING: {
                    "it does not speak TLS, which tls.server.mode=enforcing demands"
                },
            }[mode]
        )

    run(scenario)


def test_tls_peers_are_served_like_others() -> None:
    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server, connected(server, ANYBODY) as peer:
            for n in range(50):
                peer.write(request(ECHO, n, body=bytes([n])))
            assert [(await peer.receive()).body for _ in range(50)] == [
                bytes([n]) for n in range(50)
            ]
            body = bytes(range(256)) * 20_000
            assert (await peer.ask(request(ECHO, 1, body=body))).body == body
            channel = witness.channels[0]
            asking = asyncio.create_task(channel.invoke(RemotingCommand(40), 5000))
            asked = await peer.receive()
            peer.write(request(ECHO, 99))
            assert (await peer.receive()).opaque == 99
            peer.writer.close()
            with pytest.raises(RemoteUnavailableError, match="closed before the response came"):
                await asking
            assert asked.code == 40
            await until(lambda: server.connections == 0)
            assert witness.of(channel) == ["connect", "close"]

    run(scenario)


def test_bad_bytes_within_tls_close_the_connection_and_say_why() -> None:
    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server, connected(server, ANYBODY) as peer:
            peer.write(request(ECHO, 1) + b"\xff" * 8)
            await peer.rest()
            await until(lambda: server.connections == 0)
            assert witness.of(witness.channels[0]) == ["connect", "exception", "close"]
            assert "the shortest has 4" in str(witness.problems)

    run(scenario)


def test_a_tls_peer_that_does_not_read_is_not_read() -> None:
    async def scenario() -> None:
        witness = Witness()
        config = ServerConfig(unsent_bytes_max=256 * 1024)
        async with (
            serving(config, listeners=(witness,)) as server,
            connected(server, ANYBODY) as peer,
            connected(server) as other,
        ):
            await peer.ask(request(ECHO, 0))
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            peer.write(b"".join(request(SIZED, n, size="100000") for n in range(300)))
            link = witness.channels[0].link
            await until(lambda: not link.reading, "that reading stops")
            unsent = link._transport.get_write_buffer_size()  # type: ignore[attr-defined]
            assert unsent < 8 * 100_000, unsent
            for n in range(10):
                assert (await other.ask(request(ECHO, n))).opaque == n
            peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert [(await peer.receive()).opaque for _ in range(300)] == list(range(300))

    run(scenario)


def test_the_tls_peer_that_holds_most_unfinished_bytes_is_closed_when_all_hold_too_many() -> None:
    async def scenario() -> None:
        witness = Witness()
        config = ServerConfig(unfinished_bytes_max=300_000)
        async with serving(config, listeners=(witness,)) as server:
            for _ in range(3):  # what a closed one held is not counted any more
                async with (
                    connected(server, ANYBODY) as modest,
                    connected(server, ANYBODY) as hoarder,
                ):
                    hoarder.write(request(ECHO, 1, body=bytes(1_000_000))[:290_000])
                    await until(lambda: server.budgets.unfinished > 280_000)
                    whole = request(ECHO, 2, body=bytes(50_000))
                    modest.write(whole[:40_000])
                    assert await hoarder.ended()
                    assert (await modest.ask(whole[40_000:])).opaque == 2
                await until(lambda: server.connections == 0)
            assert server.budgets.unfinished == 0
            assert [
                "unfinished incoming bytes" in str(problem) for problem in witness.problems
            ] == [True] * 3

    run(scenario)


def test_idle_tls_peers_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 0.02)

    async def scenario() -> None:
        witness = Witness()
        async with (
            serving(ServerConfig(idle_ms_max=100), listeners=(witness,)) as server,
            connected(server, ANYBODY) as peer,
        ):
            assert await peer.ended()
            assert witness.of(witness.channels[0]) == ["connect", "idle", "close"]

    run(scenario)


def test_stop_ends_tls_peers_and_handshakes_and_tells_each_end_once() -> None:
    async def scenario() -> None:
        witness = Witness()
        async with (
            serving(listeners=(witness,)) as server,
            connected(server, ANYBODY) as peer,
            connected(server) as half,
        ):
            await peer.ask(request(ECHO, 1))
            half.write(b"\x16\x03\x01\x02\x00")
            await until(lambda: server.connections == 2 and len(server.budgets.handshakes) == 1)
            await server.stop()
            assert server.connections == 0
            assert [witness.of(channel) for channel in witness.channels] == [
                ["connect", "close"]
            ] * 2
            assert await half.ended()

    run(scenario)


# ---------------------------------------------------------------- peers that do not shake hands


def test_a_peer_that_begins_a_handshake_and_stops_is_dropped_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        witness = Witness()
        async with (
            serving(ServerConfig(handshake_ms_max=200), listeners=(witness,)) as server,
            connected(server) as peer,
        ):
            peer.write(b"\x16")
            assert await peer.ended()
            assert server.connections == 0
            assert [name for name in witness.of(witness.channels[0]) if name != "exception"] == [
                "connect",
                "close",
            ]

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "TLS handshake failed" in caplog.text


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16" * 100,
        b"\x16\x03\x01\x00\x05hello",
        b"\x16" + bytes(5000),
        b"\x16\x03\x03\xff\xff" + b"x" * 70_000,
    ],
)
def test_garbage_behind_the_first_byte_of_a_handshake_is_dropped(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server, connected(server) as peer:
            peer.write(garbage)
            await peer.rest()  # the server may send an alert
            await until(lambda: server.connections == 0)
            assert witness.of(witness.channels[0]) == ["connect", "exception", "close"]
            assert await serves(server, ANYBODY)

    with caplog.at_level(logging.CRITICAL):
        run(scenario)


# ---------------------------------------------------------------- certificates


def test_a_client_that_verifies_takes_the_right_server_and_no_other(
    files: Files, tmp_path: Path
) -> None:
    (tmp_path / "stranger").mkdir()
    stranger = Files(tmp_path / "stranger")

    async def scenario() -> None:
        async with serving(files.server()) as server:
            assert await serves(server, client_context(files.client()))
            assert await serves(server, ANYBODY)
            async with RemotingClient(ClientConfig(tls=stranger.client()), SystemClock()) as client:
                with pytest.raises(
                    RemoteUnavailableError,
                    match=r"TLS with .* failed.*do both sides trust each other",
                ):
                    await client.invoke(address(server), RemotingCommand(ECHO))

    run(scenario)


@pytest.mark.parametrize(
    ("auth", "without_served", "with_served"),
    [
        (ClientAuth.NONE, True, True),
        (ClientAuth.OPTIONAL, True, True),
        (ClientAuth.REQUIRE, False, True),
    ],
)
def test_client_certificates_are_asked_for_as_told(
    files: Files,
    auth: ClientAuth,
    without_served: bool,
    with_served: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "stranger").mkdir()
    stranger = Files(tmp_path / "stranger")
    forged = ClientTls(
        enabled=True,
        test_mode=False,
        verify_server=False,
        cert_path=str(stranger.client_cert),
        key_path=str(stranger.client_key),
    )

    async def scenario() -> None:
        async with serving(files.server(auth=auth)) as server:
            assert await serves(server, client_context(files.client())) is without_served
            assert (
                await serves(server, client_context(files.client(certificate=True))) is with_served
            )
            assert await serves(server, client_context(forged)) is (auth is ClientAuth.NONE)

    with caplog.at_level(logging.CRITICAL):
        run(scenario)


async def serial(server: RemotingServer) -> int:
    """Return the serial number of the certificate that a new connection sees."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    async with connected(server, context) as peer:
        der = peer.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(der).serial_number


def test_certificates_are_replaced_under_load_without_a_failed_request(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 0.02)

    async def scenario() -> None:
        async with serving(files.server(TlsMode.ENFORCING)) as server:
            done, served = asyncio.Event(), 0

            async def load() -> None:
                nonlocal served
                while not done.is_set():
                    assert await serves(server, client_context(files.client()))
                    served += 1

            async with (
                connected(server, client_context(files.client())) as old,
                asyncio.TaskGroup() as group,
            ):
                for _ in range(3):
                    group.create_task(load())
                before = await serial(server)
                for _ in range(4):
                    issued = files.ca.issue_cert("localhost")
                    files.cert.write_bytes(issued.cert_chain_pems[0].bytes())
                    await asyncio.sleep(
                        0.06
                    )  # several checks while the certificate's key is missing
                    assert await serial(server) == before, "a certificate without its key was taken"
                    files.key.write_bytes(issued.private_key_pem.bytes())

                    async def is_taken(old: int = before) -> bool:
                        return await serial(server) != old

                    await until(is_taken, "the new certificate is taken")
                    before = await serial(server)
                    assert (await old.ask(request(ECHO, 1))).opaque == 1
                await until(lambda: served > 10, "that peers are served")
                done.set()

    logging.getLogger("orbitmq.remoting.tls").setLevel(logging.CRITICAL)
    try:
        run(scenario)
    finally:
        logging.getLogger("orbitmq.remoting.tls").setLevel(logging.NOTSET)


def test_a_failed_reload_is_logged_once_per_change(
    files: Files, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 0.01)
    checks: list[bool] = []
    check = ServerContext.reload_if_changed
    monkeypatch.setattr(
        ServerContext, "reload_if_changed", lambda context: checks.append(check(context))
    )

    async def several_checks() -> None:
        count = len(checks) + 3
        await until(lambda: len(checks) >= count, "several checks")

    async def scenario() -> None:
        async with serving(files.server()) as server:
            files.cert.write_text("nonsense")
            await until(lambda: len(logged()) == 1, "that the first is logged")
            await several_checks()
            files.key.unlink()
            await until(lambda: len(logged()) > 1, "that the second is logged")
            await several_checks()
            assert await serves(server, client_context(files.client()))

    def logged() -> list[str]:
        return [
            record.levelname for record in caplog.records if record.name == "orbitmq.remoting.tls"
        ]

    with caplog.at_level(logging.INFO, "orbitmq.remoting.tls"):
        run(scenario)
    assert logged() == ["WARNING", "WARNING"]


def test_a_tls_client_and_a_tls_server_speak_over_certificates_of_both(files: Files) -> None:
    async def scenario() -> None:
        async with (
            serving(files.server(TlsMode.ENFORCING, ClientAuth.REQUIRE)) as server,
            RemotingClient(
                ClientConfig(tls=files.client(certificate=True)), SystemClock()
            ) as client,
        ):
            body = bytes(3_000_000)
            answers = await asyncio.gather(
                *(
                    client.invoke(address(server), RemotingCommand(ECHO, body=body))
                    for _ in range(5)
                )
            )
            assert all(answer.body == body for answer in answers)
            assert server.connections == 1

    run(scenario)


def test_a_client_that_speaks_tls_to_a_server_that_refuses_it_is_told_what_to_check() -> None:
    async def scenario() -> None:
        async with (
            serving(ServerConfig(tls=ServerTls(mode=TlsMode.DISABLED))) as server,
            RemotingClient(ClientConfig(tls=ClientTls(enabled=True)), SystemClock()) as client,
        ):
            with pytest.raises(
                RemoteUnavailableError, match=r"(TLS with|cannot connect to) 127\.0\.0\.1"
            ):
                await client.invoke(address(server), RemotingCommand(ECHO))

    run(scenario)


def test_a_peer_that_is_gone_leaves_neither_link_nor_channel_to_the_garbage_collector() -> None:
    async def scenario() -> None:
        async with serving() as server:
            async with connected(server, ANYBODY) as peer:
                assert (await peer.ask(request(ECHO, 1))).opaque == 1
                (link,) = server.tls.links
                gone: list[weakref.ref[object]] = [
                    weakref.ref(link),
                    weakref.ref(link.channel),
                    weakref.ref(link._transport),
                ]
                del link
            await until(lambda: not server.connections)
            await until(lambda: not any(each() for each in gone))

    gc.disable()
    try:
        run(scenario)
    finally:
        gc.enable()
