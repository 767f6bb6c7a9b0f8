"""The configuration of a name server: every key of Apache's 4.9 and 5.5 releases, and ours.

One entry per key; docs/configuration.md is generated from it.
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
    """Settings of the name server."""

    SECTION: ClassVar[str] = "namesrvConfig"

    rocketmq_home: str | None = key(
        None,
        "Log files go to `logs` in it. Apache refuses to start without it.",
        original_env="ROCKETMQ_HOME",
        is_path=True,
    )
    kv_config_path: str = key(
        "~/namesrv/kvConfig.json",
        "File of the KV configuration.",
        important=True,
        in_home=True,
    )
    config_store_path: str = key(
        "~/namesrv/namesrv.properties",
        "File of run-time updates; the `-c` file, if given, is used instead.",
        in_home=True,
    )
    product_env_name: str = key("center", "The environment that `clusterTest` queries.")
    cluster_test: bool = key(
        False,
        "Whether unknown topics are looked up in `productEnvName`, whose name servers are found"
        " through an address server.",
    )
    order_message_enable: bool = key(
        False, "Whether routes include the order configuration of their topic.", dynamic=True
    )
    return_order_topic_config_to_broker: bool = key(
        True,
        "Whether the reply to a registration includes the order configuration of topics.",
        dynamic=True,
        releases=APACHE_5,
    )
    client_request_thread_pool_nums: int = key(8, _THREADS, use=Use.NO_EFFECT, releases=APACHE_5)
    default_thread_pool_nums: int = key(16, _THREADS, use=Use.NO_EFFECT, releases=APACHE_5)
    client_request_thread_pool_queue_capacity: int = key(
        50000,
        "`maxRequestsInFlight` limits requests in flight.",
        use=Use.NO_EFFECT,
        releases=APACHE_5,
    )
    default_thread_pool_queue_capacity: int = key(
        10000,
        "`maxRequestsInFlight` limits requests in flight.",
        use=Use.NO_EFFECT,
        releases=APACHE_5,
    )
    scan_not_active_broker_interval: Long = key(
        5000, "Interval of the scan for expired brokers, ms.", minimum=1, releases=APACHE_5
    )
    un_register_broker_queue_capacity: int = key(
        3000,
        "A broker is unregistered at once: there is no queue.",
        use=Use.NO_EFFECT,
        releases=APACHE_5,
    )
    support_acting_master: bool = key(
        False,
        "Whether routes present the slave with the lowest id as master if there is none.",
        dynamic=True,
        releases=APACHE_5,
    )
    enable_all_topic_list: bool = key(
        True, "Whether the list of all topics is available.", dynamic=True, releases=APACHE_5
    )
    enable_topic_list: bool = key(
        True, "Whether the topics of a cluster are available.", dynamic=True, releases=APACHE_5
    )
    notify_min_broker_id_changed: bool = key(
        False,
        "Whether brokers are notified when the lowest id of their group changes.",
        dynamic=True,
        releases=APACHE_5,
    )
    enable_controller_in_namesrv: bool = key(
        False,
        "There is no controller in this process: masters are elected elsewhere.",
        use=Use.REFUSED,
        releases=APACHE_5,
    )
    need_wait_for_service: bool = key(
        False,
        "Whether routes are withheld until `waitSecondsForService` after the start, so that brokers"
        " can register first.",
        dynamic=True,
        releases=APACHE_5,
    )
    wait_seconds_for_service: int = key(
        45, "See `needWaitForService`.", minimum=0, dynamic=True, releases=APACHE_5
    )
    delete_topic_with_broker_registration: bool = key(
        False,
        "Whether a registration deletes the broker's topics that it does not list.",
        dynamic=True,
        releases=APACHE_5,
    )
    config_black_list: str = key(
        "configBlackList;configStorePath;kvConfigPath",
        "Further keys, separated by `;`, that run-time updates must not change.",
        releases=APACHE_5,
    )


@dataclass(frozen=True, kw_only=True)
class NameServerAddressServerSettings(Settings):
    """The address server of another environment; JVM properties of Apache's name server."""

    SECTION: ClassVar[str] = "orbitmq"

    address_server: str = key(
        "jmenv.tbsite.net",
        "Host, or host:port, of the address server that `clusterTest` queries.",
        name="rocketmq.namesrv.domain",
        releases=OWN,
    )
    address_server_group: str = key(
        "nsaddr",
        "The group requested there.",
        name="rocketmq.namesrv.domain.subgroup",
        releases=OWN,
    )


@dataclass(frozen=True, kw_only=True)
class NameServerAccessSettings(AccessSettings):
    """Access control of the name server, by the keys of Apache's brokers; its name server
    has none.
    """

    cluster_name: str = key(
        "DefaultCluster",
        "The cluster that rules about the name server as a whole name.",
        releases=OWN,
    )


@dataclass(frozen=True, kw_only=True)
class NameServerConfig(
    NameServerSettings, RemotingSettings, NameServerAddressServerSettings, NameServerAccessSettings
):
    """All settings of a name server; attributes may change by `update` while it runs."""

    SHOWN_SECTIONS: ClassVar[tuple[str, ...]] = ("namesrvConfig", "nettyServerConfig")
    STORE_PATH: ClassVar[str] = "config_store_path"
    BLACK_LIST: ClassVar[frozenset[str]] = frozenset(
        {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
    )

    def black_list(self) -> frozenset[str]:
        return self.BLACK_LIST | set(self.config_black_list.split(";"))
