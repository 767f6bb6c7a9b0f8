"""The resources of a request, and the actions that must be allowed on them: two tables by request
code, for accounts (4.9 style) and for users (5.x).

Pure: fields and body in, resources out. A retry topic stands for its group. A code that is in no
table needs an administrator: a request that is added to a server and forgotten here is refused.

Stricter than Apache, which allows many requests to any authenticated user: see
docs/access-control.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import chain
from typing import Final, NamedTuple

from orbitmq.common.errors import InvalidMessageError, ProtocolError, RequestRefusedError
from orbitmq.common.slices import Slices, finish, slices_of
from orbitmq.common.topic_names import REPLY_SUFFIX, RETRY_PREFIX, WAITING_TOPICS
from orbitmq.message.message_id import parse_offset_id
from orbitmq.protocol.bodies.clients import (
    CHECK_BODY_BYTES_MAX,
    CLIENT_BODY_BYTES_MAX,
    CheckClientRequestBody,
    HeartbeatData,
    LockBatchBody,
)
from orbitmq.protocol.bodies.groups import GroupConfig, decode_group_list
from orbitmq.protocol.bodies.nameserver import SMALL_BODY_BYTES_MAX, small_body
from orbitmq.protocol.bodies.request_modes import RequestMode
from orbitmq.protocol.bodies.topics import decode_topic_list
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.named_resources import LOCATING_FIELDS, NAMING_FIELDS, ResourceKind

Code = RequestCode
_DECISIONS_MAX: Final = 10_000
_NAMING_LENGTH_MAX: Final = 1000
_PLACE_LENGTH_MAX: Final = 200  # longer than any number that a handler reads
# The log offset is in the id of the message.
_NAMING_BY_ID: Final = (Code.CONSUME_MESSAGE_DIRECTLY, Code.RESUME_CHECK_HALF_MESSAGE)


class Resource(NamedTuple):
    """A topic, group or cluster that a request names."""

    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}"


class Action(Enum):
    """What may be done with a resource; the values are Apache's names."""

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

_NAMED_PER_SLICE: Final = 2_000  # topics or groups


def topic(name: str) -> Resource:
    """Return the resource of a topic; for a retry topic, its group."""
    return (
        Resource(ResourceKind.TOPIC, name)
        if not name.startswith(RETRY_PREFIX)
        else group(name.removeprefix(RETRY_PREFIX))
    )


def group(name: str) -> Resource:
    return Resource(ResourceKind.GROUP, name)


def is_waiting_topic(resource: Resource) -> bool:
    """Whether the topic holds deferred messages of all topics: only a rule that names it allows
    access.
    """
    return resource.kind is ResourceKind.TOPIC and resource.name in WAITING_TOPICS


def actions_on(resource: Resource, actions: frozenset[Action]) -> frozenset[Action]:
    """Return the actions required on one of the resources: consumers send to the retry topic of a
    group, so publishing to it requires Sub.
    """
    return _CONSUMES if resource.kind is ResourceKind.GROUP and actions == _PUBLISHES else actions


TopicAt = Callable[[int], str | None]  # the topic of the message at a log offset, or None


def reply_topic_of(cluster: str) -> str:
    """Return the topic for replies to requesters in a cluster."""
    return cluster + REPLY_SUFFIX


def nowhere(_offset: int) -> str | None:
    """The TopicAt of servers without a log."""
    return None


def resources_of(
    request: RemotingCommand, topic_at: TopicAt = nowhere, reply_topic: str | None = None
) -> list[Resource]:
    """Do what `resources_in_slices` does, in one go."""
    return finish(resources_in_slices(request, topic_at, reply_topic))


def resources_in_slices(
    request: RemotingCommand, topic_at: TopicAt = nowhere, reply_topic: str | None = None
) -> Slices[list[Resource]]:
    """Return the resources that a request names, each once, by its fields, its body or a log
    offset; RequestRefusedError if the body is unreadable.

    A reply in `reply_topic`, that of the cluster, names nothing: it is delivered to the requester's
    client, whose id belongs to one user.
    """
    found: dict[Resource, None] = {}
    named = chain(_named_in_fields(request, topic_at), (yield from _named_in_body(request)))
    for part in slices_of(named, _NAMED_PER_SLICE):
        found.update(dict.fromkeys(part))
        if len(part) == _NAMED_PER_SLICE:
            yield
    if request.code in _REPLIES:
        return [each for each in found if each.name != reply_topic]
    return list(found)


def check_size(request: RemotingCommand) -> None:
    """Refuse a body that no handler would read, before its signature is checked;
    RequestRefusedError states the limit.
    """
    size, size_max = len(request.body or b""), _BODY_BYTES_MAX.get(request.code)
    if size_max is not None and size > size_max:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"the body of request {request.code} has {size} bytes; up to {size_max} are read;"
            " nothing was changed",
        )


def _named_in_fields(request: RemotingCommand, topic_at: TopicAt) -> Iterator[Resource]:
    fields = request.ext_fields or {}
    for kind, name, separator in NAMING_FIELDS.get(request.code, ()):
        value = fields.get(name)
        if value:
            names = (value,) if separator is None else filter(None, value.split(separator))
            for each in names:
                yield (
                    topic(each)
                    if kind is ResourceKind.TOPIC
                    else Resource(kind, each.removeprefix(RETRY_PREFIX))
                )
    where = _place(request.code, fields.get(LOCATING_FIELDS.get(request.code, "")))
    if where is not None and (found_topic := topic_at(where)) is not None:
        yield topic(found_topic)


def _named_in_body(request: RemotingCommand) -> Slices[Iterable[Resource]]:
    reader = _BODIES.get(request.code)
    if reader is None:
        return ()
    try:
        return (yield from reader(request.body or b""))
    except ProtocolError as problem:
        why = f"the body of request {request.code} cannot be read: {problem}; nothing was changed"
        raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, why) from problem


def _place(code: int, text: str | None) -> int | None:
    """Return the log offset in a field; everything that a handler would read as a number is one."""
    if not text or len(text) > _PLACE_LENGTH_MAX:
        return None
    try:
        return parse_offset_id(text).log_offset if code in _NAMING_BY_ID else int(text)
    except (InvalidMessageError, ValueError):
        return None


Naming = tuple[int | str | None, ...]


def naming_of(request: RemotingCommand) -> Naming | None:
    """Return what `resources_of` depends on, as a cache key for decisions; None if that is the
    body, or a message.
    """
    if request.code in _BODIES or request.code in LOCATING_FIELDS:
        return None
    fields = request.ext_fields or {}
    return request.code, *[fields.get(field.name) for field in NAMING_FIELDS.get(request.code, ())]


class DecisionCache:
    """A bounded cache of positive decisions, for the requests that clients repeat; cleared as a
    whole.
    """

    def __init__(self) -> None:
        self._allowed: set[tuple[str, str, Naming]] = set()

    def __contains__(self, decision: tuple[str, str, Naming]) -> bool:
        return decision in self._allowed

    def add(self, user: str, host: str, naming: Naming) -> None:
        if len(self._allowed) >= _DECISIONS_MAX:
            self._allowed.clear()
        if len(repr(naming)) <= _NAMING_LENGTH_MAX:  # long made-up names could fill the memory
            self._allowed.add((user, host, naming))


def _heartbeat(body: bytes) -> Slices[Iterable[Resource]]:
    heartbeat = yield from HeartbeatData.decode_in_slices(body)
    return (
        named
        for consumer in heartbeat.consumers
        for named in chain(
            (group(consumer.group),), (topic(each.topic) for each in consumer.subscriptions)
        )
    )


def _locks(body: bytes) -> Slices[Iterable[Resource]]:
    locks = yield from LockBatchBody.decode_in_slices(body)
    return chain((group(locks.consumer_group),), (topic(queue.topic) for queue in locks.queues))


def _checked_client(body: bytes) -> Slices[Iterable[Resource]]:
    """Return group and topic, named or not: the expression is compiled for users that may consume
    both, and clients name both.
    """
    client = yield from CheckClientRequestBody.decode_in_slices(body)
    return [
        group(client.group or ""),
        topic("" if client.subscription is None else client.subscription.topic),
    ]


def _topics(body: bytes) -> Slices[Iterable[Resource]]:
    topics = yield from decode_topic_list(body)
    return (topic(each.name) for each in topics)


def _groups(body: bytes) -> Slices[Iterable[Resource]]:
    groups = yield from decode_group_list(body)
    return (group(each.name) for each in groups)


def _group(body: bytes) -> Slices[Iterable[Resource]]:
    yield from ()  # it is small
    return (group(GroupConfig.decode(small_body(body)).name),)


def _request_mode(body: bytes) -> Slices[Iterable[Resource]]:
    mode = RequestMode.decode(small_body(body))
    yield from ()  # it is small
    return (topic(mode.topic), group(mode.group))


# How the body of a request is read: small bodies of one resource at once, the others in slices.
_BODIES: Final[Mapping[int, Callable[[bytes], Slices[Iterable[Resource]]]]] = {
    Code.HEART_BEAT: _heartbeat,
    Code.LOCK_BATCH_MQ: _locks,
    Code.UNLOCK_BATCH_MQ: _locks,
    Code.CHECK_CLIENT_CONFIG: _checked_client,
    Code.SET_MESSAGE_REQUEST_MODE: _request_mode,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _topics,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _group,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _groups,
}
_BODY_BYTES_MAX: Final[Mapping[int, int]] = {
    Code.HEART_BEAT: CLIENT_BODY_BYTES_MAX,
    Code.LOCK_BATCH_MQ: CLIENT_BODY_BYTES_MAX,
    Code.UNLOCK_BATCH_MQ: CLIENT_BODY_BYTES_MAX,
    Code.CHECK_CLIENT_CONFIG: CHECK_BODY_BYTES_MAX,
    Code.SET_MESSAGE_REQUEST_MODE: SMALL_BODY_BYTES_MAX,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: SMALL_BODY_BYTES_MAX,
}
_REPLIES: Final = frozenset({Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2})

# Clients send these also without a consuming group or a topic; then authentication is enough.
MAY_NAME_NOTHING: Final = frozenset(
    {Code.HEART_BEAT, Code.UNREGISTER_CLIENT, Code.END_TRANSACTION, *_REPLIES}
)

_PUBLISHING: Final = (
    *(
        Code.SEND_MESSAGE,
        Code.SEND_MESSAGE_V2,
        Code.SEND_BATCH_MESSAGE,
        Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2,
    ),
    *(Code.END_TRANSACTION, Code.RECALL_MESSAGE),
)
_CONSUMING: Final = (
    *(
        Code.PULL_MESSAGE,
        Code.LITE_PULL_MESSAGE,
        Code.HEART_BEAT,
        Code.UNREGISTER_CLIENT,
        Code.CHECK_CLIENT_CONFIG,
    ),
    *(Code.CONSUMER_SEND_MSG_BACK, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ),
    *(
        Code.POP_MESSAGE,
        Code.ACK_MESSAGE,
        Code.PEEK_MESSAGE,
        Code.CHANGE_MESSAGE_INVISIBLETIME,
        Code.NOTIFICATION,
    ),
)
_LOOKING_AT_TOPICS: Final = (
    *(
        Code.SEARCH_OFFSET_BY_TIMESTAMP,
        Code.GET_MAX_OFFSET,
        Code.GET_MIN_OFFSET,
        Code.GET_EARLIEST_MSG_STORETIME,
    ),
    *(
        Code.GET_TOPIC_STATS_INFO,
        Code.QUERY_TOPIC_CONSUME_BY_WHO,
        Code.GET_TOPIC_CONFIG,
        Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
    ),
    *(Code.QUERY_CONSUME_QUEUE, Code.QUERY_CORRECTION_OFFSET),
)
_LOOKING_AT_GROUPS: Final = (
    *(
        Code.GET_CONSUMER_CONNECTION_LIST,
        Code.GET_CONSUME_STATS,
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    ),
    *(Code.QUERY_CONSUME_TIME_SPAN, Code.GET_CONSUMER_RUNNING_INFO, Code.QUERY_TOPICS_BY_CONSUMER),
    *(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, Code.GET_SUBSCRIPTIONGROUP_CONFIG, Code.POLLING_INFO),
)
_LOOKING_AT_BROKERS: Final = (
    *(
        Code.GET_BROKER_CONFIG,
        Code.GET_BROKER_RUNTIME_INFO,
        Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_DELAY_OFFSET,
    ),
    *(
        Code.GET_BROKER_CLUSTER_ACL_INFO,
        Code.GET_TIMER_CHECK_POINT,
        Code.GET_TIMER_METRICS,
        Code.GET_PRODUCER_CONNECTION_LIST,
    ),
    *(
        Code.VIEW_BROKER_STATS_DATA,
        Code.GET_BROKER_CONSUME_STATS,
        Code.GET_ALL_PRODUCER_INFO,
        Code.EXPORT_ROCKSDB_CONFIG_TO_JSON,
    ),
    *(
        Code.GET_ALL_MESSAGE_REQUEST_MODE,
        Code.GET_BROKER_HA_STATUS,
        Code.GET_BROKER_EPOCH_CACHE,
        Code.GET_COLD_DATA_FLOW_CTR_INFO,
    ),
)
# Everything that a slave takes over, the users that hold queue locks included.
_FOLLOWING: Final = (Code.GET_METADATA_CHANGES,)
_LISTING: Final = (
    *(
        Code.GET_ALL_TOPIC_CONFIG,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    ),
    *(
        Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        Code.GET_TOPICS_BY_CLUSTER,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    ),
    *(
        Code.GET_UNIT_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    ),
)
_LOOKING_AT_NAME_SERVERS: Final = (
    *(
        Code.GET_KV_CONFIG,
        Code.GET_KVLIST_BY_NAMESPACE,
        Code.QUERY_DATA_VERSION,
        Code.GET_NAMESRV_CONFIG,
        Code.GET_BROKER_MEMBER_GROUP,
    ),
)
_LOOKING_AT_USERS: Final = (
    Code.AUTH_GET_USER,
    Code.AUTH_LIST_USER,
    Code.AUTH_GET_ACL,
    Code.AUTH_LIST_ACL,
)
_CHANGING_CLUSTERS: Final = (
    *(
        Code.UPDATE_BROKER_CONFIG,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.DELETE_EXPIRED_COMMITLOG,
    ),
    *(
        Code.REGISTER_FILTER_SERVER,
        Code.NOTIFY_MIN_BROKER_ID_CHANGE,
        Code.EXCHANGE_BROKER_HA_INFO,
        Code.RESET_MASTER_FLUSH_OFFSET,
    ),
    *(
        Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        Code.SET_COMMITLOG_READ_MODE,
    ),
    *(
        Code.PUT_KV_CONFIG,
        Code.DELETE_KV_CONFIG,
        Code.REGISTER_BROKER,
        Code.UNREGISTER_BROKER,
        Code.BROKER_HEARTBEAT,
    ),
    *(
        Code.WIPE_WRITE_PERM_OF_BROKER,
        Code.ADD_WRITE_PERM_OF_BROKER,
        Code.DELETE_TOPIC_IN_NAMESRV,
        Code.REGISTER_TOPIC_IN_NAMESRV,
    ),
    *(
        Code.UPDATE_NAMESRV_CONFIG,
        Code.ADD_BROKER,
        Code.REMOVE_BROKER,
        Code.NOTIFY_BROKER_ROLE_CHANGED,
        Code.SWITCH_TIMER_ENGINE,
    ),
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


# For users: any of these actions, on all that the request names; if it names nothing, on the
# cluster. Without actions: authentication is enough.
USER_ACTIONS: Final[Mapping[int, frozenset[Action]]] = _table(
    (_PUBLISHING, (Action.PUB,)),
    (_CONSUMING, (Action.SUB,)),
    ((Code.GET_ROUTEINFO_BY_TOPIC,), (Action.PUB, Action.SUB, Action.GET)),
    (
        (Code.QUERY_MESSAGE, Code.QUERY_CONSUMER_OFFSET, Code.GET_CONSUMER_LIST_BY_GROUP),
        (Action.SUB, Action.GET),
    ),
    ((Code.UPDATE_CONSUMER_OFFSET,), (Action.SUB, Action.UPDATE)),
    ((Code.CONSUME_MESSAGE_DIRECTLY,), (Action.SUB,)),
    ((Code.VIEW_MESSAGE_BY_ID, *_LOOKING_AT_TOPICS, *_LOOKING_AT_GROUPS), (Action.GET,)),
    ((*_LOOKING_AT_BROKERS, *_LOOKING_AT_NAME_SERVERS, *_LOOKING_AT_USERS), (Action.GET,)),
    (_FOLLOWING, (Action.GET,)),
    (_LISTING, (Action.GET, Action.LIST)),
    (
        (
            Code.UPDATE_AND_CREATE_TOPIC,
            Code.UPDATE_AND_CREATE_TOPIC_LIST,
            Code.UPDATE_AND_CREATE_STATIC_TOPIC,
        ),
        (Action.CREATE,),
    ),
    (
        (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST),
        (Action.CREATE, Action.UPDATE),
    ),
    ((Code.DELETE_TOPIC_IN_BROKER, Code.DELETE_SUBSCRIPTIONGROUP), (Action.DELETE,)),
    (
        (
            *(
                Code.INVOKE_BROKER_TO_RESET_OFFSET,
                Code.CLONE_GROUP_OFFSET,
                Code.RESUME_CHECK_HALF_MESSAGE,
            ),
            *(
                Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
                Code.SET_MESSAGE_REQUEST_MODE,
                *_CHANGING_CLUSTERS,
            ),
        ),
        (Action.UPDATE,),
    ),
    ((Code.GET_BROKER_CLUSTER_INFO,), ()),
)

# For accounts: Pub or Sub on all that the request names; if it names nothing, by the account's
# default for topics. Without an action: authentication is enough. Others need `admin: true`.
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
