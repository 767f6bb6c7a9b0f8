"""The configuration of a name server: every key of the original's 4.9 and 5.5 releases, and ours.

One line per key; docs/configuration.md is made from it.
"""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orbitmq.common.config import APACHE_5, OWN, Long, Settings, Use, key
from orbitmq.common.config.access import AccessSettings
from orbitmq.common.config.remoting import RemotingSettings

_THREADS = "One event loop serves all requests: there are no such threads."


@dataclass(frozen=True, kw_only=True)
class NameServerSettings(Settings):
    """What a name server does."""

    SECTION: ClassVar[str] = "namesrvConfig"

    rocketmq_home: str | None = key(
        None, "Log files go to `logs` in it. The original refuses to start without it.", original_env="ROCKETMQ_HOME"
    )
    kv_config_path: str = key("~/namesrv/kvConfig.json", "Where the KV configuration is kept.", important=True, in_home=True)
    config_store_path: str = key(
        "~/namesrv/namesrv.properties",
        "Where run-time updates are kept; the `-c` file, when there is one, takes its place.",
        in_home=True,
    )
    product_env_name: str = key("center", "The environment that `clusterTest` asks.")
    cluster_test: bool = key(
        False, "Whether topics that are not known here are looked up in `productEnvName`, whose name servers an address server tells."
    )
    order_message_enable: bool = key(False, "Whether routes carry the order configuration of their topic.", dynamic=True)
    return_order_topic_config_to_broker: bool = key(
        True, "Whether a registering broker is told which topics are ordered.", dynamic=True, releases=APACHE_5
    )
    client_request_thread_pool_nums: int = key(8, _THREADS, use=Use.NO_EFFECT, releases=APACHE_5)
    default_thread_pool_nums: int = key(16, _THREADS, use=Use.NO_EFFECT, releases=APACHE_5)
    client_request_thread_pool_queue_capacity: int = key(
        50000, "`maxRequestsInFlight` bounds what is in work.", use=Use.NO_EFFECT, releases=APACHE_5
    )
    default_thread_pool_queue_capacity: int = key(
        10000, "`maxRequestsInFlight` bounds what is in work.", use=Use.NO_EFFECT, releases=APACHE_5
    )
    scan_not_active_broker_interval: Long = key(
        5000, "How often brokers that fell silent are looked for, ms.", minimum=1, releases=APACHE_5
    )
    un_register_broker_queue_capacity: int = key(
        3000, "A broker is unregistered at once: there is no queue.", use=Use.NO_EFFECT, releases=APACHE_5
    )
    support_acting_master: bool = key(
        False, "Whether the slave with the smallest id stands in routes for a master that is gone.", dynamic=True, releases=APACHE_5
    )
    enable_all_topic_list: bool = key(True, "Whether the list of all topics is given out.", dynamic=True, releases=APACHE_5)
    enable_topic_list: bool = key(True, "Whether the topics of a cluster are given out.", dynamic=True, releases=APACHE_5)
    notify_min_broker_id_changed: bool = key(
        False, "Whether brokers are told when the smallest id of their group changes.", dynamic=True, releases=APACHE_5
    )
    enable_controller_in_namesrv: bool = key(
        False, "There is no controller in this process: masters are elected elsewhere.", use=Use.REFUSED, releases=APACHE_5
    )
    need_wait_for_service: bool = key(
        False,
        "Whether routes are withheld until `waitSecondsForService` after the start, so that brokers can register first.",
        dynamic=True,
        releases=APACHE_5,
    )
    wait_seconds_for_service: int = key(45, "See `needWaitForService`.", minimum=0, dynamic=True, releases=APACHE_5)
    delete_topic_with_broker_registration: bool = key(
        False, "Whether a registration deletes the topics of that broker which it does not list.", dynamic=True, releases=APACHE_5
    )
    config_black_list: str = key(
        "configBlackList;configStorePath;kvConfigPath",
        "Further keys, separated by `;`, that no run-time update may touch.",
        releases=APACHE_5,
    )


@dataclass(frozen=True, kw_only=True)
class AddressServerSettings(Settings):
    """Where the name servers of another environment are asked for; JVM properties of the original."""

    SECTION: ClassVar[str] = "orbitmq"

    address_server: str = key(
        "jmenv.tbsite.net",
        "Host, or host:port, of the address server that `clusterTest` asks.",
        name="rocketmq.namesrv.domain",
        releases=OWN,
    )
    address_server_group: str = key("nsaddr", "The group asked for there.", name="rocketmq.namesrv.domain.subgroup", releases=OWN)


@dataclass(frozen=True, kw_only=True)
class NameServerAccessSettings(AccessSettings):
    """Who may ask a name server, by the keys of the original's brokers; its name server lets everybody."""

    cluster_name: str = key("DefaultCluster", "The cluster that rules name which are about the name server as a whole.", releases=OWN)


@dataclass(frozen=True, kw_only=True)
class NameServerConfig(NameServerSettings, RemotingSettings, AddressServerSettings, NameServerAccessSettings):
    """Everything that can be set about a name server; attributes may change by `update` while it runs."""

    SHOWN_SECTIONS: ClassVar[tuple[str, ...]] = ("namesrvConfig", "nettyServerConfig")
    STORE_PATH: ClassVar[str] = "config_store_path"
    BLACK_LIST: ClassVar[frozenset[str]] = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_access()

    def black_list(self) -> frozenset[str]:
        return self.BLACK_LIST | set(self.config_black_list.split(";"))
