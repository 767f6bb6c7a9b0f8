"""Keys of replication: roles, copies, and the connection between a master and its slaves."""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from orbitmq.common.config import APACHE_5, OWN, Long, Settings, Use, key

_ELECTED = "There is no controller yet: the master is the broker with `brokerId` 0. Omit the key."


class BrokerRole(Enum):
    """The replication role of a broker."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, kw_only=True)
class ReplicationSettings(Settings):
    """Keys of Apache's `MessageStoreConfig`."""

    SECTION: ClassVar[str] = "messageStoreConfig"

    broker_role: BrokerRole = key(
        BrokerRole.ASYNC_MASTER,
        "`ASYNC_MASTER` acknowledges a message when it has it, `SYNC_MASTER` when slaves have it"
        " too (`inSyncReplicas`); `SLAVE` copies the log of the master with the same `brokerName`.",
        important=True,
    )
    in_sync_replicas: int = key(
        1,
        "Copies of a message, the master's included, that `SYNC_MASTER` waits for. At 1 it waits"
        " for one slave, and confirms with `SLAVE_NOT_AVAILABLE` if none is in sync, as 4.9 does.",
        minimum=1,
        maximum=64,
        dynamic=True,
        releases=APACHE_5,
        important=True,
    )
    min_in_sync_replicas: int = key(
        1,
        "`SYNC_MASTER` refuses messages while fewer copies than this, its own included, are in"
        " sync.",
        minimum=1,
        maximum=64,
        dynamic=True,
        releases=APACHE_5,
    )
    enable_auto_in_sync_replicas: bool = key(
        False,
        "Whether `SYNC_MASTER` waits for fewer copies than `inSyncReplicas` while fewer are in"
        " sync, down to `minInSyncReplicas`.",
        dynamic=True,
        releases=APACHE_5,
    )
    all_ack_in_sync_state_set: bool = key(False, _ELECTED, use=Use.REFUSED, releases=APACHE_5)
    slave_timeout: int = key(
        3000,
        "How long a message waits for slaves before its send is answered with"
        " `FLUSH_SLAVE_TIMEOUT`, ms.",
        minimum=1,
        dynamic=True,
    )
    ha_listen_port: int = key(
        0,
        "Port where slaves connect; `listenPort` + 1 if not set.",
        minimum=0,
        maximum=65535,
    )
    ha_master_address: str | None = key(
        None,
        "HA address (`host:port`) of the master; if not set, a slave learns it from name servers.",
    )
    ha_send_heartbeat_interval: int = key(
        5000,
        "Maximum time between two messages on an idle HA connection, ms.",
        minimum=1,
        dynamic=True,
    )
    ha_housekeeping_interval: int = key(
        20_000, "An HA connection that is silent for longer is closed, ms.", minimum=1, dynamic=True
    )
    ha_transfer_batch_size: int = key(
        32 << 10,
        "Maximum number of log bytes in one message to a slave.",
        minimum=1,
        maximum=(4 << 20) - 12,
        dynamic=True,
    )
    ha_max_gap_not_in_sync: Long = key(
        256 << 20,
        "A slave that is further behind than this is not in sync, bytes. `haSlaveFallbehindMax` in"
        " 4.9.",
        minimum=1,
        dynamic=True,
        releases=APACHE_5,
    )
    ha_flow_control_enable: bool = key(
        False,
        "Whether `maxHaTransferByteInSecond` limits what a slave is sent.",
        dynamic=True,
        releases=APACHE_5,
    )
    max_ha_transfer_byte_in_second: Long = key(
        100 << 20,
        "Maximum number of log bytes per slave and second; see `haFlowControlEnable`.",
        minimum=1024,
        dynamic=True,
        releases=APACHE_5,
    )
    sync_from_last_file: bool = key(
        False,
        "Whether a slave with an empty log gets the last file only, as classic slaves of Apache"
        " do, instead of the whole log.",
        dynamic=True,
        releases=APACHE_5,
    )


@dataclass(frozen=True, kw_only=True)
class OwnReplicationSettings(Settings):
    """Keys that Apache does not have."""

    SECTION: ClassVar[str] = "orbitmq"

    ha_peers: str = key(
        "",
        "Hosts, separated by `,`, that may connect to the HA port besides the members of the group"
        " that name servers know. `*` allows every host.",
        releases=OWN,
    )
    ha_use_tls: bool = key(
        True,
        "Whether a slave connects to its master by TLS if its other connections use TLS"
        " (`useTLS`). Apache's masters need false.",
        releases=OWN,
    )


@dataclass(frozen=True, kw_only=True)
class RetiredReplicationSettings(Settings):
    """Keys that only 4.9 has."""

    SECTION: ClassVar[str] = "4.9"

    ha_slave_fallbehind_max: Long = key(
        256 << 20, "The name of `haMaxGapNotInSync` in 4.9.", minimum=1, releases="4.9"
    )
