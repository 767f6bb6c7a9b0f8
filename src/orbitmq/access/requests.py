"""What a request is about, and what has to be allowed for it: two tables by request code, for accounts (4.9 style) and for users (5.x).

Pure: fields and body in, resources out. A retry topic stands for its group. What is not in a table needs an administrator: a request that
is added to a server and forgotten here is refused, not let pass.

Stricter than the originals, which let whoever signs do many things: see docs/access-control.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.common.errors import MessageIllegal, ProtocolError, RequestRefused
from orbitmq.common.slices import finish
from orbitmq.common.topic_names import REPLY_SUFFIX, RETRY_PREFIX, WAITING_TOPICS
from orbitmq.message.message_id import parse_offset_id
from orbitmq.protocol.bodies.clients import CheckClientRequestBody, HeartbeatData, LockBatchBody
from orbitmq.protocol.bodies.groups import GroupConfig, decode_group_list
from orbitmq.protocol.bodies.request_modes import RequestMode
from orbitmq.protocol.bodies.topics import decode_topic_list
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.named_resources import LOCATING_FIELDS, NAMING_FIELDS, ResourceKind

Code = RequestCode
_DECISIONS_MAX: Final = 10_000
_NAMING_LENGTH_MAX: Final = 1000
_PLACE_LENGTH_MAX: Final = 200  # longer than any that a handler reads
_NAMING_BY_ID: Final = (Code.CONSUME_MESSAGE_DIRECTLY, Code.RESUME_CHECK_HALF_MESSAGE)  # a place, by the id of the message there


class Resource(NamedTuple):
    """What a request is about."""

    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}"


class Action(Enum):
    """What may be done with it; the values are the original's names."""

    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


_PUBLISHES: Final = frozenset({Action.PUB})
_CONSUMES: Final = frozenset({Action.SUB})

LIST_BYTES_MAX: Final = 128 * 1024  # of topics or groups that somebody wants to create


def topic(name: str) -> Resource:
    """A topic; the group that it belongs to when it is a retry topic."""
    return Resource(ResourceKind.TOPIC, name) if not name.startswith(RETRY_PREFIX) else group(name.removeprefix(RETRY_PREFIX))


def group(name: str) -> Resource:
    return Resource(ResourceKind.GROUP, name)


def is_waiting_topic(resource: Resource) -> bool:
    """Whether messages of all topics lie there until they may be read: nobody may by a rule that does not name it."""
    return resource.kind is ResourceKind.TOPIC and resource.name in WAITING_TOPICS


def actions_on(resource: Resource, actions: frozenset[Action]) -> frozenset[Action]:
    """What has to be allowed on one of the resources: nobody publishes to a group, consumers send to its retry topic."""
    return _CONSUMES if resource.kind is ResourceKind.GROUP and actions == _PUBLISHES else actions


TopicAt = Callable[[int], str | None]  # the topic of the message at a place in the log; None when there is none


def reply_topic_of(cluster: str) -> str:
    """The topic that replies to askers in a cluster are sent to."""
    return cluster + REPLY_SUFFIX


def nowhere(_offset: int) -> str | None:
    """Of servers that have no log."""
    return None


def resources_of(request: RemotingCommand, topic_at: TopicAt = nowhere, reply_topic: str | None = None) -> list[Resource]:
    """What a request names, by its fields, its body or a message's place; RequestRefused when the body cannot be read.

    A reply in `reply_topic`, that of the cluster, names nothing: it is brought to the asker's client, whose id is of one user.
    """
    fields = request.ext_fields or {}
    found: list[Resource] = []
    for kind, name, separator in NAMING_FIELDS.get(request.code, ()):
        value = fields.get(name)
        if value:
            names = (value,) if separator is None else filter(None, value.split(separator))
            found += [topic(each) if kind is ResourceKind.TOPIC else Resource(kind, each.removeprefix(RETRY_PREFIX)) for each in names]
    where = _place(request.code, fields.get(LOCATING_FIELDS.get(request.code, "")))
    if where is not None and (found_topic := topic_at(where)) is not None:
        found.append(topic(found_topic))
    reader = _BODIES.get(request.code)
    if reader is not None:
        try:
            found += reader(request.body or b"")
        except ProtocolError as problem:
            why = f"the body of request {request.code} cannot be read: {problem}; nothing was changed"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, why) from problem
    elif request.code in _REPLIES:
        return [each for each in found if each.name != reply_topic]
    return list(dict.fromkeys(found))  # whoever names one thing a thousand times has one decision made


def _place(code: int, text: str | None) -> int | None:
    """The place in the log that a field names; whatever a handler would read as a number is one."""
    if not text or len(text) > _PLACE_LENGTH_MAX:
        return None
    try:
        return parse_offset_id(text).log_offset if code in _NAMING_BY_ID else int(text)
    except (MessageIllegal, ValueError):
        return None


Naming = tuple[int | str | None, ...]


def naming_of(request: RemotingCommand) -> Naming | None:
    """What `resources_of` depends on, so that decisions can be remembered; None when that is the body, or a message."""
    if request.code in _BODIES or request.code in LOCATING_FIELDS:
        return None
    fields = request.ext_fields or {}
    return request.code, *[fields.get(field.name) for field in NAMING_FIELDS.get(request.code, ())]


class Remembered:
    """So many decisions in favour of somebody, for what clients ask for all the time; forgotten as a whole."""

    def __init__(self) -> None:
        self._allowed: set[tuple[str, str, Naming]] = set()

    def __contains__(self, asked: tuple[str, str, Naming]) -> bool:
        return asked in self._allowed

    def add(self, who: str, host: str, naming: Naming) -> None:
        if len(self._allowed) >= _DECISIONS_MAX:
            self._allowed.clear()
        if len(repr(naming)) <= _NAMING_LENGTH_MAX:  # names that nobody uses could fill the memory
            self._allowed.add((who, host, naming))


def _heartbeat(body: bytes) -> Iterable[Resource]:
    for consumer in HeartbeatData.decode(body).consumers:
        yield group(consumer.group)
        yield from (topic(subscription.topic) for subscription in consumer.subscriptions)


def _locks(body: bytes) -> Iterable[Resource]:
    asked = LockBatchBody.decode(body)
    return [group(asked.consumer_group), *(topic(queue.topic) for queue in asked.queues)]


def _checked_client(body: bytes) -> Iterable[Resource]:
    """Group and topic, named or not: the expression is compiled for whoever may consume both, and clients name both."""
    asked = CheckClientRequestBody.decode(body)
    return [group(asked.group or ""), topic("" if asked.subscription is None else asked.subscription.topic)]


def _list(body: bytes) -> bytes:
    """The body of a list, which is looked at in one go: a long one is for super users, or comes in parts."""
    if len(body) > LIST_BYTES_MAX:
        raise ProtocolError(f"a list of {len(body)} bytes; with access control up to {LIST_BYTES_MAX} are read: send it in parts")
    return body


def _request_mode(body: bytes) -> Iterable[Resource]:
    asked = RequestMode.decode(body)
    return [topic(asked.topic), group(asked.group)]


_BODIES: Final[Mapping[int, Callable[[bytes], Iterable[Resource]]]] = {
    Code.HEART_BEAT: _heartbeat,
    Code.LOCK_BATCH_MQ: _locks,
    Code.UNLOCK_BATCH_MQ: _locks,
    Code.CHECK_CLIENT_CONFIG: _checked_client,
    Code.SET_MESSAGE_REQUEST_MODE: _request_mode,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: lambda body: [topic(each.name) for each in finish(decode_topic_list(_list(body)))],
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: lambda body: [group(GroupConfig.decode(body).name)],
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: lambda body: [group(each.name) for each in finish(decode_group_list(_list(body)))],
}
_REPLIES: Final = frozenset({Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2})

# Clients send these although they have no group that consumes, or say no topic; then a signature is enough.
MAY_NAME_NOTHING: Final = frozenset({Code.HEART_BEAT, Code.UNREGISTER_CLIENT, Code.END_TRANSACTION, *_REPLIES})

_PUBLISHING: Final = (
    *(Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2),
    *(Code.END_TRANSACTION, Code.RECALL_MESSAGE),
)
_CONSUMING: Final = (
    *(Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.HEART_BEAT, Code.UNREGISTER_CLIENT, Code.CHECK_CLIENT_CONFIG),
    *(Code.CONSUMER_SEND_MSG_BACK, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ),
    *(Code.POP_MESSAGE, Code.ACK_MESSAGE, Code.PEEK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME, Code.NOTIFICATION),
)
_LOOKING_AT_TOPICS: Final = (
    *(Code.SEARCH_OFFSET_BY_TIMESTAMP, Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME),
    *(Code.GET_TOPIC_STATS_INFO, Code.QUERY_TOPIC_CONSUME_BY_WHO, Code.GET_TOPIC_CONFIG, Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS),
    *(Code.QUERY_CONSUME_QUEUE, Code.QUERY_CORRECTION_OFFSET),
)
_LOOKING_AT_GROUPS: Final = (
    *(Code.GET_CONSUMER_CONNECTION_LIST, Code.GET_CONSUME_STATS, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS),
    *(Code.QUERY_CONSUME_TIME_SPAN, Code.GET_CONSUMER_RUNNING_INFO, Code.QUERY_TOPICS_BY_CONSUMER),
    *(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, Code.GET_SUBSCRIPTIONGROUP_CONFIG, Code.POLLING_INFO),
)
_LOOKING_AT_BROKERS: Final = (
    *(Code.GET_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO, Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET),
    *(Code.GET_BROKER_CLUSTER_ACL_INFO, Code.GET_TIMER_CHECK_POINT, Code.GET_TIMER_METRICS, Code.GET_PRODUCER_CONNECTION_LIST),
    *(Code.VIEW_BROKER_STATS_DATA, Code.GET_BROKER_CONSUME_STATS, Code.GET_ALL_PRODUCER_INFO, Code.EXPORT_ROCKSDB_CONFIG_TO_JSON),
    *(Code.GET_ALL_MESSAGE_REQUEST_MODE, Code.GET_BROKER_HA_STATUS, Code.GET_BROKER_EPOCH_CACHE, Code.GET_COLD_DATA_FLOW_CTR_INFO),
)
_LISTING: Final = (
    *(Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER),
    *(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, Code.GET_TOPICS_BY_CLUSTER, Code.GET_SYSTEM_TOPIC_LIST_FROM_NS),
    *(Code.GET_UNIT_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
)
_LOOKING_AT_NAME_SERVERS: Final = (
    *(Code.GET_KV_CONFIG, Code.GET_KVLIST_BY_NAMESPACE, Code.QUERY_DATA_VERSION, Code.GET_NAMESRV_CONFIG, Code.GET_BROKER_MEMBER_GROUP),
)
_LOOKING_AT_USERS: Final = (Code.AUTH_GET_USER, Code.AUTH_LIST_USER, Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL)
_CHANGING_CLUSTERS: Final = (
    *(Code.UPDATE_BROKER_CONFIG, Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.CLEAN_UNUSED_TOPIC, Code.DELETE_EXPIRED_COMMITLOG),
    *(Code.REGISTER_FILTER_SERVER, Code.NOTIFY_MIN_BROKER_ID_CHANGE, Code.EXCHANGE_BROKER_HA_INFO, Code.RESET_MASTER_FLUSH_OFFSET),
    *(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, Code.SET_COMMITLOG_READ_MODE),
    *(Code.PUT_KV_CONFIG, Code.DELETE_KV_CONFIG, Code.REGISTER_BROKER, Code.UNREGISTER_BROKER, Code.BROKER_HEARTBEAT),
    *(Code.WIPE_WRITE_PERM_OF_BROKER, Code.ADD_WRITE_PERM_OF_BROKER, Code.DELETE_TOPIC_IN_NAMESRV, Code.REGISTER_TOPIC_IN_NAMESRV),
    *(Code.UPDATE_NAMESRV_CONFIG, Code.ADD_BROKER, Code.REMOVE_BROKER, Code.NOTIFY_BROKER_ROLE_CHANGED, Code.SWITCH_TIMER_ENGINE),
    *(Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER),
    *(Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL),
)


def _table(*rows: tuple[Iterable[int], tuple[Action, ...]]) -> dict[int, frozenset[Action]]:
    table: dict[int, frozenset[Action]] = {}
    for codes, actions in rows:
        for code in codes:
            assert code not in table, f"request {code} has two rules"
            table[code] = frozenset(actions)
    return table


# Of users: any of these actions, on all that the request names; where it names nothing, on the cluster. Without actions: who signs may.
USER_ACTIONS: Final[Mapping[int, frozenset[Action]]] = _table(
    (_PUBLISHING, (Action.PUB,)),
    (_CONSUMING, (Action.SUB,)),
    ((Code.GET_ROUTEINFO_BY_TOPIC,), (Action.PUB, Action.SUB, Action.GET)),
    ((Code.QUERY_MESSAGE, Code.QUERY_CONSUMER_OFFSET, Code.GET_CONSUMER_LIST_BY_GROUP), (Action.SUB, Action.GET)),
    ((Code.UPDATE_CONSUMER_OFFSET,), (Action.SUB, Action.UPDATE)),
    ((Code.CONSUME_MESSAGE_DIRECTLY,), (Action.SUB,)),
    ((Code.VIEW_MESSAGE_BY_ID, *_LOOKING_AT_TOPICS, *_LOOKING_AT_GROUPS), (Action.GET,)),
    ((*_LOOKING_AT_BROKERS, *_LOOKING_AT_NAME_SERVERS, *_LOOKING_AT_USERS), (Action.GET,)),
    (_LISTING, (Action.GET, Action.LIST)),
    ((Code.UPDATE_AND_CREATE_TOPIC, Code.UPDATE_AND_CREATE_TOPIC_LIST, Code.UPDATE_AND_CREATE_STATIC_TOPIC), (Action.CREATE,)),
    (
        (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST),
        (Action.CREATE, Action.UPDATE),
    ),
    ((Code.DELETE_TOPIC_IN_BROKER, Code.DELETE_SUBSCRIPTIONGROUP), (Action.DELETE,)),
    (
        (
            *(Code.INVOKE_BROKER_TO_RESET_OFFSET, Code.CLONE_GROUP_OFFSET, Code.RESUME_CHECK_HALF_MESSAGE),
            *(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, Code.SET_MESSAGE_REQUEST_MODE, *_CHANGING_CLUSTERS),
        ),
        (Action.UPDATE,),
    ),
    ((Code.GET_BROKER_CLUSTER_INFO,), ()),
)

# Of accounts: Pub or Sub on all that the request names; where it names nothing, by the account's default for topics. Without an
# action: who signs may. What is not here needs `admin: true`.
ACCOUNT_ACTIONS: Final[Mapping[int, frozenset[Action]]] = _table(
    (_PUBLISHING, (Action.PUB,)),
    (
        (*_CONSUMING, Code.QUERY_MESSAGE, Code.VIEW_MESSAGE_BY_ID, Code.GET_CONSUMER_LIST_BY_GROUP),
        (Action.SUB,),
    ),
    ((Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET), (Action.SUB,)),
    ((*_LOOKING_AT_TOPICS, *_LOOKING_AT_GROUPS, *_LOOKING_AT_BROKERS, *_LISTING), ()),
    ((Code.GET_ROUTEINFO_BY_TOPIC, Code.GET_BROKER_CLUSTER_INFO, *_LOOKING_AT_NAME_SERVERS), ()),
)
