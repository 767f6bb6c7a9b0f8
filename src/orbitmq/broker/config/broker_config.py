"""The configuration of a broker: every key of Apache's 4.9 and 5.5 releases, and ours.

The modules of this package declare the keys, a section each; this one combines them, derives values
that are not set, and refuses combinations that cannot work. docs/configuration.md is generated from
it. Invariant: a BrokerConfig that exists is usable.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from orbitmq.broker.config.delay_keys import RecallSettings
from orbitmq.broker.config.filter_keys import FilterSettings
from orbitmq.broker.config.guard_keys import GuardSettings, ReplySettings
from orbitmq.broker.config.nameserver_keys import LinkKeys
from orbitmq.broker.config.replication_keys import (
    BrokerRole,
    OwnReplicationSettings,
    RetiredReplicationSettings,
)
from orbitmq.broker.config.server_keys import BrokerSettings, OwnBrokerSettings
from orbitmq.broker.config.store_config import StoreKeys, delay_levels_ms
from orbitmq.broker.config.transaction_keys import TransactionKeys
from orbitmq.broker.config.unsupported_keys import (
    InertBrokerSettings,
    InertStoreSettings,
    RetiredSettings,
)
from orbitmq.common.config import APACHE_5, Key, Loaded, key, load
from orbitmq.common.config.access import AccessSettings
from orbitmq.common.config.keys import Value, expanded
from orbitmq.common.config.remoting import RemotingSettings
from orbitmq.common.config.settings import SYSTEM_ERROR
from orbitmq.common.errors import ConfigurationError, RequestRefusedError
from orbitmq.remoting.name_servers import parse_list
from orbitmq.store.retention_rules import delete_hours

MASTER_ID: Final = 0
_UPDATES: Final = "config/broker.properties"
_GAP: Final = 256 << 20  # the default of haMaxGapNotInSync, and of its name in 4.9


@dataclass(frozen=True, kw_only=True)
class BrokerServerSettings(RemotingSettings):
    """Listen address and port of a broker; the defaults differ from a name server's."""

    SECTION: ClassVar[str] = "nettyServerConfig"

    bind_address: str = key(
        "",
        "Listen address; `brokerIP1` if not set. Apache's default is `0.0.0.0`, all interfaces."
        " Must be set if `brokerIP1` is not an address of this host (NAT, containers).",
        important=True,
        releases=APACHE_5,
    )
    listen_port: int = key(
        10911,
        "Listen port; the fast port is `listenPort` - 2.",
        minimum=3,
        maximum=65534,
        important=True,
    )


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
    OwnReplicationSettings,
    RetiredReplicationSettings,
    GuardSettings,
    AccessSettings,
    InertBrokerSettings,
    InertStoreSettings,
    RetiredSettings,
):
    """All settings of a broker; attributes may change by `update` while it runs."""

    SHOWN_SECTIONS: ClassVar[tuple[str, ...]] = (
        "brokerConfig",
        "messageStoreConfig",
        "nettyServerConfig",
        "nettyClientConfig",
    )
    STORE_PATH: ClassVar[str] = "broker_config_path"
    BLACK_LIST: ClassVar[frozenset[str]] = frozenset(
        {"brokerConfigPath", "rocketmqHome", "configBlackList"}
    )

    NO_KEYS: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("abortFile", "storeCheckpoint", "storePathConsumeQueue", "storePathIndex"),
        "no release reads it: everything but the commit log is in storePathRootDir.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_warnings", tuple(self._doubts()))
        derived: dict[str, Value] = {
            "broker_name": self.broker_name or socket.gethostname() or "DEFAULT_BROKER",
            "broker_id": self.broker_id if self.is_slave else MASTER_ID,
            "ha_max_gap_not_in_sync": (
                self.ha_slave_fallbehind_max
                if self.ha_max_gap_not_in_sync == _GAP
                else self.ha_max_gap_not_in_sync
            ),
            "broker_ip2": self.broker_ip2 or self.broker_ip1,
            "bind_address": self.bind_address or self.broker_ip1,
            "ha_listen_port": self.ha_listen_port or self.listen_port + 1,
            "address_server": self.rmq_address_server_domain or self.address_server,
            "address_server_group": self.rmq_address_server_sub_group or self.address_server_group,
            "fast_listen_port": self.fast_listen_port or self.listen_port - 2,
            "auth_config_path": self.auth_config_path or f"{self.store_path_root_dir}/config",
            "acl_folder": (
                self.acl_folder or f"{self.rocketmq_home or self.store_path_root_dir}/conf"
            ),
            "broker_config_path": (
                self.broker_config_path or f"{self.store_path_root_dir}/{_UPDATES}"
            ),
        }
        for attribute, value in derived.items():
            object.__setattr__(self, attribute, value)

    @classmethod
    @functools.cache
    def all_keys(cls) -> tuple[Key, ...]:
        """Return the keys as every settings class does; if a key is declared twice, the later
        declaration, with its default, wins.
        """
        keys: dict[str, Key] = {}
        for each in super().all_keys():
            keys.setdefault(each.name, each)
        return tuple(keys.values())

    @classmethod
    def updates_path(cls, texts: Mapping[str, str]) -> str | None:
        known = cls.keys_by_name()
        root = texts.get("storePathRootDir") or known["storePathRootDir"].default
        return expanded(texts.get("brokerConfigPath") or f"{root}/{_UPDATES}")

    def black_list(self) -> frozenset[str]:
        return self.BLACK_LIST | set(self.config_black_list.split(";"))

    @property
    def is_slave(self) -> bool:
        """Whether this broker follows a master."""
        return self.broker_role is BrokerRole.SLAVE

    @property
    def warnings(self) -> tuple[str, ...]:
        """Settings that are usable but perhaps not intended."""
        warnings: tuple[str, ...] = self._warnings  # type: ignore[attr-defined]
        return warnings

    def _problems(self) -> Iterator[tuple[str, str]]:
        yield from super()._problems()
        if self.dedup_window_ms and not (
            self.message_index_enable and self.index_file_write_enable
        ):
            yield (
                "dedupWindowMs",
                f"dedupWindowMs={self.dedup_window_ms} needs the index, which shows how"
                " transactions ended: leave messageIndexEnable and indexFileWriteEnable at true,"
                " or dedupWindowMs at 0",
            )
        if self.acl_enable and self.authentication_enabled:
            yield (
                "aclEnable",
                "aclEnable and authenticationEnabled cannot both be true: use the accounts of 4.9"
                " or the users of 5.x",
            )
        if self.is_slave and self.broker_id <= MASTER_ID:
            yield (
                "brokerId",
                "Slave's brokerId must be > 0: give each slave of the group its own brokerId, such"
                " as 1",
            )
        if not self.broker_ip1:
            yield (
                "brokerIP1",
                "brokerIP1= cannot be used: set the address that clients connect to, such as"
                " 127.0.0.1",
            )
        for name, reads in _TEXTS.items():
            try:
                reads(str(getattr(self, self.keys_by_name()[name].attribute) or ""))
            except ConfigurationError as error:
                yield name, str(error)

    def _doubts(self) -> list[str]:
        doubts = []
        if self.broker_id != MASTER_ID and not self.is_slave:
            doubts.append(
                f"brokerId={self.broker_id} is ignored, 0 is used: a broker with"
                f" brokerRole={self.broker_role.value} is a master"
            )
        if (
            self.bind_address
            and _is_loopback(self.broker_ip1)
            and not _is_loopback(self.bind_address)
        ):
            doubts.append(
                f"the broker listens on {self.bind_address} and advertises"
                f" brokerIP1={self.broker_ip1}, which is the clients' own host: set brokerIP1 to"
                " an address of this host that clients can reach"
            )
        if not _is_loopback(self.bind_address or self.broker_ip1) and not (
            self.acl_enable or self.authentication_enabled
        ):
            doubts.append(
                f"the broker listens on {self.bind_address or self.broker_ip1} without access"
                " control: anyone who reaches that address can send, read and delete; put it behind"
                " a firewall, or set bindAddress=127.0.0.1"
            )
        return doubts

    def _checked(self, properties_text: str) -> dict[Key, Value]:
        """Check changes as every configuration does, and parse texts that have a format."""
        changes = super()._checked(properties_text)
        for each, value in changes.items():
            if (reads := _TEXTS.get(each.name)) is not None:
                try:
                    reads(str(value or ""))
                except ConfigurationError as error:
                    raise RequestRefusedError(
                        SYSTEM_ERROR, f"{error}. Nothing was changed."
                    ) from None
        return changes


def load_broker(
    *,
    file: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Loaded[BrokerConfig]:
    """Load the configuration of a broker from its layers, with all warnings."""
    loaded = load(BrokerConfig, file=file, environment=environment, flags=flags)
    return Loaded(loaded.settings, (*loaded.warnings, *loaded.settings.warnings))


def _name_servers(text: str) -> None:
    try:
        parse_list(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"namesrvAddr={text} cannot be used: {error}") from None


_TEXTS: Final[Mapping[str, Callable[[str], object]]] = {
    "namesrvAddr": _name_servers,
    "deleteWhen": delete_hours,
    "messageDelayLevel": delay_levels_ms,
}


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, not resolved yet: others may reach it
        return host == "localhost"
