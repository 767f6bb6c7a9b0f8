"""The gauges of Apache's rocketmq-exporter, served by the broker itself for dashboards and alerts
built on them.

Same names and labels; the values are those of this broker alone, and exact where the exporter
rounds. Left out are metrics that the exporter requests from clients (`rocketmq_client_*`) or slaves
(`rocketmq_broker_commitlog_diff`), and those that it declares but never fills.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from orbitmq.broker.observability.metric_sources import ConsumerClient, Identity, Lag, Sources
from orbitmq.broker.observability.metric_text import (
    Family,
    GaugeTable,
    Row,
    View,
    gauge_table,
    tally,
    view,
)
from orbitmq.broker.observability.stats import MINUTE, StatName
from orbitmq.common.topic_names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from orbitmq.protocol.versions import CURRENT_VERSION

_RETRY_AND_DEAD_LETTER: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
_CLUSTERING: Final = "1"

# From the metric, without `rocketmq_brokeruntime_`, to the entry of the runtime info.
_PLAIN: Final = {
    "msg_put_total_today_now": "msgPutTotalTodayNow",
    "msg_gettotal_today_now": "msgGetTotalTodayNow",
    "msg_puttotal_todaymorning": "msgPutTotalTodayMorning",
    "msg_gettotal_todaymorning": "msgGetTotalTodayMorning",
    "msg_puttotal_yesterdaymorning": "msgPutTotalYesterdayMorning",
    "msg_gettotal_yesterdaymorning": "msgGetTotalYesterdayMorning",
    "dispatch_behind_bytes": "dispatchBehindBytes",
    "dispatch_maxbuffer": "dispatchMaxBuffer",
    "put_message_size_total": "putMessageSizeTotal",
    "put_message_average_size": "putMessageAverageSize",
    "putmessage_times_total": "putMessageTimesTotal",
    "putmessage_entire_time_max": "putMessageEntireTimeMax",
    "getmessage_entire_time_max": "getMessageEntireTimeMax",
    "put_latency_99": "putLatency99",
    "put_latency_999": "putLatency999",
    "remain_transientstore_buffer_numbs": "remainTransientStoreBufferNumbs",
    "earliest_message_timestamp": "earliestMessageTimeStamp",
    "start_accept_sendrequest_time": "startAcceptSendRequestTimeStamp",
    "pagecache_lock_time_mills": "pageCacheLockTimeMills",
    "commitlog_disk_ratio": "commitLogDiskRatio",
    "consumequeue_disk_ratio": "consumeQueueDiskRatio",
    "commitlog_maxoffset": "commitLogMaxOffset",
    "commitlog_minoffset": "commitLogMinOffset",
    "send_threadpool_queue_size": "sendThreadPoolQueueSize",
    "pull_threadpoolqueue_size": "pullThreadPoolQueueSize",
    "query_threadpoolqueue_size": "queryThreadPoolQueueSize",
    "send_threadpoolqueue_capacity": "sendThreadPoolQueueCapacity",
    "pull_threadpoolqueue_capacity": "pullThreadPoolQueueCapacity",
    "query_threadpool_queue_capacity": "queryThreadPoolQueueCapacity",
    "send_threadpoolqueue_headwait_timemills": "sendThreadPoolQueueHeadWaitTimeMills",
    "pull_threadpoolqueue_headwait_timemills": "pullThreadPoolQueueHeadWaitTimeMills",
    "query_threadpoolqueue_headwait_timemills": "queryThreadPoolQueueHeadWaitTimeMills",
}
# Each entry has three rates, over 10, 60 and 600 seconds, and a metric for each.
_RATES: Final = {
    "put_tps": "putTps",
    "getfound_tps": "getFoundTps",
    "getmiss_tps": "getMissTps",
    "gettotal_tps": "getTotalTps",
    "gettransfered_tps": "getTransferredTps",
}
_RATE_SECONDS: Final = ("10", "60", "600")
# From the metric to the entry, and the position of the size in its text.
_SIZES: Final = {
    "commitlogdir_capacity_total": ("commitLogDirCapacity", 0),
    "commitlogdir_capacity_free": ("commitLogDirCapacity", 1),
    "remain_howmanydata_toflush": ("remainHowManyDataToFlush", 0),
}
_SPANS: Final = (
    *("0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms", "500to1s"),
    *("1to2s", "2to3s", "3to4s", "4to5s", "5to10s", "10stomore"),
)
_SIZE: Final = re.compile(r"([\d.]+) ([KMGTPE]?)i?B")
_SPAN_COUNT: Final = re.compile(r"\]:(\d+)")


def exporter_families(identity: Identity, sources: Sources) -> list[Family]:
    """Return all families but the lags."""
    broker = {"cluster": identity.cluster, "broker": identity.broker_name}
    broker_and_address = {**broker, "brokerIP": identity.address}
    stats = sources.stats

    def put_rates() -> Iterator[Row]:
        for topic, counter in stats.all_of(StatName.TOPIC_PUT_NUMS):
            if not topic.startswith(_RETRY_AND_DEAD_LETTER):
                yield (
                    (topic,),
                    (counter.window(MINUTE).tps, stats.tps(StatName.TOPIC_PUT_SIZE, topic)),
                )

    def get_rates() -> Iterator[Row]:
        for key, counter in stats.all_of(StatName.GROUP_GET_NUMS):
            topic, _, group = key.partition("@")
            if not topic.startswith(_RETRY_AND_DEAD_LETTER):
                sent_back = stats.view(StatName.SNDBCK_PUT_NUMS, key)
                yield (
                    (topic, group),
                    (
                        counter.window(MINUTE).tps,
                        stats.tps(StatName.GROUP_GET_SIZE, key),
                        None if sent_back is None else sent_back.minute.sum,
                    ),
                )

    def broker_rates() -> Iterator[Row]:
        names = StatName.BROKER_PUT_NUMS, StatName.BROKER_GET_NUMS
        yield (), [stats.tps(name, identity.cluster) for name in names]

    def end_offsets(prefix: str) -> Callable[[tuple[str, int]], Row | None]:
        def row(item: tuple[str, int]) -> Row | None:
            topic, offset = item
            is_internal = topic.startswith(_RETRY_AND_DEAD_LETTER)
            return (
                ((topic.removeprefix(DEAD_LETTER_PREFIX),), (offset,))
                if is_internal == bool(prefix) and topic.startswith(prefix)
                else None
            )

        return row

    def producers() -> Iterator[Row | None]:
        return tally((client.group,) for client in sources.producers())

    def consumers() -> Iterator[Row | None]:
        groups: dict[str, list[ConsumerClient]] = {}
        for client in sources.consumers():
            groups.setdefault(client.group, []).append(client)
            yield None
        for group, clients in groups.items():
            addresses = ",".join([client.address for client in clients])
            yield (
                (addresses, ",".join([client.client_id for client in clients]), group),
                (len(clients),),
            )

    topic_group = "topic", "group"
    return [
        gauge_table(
            put_rates,
            ("topic",),
            broker,
            ("producer_tps", "Messages put per second"),
            ("producer_message_size", "Bytes put per second"),
        ),
        gauge_table(
            get_rates,
            topic_group,
            broker,
            ("consumer_tps", "Messages got per second"),
            ("consumer_message_size", "Bytes got per second"),
            ("send_back_nums", "Messages sent back in the last minute"),
        ),
        gauge_table(
            broker_rates,
            (),
            broker_and_address,
            ("broker_tps", "Messages put per second"),
            ("broker_qps", "Messages got per second"),
        ),
        GaugeTable(
            sources.topic_offsets,
            view(
                end_offsets(""),
                ("topic",),
                broker,
                ("producer_offset", "End offsets of a topic, summed over its queues"),
            ),
            view(
                end_offsets(RETRY_PREFIX),
                ("topic",),
                broker,
                ("topic_retry_offset", "End offsets of a retry topic"),
            ),
            view(
                end_offsets(DEAD_LETTER_PREFIX),
                ("group",),
                broker,
                ("topic_dlq_offset", "End offsets of a group's dead-letter topic"),
            ),
        ),
        gauge_table(producers, ("group",), broker, ("producer_count", "Producers of a group")),
        gauge_table(
            consumers, ("caddr", "localaddr", "group"), {}, ("group_count", "Consumers of a group")
        ),
        _runtime_table(identity, sources),
    ]


def exporter_lag_views(identity: Identity) -> tuple[View[Lag], View[Lag]]:
    """Return the views of lags, for the table in `metrics` that reads them."""

    def diff(lag: Lag) -> Row | None:
        if not lag.is_clustering or lag.is_retry:
            return None
        is_retry = lag.topic.startswith(RETRY_PREFIX)
        return (lag.group, lag.topic, str(lag.online), _CLUSTERING), (
            None if is_retry else lag.lag,
            lag.lag if is_retry else None,
        )

    def progress(lag: Lag) -> Row | None:
        return (
            None
            if lag.is_retry
            else (
                (lag.topic, lag.group),
                (lag.consumer_offset, lag.lag_ms if lag.is_clustering else None),
            )
        )

    return (
        view(
            diff,
            ("group", "topic", "countOfOnlineConsumers", "msgModel"),
            {},
            ("group_diff", "Messages that a group has not consumed"),
            ("group_retrydiff", "Messages to retry that a group has not consumed"),
        ),
        view(
            progress,
            ("topic", "group"),
            {"cluster": identity.cluster, "broker": identity.broker_name},
            ("consumer_offset", "Offsets of a group, summed over the queues"),
            (
                "group_get_latency_by_storetime",
                "How long the first message that was not consumed has waited, in milliseconds",
            ),
        ),
    )


def _runtime_table(identity: Identity, sources: Sources) -> Family:
    """Return gauges for the numeric entries of GET_BROKER_RUNTIME_INFO."""
    names = [
        *_PLAIN,
        *(f"{name}{seconds}" for name in _RATES for seconds in _RATE_SECONDS),
        *_SIZES,
        *(f"pmdt_{span}" for span in _SPANS),
    ]
    entries = [
        *_PLAIN.values(),
        *(entry for entry in _RATES.values() for _ in _RATE_SECONDS),
        *(entry for entry, _ in _SIZES.values()),
    ]
    entries += ["putMessageDistributeTime"] * len(_SPANS)

    def rows() -> Iterator[Row]:
        info = sources.runtime_info()
        yield (
            (info.get("brokerVersionDesc", ""), info.get("bootTimestamp", "")),
            _runtime_numbers(info),
        )

    return gauge_table(
        rows,
        ("des", "boottime"),
        {
            "cluster": identity.cluster,
            "brokerIP": identity.address,
            "brokerHost": "",
            "broker_version": str(CURRENT_VERSION),
        },
        *(
            (f"brokeruntime_{name}", f"{entry} of the runtime info")
            for name, entry in zip(names, entries, strict=True)
        ),
    )


def _runtime_numbers(info: Mapping[str, str]) -> list[float | None]:
    """Return the numbers in the order of the metrics, None for missing entries."""
    numbers = [_number(info.get(entry, "")) for entry in _PLAIN.values()]
    for entry in _RATES.values():
        rates = info.get(entry, "").split(" ")
        numbers += [
            _number(rates[at]) if at < len(rates) else None for at in range(len(_RATE_SECONDS))
        ]
    for entry, at in _SIZES.values():
        sizes = _SIZE.findall(info.get(entry, ""))
        numbers.append(
            float(sizes[at][0]) * 1024 ** ("KMGTPE".index(sizes[at][1]) + 1 if sizes[at][1] else 0)
            if at < len(sizes)
            else None
        )
    counts = [int(count) for count in _SPAN_COUNT.findall(info.get("putMessageDistributeTime", ""))]
    return numbers + ([*counts] if len(counts) == len(_SPANS) else [None] * len(_SPANS))


def _number(text: str) -> float | None:
    return float(text) if text else None
