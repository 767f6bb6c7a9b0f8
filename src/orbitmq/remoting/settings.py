"""Builds the configuration of the remoting server and client from configuration keys."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.common.config.remoting import RemotingSettings
from orbitmq.protocol.command import SerializeType
from orbitmq.protocol.frame import FrameLimits
from orbitmq.remoting.client import ClientConfig
from orbitmq.remoting.server import ServerConfig
from orbitmq.remoting.tls import ClientTls, ServerTls


def server_config(
    settings: RemotingSettings,
    port: int | None = None,
    believes_preamble_of: Callable[[str], bool] = lambda _peer: True,
) -> ServerConfig:
    """Return the server's configuration; `port`, if given, replaces the configured one."""
    return ServerConfig(
        believes_preamble_of=believes_preamble_of,
        bind_address=settings.bind_address,
        port=settings.listen_port if port is None else port,
        backlog=settings.server_socket_backlog,
        idle_ms_max=settings.server_channel_max_idle_time_seconds * 1000,
        connections_max=settings.max_connections,
        unsent_bytes_max=settings.unsent_bytes_max,
        unsent_bytes_total_max=settings.max_unsent_bytes,
        unfinished_bytes_max=settings.max_pending_bytes,
        handshakes_max=settings.max_tls_handshakes,
        handshake_ms_max=settings.tls_handshake_timeout_millis,
        frames=FrameLimits(
            frame_length_max=settings.frame_max_length, header_length_max=settings.header_max_length
        ),
        tls=ServerTls(
            mode=settings.tls_server_mode,
            test_mode=settings.tls_test_mode_enable,
            key_path=settings.tls_server_key_path,
            key_password=settings.tls_server_key_password,
            cert_path=settings.tls_server_cert_path,
            client_auth=settings.tls_server_need_client_auth,
            verify_client=settings.tls_server_auth_client,
            trust_cert_path=settings.tls_server_trust_cert_path,
        ),
        drain_seconds=(
            settings.shutdown_wait_time_seconds if settings.enable_shutdown_gracefully else 0
        ),
        send_buffer_bytes=settings.server_socket_snd_buf_size,
        receive_buffer_bytes=settings.server_socket_rcv_buf_size,
        serialize_type=SerializeType[settings.header_encoding.value],
    )


def client_config(settings: RemotingSettings) -> ClientConfig:
    """Return the configuration of the process's client."""
    return ClientConfig(
        connect_timeout_ms=settings.connect_timeout_millis,
        idle_ms_max=settings.client_channel_max_idle_time_seconds * 1000,
        invoke_max=settings.client_async_semaphore_value,
        close_on_timeout=settings.client_close_socket_if_timeout,
        reconnect_on_go_away=settings.enable_reconnect_for_go_away,
        frames=FrameLimits(
            frame_length_max=settings.frame_max_length, header_length_max=settings.header_max_length
        ),
        serialize_type=SerializeType[settings.header_encoding.value],
        tls=ClientTls(
            enabled=settings.use_tls is True,
            test_mode=settings.tls_test_mode_enable,
            key_path=settings.tls_client_key_path,
            key_password=settings.tls_client_key_password,
            cert_path=settings.tls_client_cert_path,
            verify_server=settings.tls_client_auth_server,
            trust_cert_path=settings.tls_client_trust_cert_path,
        ),
    )
