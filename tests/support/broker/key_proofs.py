"""Which tests prove what each key of docs/configuration.md does that is marked as used.

A key stands beside the tests that fail without its effect, as `path::name`; where a part of a
server is handed the key as a value of its own, or looks at the configuration by itself, one test
says that it does, and another what follows from the value. `test_key_proofs.py` holds the table
against the declarations.
"""

from __future__ import annotations

from typing import Final

_BROKER: Final = "unit/broker/"
_STORE: Final = "unit/store/"
_REMOTING: Final = "unit/remoting/"
_WIRED: Final = "unit/broker/config/test_wired_keys.py::test_each_part_has_what_its_key_says"
_LOOKED_AT: Final = "unit/broker/config/test_wired_keys.py::test_parts_that_look_at_the_configuration_look_at_the_one_of_their_broker"
_TO_STORE: Final = "unit/broker/config/test_store_config.py::test_a_key_sets_its_field_and_no_other"
_TO_SERVER: Final = (
    "unit/remoting/test_remoting_settings.py::test_a_key_sets_its_field_of_the_server_and_no_other"
)
_TO_CLIENT: Final = (
    "unit/remoting/test_remoting_settings.py::test_a_key_sets_its_field_of_the_client_and_no_other"
)
_IN_EFFECT: Final = "unit/broker/config/test_keys_in_effect.py::"
_AT_RUN_TIME: Final = "unit/broker/config/test_runtime_updates.py::"
_NAME_SERVER: Final = "unit/nameserver/"
_SENDER: Final = "unit/replication/test_sender.py::"
_QUORUM: Final = "unit/replication/test_quorum.py::"

_OF_BROKERS: Final[dict[str, tuple[str, ...]]] = {
    "rocketmqHome": ("unit/cli/test_broker_run.py::test_logs_go_to_the_home_that_is_named",),
    "brokerName": (
        _BROKER
        + "registration/test_nameserver_link.py::test_every_name_server_has_the_broker_and_its_topics_until_it_stops",
    ),
    "brokerClusterName": (
        _WIRED,
        _IN_EFFECT
        + "test_topics_that_there_are_from_the_start_have_the_names_and_queues_that_keys_say",
    ),
    "brokerId": (
        _BROKER + "config/test_broker_config.py::test_a_master_is_number_0",
        _BROKER + "config/test_broker_config.py::test_a_slave_has_the_number_that_is_configured",
    ),
    "brokerIP2": (_WIRED,),
    "haListenPort": ("e2e/test_replication.py::test_a_slave_has_everything_that_was_acknowledged",),
    "haMasterAddress": (
        "e2e/test_replication.py::test_a_slave_follows_a_configured_address_without_name_servers",
    ),
    "haPeers": (
        _WIRED,
        "e2e/test_replication.py::test_a_slave_follows_a_configured_address_without_name_servers",
    ),
    "haUseTls": ("e2e/test_replication.py::test_slaves_follow_by_tls_unless_they_are_told_not_to",),
    "haSendHeartbeatInterval": (
        _WIRED,
        _SENDER + "test_a_heartbeat_is_sent_when_nothing_else_was_for_an_interval",
    ),
    "haHousekeepingInterval": (
        _WIRED,
        _SENDER + "test_a_slave_is_silent_when_it_sent_nothing_for_too_long",
    ),
    "haTransferBatchSize": (
        _WIRED,
        _SENDER + "test_a_slice_ends_with_the_file_and_has_a_largest_size",
    ),
    "haFlowControlEnable": (_WIRED, _SENDER + "test_the_rate_limit_counts_the_bytes_of_the_log"),
    "maxHaTransferByteInSecond": (
        _WIRED,
        _SENDER + "test_the_rate_limit_counts_the_bytes_of_the_log",
    ),
    "syncFromLastFile": (
        _WIRED,
        _SENDER + "test_a_slave_continues_where_its_log_ends_and_an_empty_one_gets_all",
    ),
    "haMaxGapNotInSync": (
        _LOOKED_AT,
        _QUORUM
        + "test_by_default_one_slave_in_sync_must_have_a_message_and_without_one_it_is_missing",
    ),
    "haSlaveFallbehindMax": (
        _BROKER + "config/test_broker_config.py::test_the_gap_of_a_slave_in_sync_has_two_names",
    ),
    "inSyncReplicas": (
        _LOOKED_AT,
        _QUORUM + "test_so_many_copies_as_configured_must_have_a_message",
    ),
    "minInSyncReplicas": (
        _LOOKED_AT,
        _QUORUM + "test_below_the_minimum_messages_are_refused_with_the_numbers",
        "e2e/test_replication.py::test_without_enough_copies_messages_are_refused_and_not_stored",
    ),
    "enableAutoInSyncReplicas": (
        _LOOKED_AT,
        _QUORUM + "test_with_auto_in_sync_replicas_fewer_copies_are_enough_while_fewer_are_in_sync",
    ),
    "slaveTimeout": (
        _LOOKED_AT,
        "e2e/test_replication.py::test_a_send_that_no_slave_confirms_in_time_is_answered_so",
    ),
    "brokerIP1": (
        _IN_EFFECT
        + "test_what_clients_are_told_to_connect_to_and_where_updates_are_kept_is_what_keys_say",
    ),
    "regionId": (_AT_RUN_TIME + "test_sends_follow_their_limits",),
    "traceOn": (
        _IN_EFFECT
        + "test_sends_are_answered_with_what_keys_say_of_traces_and_refused_before_their_time",
    ),
    "startAcceptSendRequestTimeStamp": (
        _IN_EFFECT
        + "test_sends_are_answered_with_what_keys_say_of_traces_and_refused_before_their_time",
    ),
    "defaultTopicQueueNums": (
        _WIRED,
        _IN_EFFECT
        + "test_topics_that_there_are_from_the_start_have_the_names_and_queues_that_keys_say",
    ),
    "autoCreateTopicEnable": (
        _WIRED,
        _BROKER + "metadata/test_topics.py::test_without_auto_create_only_a_retry_topic_is_created",
    ),
    "clusterTopicEnable": (
        _WIRED,
        _BROKER + "metadata/test_topics.py::test_switches_take_topics_and_permissions_away",
    ),
    "brokerTopicEnable": (
        _WIRED,
        _BROKER + "metadata/test_topics.py::test_switches_take_topics_and_permissions_away",
    ),
    "traceTopicEnable": (
        _WIRED,
        _IN_EFFECT
        + "test_topics_that_there_are_from_the_start_have_the_names_and_queues_that_keys_say",
    ),
    "msgTraceTopicName": (
        _WIRED,
        _IN_EFFECT
        + "test_topics_that_there_are_from_the_start_have_the_names_and_queues_that_keys_say",
    ),
    "validateSystemTopicWhenUpdateTopic": (
        _WIRED,
        _BROKER
        + "metadata/test_topics.py::test_topics_of_the_broker_itself_cannot_be_changed_or_deleted_unless_that_is_allowed",
    ),
    "enableMixedMessageType": (
        _WIRED,
        _BROKER
        + "metadata/test_topics.py::test_a_change_of_attributes_that_breaks_a_rule_is_refused_as_the_original_does",
        _BROKER + "metadata/test_topics.py::test_odd_spellings_that_the_original_takes_are_taken",
    ),
    "clearRetryTopicWhenDeleteTopic": (
        _IN_EFFECT + "test_retry_topics_go_with_their_topic_unless_that_is_off",
    ),
    "reviveQueueNum": (
        _WIRED,
        _IN_EFFECT
        + "test_topics_that_there_are_from_the_start_have_the_names_and_queues_that_keys_say",
    ),
    "splitMetadataSize": (
        _AT_RUN_TIME
        + "test_versions_move_with_as_many_commits_as_is_said_and_pages_have_as_many_topics",
    ),
    "autoCreateSubscriptionGroup": (
        _WIRED,
        _BROKER
        + "metadata/test_groups.py::test_without_auto_create_only_system_groups_are_created_unless_that_is_off_too",
    ),
    "enableCreateSysGroup": (
        _WIRED,
        _BROKER
        + "metadata/test_groups.py::test_without_auto_create_only_system_groups_are_created_unless_that_is_off_too",
    ),
    "autoDeleteUnusedStats": (
        _BROKER
        + "wiring/test_request_layer.py::test_figures_of_a_topic_go_with_it_if_the_configuration_says_so",
    ),
    "useServerSideResetOffset": (
        _WIRED,
        _BROKER
        + "processors/test_reset_processor.py::test_without_resets_here_the_consumers_online_are_told_the_offsets",
    ),
    "consumerOffsetUpdateVersionStep": (
        _AT_RUN_TIME
        + "test_versions_move_with_as_many_commits_as_is_said_and_pages_have_as_many_topics",
    ),
    "notifyConsumerIdsChangedEnable": (
        _WIRED,
        _BROKER
        + "processors/test_client_processor.py::test_nobody_is_told_when_group_or_broker_want_no_notices",
    ),
    "rejectPullConsumerEnable": (
        _WIRED,
        _BROKER
        + "processors/test_client_processor.py::test_pull_consumers_are_passed_over_when_the_broker_rejects_them",
    ),
    "longPollingEnable": (_IN_EFFECT + "test_a_pull_waits_for_as_long_as_short_polling_says",),
    "shortPollingTimeMills": (
        _WIRED,
        _IN_EFFECT + "test_a_pull_waits_for_as_long_as_short_polling_says",
    ),
    "litePullMessageEnable": (
        _IN_EFFECT + "test_lite_pull_consumers_are_served_unless_that_is_off",
    ),
    "flushConsumerOffsetInterval": (_AT_RUN_TIME + "test_tables_are_saved_as_often_as_is_said",),
    "disableConsumeIfConsumerReadSlowly": (
        _LOOKED_AT,
        _BROKER + "consume/test_slow_consumers.py::test_nobody_is_disabled_unless_that_is_wanted",
    ),
    "consumerFallbehindThreshold": (
        _LOOKED_AT,
        _BROKER
        + "consume/test_slow_consumers.py::test_a_group_that_reads_too_far_behind_may_read_no_more",
        _BROKER + "consume/test_slow_consumers.py::test_a_group_that_follows_may_go_on",
    ),
    "slaveReadEnable": (
        _IN_EFFECT + "test_consumers_that_fell_behind_are_sent_to_a_slave_if_that_is_wanted",
    ),
    "brokerFastFailureEnable": (
        _LOOKED_AT,
        _BROKER
        + "produce/test_admission.py::test_those_that_wait_for_the_disk_are_bounded_with_fast_failure_or_without",
    ),
    "waitTimeMillsInSendQueue": (
        _LOOKED_AT,
        _BROKER
        + "produce/test_admission.py::test_limits_are_those_of_the_configuration_as_it_is_now",
    ),
    "sendThreadPoolQueueCapacity": (
        _LOOKED_AT,
        _BROKER + "produce/test_admission.py::test_no_more_messages_wait_for_the_disk_than_may",
    ),
    "adminBrokerThreadPoolQueueCapacity": (
        _WIRED,
        _REMOTING + "test_dispatch.py::test_a_full_queue_is_answered_system_busy_with_the_reason",
    ),
    "waitTimeMillsInAdminBrokerQueue": (
        _WIRED,
        _REMOTING
        + "test_dispatch.py::test_a_request_that_waited_too_long_is_answered_system_busy_and_never_run",
    ),
    "metricsExporterType": (
        _IN_EFFECT
        + "test_metrics_are_served_where_it_is_said_and_carry_the_labels_of_the_configuration",
    ),
    "metricsPromExporterPort": (
        _IN_EFFECT
        + "test_metrics_are_served_where_it_is_said_and_carry_the_labels_of_the_configuration",
    ),
    "metricsPromExporterHost": (
        _IN_EFFECT
        + "test_metrics_are_served_where_it_is_said_and_carry_the_labels_of_the_configuration",
    ),
    "metricsLabel": (
        _IN_EFFECT
        + "test_metrics_are_served_where_it_is_said_and_carry_the_labels_of_the_configuration",
    ),
    "configBlackList": (
        "unit/common/test_name_server_config.py::test_an_update_that_is_refused_changes_nothing",
    ),
    "aclEnable": (
        "e2e/test_access_operation.py::test_a_changed_file_counts_while_the_broker_runs",
    ),
    "messageStorePlugIn": (
        "e2e/test_plugin_package.py::test_a_part_that_cannot_be_loaded_stops_the_start_by_name_and_leaves_the_store_free",
    ),
    "brokerConfigPath": (
        _IN_EFFECT
        + "test_what_clients_are_told_to_connect_to_and_where_updates_are_kept_is_what_keys_say",
    ),
    "fastListenPort": (_IN_EFFECT + "test_a_fast_port_may_be_said",),
    "aclFolder": (
        "e2e/test_access_operation.py::test_a_changed_file_counts_while_the_broker_runs",
    ),
    "subscriptionConflict": (
        _WIRED,
        _BROKER
        + "clients/test_subscription_conflicts.py::test_refuse_keeps_a_newcomer_out_of_the_group_alone_and_says_why",
    ),
    "dedupWindowMs": ("e2e/test_dedup.py::test_the_window_ends",),
    "dedupWindowKeysMax": (
        _WIRED,
        _BROKER
        + "produce/test_deduplication.py::test_when_there_are_too_many_the_oldest_goes_and_the_log_says_so_once",
    ),
    "storeReplyMessageEnable": (
        "e2e/test_retries.py::test_replies_are_not_stored_when_that_is_not_wanted",
    ),
    "replyThreadPoolQueueCapacity": (
        _WIRED,
        _REMOTING + "test_dispatch.py::test_a_full_queue_is_answered_system_busy_with_the_reason",
    ),
    "enablePropertyFilter": (
        _WIRED,
        "e2e/test_filters.py::test_a_broker_that_does_not_filter_says_by_which_key_it_would",
    ),
    "filterSupportRetry": (
        "e2e/test_filters.py::test_messages_that_come_again_are_filtered_once_more_if_the_broker_is_told_so",
    ),
    "enableCalcFilterBitMap": (
        _LOOKED_AT,
        _BROKER
        + "consume/test_pull_filters.py::test_dispatch_keeps_which_filters_a_message_passed",
    ),
    "expectConsumerNumUseFilter": (
        _WIRED,
        _BROKER + "metadata/test_bloom.py::test_its_size_follows_from_how_much_it_may_err",
    ),
    "maxErrorRateOfBloomFilter": (
        _WIRED,
        _BROKER + "metadata/test_bloom.py::test_its_size_follows_from_how_much_it_may_err",
    ),
    "filterDataCleanTimeSpan": (
        _WIRED,
        _BROKER
        + "metadata/test_consumer_filters.py::test_filters_that_are_dead_for_long_are_forgotten",
    ),
    "recallMessageEnable": (
        "e2e/test_timed_messages.py::test_recalls_are_refused_unless_they_are_allowed",
        _IN_EFFECT + "test_a_recall_is_taken_while_nobody_may_write_unless_that_is_off",
    ),
    "allowRecallWhenBrokerNotWriteable": (
        _IN_EFFECT + "test_a_recall_is_taken_while_nobody_may_write_unless_that_is_off",
    ),
    "delayOffsetUpdateVersionStep": (
        _IN_EFFECT + "test_the_version_of_delay_offsets_moves_with_every_so_many_deliveries",
    ),
    "rejectTransactionMessage": (
        "e2e/test_transactions.py::test_a_broker_that_rejects_transactions_says_so",
    ),
    "transactionTimeOut": (
        "e2e/test_transactions.py::test_when_and_how_often_producers_are_asked_is_what_keys_say",
    ),
    "transactionCheckMax": (
        "e2e/test_transactions.py::test_one_that_stays_open_is_given_up_after_so_many_questions_and_kept_aside",
    ),
    "transactionCheckInterval": (
        "e2e/test_transactions.py::test_when_and_how_often_producers_are_asked_is_what_keys_say",
    ),
    "transactionMetricFlushInterval": (_AT_RUN_TIME + "test_tables_are_saved_as_often_as_is_said",),
}

_OF_LINKS: Final[dict[str, tuple[str, ...]]] = {
    "namesrvAddr": (
        _BROKER
        + "registration/test_nameserver_search.py::test_a_new_list_of_name_servers_is_followed",
    ),
    "fetchNameSrvAddrByDnsLookup": (
        _BROKER
        + "registration/test_nameserver_search.py::test_names_of_name_servers_may_be_looked_up_and_stand_for_every_address",
    ),
    **dict.fromkeys(
        ("fetchNamesrvAddrInterval", "updateNameServerAddrPeriod"),
        (
            _BROKER
            + "registration/test_nameserver_search.py::test_name_servers_are_searched_as_often_as_is_said",
        ),
    ),
    **dict.fromkeys(
        (
            "fetchNamesrvAddrByAddressServer",
            "rmqAddressServerDomain",
            "rmqAddressServerSubGroup",
        ),
        (
            _BROKER
            + "registration/test_nameserver_search.py::test_an_address_server_is_asked_again_and_again_under_the_names_that_files_of_the_"
            "original_have_for_it",
        ),
    ),
    **dict.fromkeys(
        ("rocketmq.namesrv.domain", "rocketmq.namesrv.domain.subgroup"),
        (
            _BROKER
            + "registration/test_nameserver_search.py::test_an_address_server_tells_the_name_servers_and_who_it_no_"
            "longer_tells_is_left_alone",
            _NAME_SERVER
            + "test_name_server_keys.py::test_a_topic_that_is_not_known_is_looked_up_in_the_environment_that_is_named",
        ),
    ),
    "registerNameServerPeriod": (_IN_EFFECT + "test_the_broker_registers_again_after_each_period",),
    "registerBrokerTimeoutMills": (
        _BROKER
        + "registration/test_nameserver_link.py::test_a_name_server_has_as_long_to_answer_as_is_said",
    ),
    "forceRegister": (
        _BROKER
        + "registration/test_nameserver_link.py::test_every_period_registers_in_full_or_asks_first",
    ),
    "compressedRegister": (
        _BROKER
        + "registration/test_nameserver_link.py::test_a_name_server_that_cannot_read_compressed_registrations_gets_them_plain",
    ),
    "enableSingleTopicRegister": (
        _BROKER
        + "registration/test_nameserver_link.py::test_a_topic_alone_is_a_request_that_old_name_servers_need_not_know",
    ),
    "enableSplitRegistration": (
        _BROKER
        + "registration/test_nameserver_link.py::test_registrations_may_be_compressed_and_split",
    ),
    "splitRegistrationSize": (
        _BROKER
        + "registration/test_nameserver_link.py::test_registrations_may_be_compressed_and_split",
    ),
    "brokerPermission": (
        _BROKER
        + "registration/test_nameserver_link.py::test_a_permission_that_the_broker_lacks_no_topic_has",
    ),
    "rocketmq.zone": (_IN_EFFECT + "test_the_zone_is_told_with_each_registration",),
}

_OF_STORES: Final[dict[str, tuple[str, ...]]] = {
    "storePathRootDir": (
        _TO_STORE,
        _AT_RUN_TIME + "test_an_update_is_found_at_the_next_start_of_a_broker_without_a_file",
    ),
    "storePathCommitLog": (
        _TO_STORE,
        _STORE + "test_golden_logs.py::test_a_log_over_several_directories_is_one_log",
    ),
    "readOnlyCommitLogStorePaths": (
        _TO_STORE,
        _STORE + "test_golden_logs.py::test_a_log_over_several_directories_is_one_log",
    ),
    "mappedFileSizeCommitLog": (
        _TO_STORE,
        _STORE + "test_golden_logs.py::test_a_log_of_another_file_size_is_refused",
    ),
    "mappedFileSizeConsumeQueue": (
        _TO_STORE,
        _STORE + "test_reads.py::test_a_file_of_the_queue_that_is_gone_is_stepped_over",
    ),
    "enableConsumeQueueExt": (
        _TO_STORE,
        _STORE + "test_reads.py::test_the_tags_code_of_an_entry_with_a_unit_is_that_of_the_unit",
    ),
    "mappedFileSizeConsumeQueueExt": (
        _BROKER + "config/test_store_config.py::test_the_size_of_ext_files_is_said_apart",
        _STORE
        + "test_golden_queues.py::test_queues_built_from_the_log_are_those_of_the_original_byte_for_byte",
    ),
    "mapperFileSizeBatchConsumeQueue": (
        _TO_STORE,
        _STORE
        + "test_golden_queues.py::test_queues_built_from_the_log_are_those_of_the_original_byte_for_byte",
    ),
    "messageIndexEnable": (
        _TO_STORE,
        _IN_EFFECT + "test_messages_are_found_by_key_unless_the_index_is_off",
    ),
    "indexFileWriteEnable": (
        _TO_STORE,
        _IN_EFFECT + "test_messages_are_found_by_key_unless_the_index_is_off",
    ),
    "maxHashSlotNum": (
        _TO_STORE,
        _STORE
        + "test_index.py::test_a_file_of_another_size_goes_with_those_behind_it_to_be_completed_from_the_log",
    ),
    "maxIndexNum": (
        _TO_STORE,
        _STORE + "test_index.py::test_a_full_file_is_followed_by_another_and_a_record_may_be_split",
    ),
    "maxMsgsNumBatch": (
        _LOOKED_AT,
        _BROKER
        + "processors/test_query_processor.py::test_a_query_gives_no_more_than_the_configuration_allows",
    ),
    "defaultQueryMaxNum": (
        _LOOKED_AT,
        _BROKER
        + "processors/test_query_processor.py::test_a_query_gives_no_more_than_the_configuration_allows",
    ),
    "flushDiskType": (
        _TO_STORE,
        _STORE
        + "test_message_store.py::test_with_sync_flush_nobody_reads_what_the_disk_does_not_have_yet",
    ),
    "syncFlushTimeout": (
        _TO_STORE,
        _STORE
        + "test_disk_faults.py::test_who_waits_for_a_disk_that_hangs_is_told_after_the_time_that_is_configured",
    ),
    "osPageCacheBusyTimeOutMills": (
        _LOOKED_AT,
        _BROKER
        + "produce/test_admission.py::test_limits_are_those_of_the_configuration_as_it_is_now",
    ),
    **dict.fromkeys(
        ("flushIntervalCommitLog", "flushCommitLogLeastPages", "flushCommitLogThoroughInterval"),
        (_TO_STORE, _AT_RUN_TIME + "test_the_log_is_flushed_when_intervals_and_pages_say_so"),
    ),
    **dict.fromkeys(
        (
            "flushIntervalConsumeQueue",
            "flushConsumeQueueLeastPages",
            "flushConsumeQueueThoroughInterval",
        ),
        (_TO_STORE, _AT_RUN_TIME + "test_queues_are_flushed_when_intervals_and_pages_say_so"),
    ),
    "maxMessageSize": (_AT_RUN_TIME + "test_sends_follow_their_limits",),
    "maxTopicLength": (_AT_RUN_TIME + "test_sends_follow_their_limits",),
    "enabledAppendPropCRC": (
        _TO_STORE,
        _STORE + "test_commit_log.py::test_a_record_checksum_is_added_when_configured",
    ),
    "forceVerifyPropCRC": (
        _TO_STORE,
        _STORE
        + "test_message_store.py::test_with_a_checksum_of_the_whole_record_every_changed_byte_is_noticed",
    ),
    "maxFilterMessageSize": (
        _AT_RUN_TIME + "test_a_read_with_a_filter_looks_as_far_as_it_is_told",
    ),
    **dict.fromkeys(
        (
            "maxTransferBytesOnMessageInMemory",
            "maxTransferCountOnMessageInMemory",
            "maxTransferBytesOnMessageInDisk",
            "maxTransferCountOnMessageInDisk",
            "accessMessageInMemoryMaxRatio",
        ),
        (_AT_RUN_TIME + "test_reads_follow_their_limits",),
    ),
    "deleteWhen": (
        _TO_STORE,
        _STORE
        + "test_retention.py::test_expired_files_go_at_their_hour_only_and_not_a_millisecond_early",
    ),
    "fileReservedTime": (
        "e2e/test_local_cluster_time.py::test_old_files_go_when_their_time_has_come_by_the_clock_of_the_cluster",
    ),
    **dict.fromkeys(
        ("cleanResourceInterval", "deleteFileBatchMax", "deleteCommitLogFilesInterval"),
        (
            _TO_STORE,
            _STORE
            + "test_retention.py::test_rounds_and_pauses_are_as_long_and_as_large_as_is_said",
        ),
    ),
    **dict.fromkeys(
        ("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio"),
        (_TO_STORE, _STORE + "test_retention.py::test_how_full_a_disk_may_be_is_what_is_said"),
    ),
    "cleanFileForciblyEnable": (
        _TO_STORE,
        _STORE + "test_retention.py::test_age_counts_above_the_forced_level_if_forcing_is_off",
    ),
    "dataReadAheadEnable": (
        _BROKER + "wiring/test_request_layer.py::test_the_log_reads_ahead_or_not_as_is_said",
    ),
    "brokerRole": (
        "e2e/test_replication.py::test_a_slave_has_everything_that_was_acknowledged",
        "e2e/test_replication.py::test_an_async_master_waits_for_no_slave",
        _BROKER + "processors/test_transaction_processor.py::test_a_slave_ends_nothing",
    ),
    "messageDelayLevel": ("e2e/test_delay_levels.py::test_other_levels_may_be_configured",),
    "flushDelayOffsetInterval": (_AT_RUN_TIME + "test_tables_are_saved_as_often_as_is_said",),
    "timerWheelEnable": (
        _WIRED,
        _BROKER + "delay/test_delay_rewriter.py::test_what_cannot_be_used_is_refused_with_a_reason",
    ),
    "timerPrecisionMs": (_IN_EFFECT + "test_slots_and_files_of_the_timer_are_as_large_as_is_said",),
    "timerRollWindowSlot": (
        "e2e/test_timed_messages.py::test_a_message_far_away_is_rolled_and_comes_at_its_millisecond_all_the_same",
    ),
    "timerFlushIntervalMs": (_AT_RUN_TIME + "test_tables_are_saved_as_often_as_is_said",),
    "timerMaxDelaySec": ("e2e/test_timed_messages.py::test_a_time_too_far_away_is_refused",),
    "timerCongestNumEachSlot": (
        "e2e/test_transactions.py::test_a_commit_is_not_refused_because_the_second_of_its_message_is_full_meanwhile",
        _BROKER + "delay/test_delay_rewriter.py::test_a_slot_that_holds_enough_takes_no_more",
    ),
    "timerStopEnqueue": (
        _BROKER
        + "processors/test_delay_processor.py::test_the_timer_stands_still_while_it_is_told_to",
    ),
    "timerStopDequeue": (
        _BROKER
        + "processors/test_delay_processor.py::test_the_timer_stands_still_while_it_is_told_to",
    ),
    "mappedFileSizeTimerLog": (
        _IN_EFFECT + "test_slots_and_files_of_the_timer_are_as_large_as_is_said",
    ),
    "appendTopicForTimerDeleteKey": (
        _IN_EFFECT + "test_a_recall_names_the_topic_too_if_that_is_wanted",
    ),
    "recoverBadRecord": (
        _TO_STORE,
        _STORE
        + "test_message_store.py::test_the_original_rule_gives_up_everything_behind_a_bad_record_when_it_is_asked_for",
    ),
    "protectUnconsumed": (
        "e2e/test_retention_keys.py::test_an_expired_file_stays_until_every_group_of_its_topic_has_consumed_it",
    ),
}

_OF_REMOTING: Final[dict[str, tuple[str, ...]]] = {
    "bindAddress": (
        _TO_SERVER,
        _REMOTING + "test_server_lifecycle.py::test_every_interface_means_both_families",
    ),
    "listenPort": (
        _TO_SERVER,
        _REMOTING + "test_server_lifecycle.py::test_a_port_in_use_is_told_with_what_to_do",
    ),
    "serverChannelMaxIdleTimeSeconds": (
        _AT_RUN_TIME + "test_an_idle_connection_is_closed_when_the_time_for_it_is_made_shorter",
    ),
    "serverSocketSndBufSize": (
        _TO_SERVER,
        _REMOTING + "test_remoting_settings.py::test_sockets_have_the_buffers_that_are_said",
    ),
    "serverSocketRcvBufSize": (
        _TO_SERVER,
        _REMOTING + "test_remoting_settings.py::test_sockets_have_the_buffers_that_are_said",
    ),
    "writeBufferHighWaterMark": (
        _TO_SERVER,
        _REMOTING
        + "test_server_limits.py::test_a_peer_that_does_not_read_is_not_read_and_gets_every_answer_when_it_does",
    ),
    "serverSocketBacklog": (
        _TO_SERVER,
        _REMOTING
        + "test_remoting_settings.py::test_as_many_connections_as_is_said_may_wait_to_be_accepted",
    ),
    "enableShutdownGracefully": (
        _AT_RUN_TIME + "test_a_stop_says_go_away_if_that_was_turned_on_meanwhile",
    ),
    "shutdownWaitTimeSeconds": (
        _REMOTING
        + "test_remoting_settings.py::test_the_time_of_a_graceful_stop_counts_when_there_is_one",
        _REMOTING
        + "test_server_lifecycle.py::test_connections_that_come_while_peers_are_told_to_go_away_are_taken",
    ),
    "clientAsyncSemaphoreValue": (
        _TO_CLIENT,
        _REMOTING + "test_client.py::test_too_many_calls_are_refused_without_being_sent",
    ),
    "connectTimeoutMillis": (
        _TO_CLIENT,
        _REMOTING + "test_client.py::test_the_whole_time_covers_connecting",
    ),
    "clientChannelMaxIdleTimeSeconds": (
        _TO_CLIENT,
        _REMOTING + "test_client.py::test_idle_connections_are_closed_and_listeners_are_told_once",
    ),
    "clientCloseSocketIfTimeout": (
        _TO_CLIENT,
        _REMOTING
        + "test_client.py::test_a_call_without_an_answer_closes_the_connection_by_the_rule",
    ),
    "enableReconnectForGoAway": (
        _TO_CLIENT,
        _REMOTING + "test_client.py::test_a_second_go_away_is_an_error",
    ),
    "useTLS": (
        "e2e/test_tls_enforcing.py::test_a_broker_that_takes_tls_only_registers_by_tls_unless_it_is_told_not_to",
    ),
    "frameMaxLength": (
        _TO_SERVER,
        _TO_CLIENT,
        _REMOTING + "test_server_frames.py::test_smaller_limits_of_frames_are_kept",
    ),
    "headerMaxLength": (
        _TO_SERVER,
        _TO_CLIENT,
        _REMOTING + "test_server_frames.py::test_smaller_limits_of_frames_are_kept",
    ),
    "maxConnections": (
        _TO_SERVER,
        _REMOTING
        + "test_server_limits.py::test_peers_beyond_the_limit_are_refused_and_counted_in_one_line",
    ),
    "maxRequestsInFlight": (
        _WIRED,
        _REMOTING
        + "test_dispatch.py::test_all_lanes_together_keep_the_limit_of_requests_in_flight",
    ),
    "maxRequestBytesInFlight": (
        _WIRED,
        _REMOTING
        + "test_dispatch.py::test_requests_that_wait_have_so_many_bytes_together_and_a_further_one_is_told_the_key",
    ),
    "maxUnsentBytes": (
        _TO_SERVER,
        _REMOTING
        + "test_budgets.py::test_peers_that_never_read_are_closed_greediest_first_and_all_others_are_served",
    ),
    "maxTlsHandshakes": (
        _TO_SERVER,
        _REMOTING
        + "test_budgets.py::test_the_oldest_stalled_handshake_ends_for_a_new_one_and_a_burst_is_refused",
    ),
    "tlsHandshakeTimeoutMillis": (
        _TO_SERVER,
        _REMOTING
        + "test_budgets.py::test_a_handshake_that_takes_too_long_ends_and_the_log_names_the_key",
    ),
    "maxPendingBytes": (
        _TO_SERVER,
        _REMOTING
        + "test_server_limits.py::test_the_one_that_holds_most_unfinished_bytes_is_closed_when_all_hold_too_many",
    ),
    "rocketmq.serialize.type": (
        _TO_SERVER,
        _TO_CLIENT,
        _REMOTING
        + "test_client.py::test_requests_of_both_sides_have_the_encoding_that_is_configured_and_replies_that_of_their_request",
    ),
    "tls.server.mode": (
        "e2e/test_tls_enforcing.py::test_a_broker_that_takes_tls_only_registers_by_tls_unless_it_is_told_not_to",
    ),
    "tls.enable": (
        _BROKER
        + "config/test_broker_config.py::test_a_server_that_takes_tls_only_speaks_it_to_others_unless_it_is_said_otherwise",
        _REMOTING + "test_remoting_settings.py::test_each_key_of_tls_decides_who_is_served",
    ),
    "tls.config.file": (
        "unit/common/test_config_layers.py::test_the_tls_file_beats_the_configuration_file_and_yields_to_the_environment",
    ),
    **dict.fromkeys(
        (
            *(
                "tls.test.mode.enable",
                "tls.server.need.client.auth",
                "tls.server.keyPath",
                "tls.server.keyPassword",
            ),
            *(
                "tls.server.certPath",
                "tls.server.authClient",
                "tls.server.trustCertPath",
                "tls.client.keyPath",
            ),
            *(
                "tls.client.keyPassword",
                "tls.client.certPath",
                "tls.client.authServer",
                "tls.client.trustCertPath",
            ),
        ),
        (_REMOTING + "test_remoting_settings.py::test_each_key_of_tls_decides_who_is_served",),
    ),
}

_OF_ACCESS: Final[dict[str, tuple[str, ...]]] = {
    "authenticationEnabled": (
        "unit/access/test_users.py::test_there_are_no_users_where_access_control_is_off",
    ),
    "authorizationEnabled": (
        "unit/access/test_users.py::test_without_authorization_whoever_signs_may_do_everything",
    ),
    "authConfigPath": (
        "e2e/test_access_operation.py::test_users_are_kept_in_the_folder_that_is_named",
    ),
    "initAuthenticationUser": (
        "unit/access/test_users.py::test_the_first_user_is_made_once_and_keeps_the_password_that_it_got_since",
    ),
    "innerClientAuthenticationCredentials": (
        "e2e/test_access_operation.py::test_a_broker_without_the_right_keys_is_not_registered",
    ),
    "authenticationWhitelist": (
        "unit/access/test_users.py::test_codes_of_the_white_lists_are_not_looked_at",
    ),
    "authorizationWhitelist": (
        "unit/access/test_users.py::test_codes_of_the_white_lists_are_not_looked_at",
    ),
    **dict.fromkeys(
        (
            *("authenticationProvider", "authenticationMetadataProvider", "authenticationStrategy"),
            *("authorizationProvider", "authorizationMetadataProvider", "authorizationStrategy"),
        ),
        (_IN_EFFECT + "test_a_class_of_access_control_is_the_originals_own_or_refused",),
    ),
    "trustedProxies": (
        "e2e/test_access_operation.py::test_where_a_peer_says_that_it_is_counts_if_it_is_trusted",
    ),
    "clusterName": (
        "e2e/test_access_operation.py::test_rules_of_a_name_server_are_about_the_cluster_that_its_key_names",
    ),
}

_OF_NAME_SERVERS: Final[dict[str, tuple[str, ...]]] = {
    "kvConfigPath": (
        _NAME_SERVER
        + "test_name_server_keys.py::test_kept_values_and_updates_are_in_the_files_that_are_named",
    ),
    "configStorePath": (
        _NAME_SERVER
        + "test_name_server_keys.py::test_kept_values_and_updates_are_in_the_files_that_are_named",
    ),
    "productEnvName": (
        _NAME_SERVER
        + "test_name_server_keys.py::test_a_topic_that_is_not_known_is_looked_up_in_the_environment_that_is_named",
    ),
    "clusterTest": (
        _NAME_SERVER
        + "test_name_server_keys.py::test_a_topic_that_is_not_known_is_looked_up_in_the_environment_that_is_named",
    ),
    "scanNotActiveBrokerInterval": (
        _NAME_SERVER
        + "test_name_server_keys.py::test_brokers_that_fell_silent_are_looked_for_after_each_interval",
    ),
    "orderMessageEnable": (
        _NAME_SERVER
        + "test_name_server_requests.py::test_the_order_configuration_is_in_the_route_where_that_is_switched_on",
    ),
    "returnOrderTopicConfigToBroker": (
        _NAME_SERVER
        + "test_registration_rules.py::test_the_order_configuration_comes_with_the_answer_where_it_exists_and_is_switched_on",
    ),
    "supportActingMaster": (
        _NAME_SERVER
        + "test_name_server_requests.py::test_an_acting_master_is_presented_as_master_where_that_is_switched_on",
    ),
    "enableAllTopicList": (
        _NAME_SERVER + "test_name_server_requests.py::test_lists_can_be_switched_off",
    ),
    "enableTopicList": (
        _NAME_SERVER + "test_name_server_requests.py::test_lists_can_be_switched_off",
    ),
    "notifyMinBrokerIdChanged": (
        _NAME_SERVER
        + "test_housekeeping.py::test_members_hear_of_a_new_lowest_id_where_that_is_switched_on",
    ),
    "needWaitForService": (
        _NAME_SERVER
        + "test_name_server_requests.py::test_routes_are_refused_until_the_time_to_wait_is_over",
    ),
    "waitSecondsForService": (
        _NAME_SERVER
        + "test_name_server_requests.py::test_routes_are_refused_until_the_time_to_wait_is_over",
    ),
    "deleteTopicWithBrokerRegistration": (
        _NAME_SERVER
        + "test_registration_rules.py::test_with_deletion_switched_on_a_registration_takes_away_what_it_does_not_name",
    ),
}

PROOFS: Final = _OF_BROKERS | _OF_LINKS | _OF_STORES | _OF_REMOTING | _OF_ACCESS | _OF_NAME_SERVERS
