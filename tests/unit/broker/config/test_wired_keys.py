"""Keys that a part of the broker is handed as a value of its own: with all of them set, each part
has what its key says.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from orbitmq.broker.config.guard_keys import SubscriptionConflict
from orbitmq.broker.consume.slow_consumers import SlowConsumers
from orbitmq.broker.metadata.bloom import Bloom
from orbitmq.broker.wiring.request_layer import RequestLayer
from support.broker.running import broker
from support.remoting.peers import run

# Key → (its text, where the value is in a broker that runs, the value).
WIRED: Final[dict[str, tuple[str, Callable[[RequestLayer], Any], Any]]] = {
    "brokerClusterName": (
        "elsewhere",
        lambda serving: serving._components.metadata.topics.rules.cluster_name,
        "elsewhere",
    ),
    "brokerIP2": (
        "127.0.0.9",
        lambda serving: serving._components.identity.ha_address.partition(":")[0],
        "127.0.0.9",
    ),
    "haPeers": (
        "10.0.0.1, 10.0.0.2",
        lambda serving: serving._components.replication.members._configured,
        ["10.0.0.1", "10.0.0.2"],
    ),
    "haSendHeartbeatInterval": (
        "4001",
        lambda serving: serving._components.replication.feed.limits().heartbeat_interval_ms,
        4001,
    ),
    "haHousekeepingInterval": (
        "4002",
        lambda serving: serving._components.replication.feed.limits().silence_ms_max,
        4002,
    ),
    "haTransferBatchSize": (
        "4003",
        lambda serving: serving._components.replication.feed.limits().body_size_max,
        4003,
    ),
    "haFlowControlEnable": (
        "true",
        lambda serving: (
            serving._components.replication.feed.limits().bytes_per_second_max is not None
        ),
        True,
    ),
    "maxHaTransferByteInSecond": (
        "4005",
        lambda serving: serving._components.replication.feed.limits().bytes_per_second_max,
        4005,
    ),
    "syncFromLastFile": (
        "true",
        lambda serving: serving._components.replication.feed.limits().from_last_file,
        True,
    ),
    "autoCreateTopicEnable": (
        "false",
        lambda serving: serving._components.metadata.topics.rules.auto_create,
        False,
    ),
    "defaultTopicQueueNums": (
        "3",
        lambda serving: serving._components.metadata.topics.rules.default_queue_count,
        3,
    ),
    "clusterTopicEnable": (
        "false",
        lambda serving: serving._components.metadata.topics.rules.cluster_topic_enable,
        False,
    ),
    "brokerTopicEnable": (
        "false",
        lambda serving: serving._components.metadata.topics.rules.broker_topic_enable,
        False,
    ),
    "traceTopicEnable": (
        "true",
        lambda serving: serving._components.metadata.topics.rules.trace_topic_enable,
        True,
    ),
    "msgTraceTopicName": (
        "traces",
        lambda serving: serving._components.metadata.topics.rules.trace_topic_name,
        "traces",
    ),
    "reviveQueueNum": (
        "5",
        lambda serving: serving._components.metadata.topics.rules.revive_queue_count,
        5,
    ),
    "timerWheelEnable": (
        "false",
        lambda serving: serving._components.metadata.topics.rules.timer_wheel_enable,
        False,
    ),
    "validateSystemTopicWhenUpdateTopic": (
        "false",
        lambda serving: serving._components.metadata.topics.rules.protect_system_topics,
        False,
    ),
    "enableMixedMessageType": (
        "true",
        lambda serving: serving._components.metadata.topics.rules.mixed_message_type_enable,
        True,
    ),
    "autoCreateSubscriptionGroup": (
        "false",
        lambda serving: serving._components.metadata.groups.rules.auto_create,
        False,
    ),
    "enableCreateSysGroup": (
        "false",
        lambda serving: serving._components.metadata.groups.rules.system_groups_enable,
        False,
    ),
    "useServerSideResetOffset": (
        "false",
        lambda serving: serving._components.metadata.offsets.server_side_reset,
        False,
    ),
    "consumerOffsetUpdateVersionStep": (
        "7",
        lambda serving: serving._components.metadata.offsets.version_step,
        7,
    ),
    "delayOffsetUpdateVersionStep": (
        "8",
        lambda serving: serving._components.delay.levels.progress.version_step,
        8,
    ),
    "filterDataCleanTimeSpan": (
        "9",
        lambda serving: serving._components.metadata.filters.clean_ms,
        9,
    ),
    "expectConsumerNumUseFilter": (
        "10",
        lambda serving: serving._components.metadata.filters.bloom,
        Bloom.of(11, 10),
    ),
    "maxErrorRateOfBloomFilter": (
        "11",
        lambda serving: serving._components.metadata.filters.bloom,
        Bloom.of(11, 10),
    ),
    "longPollingEnable": (
        "false",
        lambda serving: serving._components.pulls.pending.config.long_polling,
        False,
    ),
    "shortPollingTimeMills": (
        "12",
        lambda serving: serving._components.pulls.pending.config.short_polling_ms,
        12,
    ),
    "notifyConsumerIdsChangedEnable": (
        "false",
        lambda serving: serving._components.membership.rules.notify_consumer_ids_changed,
        False,
    ),
    "rejectPullConsumerEnable": (
        "true",
        lambda serving: serving._components.membership.rules.reject_pull_consumers,
        True,
    ),
    "enablePropertyFilter": (
        "true",
        lambda serving: serving._components.membership.rules.enable_property_filter,
        True,
    ),
    "subscriptionConflict": (
        "refuse",
        lambda serving: serving._components.membership.rules.subscription_conflict,
        SubscriptionConflict.REFUSE,
    ),
    "adminBrokerThreadPoolQueueCapacity": (
        "13",
        lambda serving: serving._lane.limits.queue_max,
        13,
    ),
    "waitTimeMillsInAdminBrokerQueue": ("14", lambda serving: serving._lane.limits.wait_ms_max, 14),
    "replyThreadPoolQueueCapacity": (
        "15",
        lambda serving: serving._reply_lane.limits.queue_max,
        15,
    ),
    "maxRequestsInFlight": ("16", lambda serving: serving.dispatcher._requests_in_flight_max, 16),
    "maxRequestBytesInFlight": (
        "16777217",
        lambda serving: serving.dispatcher._bytes_in_flight_max,
        16_777_217,
    ),
    "dedupWindowMs": (
        "17",
        lambda serving: getattr(serving._components.window, "window_ms", None),
        17,
    ),
    "dedupWindowKeysMax": (
        "18",
        lambda serving: getattr(serving._components.window, "keys_max", None),
        18,
    ),
}


def test_each_part_has_what_its_key_says(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(
            tmp_path, **{name: text for name, (text, _, _) in WIRED.items()}
        ) as running:
            serving = running.broker._requests
            assert serving is not None
            assert {name: read(serving) for name, (_, read, _) in WIRED.items()} == {
                name: value for name, (_, _, value) in WIRED.items()
            }

    run(scenario)


def test_no_part_has_that_by_default(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            serving = running.broker._requests
            assert serving is not None
            assert [
                name for name, (_, read, value) in WIRED.items() if read(serving) == value
            ] == []

    run(scenario)


def test_parts_that_look_at_the_configuration_look_at_the_one_of_their_broker(
    tmp_path: Path,
) -> None:
    """Their own tests hand them settings; here it is seen that a broker hands them its own, as a
    whole.
    """

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            serving = running.broker._requests
            assert serving is not None
            components = serving._components
            others = {type(each).__name__: each for each in serving._administrative()}
            chores: list[Any] = [task.work for task in serving.upkeep._periodic]
            (slow_consumers,) = [
                work.__self__
                for work in chores
                if type(getattr(work, "__self__", None)) is SlowConsumers
            ]
            looking: list[Any] = [
                components.sends.settings,
                components.pulls.settings,
                components.pulls.filters._settings,
                components.store.dispatcher._filter_bits.__self__._settings,  # type: ignore[union-attr]
                others["QueryProcessor"]._settings,  # type: ignore[attr-defined]
                others["TopicProcessor"]._settings,  # type: ignore[attr-defined]
                slow_consumers._settings,
                components.admission._settings,
                components.delay_rewriter._settings,
                components.replication.quorum._settings,
            ]
            assert all(each is components.config for each in looking)

    run(scenario)
