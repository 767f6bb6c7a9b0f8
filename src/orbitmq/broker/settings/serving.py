"""The keys of what a broker is and how it serves: its names, topics, groups, clients, answers and metrics."""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from orbitmq.common.config import APACHE_5, OWN, Long, Settings, Use, key


class MetricsExporter(Enum):
    """How metrics leave the broker."""

    DISABLE = "DISABLE"
    OTLP_GRPC = "OTLP_GRPC"
    PROM = "PROM"
    LOG = "LOG"


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(Settings):
    """What a broker is, and does."""

    SECTION: ClassVar[str] = "brokerConfig"

    rocketmq_home: str | None = key(
        None, "Log files go to `logs` in it. The original refuses to start without it.", original_env="ROCKETMQ_HOME"
    )
    broker_name: str = key("", "The name that routes and clients know it by; the host's name when it is not set.", important=True)
    broker_cluster_name: str = key("DefaultCluster", "The cluster it belongs to.", important=True)
    broker_id: Long = key(0, "0 = master. A master that says otherwise is taken for 0, as in the original.", minimum=0, important=True)
    broker_ip1: str = key(
        "127.0.0.1",
        "The address, or name, that clients are told to connect to. The original takes the host's first address: here it has to be said.",
        name="brokerIP1",
        important=True,
    )
    broker_ip2: str = key("", "There is no replication yet: slaves are told no address.", name="brokerIP2", use=Use.NO_EFFECT)
    region_id: str = key("DefaultRegion", "What the answer to a send says of where the message lies.", dynamic=True)
    trace_on: bool = key(True, "What the answer to a send says of whether the client should send traces.", dynamic=True)
    start_accept_send_request_time_stamp: Long = key(0, "Sends are refused before this time, ms since 1970.", minimum=0, dynamic=True)

    default_topic_queue_nums: int = key(
        8, "How many queues a topic gets that is created by a send.", minimum=1, maximum=65536, dynamic=True
    )
    auto_create_topic_enable: bool = key(True, "Whether a send to a topic that is not there creates it.", dynamic=True, important=True)
    cluster_topic_enable: bool = key(True, "Whether there is a topic with the cluster's name that may be sent to.")
    broker_topic_enable: bool = key(True, "Whether there is a topic with the broker's name that may be sent to.")
    trace_topic_enable: bool = key(False, "Whether the broker has a topic for clients' traces from the start.", important=True)
    msg_trace_topic_name: str = key("RMQ_SYS_TRACE_TOPIC", "The name of that topic.", important=True)
    validate_system_topic_when_update_topic: bool = key(
        True, "Whether the broker's own topics are protected from updates.", dynamic=True, releases=APACHE_5
    )
    enable_mixed_message_type: bool = key(False, "Whether a topic may be of the message type MIXED.", dynamic=True, releases=APACHE_5)
    clear_retry_topic_when_delete_topic: bool = key(
        True, "Whether the retry topics of a topic go with it.", dynamic=True, releases=APACHE_5
    )
    revive_queue_num: int = key(8, "How many queues the topic of pop check points has.", minimum=1, maximum=1024, releases=APACHE_5)
    split_metadata_size: int = key(
        2000, "How many topics one answer with all topics brings at most.", minimum=1, releases=APACHE_5, dynamic=True
    )

    auto_create_subscription_group: bool = key(
        True, "Whether a consumer of a group that is not there creates it.", dynamic=True, important=True
    )
    enable_create_sys_group: bool = key(
        True,
        "Whether consumers of system groups may create them while `autoCreateSubscriptionGroup` is off.",
        dynamic=True,
        releases=APACHE_5,
    )
    auto_delete_unused_stats: bool = key(True, "Whether the figures of a topic or group go with it. false in 4.9.", dynamic=True)
    use_server_side_reset_offset: bool = key(
        True, "Whether a reset of offsets is done here, and consumers hear of it as they pull.", dynamic=True, releases=APACHE_5
    )
    consumer_offset_update_version_step: Long = key(
        500, "The version of the offsets grows with every so many commits.", minimum=1, releases=APACHE_5, dynamic=True
    )

    notify_consumer_ids_changed_enable: bool = key(
        True, "Whether consumers are told at once when others of their group come and go.", dynamic=True
    )
    reject_pull_consumer_enable: bool = key(False, "Whether pull consumers are turned away.", dynamic=True, releases=APACHE_5)
    long_polling_enable: bool = key(True, "Whether a pull that finds nothing waits for a message.", dynamic=True)
    short_polling_time_mills: Long = key(1000, "How long it waits when `longPollingEnable` is off, ms.", minimum=0, dynamic=True)
    lite_pull_message_enable: bool = key(True, "Whether lite pull consumers are served.", dynamic=True, releases=APACHE_5)
    flush_consumer_offset_interval: int = key(
        5000, "How often consumerOffset.json is written, ms; what was committed since is in a journal beside it.", minimum=100, dynamic=True
    )
    disable_consume_if_consumer_read_slowly: bool = key(
        False, "Whether a group that reads too far behind, by the key below, may read no more: `consumeEnable` becomes false.", dynamic=True
    )
    consumer_fallbehind_threshold: Long = key(
        16 << 30,
        "How many bytes of the log a group may be behind, while it reads, before that; looked at every 3 minutes.",
        minimum=0,
        dynamic=True,
    )
    slave_read_enable: bool = key(False, "Whether consumers that fell behind are sent to a slave.", dynamic=True)

    broker_fast_failure_enable: bool = key(
        True,
        "Whether sends that waited too long are refused, by `waitTimeMillsInSendQueue` and `osPageCacheBusyTimeOutMills`: see broker.md.",
        dynamic=True,
    )
    wait_time_mills_in_send_queue: Long = key(
        200, "Sends are refused when the broker is later than this twice in a row, ms.", minimum=1, dynamic=True
    )
    send_thread_pool_queue_capacity: int = key(
        10_000, "With `SYNC_FLUSH`: how many messages may wait for the disk before sends are refused.", minimum=1, dynamic=True
    )
    admin_broker_thread_pool_queue_capacity: int = key(
        10_000, "How many requests that ask others, or the disk, may wait for their turn.", minimum=1, dynamic=True, releases=APACHE_5
    )
    wait_time_mills_in_admin_broker_queue: Long = key(5000, "How long they may, ms.", minimum=1, dynamic=True, releases=APACHE_5)

    metrics_exporter_type: MetricsExporter = key(
        MetricsExporter.DISABLE, "`PROM` serves metrics to Prometheus over HTTP; `OTLP_GRPC` and `LOG` are refused.", releases=APACHE_5
    )
    metrics_prom_exporter_port: int = key(5557, "The port of that.", minimum=0, maximum=65535, releases=APACHE_5)
    metrics_prom_exporter_host: str = key(
        "", "The address that it listens on; `bindAddress` when it is not set. The original then takes every interface.", releases=APACHE_5
    )
    metrics_label: str = key("", "Labels that every metric gets, as `name:value,name:value`.", releases=APACHE_5)

    config_black_list: str = key(
        "configBlackList;brokerConfigPath",
        "Further keys, separated by `;`, that no run-time update may touch.",
        releases=APACHE_5,
    )
    acl_enable: bool = key(False, "Whether the accounts of `plain_acl.yml` say who may do what: see access-control.md.")
    enable_controller_mode: bool = key(
        False, "There is no controller that could elect a master among replicas.", use=Use.REFUSED, releases=APACHE_5
    )
    message_store_plug_in: str = key(
        "", "Plug-ins around the store: names of entry points, separated by commas, the outermost first. See plugins.md."
    )
    config_manager_version: str = key(
        "v1", "Topics, groups and offsets are kept as JSON files: there is no RocksDB here.", use=Use.REFUSED, releases=APACHE_5
    )


@dataclass(frozen=True, kw_only=True)
class OwnBrokerSettings(Settings):
    """What the original has no key for, or does not show."""

    SECTION: ClassVar[str] = "orbitmq"

    broker_config_path: str = key(
        "", "Where run-time updates are kept: the `-c` file or, without one, `config/broker.properties` in the store.", releases=APACHE_5
    )
    fast_listen_port: int = key(
        0,
        "The port that only sends and administration use; 0 = `listenPort` - 2, as in the original.",
        minimum=0,
        maximum=65535,
        releases=OWN,
    )
    acl_folder: str = key(
        "",
        "Where `plain_acl.yml`, and `acl` with further files, are; `conf` in `rocketmqHome` when it is not set, in the store without that.",
        releases=OWN,
    )
