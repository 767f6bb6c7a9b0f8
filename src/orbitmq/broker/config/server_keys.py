"""Keys of the broker itself: names, topics, groups, clients, replies and metrics."""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from orbitmq.common.config import APACHE_5, OWN, Long, Settings, Use, key


class MetricsExporter(Enum):
    """The exporter of metrics."""

    DISABLE = "DISABLE"
    OTLP_GRPC = "OTLP_GRPC"
    PROM = "PROM"
    LOG = "LOG"


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(Settings):
    """Keys of Apache's `BrokerConfig`."""

    SECTION: ClassVar[str] = "brokerConfig"

    rocketmq_home: str | None = key(
        None,
        "Log files go to `logs` in it. Apache refuses to start without it.",
        original_env="ROCKETMQ_HOME",
        is_path=True,
    )
    broker_name: str = key(
        "",
        "The broker's name in routes; the host name if not set.",
        important=True,
    )
    broker_cluster_name: str = key("DefaultCluster", "The cluster it belongs to.", important=True)
    broker_id: Long = key(
        0,
        "0 = master, which ignores the key, as in Apache; a slave needs one of its own above 0.",
        minimum=0,
        important=True,
    )
    broker_ip1: str = key(
        "127.0.0.1",
        "The address or host name advertised to clients. Apache uses the host's first address; here"
        " it must be set.",
        name="brokerIP1",
        important=True,
    )
    broker_ip2: str = key(
        "",
        "The address or host name advertised to slaves; `brokerIP1` if not set.",
        name="brokerIP2",
    )
    region_id: str = key("DefaultRegion", "The region in replies to sends.", dynamic=True)
    trace_on: bool = key(
        True,
        "Whether replies to sends ask the client for message traces.",
        dynamic=True,
    )
    start_accept_send_request_time_stamp: Long = key(
        0, "Sends are refused before this time, ms since 1970.", minimum=0, dynamic=True
    )

    default_topic_queue_nums: int = key(
        8,
        "Number of queues of a topic that is created by a send.",
        minimum=1,
        maximum=65536,
        dynamic=True,
    )
    auto_create_topic_enable: bool = key(
        True,
        "Whether a send to a topic that does not exist creates it.",
        dynamic=True,
        important=True,
    )
    cluster_topic_enable: bool = key(
        True, "Whether clients may send to the topic named like the cluster."
    )
    broker_topic_enable: bool = key(
        True, "Whether clients may send to the topic named like the broker."
    )
    trace_topic_enable: bool = key(
        False, "Whether the topic of message traces is created at start.", important=True
    )
    msg_trace_topic_name: str = key(
        "RMQ_SYS_TRACE_TOPIC", "Name of the topic of message traces.", important=True
    )
    validate_system_topic_when_update_topic: bool = key(
        True,
        "Whether the broker's own topics are protected from updates.",
        dynamic=True,
        releases=APACHE_5,
    )
    enable_mixed_message_type: bool = key(
        False, "Whether a topic may have the message type MIXED.", dynamic=True, releases=APACHE_5
    )
    clear_retry_topic_when_delete_topic: bool = key(
        True, "Whether deleting a topic deletes its retry topics.", dynamic=True, releases=APACHE_5
    )
    revive_queue_num: int = key(
        8,
        "Number of queues of the topic of pop check points.",
        minimum=1,
        maximum=1024,
        releases=APACHE_5,
    )
    split_metadata_size: int = key(
        2000,
        "Maximum number of topics in one reply that lists topics.",
        minimum=1,
        releases=APACHE_5,
        dynamic=True,
    )

    auto_create_subscription_group: bool = key(
        True,
        "Whether a consumer of a group that does not exist creates it.",
        dynamic=True,
        important=True,
    )
    enable_create_sys_group: bool = key(
        True,
        "Whether consumers may create system groups even if `autoCreateSubscriptionGroup` is off.",
        dynamic=True,
        releases=APACHE_5,
    )
    auto_delete_unused_stats: bool = key(
        True,
        "Whether deleting a topic or group deletes its statistics. false in 4.9.",
        dynamic=True,
    )
    use_server_side_reset_offset: bool = key(
        True,
        "Whether the broker resets offsets itself, and consumers learn of it when they pull.",
        dynamic=True,
        releases=APACHE_5,
    )
    consumer_offset_update_version_step: Long = key(
        500,
        "Commits per new version of the offsets.",
        minimum=1,
        releases=APACHE_5,
        dynamic=True,
    )

    notify_consumer_ids_changed_enable: bool = key(
        True,
        "Whether consumers are notified at once when members of their group join or leave.",
        dynamic=True,
    )
    reject_pull_consumer_enable: bool = key(
        False, "Whether pull consumers are refused.", dynamic=True, releases=APACHE_5
    )
    long_polling_enable: bool = key(
        True, "Whether a pull that finds nothing is held until a message arrives.", dynamic=True
    )
    short_polling_time_mills: Long = key(
        1000, "How long a pull is held if `longPollingEnable` is off, ms.", minimum=0, dynamic=True
    )
    lite_pull_message_enable: bool = key(
        True, "Whether lite pull consumers are served.", dynamic=True, releases=APACHE_5
    )
    flush_consumer_offset_interval: int = key(
        5000,
        "Interval of saves of consumerOffset.json, ms; later commits are in a journal beside it.",
        minimum=100,
        dynamic=True,
    )
    disable_consume_if_consumer_read_slowly: bool = key(
        False,
        "Whether a group that exceeds `consumerFallbehindThreshold` is disabled (`consumeEnable`"
        " becomes false).",
        dynamic=True,
    )
    consumer_fallbehind_threshold: Long = key(
        16 << 30,
        "Maximum lag of a consuming group in bytes of the log, checked every 3 minutes; see"
        " `disableConsumeIfConsumerReadSlowly`.",
        minimum=0,
        dynamic=True,
    )
    slave_read_enable: bool = key(
        False, "Whether consumers that lag are redirected to a slave.", dynamic=True
    )

    broker_fast_failure_enable: bool = key(
        True,
        "Whether sends that were queued for too long are refused, by `waitTimeMillsInSendQueue` and"
        " `osPageCacheBusyTimeOutMills`: see broker.md.",
        dynamic=True,
    )
    wait_time_mills_in_send_queue: Long = key(
        200,
        "Sends are refused if the loop lags by more than this twice in a row, ms.",
        minimum=1,
        dynamic=True,
    )
    send_thread_pool_queue_capacity: int = key(
        10_000,
        "Maximum number of messages waiting for the disk (`SYNC_FLUSH`); more are refused.",
        minimum=1,
        dynamic=True,
    )
    admin_broker_thread_pool_queue_capacity: int = key(
        10_000,
        "Maximum number of queued requests that call clients or use the disk.",
        minimum=1,
        dynamic=True,
        releases=APACHE_5,
    )
    wait_time_mills_in_admin_broker_queue: Long = key(
        5000,
        "Maximum time that such a request is queued, ms.",
        minimum=1,
        dynamic=True,
        releases=APACHE_5,
    )

    metrics_exporter_type: MetricsExporter = key(
        MetricsExporter.DISABLE,
        "`PROM` serves metrics to Prometheus over HTTP; `OTLP_GRPC` and `LOG` are refused.",
        releases=APACHE_5,
        refused=dict.fromkeys(
            (MetricsExporter.OTLP_GRPC, MetricsExporter.LOG),
            "metrics are exported to Prometheus only; set PROM and scrape them with a collector, or"
            " DISABLE",
        ),
    )
    metrics_prom_exporter_port: int = key(
        5557, "Port of the Prometheus exporter.", minimum=0, maximum=65535, releases=APACHE_5
    )
    metrics_prom_exporter_host: str = key(
        "",
        "Listen address of the Prometheus exporter; `bindAddress` if not set. Apache then uses all"
        " interfaces.",
        releases=APACHE_5,
    )
    metrics_label: str = key(
        "", "Labels added to every metric, as `name:value,name:value`.", releases=APACHE_5
    )

    config_black_list: str = key(
        "configBlackList;brokerConfigPath",
        "Further keys, separated by `;`, that run-time updates must not change.",
        releases=APACHE_5,
    )
    acl_enable: bool = key(
        False, "Whether the accounts of `plain_acl.yml` authorize requests: see access-control.md."
    )
    enable_controller_mode: bool = key(
        False,
        "There is no controller to elect a master.",
        use=Use.REFUSED,
        releases=APACHE_5,
    )
    message_store_plug_in: str = key(
        "",
        "Store plug-ins: names of entry points, separated by commas, outermost first. See"
        " plugins.md.",
    )
    config_manager_version: str = key(
        "v1",
        "Topics, groups and offsets are JSON files: RocksDB is not supported.",
        use=Use.REFUSED,
        releases=APACHE_5,
    )


@dataclass(frozen=True, kw_only=True)
class OwnBrokerSettings(Settings):
    """Keys that Apache does not have, or does not show."""

    SECTION: ClassVar[str] = "orbitmq"

    broker_config_path: str = key(
        "",
        "File of run-time updates: the `-c` file or, without one, `config/broker.properties` in the"
        " store.",
        releases=APACHE_5,
        is_path=True,
    )
    fast_listen_port: int = key(
        0,
        "Port for sends and administration only; 0 = `listenPort` - 2, as in Apache.",
        minimum=0,
        maximum=65535,
        releases=OWN,
    )
    acl_folder: str = key(
        "",
        "Directory of `plain_acl.yml` and of `acl` with further files; if not set, `conf` in"
        " `rocketmqHome` or else in the store.",
        releases=OWN,
        is_path=True,
    )
