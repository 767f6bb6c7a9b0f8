"""The configuration of a broker: every key of the original's 4.9 and 5.5 releases, and ours.

Keys are declared in `settings`, a section each; here they are put together, what is not set is derived from what is, and combinations that
cannot work are refused. docs/configuration.md is made from it. Invariant: a BrokerConfig that exists can be served with.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from orbitmq.broker.settings.delay import RecallSettings
from orbitmq.broker.settings.filters import FilterSettings
from orbitmq.broker.settings.guards import GuardSettings, ReplySettings
from orbitmq.broker.settings.inert import InertBrokerSettings, InertStoreSettings, RetiredSettings
from orbitmq.broker.settings.link import LinkKeys
from orbitmq.broker.settings.serving import BrokerSettings, MetricsExporter, OwnBrokerSettings
from orbitmq.broker.settings.store import BrokerRole
from orbitmq.broker.settings.transactions import TransactionKeys
from orbitmq.broker.store_settings import StoreKeys, delay_levels_ms
from orbitmq.common.config import APACHE_5, Key, Loaded, key, load
from orbitmq.common.config.access import AccessSettings
from orbitmq.common.config.keys import Value
from orbitmq.common.config.remoting import RemotingSettings
from orbitmq.common.config.settings import SYSTEM_ERROR
from orbitmq.common.errors import ConfigurationError, RequestRefused, UnusableConfigurationError
from orbitmq.remoting.name_servers import parse_list
from orbitmq.store.retention_rules import delete_hours

MASTER_ID: Final = 0
_UPDATES: Final = "config/broker.properties"


@dataclass(frozen=True, kw_only=True)
class BrokerServerSettings(RemotingSettings):
    """Where a broker listens: other defaults than a name server's."""

    SECTION: ClassVar[str] = "nettyServerConfig"

    bind_address: str = key(
        "",
        "The address to listen on; `brokerIP1` when it is not set. The original's default is `0.0.0.0`, every interface. "
        "Where `brokerIP1` is not an address of this host (NAT, containers), it has to be set.",
        important=True,
        releases=APACHE_5,
    )
    listen_port: int = key(10911, "The port to listen on; listenPort - 2 is the fast one.", minimum=3, maximum=65534, important=True)


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(
    BrokerSettings,
    LinkKeys,
    StoreKeys,
    FilterSettings,
    RecallSettings,
    TransactionKeys,
    ReplySettings,
    BrokerServerSettings,
    OwnBrokerSettings,
    GuardSettings,
    AccessSettings,
    InertBrokerSettings,
    InertStoreSettings,
    RetiredSettings,
):
    """Everything that can be set about a broker; attributes may change by `update` while it runs."""

    SHOWN_SECTIONS: ClassVar[tuple[str, ...]] = ("brokerConfig", "messageStoreConfig", "nettyServerConfig", "nettyClientConfig")
    STORE_PATH: ClassVar[str] = "broker_config_path"
    BLACK_LIST: ClassVar[frozenset[str]] = frozenset({"brokerConfigPath", "rocketmqHome", "configBlackList"})

    NO_KEYS: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("abortFile", "storeCheckpoint", "storePathConsumeQueue", "storePathIndex"),
        "no release reads it: everything but the commit log is in storePathRootDir.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            self._check()
        except ConfigurationError as error:
            raise UnusableConfigurationError(str(error)) from None
        object.__setattr__(self, "_warnings", tuple(self._doubts()))
        derived: dict[str, Value] = {
            "broker_name": self.broker_name or socket.gethostname() or "DEFAULT_BROKER",
            "broker_id": MASTER_ID,
            "broker_ip2": self.broker_ip2 or self.broker_ip1,
            "bind_address": self.bind_address or self.broker_ip1,
            "ha_listen_port": self.ha_listen_port or self.listen_port + 1,
            "address_server": self.rmq_address_server_domain or self.address_server,
            "address_server_group": self.rmq_address_server_sub_group or self.address_server_group,
            "fast_listen_port": self.fast_listen_port or self.listen_port - 2,
            "auth_config_path": self.auth_config_path or f"{self.store_path_root_dir}/config",
            "acl_folder": self.acl_folder or f"{self.rocketmq_home or self.store_path_root_dir}/conf",
            "broker_config_path": self.broker_config_path or f"{self.store_path_root_dir}/{_UPDATES}",
        }
        for attribute, value in derived.items():
            object.__setattr__(self, attribute, value)

    @classmethod
    @functools.cache
    def all_keys(cls) -> tuple[Key, ...]:
        """As in every settings class; a key that is declared again with another default is the one that was declared last."""
        keys: dict[str, Key] = {}
        for each in super().all_keys():
            keys.setdefault(each.name, each)
        return tuple(keys.values())

    @classmethod
    def updates_path(cls, texts: Mapping[str, str]) -> str | None:
        known = cls.keys_by_name()
        root = texts.get("storePathRootDir") or known["storePathRootDir"].default
        return texts.get("brokerConfigPath") or f"{root}/{_UPDATES}"

    def black_list(self) -> frozenset[str]:
        return self.BLACK_LIST | set(self.config_black_list.split(";"))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What can be served with, and is perhaps not what was meant."""
        warnings: tuple[str, ...] = self._warnings  # type: ignore[attr-defined]
        return warnings

    def _check(self) -> None:
        """ConfigurationError for what cannot work, alone or together."""
        if self.broker_role is BrokerRole.SLAVE:
            raise ConfigurationError(
                "brokerRole=SLAVE is refused: this broker cannot follow a master yet; "
                "run it as ASYNC_MASTER with a brokerName of its own, or use a slave of Apache RocketMQ for its master"
            )
        if self.broker_role is BrokerRole.SYNC_MASTER:
            raise ConfigurationError(
                "brokerRole=SYNC_MASTER is refused: there are no slaves yet that a send could wait for; "
                "set brokerRole=ASYNC_MASTER, and flushDiskType=SYNC_FLUSH if sends should wait for the disk"
            )
        if self.metrics_exporter_type in (MetricsExporter.OTLP_GRPC, MetricsExporter.LOG):
            raise ConfigurationError(
                f"metricsExporterType={self.metrics_exporter_type.value} is refused: metrics are exported to Prometheus only; "
                "set PROM, and have a collector fetch them, or DISABLE"
            )
        self.check_access()
        if self.dedup_window_ms and not (self.message_index_enable and self.index_file_write_enable):
            raise ConfigurationError(
                f"dedupWindowMs={self.dedup_window_ms} needs the index, by which it is known how transactions ended: "
                "leave messageIndexEnable and indexFileWriteEnable at true, or dedupWindowMs at 0"
            )
        if self.acl_enable and self.authentication_enabled:
            raise ConfigurationError("aclEnable and authenticationEnabled cannot both be true: have accounts, as 4.9, or users, as 5.x")
        if not self.broker_ip1:
            raise ConfigurationError("brokerIP1= cannot be used: name the address that clients connect to, such as 127.0.0.1")
        for attribute, reads in _TEXTS.items():
            reads(str(getattr(self, attribute) or ""))

    def _doubts(self) -> list[str]:
        doubts = []
        if self.broker_id != MASTER_ID:
            doubts.append(f"brokerId={self.broker_id} is taken for 0: a broker with brokerRole={self.broker_role.value} is a master")
        if self.bind_address and _is_loopback(self.broker_ip1) and not _is_loopback(self.bind_address):
            doubts.append(
                f"the broker listens on {self.bind_address} and tells clients to connect to brokerIP1={self.broker_ip1}, which is "
                "their own host: set brokerIP1 to an address of this host that they reach"
            )
        if not _is_loopback(self.bind_address or self.broker_ip1) and not (self.acl_enable or self.authentication_enabled):
            doubts.append(
                f"the broker listens on {self.bind_address or self.broker_ip1} and has no access control: whoever reaches that address "
                "can send, read and delete; keep it behind a firewall, or set bindAddress=127.0.0.1"
            )
        return doubts

    def _checked(self, properties_text: str) -> dict[Key, Value]:
        """As for every configuration; texts that have a form are read before they are taken."""
        changes = super()._checked(properties_text)
        for each, value in changes.items():
            if (reads := _TEXTS.get(each.attribute)) is not None:
                try:
                    reads(str(value or ""))
                except ConfigurationError as error:
                    raise RequestRefused(SYSTEM_ERROR, f"{error}. Nothing was changed.") from None
        return changes


def load_broker(
    *, file: str | None = None, environment: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None
) -> Loaded[BrokerConfig]:
    """The configuration of a broker from its layers, with everything that its author should know."""
    loaded = load(BrokerConfig, file=file, environment=environment, flags=flags)
    return Loaded(loaded.settings, (*loaded.warnings, *loaded.settings.warnings))


def _name_servers(text: str) -> None:
    try:
        parse_list(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"namesrvAddr={text} cannot be used: {error}") from None


_TEXTS: Final[Mapping[str, Callable[[str], object]]] = {
    "namesrv_addr": _name_servers,
    "delete_when": delete_hours,
    "message_delay_level": delay_levels_ms,
}


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name: whether others reach it is not known before it is looked up
        return host == "localhost"
