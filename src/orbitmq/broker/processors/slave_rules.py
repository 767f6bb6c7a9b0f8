"""What a slave refuses: writes, and changes of what it copies from its master.

The codes and texts are those of Apache's slaves, with the remedy added. Everything else is served:
pulls too, whether or not `slaveReadEnable` is set, so that messages stay readable while the master
is down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler

_MASTER: Final = "this broker is a slave: ask the master, brokerId 0 of the same brokerName"
_BUSY: Final = (
    ResponseCode.SYSTEM_BUSY,
    f"[REJECTREQUEST]system busy, start flow control for a while: {_MASTER}",
)
_NO_CHANGE: Final = (
    ResponseCode.SYSTEM_ERROR,
    "Can't modify topic or subscription group from slave broker, please execute it from master"
    " broker.",
)
_NO_RESET: Final = (
    ResponseCode.SYSTEM_ERROR,
    f"Can not reset offset in slave broker: {_MASTER}",
)
_NOT_MASTER: Final = (ResponseCode.SLAVE_NOT_AVAILABLE, _MASTER)

REFUSED: Final[Mapping[RequestCode, tuple[ResponseCode, str]]] = {
    RequestCode.SEND_MESSAGE: _BUSY,
    RequestCode.SEND_MESSAGE_V2: _BUSY,
    RequestCode.SEND_BATCH_MESSAGE: _BUSY,
    RequestCode.SEND_REPLY_MESSAGE: _BUSY,
    RequestCode.SEND_REPLY_MESSAGE_V2: _BUSY,
    RequestCode.CONSUMER_SEND_MSG_BACK: _BUSY,
    RequestCode.END_TRANSACTION: _NOT_MASTER,
    RequestCode.RECALL_MESSAGE: _NOT_MASTER,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _NO_RESET,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _NO_CHANGE,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _NO_CHANGE,
    RequestCode.DELETE_TOPIC_IN_BROKER: _NO_CHANGE,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _NO_CHANGE,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _NO_CHANGE,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _NO_CHANGE,
}


def refusals() -> dict[int, Handler]:
    """Return the handlers that take the place of a master's."""

    def refuse(_channel: Channel, request: RemotingCommand) -> RemotingCommand:
        code, remark = REFUSED[RequestCode(request.code)]
        return request.reply(code, remark)

    return dict.fromkeys(map(int, REFUSED), refuse)
