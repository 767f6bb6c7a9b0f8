"""Which request fields name a topic, a group or a cluster, or locate a message: for authorization.

A table only. Requests that name theirs in the body, and those about a server as a whole, are not in
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.protocol.codes import RequestCode


class ResourceKind(Enum):
    """The kind of resource that a request may be about; the values are the original's names."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class NamingField(NamedTuple):
    """A field whose value is a resource name, or several joined by a separator."""

    kind: ResourceKind
    name: str
    separator: str | None = None


_TOPIC: Final = NamingField(ResourceKind.TOPIC, "topic")
_TOPIC_V2: Final = NamingField(ResourceKind.TOPIC, "b")
_GROUP: Final = NamingField(ResourceKind.GROUP, "group")
_CONSUMER_GROUP: Final = NamingField(ResourceKind.GROUP, "consumerGroup")
_CLUSTER: Final = NamingField(ResourceKind.CLUSTER, "clusterName")

NAMING_FIELDS: Final[Mapping[int, tuple[NamingField, ...]]] = {
    RequestCode.SEND_MESSAGE: (_TOPIC,),
    RequestCode.PULL_MESSAGE: (_TOPIC, _CONSUMER_GROUP),
    RequestCode.QUERY_MESSAGE: (_TOPIC,),
    RequestCode.QUERY_CONSUMER_OFFSET: (_TOPIC, _CONSUMER_GROUP),
    RequestCode.UPDATE_CONSUMER_OFFSET: (_TOPIC, _CONSUMER_GROUP),
    RequestCode.UPDATE_AND_CREATE_TOPIC: (_TOPIC,),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (_TOPIC,),
    RequestCode.GET_MAX_OFFSET: (_TOPIC,),
    RequestCode.GET_MIN_OFFSET: (_TOPIC,),
    RequestCode.GET_EARLIEST_MSG_STORETIME: (_TOPIC,),
    RequestCode.VIEW_MESSAGE_BY_ID: (_TOPIC,),
    RequestCode.UNREGISTER_CLIENT: (_CONSUMER_GROUP,),
    RequestCode.CONSUMER_SEND_MSG_BACK: (_GROUP,),
    RequestCode.END_TRANSACTION: (_TOPIC,),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (_CONSUMER_GROUP,),
    RequestCode.REGISTER_BROKER: (_CLUSTER,),
    RequestCode.UNREGISTER_BROKER: (_CLUSTER,),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: (_TOPIC,),
    RequestCode.GET_TOPIC_STATS_INFO: (_TOPIC,),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: (_CONSUMER_GROUP,),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: (NamingField(ResourceKind.GROUP, "groupName"),),
    RequestCode.GET_CONSUME_STATS: (
        _TOPIC,
        _CONSUMER_GROUP,
        NamingField(ResourceKind.TOPIC, "topicList", ";"),
    ),
    RequestCode.DELETE_TOPIC_IN_BROKER: (_TOPIC,),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: (_CLUSTER,),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (_TOPIC, _GROUP),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (_TOPIC, _GROUP),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: (_TOPIC,),
    RequestCode.QUERY_CONSUME_TIME_SPAN: (_TOPIC, _GROUP),
    RequestCode.GET_CONSUMER_RUNNING_INFO: (_CONSUMER_GROUP,),
    RequestCode.QUERY_CORRECTION_OFFSET: (
        _TOPIC,
        NamingField(ResourceKind.GROUP, "filterGroups", ","),
        NamingField(ResourceKind.GROUP, "compareGroup"),
    ),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: (_TOPIC, _CONSUMER_GROUP),
    RequestCode.SEND_MESSAGE_V2: (_TOPIC_V2,),
    RequestCode.CLONE_GROUP_OFFSET: (
        _TOPIC,
        NamingField(ResourceKind.GROUP, "srcGroup"),
        NamingField(ResourceKind.GROUP, "destGroup"),
    ),
    RequestCode.SEND_BATCH_MESSAGE: (_TOPIC_V2,),
    RequestCode.QUERY_CONSUME_QUEUE: (_TOPIC, _CONSUMER_GROUP),
    RequestCode.QUERY_DATA_VERSION: (_CLUSTER,),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: (_TOPIC,),
    RequestCode.SEND_REPLY_MESSAGE: (_TOPIC,),
    RequestCode.SEND_REPLY_MESSAGE_V2: (_TOPIC_V2,),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: (_GROUP,),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: (_TOPIC, _GROUP),
    RequestCode.GET_TOPIC_CONFIG: (_TOPIC,),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: (_GROUP,),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: (_TOPIC, _GROUP),
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: (_TOPIC,),
    RequestCode.LITE_PULL_MESSAGE: (_TOPIC, _CONSUMER_GROUP),
    RequestCode.RECALL_MESSAGE: (_TOPIC,),
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: (_TOPIC,),
    RequestCode.GET_BROKER_MEMBER_GROUP: (_CLUSTER,),
    RequestCode.REMOVE_BROKER: (NamingField(ResourceKind.CLUSTER, "brokerClusterName"),),
    RequestCode.BROKER_HEARTBEAT: (_CLUSTER,),
    RequestCode.POP_MESSAGE: (_TOPIC, _CONSUMER_GROUP),
    RequestCode.ACK_MESSAGE: (_TOPIC, _CONSUMER_GROUP),
    RequestCode.PEEK_MESSAGE: (_TOPIC, _CONSUMER_GROUP),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: (_TOPIC, _CONSUMER_GROUP),
    RequestCode.NOTIFICATION: (_TOPIC, _CONSUMER_GROUP),
    RequestCode.POLLING_INFO: (_TOPIC, _CONSUMER_GROUP),
}

# Requests about the message at a log position, and the field that holds it: the message's topic is
# read from the log, not from the request.
LOCATING_FIELDS: Final[Mapping[int, str]] = {
    RequestCode.VIEW_MESSAGE_BY_ID: "offset",
    RequestCode.CONSUMER_SEND_MSG_BACK: "offset",
    RequestCode.END_TRANSACTION: "commitLogOffset",
    RequestCode.CONSUME_MESSAGE_DIRECTLY: "msgId",  # contains the position
    RequestCode.RESUME_CHECK_HALF_MESSAGE: "msgId",
}
