"""Apache's keys without effect here: accepted in files, and shown with their values.

A line of the table has words of the form `name=default`, or just `name` if Apache has no value and
shows none; the default implies the type (int, bool or text). `+` marks keys that 4.9 lacks, `-`
keys that only 4.9 has, which are accepted but not shown. Thread pools are sized by the host's
processors in Apache; here they have the size for two.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

from orbitmq.common.config import APACHE_5, APACHE_49, Long, Settings, Use, key

S = TypeVar("S", bound=Settings)

_THREADS: Final = (
    "One event loop serves requests as they arrive: there are no such threads or queues."
)
_WAITS: Final = (
    "Pulls, heartbeats and ends of transactions are not queued but served as they are read; sends"
    " are refused by `waitTimeMillsInSendQueue`, admin requests by"
    " `waitTimeMillsInAdminBrokerQueue`."
)
_ROCKSDB: Final = "RocksDB is not supported."
_LITE: Final = "Lite topics and light queues are not supported."
_POP: Final = "Pop consumption is not supported."
_TIMER: Final = (
    "The loop delivers delayed and timed messages in batches, and retries each until it is stored."
)
_TRANSACTIONS: Final = (
    "The end of a transaction is written together with its message, without batching."
)
_REPLICATION: Final = (
    "Replication is that of a configured master and its slaves: there are no elections yet."
)
_FILTER_SERVERS: Final = "Filter servers are not started; those that register are advertised."
_COMPACTION: Final = "Compaction of topics is not supported."
_COLD: Final = "Reads of old messages are not throttled."
_METRICS: Final = "All metrics are collected, and exported to Prometheus only."
_MEMORY: Final = "Tunes Java's locks, buffers and mapped files."
_RECOVERY: Final = (
    "Recovery, index and retention have rules of their own: see docs/format/store.md."
)
_FILTER: Final = "Counts are exact, and the keys of filters determine the size of bit maps."
_CLIENTS: Final = (
    "Offsets are durable when a commit is acknowledged; clients expire after 120 s of silence;"
    " subscriptions have no further rules."
)

_BROKER: Final = {
    _THREADS: (
        """
        +recoverConcurrently=false sendMessageThreadPoolNums=2 putMessageFutureThreadPoolNums=2
pullMessageThreadPoolNums=20
        +litePullMessageThreadPoolNums=20 +ackMessageThreadPoolNums=16
processReplyMessageThreadPoolNums=20
        queryMessageThreadPoolNums=10 adminBrokerThreadPoolNums=16 clientManageThreadPoolNums=32
consumerManageThreadPoolNums=32
        +loadBalanceProcessorThreadPoolNums=32 heartbeatThreadPoolNums=2 +recoverThreadPoolNums=32
        endTransactionThreadPoolNums=12 putThreadPoolQueueCapacity=10000
pullThreadPoolQueueCapacity=100000
        +litePullThreadPoolQueueCapacity=100000 +ackThreadPoolQueueCapacity=100000
        queryThreadPoolQueueCapacity=20000 clientManagerThreadPoolQueueCapacity=1000000
        consumerManagerThreadPoolQueueCapacity=1000000 heartbeatThreadPoolQueueCapacity=50000
        endTransactionPoolQueueCapacity=100000 +loadBalanceThreadPoolQueueCapacity=100000
isolateLogEnable=false
        +asyncSendEnable=true +enableFastChannelEventProcess=false +enableNetWorkFlowControl=false
    """
    ),
    _WAITS: (
        """
        waitTimeMillsInPullQueue=5000 +waitTimeMillsInLitePullQueue=5000
waitTimeMillsInHeartbeatQueue=31000
        waitTimeMillsInTransactionQueue=3000 +waitTimeMillsInAckQueue=3000
    """
    ),
    _ROCKSDB: (
        """
        +popConsumerFSServiceInit=true +popConsumerKVServiceLog=false
+popConsumerKVServiceInit=false
        +popConsumerKVServiceEnable=false +transactionCheckRocksdbCoreThreads=2
+transactionCheckRocksdbMaxThreads=5
        +transactionCheckRocksdbQueueCapacity=2000 +useSingleRocksDBForAllConfigs=false
    """
    ),
    _LITE: (
        """
        +enableLmqStats=false +enableLiteEventMode=true +liteEventCheckInterval=10000
+liteTtlCheckInterval=120000
        +minLiteTTl=900000 +liteSubscriptionCheckInterval=120000
+liteSubscriptionCheckTimeoutMills=180000
        +persistConsumerOffsetIncrementally=false +maxLiteSubscriptionCount=100000
+enableLitePopLog=false
        +maxClientEventCount=100 +liteEventFullDispatchDelayTime=10000
+liteEventFullDispatchDelayTimeForWildcardGroup=10000
        +liteLagLatencyCollectEnable=false +liteLagLatencyMetricsEnable=false
+liteLagCountMetricsEnable=false
        +liteLagLatencyTopK=50
    """
    ),
    _POP: (
        """
        +popPollingSize=1024 +popPollingMapSize=100000 +popPollingMapExpireTimeSeconds=600
+maxPopPollingSize=100000
        +reviveInterval=1000 +reviveMaxSlow=3 +reviveScanTime=10000 +enableSkipLongAwaitingAck=false
+reviveAckWaitMs=180000
        +enablePopLog=false +enablePopBufferMerge=false +popCkStayBufferTime=10000
+popCkStayBufferTimeOut=3000
        +popCkMaxBufferSize=200000 +popCkOffsetMaxQueueSize=20000 +enablePopBatchAck=false
        +popLongPollingForceNotifyInterval=800 +enableNotifyBeforePopCalculateLag=true
        +enableNotifyAfterPopOrderLockRelease=true +initPopOffsetByCheckMsgInMem=true
+retrieveMessageFromPopRetryTopicV1=true
        +enableRetryTopicV2=false +popFromRetryProbability=20 +popFromRetryProbabilityForPriority=0
+priorityOrderAsc=true
        +popReviveMaxReturnSizePerRead=16384 +popReviveConcurrency=32 +popReviveMaxAttemptTimes=16
        +popReviveSkipIfGroupAbsent=true +useSeparateRetryQueue=false
+useMessageFilterForNotification=true
        +maxMessageFilterNumForNotification=64 +loadBalancePollNameServerInterval=30000
+serverLoadBalancerEnable=true
        +defaultMessageRequestMode=PULL +defaultPopShareQueueNum=-1 +enablePopMetrics=true
        +popResponseReturnActualRetryTopic=false +popInflightMessageThreshold=10000
+enablePopMessageThreshold=false
        +skipWhenCKRePutReachMaxTimes=false +appendAckAsync=false +appendCkAsync=false
    """
    ),
    _TRANSACTIONS: (
        """
        +transactionOpMsgMaxSize=4096 +transactionOpBatchInterval=3000
    """
    ),
    _REPLICATION: (
        """
        +sendHeartbeatTimeoutMillis=1000 +brokerHeartbeatInterval=1000
+brokerNotActiveTimeoutMillis=10000
        +syncBrokerMemberGroupPeriod=1000 +cleanOfflineBrokerInterval=30000 +forwardTimeout=3000
+enableSlaveActingMaster=false
        +enableRemoteEscape=false +skipPreOnline=false +lockInStrictMode=false
+compatibleWithOldNameSrv=true +controllerAddr=
        +fetchControllerAddrByDnsLookup=false +syncBrokerMetadataPeriod=5000
+checkSyncStateSetPeriod=5000
        +syncControllerMetadataPeriod=10000 +controllerHeartBeatTimeoutMills=10000
+brokerElectionPriority=2147483647
        +enableSplitMetadata=true +isBrokerContainer=false +isInBrokerContainer=false
    """
    ),
    _COLD: (
        """
        +coldCtrStrategyEnable=false +usePIDColdCtrStrategy=true +cgColdReadThreshold=3145728
+globalColdReadThreshold=104857600
    """
    ),
    _METRICS: (
        """
        commercialBaseCount=1 +commercialSizePerMsg=4096 +accountStatsEnable=true
+accountStatsPrintZeroValues=true
        +maxStatsIdleTimeInMinutes=-1 enableDetailStat=true +metricsOtelCardinalityLimit=50000
+metricsGrpcExporterTarget=
        +metricsGrpcExporterHeader= +metricGrpcExporterTimeOutInMills=3000
+metricGrpcExporterIntervalInMills=60000
        +metricLoggingExporterIntervalInMills=10000 +metricsExportBatchMaxDataPoints=1000
+metricsInDelta=false
        +enableRemotingMetrics=true +enableMessageStoreMetrics=true +enableConnectionMetrics=true
+enableTransactionMetrics=true
        +enableStatsMetrics=true +enableRequestMetrics=true +enableLagAndDlqMetrics=true
+estimateAccumulation=true
        +printChannelGroups=false +printChannelGroupsMinNum=5
    """
    ),
    _MEMORY: (
        """
        highSpeedMode=false transferMsgByHeap=true
    """
    ),
    _CLIENTS: (
        """
        flushConsumerOffsetHistoryInterval=60000 +enableBroadcastOffsetStore=true
+broadcastOffsetExpireSecond=120
        +broadcastOffsetExpireMaxSecond=300 +realTimeNotifyConsumerChange=true
        +useStaticSubscription=false +channelExpiredTimeout=120000
+subscriptionExpiredTimeout=600000 +enableRegisterProducer=true
    """
    ),
}
_STORE: Final = {
    _THREADS: (
        """
        +compactionThreadNum=6 +timerGetMessageThreadNum=3 +timerPutMessageThreadNum=3
+timerReputServiceCorePoolSize=6
        +timerReputServiceMaxPoolSize=6 +timerReputServiceQueueCapacity=10000
transientStorePoolSize=5 +dispatchCqThreads=10
        +dispatchCqCacheNum=4096 +enableAsyncReput=true +maxAsyncPutMessageRequests=5000
        +enableBuildConsumeQueueConcurrently=false +batchDispatchRequestThreadPoolNums=16
+topicQueueLockNum=32
    """
    ),
    _ROCKSDB: (
        """
        +timerRocksDBEnable=false +timerRocksDBStopScan=false +timerRocksDBPrecisionMs=1000
+timerRocksDBRollMaxTps=8000.0
        +timerRocksDBTimeExpiredMaxTps=200000.0 +timerRocksDBRollIntervalHours=1
+timerRocksDBRollRangeHours=2
        +transRocksDBEnable=false +transWriteOriginTransHalfEnable=true +indexRocksDBEnable=false
+maxRocksDBIndexQueryDays=7
        +iteratorWhenUseRocksdbConsumeQueue=true
        +cleanRocksDBDirtyCQIntervalMin=60 +statRocksDBCQIntervalSec=10
+memTableFlushIntervalMs=3600000
        +realTimePersistRocksDBConfig=true +enableRocksDBLog=false +rocksdbCQDoubleWriteEnable=false
        +combineCQLoadingCQTypes=default;defaultRocksDB +combineCQPreferCQType=default
+combineAssignOffsetCQType=default
        +combineCQEnableCheckSelf=false +combineCQMaxExtraSearchCommitLogFiles=3
+combineCQUseRocksdbForLmq=false
        +rocksdbCompressionType=lz4 +rocksdbFlushWalFrequency=1024
+rocksdbWalFileRollingThreshold=1073741824
        +useSeparateStorePathForRocksdbCQ=false +bottomMostCompressionTypeForConsumeQueueStore=zstd
    """
    ),
    _LITE: (
        """
        enableLmq=false enableMultiDispatch=false maxLmqConsumeQueueNum=20000 +enableLmqQuota=false
    """
    ),
    _TIMER: (
        """
        +timerEnableDisruptor=false +timerEnableCheckMetrics=true +timerInterceptDelayLevel=false
+timerWheelSnapshotFlush=false
        +disappearTimeAfterStart=-1 +timerCheckMetricsWhen=05 +timerSkipUnknownError=false
+timerWarmEnable=false
        +timerEnableRetryUntilSuccess=false +timerMetricSmallThreshold=1000000
+timerProgressLogIntervalMs=10000
        +timerWheelSnapshotIntervalMs=10000 +timerRecallToTimeWheelEnable=true
+timerRecallToTimelineEnable=true
        enableScheduleMessageStats=true enableScheduleAsyncDeliver=false
scheduleAsyncDeliverMaxPendingLimit=2000
        scheduleAsyncDeliverMaxResendNum2Blocked=3 +timerColdDataCheckIntervalMs=60000
    """
    ),
    _REPLICATION: (
        """
        storePathDLedgerCommitLog +storePathEpochFile +storePathBrokerIdentity
        offsetCheckInSlave=false dLegerGroup dLegerPeers dLegerSelfId preferredLeaderId
+enableBatchPush=false +totalReplicas=1 +haMaxTimeSlaveNotCatchup=15000
        +syncMasterFlushOffsetWhenStartup=false +maxChecksumRange=1073741824
+replicasPerDiskPartition=1
        +maxSlaveResendLength=268435456 +asyncLearner=false
    """
    ),
    _COMPACTION: (
        """
        +compactionMappedFileSize=104857600 +compactionCqMappedFileSize=10485760
+compactionScheduleInternal=900000
        +maxOffsetMapSize=104857600 +enableCompaction=true
    """
    ),
    _COLD: (
        """
        +coldDataFlowControlEnable=false +coldDataScanEnable=false
    """
    ),
    _METRICS: (
        """
        diskFallRecorded=true
    """
    ),
    _MEMORY: (
        """
        commitIntervalCommitLog=200 useReentrantLockWhenPutMessage=true flushCommitLogTimed=true
        deleteConsumeQueueFilesInterval=100 destroyMapedFileIntervalForcibly=120000
redeleteHangedFileInterval=120000
        commitCommitLogLeastPages=4 flushLeastPagesWhenWarmMapedFile=4096
commitCommitLogThoroughInterval=200
        warmMapedFileEnable=false debugLockEnable=false transientStorePoolEnable=false
fastFailIfNoBufferInStorePool=false
        +writeWithoutMmap=false +enableRunningFlagsInFlush=false +mappedFileSwapEnable=true
        +commitLogForceSwapMapInterval=43200000 +commitLogSwapMapInterval=3600000
+commitLogSwapMapReserveFileNum=100
        +logicQueueForceSwapMapInterval=43200000 +logicQueueSwapMapInterval=3600000
+cleanSwapedMapInterval=300000
        +logicQueueSwapMapReserveFileNum=20 +searchBcqByCacheEnable=true
+dispatchFromSenderThread=false
        +wakeCommitWhenPutMessage=true +wakeFlushWhenPutMessage=false
+accessMessageInMemoryHotRatio=26 +readUnCommitted=false
        +putConsumeQueueDataByFileChannel=true +enableAcceleratedRecovery=false
+sharedByteBufferNum=16
        +spinLockCollisionRetreatOptimalDegree=1000 +useABSLock=false
    """
    ),
    _RECOVERY: (
        """
        +commitLogRecoverMaxNum=10 +maxRecoveryCommitlogFiles=30 putMsgIndexHightWater=600000
checkCRCOnRecover=true
        +checkCommitLogOffsetOnRecover=false messageIndexSafe=false +putMessageTimeout=8000
+maxBatchDeleteFilesNum=50
        +recheckReputOffsetFromCq=false +correctLogicMinOffsetSleepInterval=1
        +correctLogicMinOffsetForceInterval=300000 +enableCleanExpiredOffset=false
+logicalDiskSpaceCleanForciblyThreshold=0.8
        +enableLogConsumeQueueRepeatedlyBuildWhenRecover=false +autoMessageVersionOnTopicLen=true
    """
    ),
    _FILTER: (
        """
        +indexFileReadEnable=true bitMapLengthConsumeQueueExt=112 +travelCqFileNumWhenGetMessage=1
+pullBatchMaxMessageCount=160
        +maxConsumeQueueScan=20000 +sampleCountThreshold=5000 +sampleSteps=32
    """
    ),
}
_RETIRED: Final = {
    _TIMER: "-maxDelayTime=40",
    _REPLICATION: "-isEnableBatchPush=false",
    _FILTER_SERVERS: "-filterServerNums=0",
    _METRICS: (
        "-commercialEnable=true -commercialTimerCount=1 -commercialTransCount=1"
        " -commercialBigCount=1"
    ),
}


def _declares(table: dict[str, str]) -> Callable[[type[S]], type[S]]:
    """Add the keys of `table` to a settings class."""

    def declare(kind: type[S]) -> type[S]:
        for doc, words in table.items():
            for mark, name, equals, text in re.findall(r"([+-]?)(\w+)(=?)(\S*)", words):
                attribute = re.sub(
                    r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name
                ).lower()
                releases = {"": APACHE_49, "+": APACHE_5, "-": "4.9"}[mark]
                default, annotation = _typed(text) if equals else (None, str | None)
                setattr(
                    kind,
                    attribute,
                    key(default, doc, name=name, use=Use.NO_EFFECT, releases=releases),
                )
                kind.__annotations__[attribute] = annotation
        return dataclass(frozen=True, kw_only=True)(kind)

    return declare


def _typed(text: str) -> tuple[Any, Any]:
    """Return the value that `text` stands for, and its type."""
    if text in ("true", "false"):
        return text == "true", bool
    if re.fullmatch(r"-?(0|[1-9]\d*)", text):
        return int(text), Long
    if re.fullmatch(r"\d+\.\d+", text):
        return float(text), float
    return text, str


@_declares(_BROKER)
class InertBrokerSettings(Settings):
    """Keys of Apache's `BrokerConfig`."""

    SECTION: ClassVar[str] = "brokerConfig"


@_declares(_STORE)
class InertStoreSettings(Settings):
    """Keys of Apache's `MessageStoreConfig`."""

    SECTION: ClassVar[str] = "messageStoreConfig"


@_declares(_RETIRED)
class RetiredSettings(Settings):
    """Keys that only 4.9 has."""

    SECTION: ClassVar[str] = "4.9"
