"""Requests that are wrong in every way that their headers and bodies allow, made from the header
classes, so that no field is forgotten.

`SERVED` says which header, and which body, each request has that a broker serves; `bad_fields` and
`bad_bodies` spoil them one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from interop.frames import BINARY_TYPE, Request
from orbitmq.protocol.headers import (
    auth,
    broker_info,
    clients,
    groups,
    metadata_changes,
    offsets,
    pull,
    query,
    send,
    topics,
    transaction,
)
from orbitmq.protocol.headers.base import Header, WireField, wire_fields

LONG = "x" * 5_000
CONTROL = "a\x00b\x1fc\nd"
NOT_UTF8 = "\ue000"  # stands for three bytes that are no character

NUMBERS = (
    "text",
    "",
    "-1",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "1" + "0" * 30,
)
TEXTS = ("", LONG, CONTROL, NOT_UTF8)
OTHERS = ("", "maybe")
TAKEN_FROM_THE_BUFFER = (
    10,
    11,
    310,
    320,
)  # sends and pulls are read by kernels of their own, in each encoding

GOOD: dict[str, str] = {
    "producer_group": "p",
    "consumer_group": "g",
    "group": "g",
    "group_name": "doomed",
    "src_group": "g",
    "dest_group": "g2",
    "compare_group": "g",
    "topic": "T",
    "default_topic": "TBW102",
    "default_topic_queue_nums": "4",
    "queue_id": "0",
    "queue_offset": "0",
    "commit_offset": "1",
    "max_msg_nums": "32",
    "sys_flag": "0",
    "born_timestamp": "1700000000000",
    "flag": "0",
    "suspend_timeout_millis": "0",
    "sub_version": "0",
    "read_queue_nums": "4",
    "write_queue_nums": "4",
    "perm": "6",
    "topic_filter_type": "SINGLE_TAG",
    "order": "false",
    "key": "k",
    "max_num": "8",
    "begin_timestamp": "0",
    "end_timestamp": "9000000000000",
    "offset": "0",
    "timestamp": "0",
    "is_force": "true",
    "is_order": "false",
    "client_id": "c",
    "stats_name": "TOPIC_PUT_NUMS",
    "stats_key": "T",
    "config_type": "topics",
    "filter_server_addr": "127.0.0.1:1",
    "delay_level": "0",
    "tran_state_table_offset": "0",
    "commit_log_offset": "0",
    "commit_or_rollback": "8",
    "msg_id": "0" * 32,
    "recall_handle": "none",
    "access_key": "somebody",
    "secret_key": "12345678",
    "global_white_addrs": "127.0.0.1",
    "username": "somebody",
    "subject": "User:somebody",
}


@dataclass(frozen=True)
class Served:
    """A request that is served: its header, good values where they are not those of `GOOD`, and a
    good body if it needs one.
    """

    header: type[Header] = Header
    fields: dict[str, str] = field(default_factory=dict)
    body: Any = None
    needs_body: bool = True

    @property
    def good_fields(self) -> dict[str, str]:
        """The fields that must be there, with good values, by their names on the wire."""
        return {
            each.wire_name: {**GOOD, **self.fields}[each.name]
            for each in wire_fields(self.header)
            if each.is_required
        } | {
            each.wire_name: self.fields[each.name]
            for each in wire_fields(self.header)
            if not each.is_required and each.name in self.fields
        }

    @property
    def good_body(self) -> bytes:
        return (
            self.body
            if isinstance(self.body, bytes)
            else b""
            if self.body is None
            else json.dumps(self.body).encode()
        )


_QUEUE = {"topic": "T", "brokerName": "broker-a", "queueId": 0}
_SUBSCRIPTION = {
    "topic": "T",
    "subString": "*",
    "subVersion": 1,
    "tagsSet": [],
    "codeSet": [],
    "expressionType": "TAG",
}
_CONSUMER = {
    "groupName": "online",
    "consumeType": "CONSUME_PASSIVELY",
    "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
    "subscriptionDataSet": [_SUBSCRIPTION],
    "unitMode": False,
}
_HEARTBEAT = {
    "clientID": "c",
    "producerDataSet": [{"groupName": "p"}],
    "consumerDataSet": [_CONSUMER],
    "heartbeatFingerprint": 0,
    "withoutSub": False,
}
_LOCKS = {"consumerGroup": "g", "clientId": "c", "mqSet": [_QUEUE], "onlyThisBroker": True}
_TOPIC = {
    "topicName": "Listed",
    "readQueueNums": 4,
    "writeQueueNums": 4,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": False,
    "attributes": {},
}
_GROUP = {
    "groupName": "listed",
    "consumeEnable": True,
    "retryQueueNums": 1,
    "retryMaxTimes": 16,
    "brokerId": 0,
    "groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000]}},
    "subscriptionDataSet": [
        {"topic": "T", "expressionType": "TAG", "expression": "*", "version": 1}
    ],
    "attributes": {},
}

_BATCH = bytes.fromhex(
    "00000017 00000000 00000000 00000000 00000001 78 0000"
)  # one message of one byte

SERVED: dict[int, Served] = {
    10: Served(send.SendMessageRequestHeader, body=b"hello"),
    11: Served(pull.PullMessageRequestHeader, {"sys_flag": "4", "subscription": "*"}),
    12: Served(query.QueryMessageRequestHeader),
    14: Served(offsets.QueryConsumerOffsetRequestHeader),
    15: Served(offsets.UpdateConsumerOffsetRequestHeader),
    17: Served(topics.CreateTopicRequestHeader, {"topic": "Made"}),
    18: Served(body={"topicConfigList": [_TOPIC]}),
    21: Served(topics.GetAllTopicConfigRequestHeader),
    25: Served(body=b"defaultQueryMaxNum=32\n"),
    26: Served(),
    28: Served(),
    29: Served(offsets.SearchOffsetRequestHeader),
    30: Served(offsets.GetMaxOffsetRequestHeader),
    31: Served(offsets.GetMinOffsetRequestHeader),
    32: Served(offsets.GetEarliestMsgStoretimeRequestHeader),
    33: Served(query.ViewMessageRequestHeader),
    34: Served(body=_HEARTBEAT),
    35: Served(clients.UnregisterClientRequestHeader),
    36: Served(send.ConsumerSendMsgBackRequestHeader),
    37: Served(transaction.EndTransactionRequestHeader),
    38: Served(clients.GetConsumerListByGroupRequestHeader),
    41: Served(body=_LOCKS),
    42: Served(body=_LOCKS),
    43: Served(),
    45: Served(),
    46: Served(
        body={"clientId": "c", "group": "g", "subscriptionData": _SUBSCRIPTION, "namespace": ""},
        needs_body=False,
    ),
    50: Served(auth.CreateAccessConfigRequestHeader),
    51: Served(auth.DeleteAccessConfigRequestHeader),
    52: Served(),
    53: Served(auth.UpdateGlobalWhiteAddrsConfigRequestHeader),
    54: Served(),
    60: Served(),
    61: Served(),
    200: Served(body=_GROUP),
    201: Served(groups.GetAllSubscriptionGroupRequestHeader),
    202: Served(topics.GetTopicStatsInfoRequestHeader),
    203: Served(clients.GetConsumerConnectionListRequestHeader),
    204: Served(clients.GetProducerConnectionListRequestHeader),
    207: Served(groups.DeleteSubscriptionGroupRequestHeader),
    208: Served(groups.GetConsumeStatsRequestHeader),
    215: Served(topics.DeleteTopicRequestHeader, {"topic": "doomed"}),
    222: Served(offsets.ResetOffsetRequestHeader),
    223: Served(offsets.GetConsumerStatusRequestHeader),
    225: Served(body={"groupConfigList": [_GROUP]}),
    300: Served(topics.QueryTopicConsumeByWhoRequestHeader),
    301: Served(clients.RegisterFilterServerRequestHeader),
    303: Served(groups.QueryConsumeTimeSpanRequestHeader),
    305: Served(),
    306: Served(),
    307: Served(clients.GetConsumerRunningInfoRequestHeader),
    308: Served(offsets.QueryCorrectionOffsetHeader),
    309: Served(clients.ConsumeMessageDirectlyResultRequestHeader),
    310: Served(send.SendMessageRequestHeaderV2, body=b"hello"),
    314: Served(offsets.CloneGroupOffsetRequestHeader),
    315: Served(broker_info.ViewBrokerStatsDataRequestHeader),
    316: Served(),
    317: Served(groups.GetConsumeStatsInBrokerHeader),
    320: Served(send.SendMessageRequestHeaderV2, {"batch": "true"}, body=_BATCH),
    321: Served(query.QueryConsumeQueueRequestHeader, {"topic": "T"}),
    323: Served(transaction.ResumeCheckHalfMessageRequestHeader),
    324: Served(send.SendMessageRequestHeader, body=b"hello"),
    325: Served(send.SendMessageRequestHeaderV2, body=b"hello"),
    328: Served(),
    329: Served(),
    343: Served(topics.QueryTopicsByConsumerRequestHeader),
    345: Served(topics.QuerySubscriptionByConsumerRequestHeader),
    351: Served(topics.GetTopicConfigRequestHeader),
    352: Served(groups.GetSubscriptionGroupConfigRequestHeader),
    353: Served(groups.UpdateGroupForbiddenRequestHeader),
    354: Served(),  # it has a header that nobody looks at
    355: Served(broker_info.ExportRocksDBConfigToJsonRequestHeader),
    361: Served(pull.PullMessageRequestHeader, {"sys_flag": "4", "subscription": "*"}),
    370: Served(send.RecallMessageRequestHeader),
    401: Served(body={"topic": "T", "consumerGroup": "g", "mode": "PULL", "popShareQueueNum": 0}),
    402: Served(),
    907: Served(),
    1007: Served(),
    2004: Served(broker_info.SetCommitLogReadModeRequestHeader),
    # Of access control, which is off here.
    3001: Served(auth.CreateUserRequestHeader),
    3002: Served(auth.UpdateUserRequestHeader),
    3003: Served(auth.DeleteUserRequestHeader),
    3004: Served(auth.GetUserRequestHeader),
    3005: Served(auth.ListUsersRequestHeader),
    3006: Served(auth.CreateAclRequestHeader),
    3007: Served(auth.UpdateAclRequestHeader),
    3008: Served(auth.DeleteAclRequestHeader),
    3009: Served(auth.GetAclRequestHeader),
    3010: Served(auth.ListAclsRequestHeader),
    # OrbitMQ's own.
    30_001: Served(metadata_changes.GetMetadataChangesRequestHeader),
}


class Bad(NamedTuple):
    """A request with one fault: in which field or body, and how it is wrong."""

    request: Request
    field: str | None = None  # its name on the wire
    value: str | None = None  # None: it is missing
    is_needed: bool = False  # what is wrong can be neither passed over nor done without
    what: str = ""

    def __str__(self) -> str:
        fault = (
            self.what
            or f"{self.field} {'missing' if self.value is None else repr(self.value[:40])}"
        )
        return f"request {self.request.code}, {fault}"


def bad_fields(code: int, serialize_type: int) -> Iterator[Bad]:
    """Every field of the request missing if it must be there, and with every value that it should
    not have.
    """
    served = SERVED[code]
    good, body = served.good_fields, served.good_body
    if any(each.is_required for each in wire_fields(served.header)):
        yield Bad(
            Request(code, None, body, serialize_type=serialize_type),
            is_needed=True,
            what="no fields at all",
        )
    for each in wire_fields(served.header):
        name = each.wire_name
        if each.is_required:
            fields = {key: value for key, value in good.items() if key != name}
            yield Bad(
                Request(code, fields, body, serialize_type=serialize_type),
                name,
                None,
                is_needed=True,
            )
        for value in _values(
            each, is_brief=serialize_type == BINARY_TYPE and code not in TAKEN_FROM_THE_BUFFER
        ):
            is_unreadable = (
                each.is_required and each.parse is not None and each.parse(value) is None
            )
            yield Bad(
                _with(code, good, name, value, body, serialize_type),
                name,
                value,
                is_needed=is_unreadable,
            )


def _values(each: WireField, *, is_brief: bool) -> tuple[str, ...]:
    if each.parse is None:
        return TEXTS[-1:] if is_brief else TEXTS
    values = NUMBERS if each.format is str else OTHERS
    return values[:1] if is_brief else values


def _with(
    code: int, good: dict[str, str], name: str, value: str, body: bytes, serialize_type: int
) -> Request:
    request = Request(code, {**good, name: value}, body, serialize_type=serialize_type)
    if value != NOT_UTF8:
        return request
    frame = request.encode(7)
    header = frame[8 : len(frame) - len(body)]
    escaped = (
        NOT_UTF8.encode() if serialize_type == BINARY_TYPE else json.dumps(NOT_UTF8)[1:-1].encode()
    )
    assert escaped in header
    return Request(
        code,
        body=body,
        serialize_type=serialize_type,
        header=header.replace(escaped, b"\xff\xfe\xfd"),
    )


_NESTED = 100_000
NO_BODIES: dict[str, bytes] = {
    "no body": b"",
    "not JSON": b"certainly not JSON",
    "cut in the middle": b'{"topicConfigList":[{"topicName":"x","readQueueNums":',
    "not UTF-8": b'{"groupName":"\xff\xfe","clientID":"\xff"}',
    "a list": b"[]",
    "null": b"null",
    "a number": b"5",
    "a text": b'"text"',
    "NaN": b"NaN",
    "brackets": b"[" * _NESTED,
    "braces": b'{"a":' * _NESTED,
    "brackets that are closed": b"[" * _NESTED + b"]" * _NESTED,
    "digits": b"1" * _NESTED,
}
_INFINITE = "1e999"  # stands for that number, which is none that Python would write
_WRONG: tuple[Any, ...] = (
    None,
    [],
    {},
    [[]],
    "text",
    "",
    -1,
    2**31 - 1,
    10**30,
    float("nan"),
    _INFINITE,
    True,
    LONG,
    CONTROL,
)


def bad_bodies(code: int) -> Iterator[Bad]:
    """No body, bodies that are no JSON, and the good one with each member missing or of each other
    type, or there twice.
    """
    served = SERVED[code]
    good = served.good_fields
    is_json = isinstance(served.body, dict)
    for what, body in NO_BODIES.items() if is_json else ():
        yield Bad(
            Request(code, good, body),
            what=f"body {what}",
            is_needed=bool(body) or served.needs_body,
        )
    for what, body in spoiled(served.body) if is_json else ():
        yield Bad(Request(code, good, body), what=f"body with {what}")


def spoiled(good: Any) -> Iterator[tuple[str, bytes]]:
    """The JSON with one member after the other missing, of another type, or twice there."""
    for path in _paths(good):
        name = "/".join(map(str, path))
        if isinstance(path[-1], str):
            yield f"no {name}", json.dumps(_replaced(good, path, _MISSING)).encode()
        for value in _WRONG:
            body = json.dumps(_replaced(good, path, value)).encode()
            yield (
                f"{name}={value!r:.40}",
                body.replace(f'"{_INFINITE}"'.encode(), _INFINITE.encode()),
            )
    text = json.dumps(good)
    yield "all members twice", (text[:-1] + "," + text[1:]).encode()


_MISSING = object()


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    members = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in members:
        yield from _paths(item, (*path, key))


def _replaced(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    first, *rest = path
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if rest:
        copy[first] = _replaced(value[first], tuple(rest), new)
    elif new is _MISSING:
        del copy[first]
    else:
        copy[first] = new
    return copy
