"""The keys of the remoting server and client that every server of ours has: the original's
`nettyServerConfig` and `nettyClientConfig`.

Limits that the original has no key for (or only a JVM property) are a section of their own,
`orbitmq`.
"""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from orbitmq.common.config.keys import APACHE_5, OWN, Use, key
from orbitmq.common.config.settings import Settings
from orbitmq.common.config.tls import TlsMode, TlsSettings

_THREADS = "One event loop serves all connections: there are no such threads."
_NETTY = "A switch of the Netty library, which is not used here."
_UNSENT_BYTES_MAX = 4 * 1024 * 1024


class HeaderEncoding(Enum):
    """How the headers of requests are encoded; a reply has the encoding of its request."""

    JSON = "JSON"
    ROCKETMQ = "ROCKETMQ"


@dataclass(frozen=True, kw_only=True)
class RemotingServerSettings(Settings):
    """Where a server listens, and its sockets."""

    SECTION: ClassVar[str] = "nettyServerConfig"

    bind_address: str = key(
        "127.0.0.1",
        "The address to listen on. The original's default is `0.0.0.0`, every interface: here that"
        " has to be said.",
        important=True,
        releases=APACHE_5,
    )
    listen_port: int = key(
        9876, "The port to listen on; 0 = a free one.", minimum=0, maximum=65535, important=True
    )
    server_worker_threads: int = key(8, _THREADS, use=Use.NO_EFFECT)
    server_callback_executor_threads: int = key(0, _THREADS, use=Use.NO_EFFECT)
    server_selector_threads: int = key(3, _THREADS, use=Use.NO_EFFECT)
    server_oneway_semaphore_value: int = key(
        256, "One-way calls to a peer are bounded by `writeBufferHighWaterMark`.", use=Use.NO_EFFECT
    )
    server_async_semaphore_value: int = key(
        64, "Calls to a peer are bounded by `writeBufferHighWaterMark`.", use=Use.NO_EFFECT
    )
    server_channel_max_idle_time_seconds: int = key(
        120,
        "A connection without any byte in or out for so long is closed; 0 = never.",
        minimum=0,
        dynamic=True,
    )
    server_socket_snd_buf_size: int = key(
        0, "SO_SNDBUF of accepted sockets, bytes; 0 = the system's choice.", minimum=0
    )
    server_socket_rcv_buf_size: int = key(
        0, "SO_RCVBUF of accepted sockets, bytes; 0 = the system's choice.", minimum=0
    )
    write_buffer_high_water_mark: int = key(
        0,
        "While a peer leaves more than so many bytes of answers unread, nothing more is read from"
        f" it; 0 = {_UNSENT_BYTES_MAX}.",
        minimum=0,
    )
    write_buffer_low_water_mark: int = key(
        0, "Reading goes on when half of `writeBufferHighWaterMark` has left.", use=Use.NO_EFFECT
    )
    server_socket_backlog: int = key(
        1024, "How many connections may wait to be accepted.", minimum=1
    )
    server_netty_worker_group_enable: bool = key(True, _NETTY, use=Use.NO_EFFECT, releases=APACHE_5)
    server_pooled_byte_buf_allocator_enable: bool = key(True, _NETTY, use=Use.NO_EFFECT)
    enable_shutdown_gracefully: bool = key(
        False,
        "Whether a stop first answers GO_AWAY for `shutdownWaitTimeSeconds`, so that clients move"
        " to another server.",
        releases=APACHE_5,
        dynamic=True,
    )
    shutdown_wait_time_seconds: int = key(
        30, "See `enableShutdownGracefully`.", minimum=0, releases=APACHE_5, dynamic=True
    )
    use_epoll_native_selector: bool = key(
        False, "epoll is used wherever the system has it.", use=Use.NO_EFFECT
    )

    @property
    def unsent_bytes_max(self) -> int:
        """How many written bytes a peer may leave unread before it is not read either."""
        return self.write_buffer_high_water_mark or _UNSENT_BYTES_MAX


@dataclass(frozen=True, kw_only=True)
class LimitSettings(Settings):
    """What peers may take of a server, beyond the keys that the original has."""

    SECTION: ClassVar[str] = "orbitmq"

    frame_max_length: int = key(
        16_777_216,
        "The longest frame that is taken, bytes; a longer one closes its connection. A JVM property"
        " of the original.",
        minimum=1024,
        releases=OWN,
    )
    header_max_length: int = key(
        1_048_576,
        "The longest header that is taken, bytes; a longer one closes its connection. The original"
        " takes what fits a frame.",
        minimum=256,
        maximum=16_777_215,
        releases=OWN,
    )
    max_connections: int = key(
        65_000,
        "How many connections are held at once; further ones are closed as they come.",
        minimum=1,
        releases=OWN,
    )
    max_requests_in_flight: int = key(
        10_000,
        "How many requests may be in work at once; further ones are answered SYSTEM_BUSY.",
        minimum=1,
        releases=OWN,
    )
    max_request_bytes_in_flight: int = key(
        268_435_456,
        "How many bytes requests in work may have together; further ones are answered SYSTEM_BUSY.",
        minimum=16_777_216,
        releases=OWN,
    )
    max_pending_bytes: int = key(
        268_435_456,
        "How many bytes of frames that are not whole yet are held, over all connections; beyond it"
        " the greediest are closed.",
        minimum=16_777_216,
        releases=OWN,
    )
    max_unsent_bytes: int = key(
        134_217_728,
        "How many bytes that peers do not take are held for them, over all connections; beyond it"
        " the greediest are closed, the oldest of equals first. What one connection may leave"
        " unread is `writeBufferHighWaterMark`.",
        minimum=16_777_216,
        releases=OWN,
    )
    max_tls_handshakes: int = key(
        512,
        "How many TLS handshakes may be in progress; beyond it the oldest is closed if it has"
        " lasted a second, otherwise the new one.",
        minimum=1,
        releases=OWN,
    )
    tls_handshake_timeout_millis: int = key(
        10_000, "How long a TLS handshake may take, ms.", minimum=1, releases=OWN
    )


@dataclass(frozen=True, kw_only=True)
class EncodingSettings(Settings):
    """What the original takes from a JVM property, or its environment."""

    SECTION: ClassVar[str] = "orbitmq"

    header_encoding: HeaderEncoding = key(
        HeaderEncoding.JSON,
        "How this server encodes the headers of its own requests; a reply has the encoding of its"
        " request. `ROCKETMQ_SERIALIZE_TYPE` is its default, as in the original.",
        name="rocketmq.serialize.type",
        releases=OWN,
        original_env="ROCKETMQ_SERIALIZE_TYPE",
    )


@dataclass(frozen=True, kw_only=True)
class RemotingClientSettings(Settings):
    """How a server, or a client, calls others."""

    SECTION: ClassVar[str] = "nettyClientConfig"

    client_worker_threads: int = key(4, _THREADS, use=Use.NO_EFFECT, releases=APACHE_5)
    client_callback_executor_threads: int = key(2, _THREADS, use=Use.NO_EFFECT, releases=APACHE_5)
    client_oneway_semaphore_value: int = key(
        65535,
        "One-way calls are bounded by the bytes that have not left yet.",
        use=Use.NO_EFFECT,
        releases=APACHE_5,
    )
    client_async_semaphore_value: int = key(
        65535, "How many calls may wait for their answers at once.", minimum=1, releases=APACHE_5
    )
    connect_timeout_millis: int = key(
        3000, "How long a connect may take, ms.", minimum=1, releases=APACHE_5, dynamic=True
    )
    channel_not_active_interval: int = key(
        60000,
        "The original declares it and does not read it.",
        use=Use.NO_EFFECT,
        releases=APACHE_5,
    )
    is_scan_available_name_srv: bool = key(
        True, "A name server calls no name server.", use=Use.NO_EFFECT, releases=APACHE_5
    )
    client_channel_max_idle_time_seconds: int = key(
        120,
        "A connection without any byte in or out for so long is closed; 0 = never.",
        minimum=0,
        releases=APACHE_5,
        dynamic=True,
    )
    client_socket_snd_buf_size: int = key(
        0, "The system's choice is always taken.", use=Use.NO_EFFECT, releases=APACHE_5
    )
    client_socket_rcv_buf_size: int = key(
        0, "The system's choice is always taken.", use=Use.NO_EFFECT, releases=APACHE_5
    )
    client_pooled_byte_buf_allocator_enable: bool = key(
        False, _NETTY, use=Use.NO_EFFECT, releases=APACHE_5
    )
    client_close_socket_if_timeout: bool = key(
        True,
        "Whether a call that timed out closes its connection, which may be dead.",
        releases=APACHE_5,
        dynamic=True,
    )
    use_tls: bool | None = key(
        None,
        "Whether this server speaks TLS to others; as `tls.enable` when it is not set, and if"
        " neither is, when `tls.server.mode` is `enforcing`.",
        name="useTLS",
        releases=APACHE_5,
    )
    socks_proxy_config: str = key(
        "{}", "There is no SOCKS client here.", use=Use.REFUSED, releases=APACHE_5
    )
    disable_callback_executor: bool = key(False, _THREADS, use=Use.NO_EFFECT, releases=APACHE_5)
    disable_netty_worker_group: bool = key(False, _NETTY, use=Use.NO_EFFECT, releases=APACHE_5)
    max_reconnect_interval_time_seconds: int = key(
        60,
        "A broken connection is made again at the next call.",
        use=Use.NO_EFFECT,
        releases=APACHE_5,
    )
    enable_reconnect_for_go_away: bool = key(
        True,
        "Whether a peer that says it goes away is called again on a new connection.",
        releases=APACHE_5,
        dynamic=True,
    )


@dataclass(frozen=True, kw_only=True)
class RemotingSettings(
    RemotingServerSettings, RemotingClientSettings, TlsSettings, LimitSettings, EncodingSettings
):
    """The sections that every server's configuration has."""

    def __post_init__(self) -> None:
        super().__post_init__()
        enforced = self.tls_server_mode is TlsMode.ENFORCING
        said = next(
            (each for each in (self.use_tls, self.tls_enable) if each is not None), enforced
        )
        object.__setattr__(self, "use_tls", said)
