"""Client settings: how to reach a cluster, and the client's identity there."""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from orbitmq.access.credentials import Credentials
from orbitmq.client.checks import require_at_least
from orbitmq.client.namespace import Namespace
from orbitmq.common.errors import ConfigurationError
from orbitmq.protocol.command import SerializeType
from orbitmq.remoting.client import ClientConfig
from orbitmq.remoting.name_servers import parse_list
from orbitmq.remoting.tls import ClientTls

NAME_SERVERS_VARIABLE: Final = "NAMESRV_ADDR"
SERIALIZE_TYPE_VARIABLE: Final = "ROCKETMQ_SERIALIZE_TYPE"
_INSTANCES = itertools.count()  # clients of this process


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings of every client. If `name_servers` is empty, NAMESRV_ADDR is used, then
    `address_server`.
    """

    name_servers: str | Sequence[str] = ""
    # HTTP URL that returns the name servers, polled every two minutes
    address_server: str = ""
    namespace: str = ""  # prefix of topic and group names at the brokers
    credentials: Credentials | None = None  # sign every request
    instance_name: str = ""  # default: unique for each client
    unit_name: str = ""
    vip_channel: bool = False  # use the brokers' fast port, two below the main one
    timeout_ms: int = 3_000  # default timeout of a request
    route_refresh_ms: int = 30_000
    heartbeat_ms: int = 30_000
    tls: ClientTls = field(default_factory=ClientTls)
    remoting: ClientConfig | None = None  # connection limits

    def __post_init__(self) -> None:
        require_at_least(1, self, "timeout_ms", "route_refresh_ms", "heartbeat_ms")
        self.remoting_config()

    def known_name_servers(self) -> list[str]:
        """Return the configured name servers; none if the address server must be asked."""
        given = self.name_servers or os.environ.get(NAME_SERVERS_VARIABLE, "")
        return parse_list(given if isinstance(given, str) else ";".join(given))

    @property
    def names(self) -> Namespace:
        """The namespace of topic and group names."""
        return Namespace(self.namespace)

    def remoting_config(self) -> ClientConfig:
        """Return connection limits and TLS; TLS may be set in either place."""
        given = self.remoting or ClientConfig(serialize_type=_serialize_type())
        if self.tls == given.tls or self.tls == ClientTls():
            return given
        if given.tls != ClientTls():
            raise ConfigurationError(
                "ClientSettings: tls and remoting.tls are both set and differ: set only tls"
            )
        return replace(given, tls=self.tls)

    def client_id(self) -> str:
        """Return a new client id; brokers treat two clients with the same id as one.

        Containers may share an address and a process id. The time orders members by age, so that
        most queues keep their owner when a member joins.
        """
        return self._id(self.instance_name or f"{os.getpid()}#{time.time_ns()}#{next(_INSTANCES)}")

    def stable_id(self) -> str:
        """Return the id under which this machine stores what must survive a restart."""
        return self._id(self.instance_name or "DEFAULT")

    def _id(self, instance: str) -> str:
        parts = [_own_address(), instance]
        return "@".join([*parts, self.unit_name] if self.unit_name else parts)


def _serialize_type() -> SerializeType:
    """Return the header encoding named by the environment, as Java clients do."""
    named = os.environ.get(SERIALIZE_TYPE_VARIABLE, "") or SerializeType.JSON.name
    try:
        return SerializeType[named]
    except KeyError:
        raise ConfigurationError(
            f"{SERIALIZE_TYPE_VARIABLE}={named} is not supported: use JSON or ROCKETMQ"
        ) from None


def _own_address() -> str:
    """Return this machine's address in its network; sends no packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
