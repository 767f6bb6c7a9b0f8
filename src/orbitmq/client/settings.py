"""How a client reaches a cluster, and the name it has there."""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from orbitmq.client.credentials import Credentials
from orbitmq.client.namespace import Namespace
from orbitmq.client.setting_checks import at_least
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
    """What every client can be told. Without `name_servers` the variable NAMESRV_ADDR counts, then `address_server`."""

    name_servers: str | Sequence[str] = ""
    address_server: str = ""  # an http address that tells the name servers, asked again every two minutes
    namespace: str = ""  # stands before the names of topics and groups at the brokers
    credentials: Credentials | None = None  # sign every request
    instance_name: str = ""  # one of its own for each client when it is not set
    unit_name: str = ""
    vip_channel: bool = False  # to the fast port of brokers, two below
    timeout_ms: int = 3_000  # of whatever has no timeout of its own
    route_refresh_ms: int = 30_000
    heartbeat_ms: int = 30_000
    tls: ClientTls = field(default_factory=ClientTls)
    remoting: ClientConfig | None = None  # limits of connections

    def __post_init__(self) -> None:
        at_least(1, self, "timeout_ms", "route_refresh_ms", "heartbeat_ms")
        self.remoting_config()

    def known_name_servers(self) -> list[str]:
        """The name servers that are given; none when they have to be asked for."""
        given = self.name_servers or os.environ.get(NAME_SERVERS_VARIABLE, "")
        return parse_list(given if isinstance(given, str) else ";".join(given))

    @property
    def names(self) -> Namespace:
        return Namespace(self.namespace)

    def remoting_config(self) -> ClientConfig:
        """Limits and TLS of connections; TLS may be set here or there."""
        given = self.remoting or ClientConfig(serialize_type=_serialize_type())
        if self.tls == given.tls or self.tls == ClientTls():
            return given
        if given.tls != ClientTls():
            raise ConfigurationError("ClientSettings: tls and remoting.tls are both set, and differ; set tls only")
        return replace(given, tls=self.tls)

    def client_id(self) -> str:
        """How brokers know this client; two of one id are taken for one.

        In containers many have one address and one process id. The time keeps members in the order in which they came, so that most
        queues stay where they are when one joins.
        """
        return self._id(self.instance_name or f"{os.getpid()}#{time.time_ns()}#{next(_INSTANCES)}")

    def lasting_id(self) -> str:
        """The id under which this machine keeps what has to be there after a restart."""
        return self._id(self.instance_name or "DEFAULT")

    def _id(self, instance: str) -> str:
        parts = [_own_address(), instance]
        return "@".join([*parts, self.unit_name] if self.unit_name else parts)


def _serialize_type() -> SerializeType:
    """The encoding of headers that the environment names, as for clients of the original."""
    named = os.environ.get(SERIALIZE_TYPE_VARIABLE, "") or SerializeType.JSON.name
    try:
        return SerializeType[named]
    except KeyError:
        raise ConfigurationError(f"{SERIALIZE_TYPE_VARIABLE}={named} cannot be used: allowed is one of JSON, ROCKETMQ") from None


def _own_address() -> str:
    """The address that this machine has in its network; no packet is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
