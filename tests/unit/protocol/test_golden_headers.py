"""No field sent by a real peer is lost: golden ext fields pass through the typed
header unchanged.
"""

from __future__ import annotations

import pytest

from orbitmq.protocol import frame
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import (
    broker_info,
    clients,
    groups,
    nameserver,
    offsets,
    pull,
    query,
    send,
    topics,
    transaction,
)
from orbitmq.protocol.headers.base import Header, RpcRequestHeader
from support.common import golden_data
from support.common.golden_data import GoldenFrame

# Added by hooks to any request, so not part of a request's own header: the client's kind of
# consumer.
HOOK_FIELDS = {"ReqT"}
POP_CODES = {200050, 200051, 200053}  # not served yet, so they have no headers

REQUESTS: dict[int, type[Header]] = {
    11: pull.PullMessageRequestHeader,
    12: query.QueryMessageRequestHeader,
    14: offsets.QueryConsumerOffsetRequestHeader,
    15: offsets.UpdateConsumerOffsetRequestHeader,
    17: topics.CreateTopicRequestHeader,
    21: topics.GetAllTopicConfigRequestHeader,
    29: offsets.SearchOffsetRequestHeader,
    30: offsets.GetMaxOffsetRequestHeader,
    31: offsets.GetMinOffsetRequestHeader,
    32: offsets.GetEarliestMsgStoretimeRequestHeader,
    34: RpcRequestHeader,
    35: clients.UnregisterClientRequestHeader,
    36: send.ConsumerSendMsgBackRequestHeader,
    37: transaction.EndTransactionRequestHeader,
    38: clients.GetConsumerListByGroupRequestHeader,
    39: transaction.CheckTransactionStateRequestHeader,
    40: clients.NotifyConsumerIdsChangedRequestHeader,
    100: nameserver.PutKVConfigRequestHeader,
    101: nameserver.GetKVConfigRequestHeader,
    102: nameserver.DeleteKVConfigRequestHeader,
    103: nameserver.RegisterBrokerRequestHeader,
    104: nameserver.UnRegisterBrokerRequestHeader,
    105: nameserver.GetRouteInfoRequestHeader,
    201: groups.GetAllSubscriptionGroupRequestHeader,
    202: topics.GetTopicStatsInfoRequestHeader,
    203: clients.GetConsumerConnectionListRequestHeader,
    204: clients.GetProducerConnectionListRequestHeader,
    205: nameserver.WipeWritePermOfBrokerRequestHeader,
    207: groups.DeleteSubscriptionGroupRequestHeader,
    208: groups.GetConsumeStatsRequestHeader,
    215: topics.DeleteTopicRequestHeader,
    216: nameserver.DeleteTopicFromNamesrvRequestHeader,
    219: nameserver.GetKVListByNamespaceRequestHeader,
    220: offsets.ResetOffsetRequestHeader,
    221: offsets.GetConsumerStatusRequestHeader,
    222: offsets.ResetOffsetRequestHeader,
    223: offsets.GetConsumerStatusRequestHeader,
    224: nameserver.GetTopicsByClusterRequestHeader,
    300: topics.QueryTopicConsumeByWhoRequestHeader,
    303: groups.QueryConsumeTimeSpanRequestHeader,
    307: clients.GetConsumerRunningInfoRequestHeader,
    309: clients.ConsumeMessageDirectlyResultRequestHeader,
    310: send.SendMessageRequestHeaderV2,
    314: offsets.CloneGroupOffsetRequestHeader,
    315: broker_info.ViewBrokerStatsDataRequestHeader,
    317: groups.GetConsumeStatsInBrokerHeader,
    320: send.SendMessageRequestHeaderV2,
    321: query.QueryConsumeQueueRequestHeader,
    322: nameserver.QueryDataVersionRequestHeader,
    325: send.SendMessageRequestHeaderV2,
    326: send.ReplyMessageRequestHeader,
    327: nameserver.AddWritePermOfBrokerRequestHeader,
    351: topics.GetTopicConfigRequestHeader,
    370: send.RecallMessageRequestHeader,
}

ANSWERS: dict[int, type[Header]] = {
    11: pull.PullMessageResponseHeader,
    12: query.QueryMessageResponseHeader,
    14: offsets.QueryConsumerOffsetResponseHeader,
    26: broker_info.GetBrokerConfigResponseHeader,
    29: offsets.SearchOffsetResponseHeader,
    30: offsets.GetMaxOffsetResponseHeader,
    31: offsets.GetMinOffsetResponseHeader,
    32: offsets.GetEarliestMsgStoretimeResponseHeader,
    34: clients.HeartbeatResponseHeader,
    101: nameserver.GetKVConfigResponseHeader,
    103: nameserver.RegisterBrokerResponseHeader,
    205: nameserver.WipeWritePermOfBrokerResponseHeader,
    310: send.SendMessageResponseHeader,
    320: send.SendMessageResponseHeader,
    322: nameserver.QueryDataVersionResponseHeader,
    325: send.SendMessageResponseHeader,
    327: nameserver.AddWritePermOfBrokerResponseHeader,
    370: send.RecallMessageResponseHeader,
}


def _own_fields(golden: GoldenFrame) -> dict[str, str]:
    fields = frame.decode_one(golden.frame).ext_fields or {}
    return {name: value for name, value in fields.items() if name not in HOOK_FIELDS}


def _frames(*, is_request: bool) -> list[GoldenFrame]:
    return [
        golden
        for golden in golden_data.frames()
        if golden.is_request is is_request
        and golden.request_code not in POP_CODES
        and _own_fields(golden)
    ]


@pytest.mark.parametrize(
    ("is_request", "table"), [(True, REQUESTS), (False, ANSWERS)], ids=["requests", "answers"]
)
def test_every_code_whose_golden_frames_carry_fields_has_a_typed_header(
    is_request: bool, table: dict[int, type[Header]]
) -> None:
    assert {golden.request_code for golden in _frames(is_request=is_request)} <= table.keys()


@pytest.mark.parametrize(
    ("is_request", "table"), [(True, REQUESTS), (False, ANSWERS)], ids=["requests", "answers"]
)
def test_golden_fields_pass_through_their_typed_header_unchanged(
    is_request: bool, table: dict[int, type[Header]]
) -> None:
    checked = 0
    for golden in _frames(is_request=is_request):
        fields = _own_fields(golden)
        assert table[golden.request_code].from_fields(fields).to_fields() == fields, golden
        checked += 1
    assert checked > 300, f"only {checked} frames were compared"


def test_an_answer_of_success_has_every_field_that_its_header_requires() -> None:
    checked = set()
    for golden in golden_data.frames():
        command = frame.decode_one(golden.frame)
        header = ANSWERS.get(golden.request_code)
        if header is not None and not golden.is_request and command.code == ResponseCode.SUCCESS:
            header.from_fields(command.ext_fields)
            checked.add(golden.request_code)
    assert ANSWERS.keys() - checked == {26}  # the frames have no reply to GET_BROKER_CONFIG
