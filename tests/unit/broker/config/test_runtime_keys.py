"""Which keys a run-time update may change: those that the original applies and that have an effect
here, and no others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.common import properties
from orbitmq.common.config import OWN, Settings, Use
from orbitmq.nameserver.config import NameServerConfig

TESTS: Final = Path(__file__).parents[2]

# What the original would set, too, and an update may not touch.
PATHS: Final = {
    "rocketmqHome",
    "storePathRootDir",
    "storePathCommitLog",
    "readOnlyCommitLogStorePaths",
    "kvConfigPath",
    "configStorePath",
}
ADDRESSES: Final = {
    "brokerIP1",
    "brokerIP2",
    "haListenPort",
    "haMasterAddress",
    "bindAddress",
    "listenPort",
    "metricsPromExporterPort",
    "metricsPromExporterHost",
}
IDENTITY: Final = {"brokerName", "brokerClusterName", "brokerId", "brokerRole"}
CODE_AND_ACCESS: Final = {"messageStorePlugIn", "aclEnable", "configBlackList"}
# What the original sets and looks at when it starts only, so that an update has no effect there
# before the next start.
AT_START: Final = {
    *(
        "clusterTopicEnable",
        "brokerTopicEnable",
        "traceTopicEnable",
        "msgTraceTopicName",
        "reviveQueueNum",
    ),
    *("fetchNamesrvAddrByAddressServer", "metricsExporterType", "metricsLabel"),
    *(
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "mappedFileSizeConsumeQueueExt",
        "mapperFileSizeBatchConsumeQueue",
    ),
    *(
        "enableConsumeQueueExt",
        "maxHashSlotNum",
        "maxIndexNum",
        "flushDiskType",
        "enabledAppendPropCRC",
        "forceVerifyPropCRC",
    ),
    *(
        "messageDelayLevel",
        "timerWheelEnable",
        "timerPrecisionMs",
        "timerRollWindowSlot",
        "mappedFileSizeTimerLog",
    ),
    *("expectConsumerNumUseFilter", "maxErrorRateOfBloomFilter"),
    *(
        "serverSocketSndBufSize",
        "serverSocketRcvBufSize",
        "writeBufferHighWaterMark",
        "serverSocketBacklog",
    ),
    *("clientAsyncSemaphoreValue", "useTLS"),
    *("productEnvName", "clusterTest", "scanNotActiveBrokerInterval"),
}
# What the original turns on and off as it runs: here an index that was not there at the start would
# lack what was stored meanwhile.
AT_START_HERE: Final = {"messageIndexEnable", "indexFileWriteEnable"}
FIXED: Final = PATHS | ADDRESSES | IDENTITY | CODE_AND_ACCESS | AT_START | AT_START_HERE


def original(path: str) -> set[str]:
    """The keys that a server of 5.5.0 shows, which are those that an update of its configuration
    sets.
    """
    return {entry.key for entry in properties.parse((TESTS / path).read_text())}


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (BrokerConfig, "broker/config/original/broker-config-5.5.0.properties"),
        (NameServerConfig, "common/original/namesrv-config-5.5.0.properties"),
    ],
)
def test_an_update_may_change_what_the_original_applies_but_for_paths_addresses_and_access(
    kind: type[Settings], shown: str
) -> None:
    known = kind.keys_by_name()
    applied = {name for name in original(shown) if known[name].declared.use is Use.USED}
    dynamic = {key.name for key in kind.all_keys() if key.declared.dynamic}
    assert applied - dynamic == applied & FIXED
    assert not dynamic & FIXED
    beyond = {name for name in dynamic - applied if known[name].declared.releases != OWN}
    assert all(
        known[name].section == "nettyClientConfig" or known[name].default is None for name in beyond
    ), beyond


def test_what_may_not_be_changed_are_keys_that_there_are() -> None:
    assert BrokerConfig.keys_by_name().keys() | NameServerConfig.keys_by_name().keys() >= FIXED
