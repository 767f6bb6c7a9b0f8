"""Every statistic and every metric moves when a broker does all that it can do; those that cannot
are listed, with the reason.
"""

from __future__ import annotations

import asyncio
import re

import pytest

from orbitmq.broker.observability.metrics import Metrics
from orbitmq.broker.observability.recorder import StatsRecorder
from orbitmq.broker.observability.stats import StatName
from orbitmq.broker.observability.store_stats import local_midnight_after
from orbitmq.common.clock import SystemClock
from support.broker import workload
from support.common.waiting import until

NO_POP = "pop is not served: clients pull"
STATS_THAT_STAND = {
    StatName.GROUP_ACK_NUMS: NO_POP,
    StatName.GROUP_CK_NUMS: NO_POP,
    StatName.BROKER_ACK_NUMS: NO_POP,
    StatName.BROKER_CK_NUMS: NO_POP,
}
BY_SPEED = (
    "how fast the machine is says which of the spans has any;"
    " tests/unit/broker/observability/test_store_stats.py has each"
)
BY_LOAD = (
    "nothing waits in an idle broker; tests/unit/broker/observability/test_watermarks.py has some"
    " that does"
)
AT_ONCE = "queues are written in the turn in which the log is"
METRICS_THAT_STAND = {
    **{
        f"rocketmq_{name}": NO_POP
        for name in ("pop_buffer_scan_time_consume_milliseconds", "pop_checkpoint_buffer_size")
    },
    **{
        f"rocketmq_pop_{name}": NO_POP
        for name in ("offset_buffer_size", "revive_lag_milliseconds", "revive_latency_milliseconds")
    },
    **{
        f"rocketmq_pop_revive_{name}_total": NO_POP
        for name in ("in_message", "out_message", "retry_messages")
    },
    "rocketmq_storage_dispatch_behind_bytes": AT_ONCE,
    "rocketmq_brokeruntime_dispatch_behind_bytes": AT_ONCE,
    "rocketmq_brokeruntime_dispatch_maxbuffer": AT_ONCE,
    "rocketmq_brokeruntime_commitlog_minoffset": (
        "it moves when the first file of the log is deleted, after days"
    ),
    "rocketmq_brokeruntime_pagecache_lock_time_mills": "no lock is held around a put",
}
MAY_STAND = {
    **{
        f"rocketmq_brokeruntime_pmdt_{span}": BY_SPEED
        for span in ("0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms")
    },
    **{
        f"rocketmq_brokeruntime_pmdt_{span}": BY_SPEED
        for span in ("500to1s", "1to2s", "2to3s", "3to4s", "4to5s", "5to10s", "10stomore")
    },
    "rocketmq_brokeruntime_putmessage_entire_time_max": BY_SPEED,
    "rocketmq_brokeruntime_getmessage_entire_time_max": BY_SPEED,
    "rocketmq_brokeruntime_send_threadpool_queue_size": BY_LOAD,
    "rocketmq_brokeruntime_send_threadpoolqueue_headwait_timemills": BY_LOAD,
    "rocketmq_brokeruntime_pull_threadpoolqueue_size": BY_LOAD,
    "rocketmq_brokeruntime_pull_threadpoolqueue_headwait_timemills": BY_LOAD,
    "rocketmq_brokeruntime_query_threadpoolqueue_size": BY_LOAD,
    "rocketmq_brokeruntime_query_threadpoolqueue_headwait_timemills": BY_LOAD,
    "rocketmq_processor_watermark": BY_LOAD,
    "rocketmq_storage_flush_behind_bytes": BY_SPEED,
    "rocketmq_brokeruntime_remain_howmanydata_toflush": BY_SPEED,
    "rocketmq_timer_dequeue_latency_milliseconds": BY_SPEED,
}


class Looks:
    """What was seen of a broker's figures, now and then."""

    def __init__(self, figures: StatsRecorder, metrics: Metrics) -> None:
        self._figures = figures
        self._metrics = metrics
        self._now_ms = SystemClock().now_ms()
        self.moved: set[str] = set()
        self.text = ""

    async def look(self) -> None:
        """See which metrics have a sample other than 0; of a histogram, whose values may all be 0,
        any at all.
        """
        self.text = b"".join(self._metrics.render()).decode()
        for name, value in re.findall(r"^(\w+)(?:\{.*\})? (\S+)$", self.text, re.MULTILINE):
            if float(value):
                self.moved |= {name, name.removesuffix("_count")}

    async def look_until(self, *names: str) -> None:
        """Look as long as one of these has not moved."""

        async def have_moved() -> bool:
            await self.look()
            return self.moved.issuperset(names)

        await until(have_moved, f"{names} have moved")

    def pass_seconds(self, seconds: int) -> None:
        """Have the samples of so many seconds taken."""
        for _ in range(seconds):
            self._now_ms += 1000
            self._figures.tick(self._now_ms)

    def pass_midnight(self) -> None:
        self._now_ms = local_midnight_after(self._now_ms)
        self._figures.tick(self._now_ms)

    def labels(self, metric: str, label: str) -> set[str]:
        """The values of a label of a metric."""
        return set(
            re.findall(
                rf'^rocketmq_{metric}(?:_count)?\{{.*?\b{label}="([^"]*)"', self.text, re.MULTILINE
            )
        )

    def still(self) -> list[StatName]:
        """The statistics that never moved."""
        all_of = self._figures.stats.all_of
        return [
            name
            for name in StatName
            if not any(each.value or each.times for _, each in all_of(name))
        ]


@pytest.mark.parametrize(
    "dedup_window_ms", ["0", "60000"], ids=["fast path", "general path"]
)  # which serves sends that may be duplicates
def test_every_statistic_and_every_metric_moves(dedup_window_ms: str) -> None:
    async def scenario() -> None:
        async with (
            asyncio.timeout(120),
            workload.started(fails=True, dedupWindowMs=dedup_window_ms) as work,
        ):
            assert work.broker.figures is not None
            assert work.broker.metrics is not None
            looks = Looks(work.broker.figures, work.broker.metrics)
            looks.pass_seconds(601)

            async def meanwhile() -> None:
                await looks.look_until(
                    "rocketmq_timer_enqueue_lag", "rocketmq_timer_enqueue_latency_milliseconds"
                )
                await looks.look_until(
                    "rocketmq_group_retrydiff",
                    "rocketmq_group_diff",
                    "rocketmq_consumer_lag_messages",
                )
                for seconds in (
                    2,
                    60,
                ):  # rates over ten seconds, then the put times of a minute that ended
                    looks.pass_seconds(seconds)
                    await looks.look()

            await workload.run(work, meanwhile=meanwhile)
            assert looks.still() == list(STATS_THAT_STAND)
            for _ in range(2):
                looks.pass_midnight()
                await looks.look()
            names = {metric.name for metric in work.broker.metrics.declared()}
        assert sorted(names - looks.moved - MAY_STAND.keys()) == sorted(METRICS_THAT_STAND)
        assert looks.labels("messages_in_total", "message_type") == {
            "normal",
            "fifo",
            "delay",
            "transaction",
        }
        codes = {
            "send_message_v2",
            "send_batch_message",
            "pull_message",
            "end_transaction",
            "heart_beat",
            "update_and_create_topic",
        }
        assert codes <= looks.labels("rpc_latency_milliseconds", "request_code")
        assert looks.labels("rpc_latency_milliseconds", "is_long_polling") == {"true", "false"}
        assert {"success", "oneway"} <= looks.labels("rpc_latency_milliseconds", "result")
        assert looks.labels("topic_create_execution_time_milliseconds", "invocation_status") == {
            "success",
            "failure",
        }
        assert looks.labels("timer_message_snapshot", "timer_bound_s") >= {"5", "3600", "86400"}

    asyncio.run(scenario())
