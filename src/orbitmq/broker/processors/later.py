"""Requests about messages that come later: how far they were delivered, what waits, and taking one back before its time.

A recall is a timed message itself: it goes into the slot of the message that it names, and that is not delivered. Invariant: what is
refused stores nothing; a recall that was answered with success holds, for the message cannot have come before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from orbitmq.broker.delay.later import Later, TimerParts
from orbitmq.broker.own_messages import OwnMessages
from orbitmq.broker.processors.admin_answers import REMARK_LEFT
from orbitmq.broker.processors.safe_answers import SafeAnswers
from orbitmq.broker.processors.send import Placer, born_host_of
from orbitmq.broker.topics import Topics
from orbitmq.common.errors import MessageIllegal, RequestRefused, StoreError
from orbitmq.common.slices import Slices
from orbitmq.message import properties
from orbitmq.message.recall_handle import RecallHandle
from orbitmq.message.record_write import Message
from orbitmq.protocol.bodies.nameserver import PERM_WRITE
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.types import LogOffset

_RECALL_TAG: Final = "_RECALL_TAG_"
_RECALL_BODY: Final = b"0"


class RecallSettings(Protocol):
    """What of the configuration is looked at."""

    @property
    def broker_name(self) -> str: ...
    @property
    def broker_permission(self) -> int: ...
    @property
    def region_id(self) -> str: ...
    @property
    def start_accept_send_request_time_stamp(self) -> int: ...
    @property
    def recall_message_enable(self) -> bool: ...
    @property
    def allow_recall_when_broker_not_writeable(self) -> bool: ...
    @property
    def timer_max_delay_sec(self) -> int: ...
    @property
    def append_topic_for_timer_delete_key(self) -> bool: ...


class LaterProcessor:
    """45, 60, 61 and 370."""

    def __init__(
        self,
        settings: RecallSettings,
        *,
        later: Later,
        delay: Placer,
        own: OwnMessages,
        answers: SafeAnswers,
        topics: Topics,
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._later = later
        self._delay = delay
        self._own = own
        self._answers = answers
        self._topics = topics
        self._now_ms = now_ms

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_ALL_DELAY_OFFSET: self.get_delay_offsets,
            RequestCode.GET_TIMER_CHECK_POINT: self.get_timer_check_point,
            RequestCode.GET_TIMER_METRICS: self.get_timer_metrics,
            RequestCode.RECALL_MESSAGE: self.recall,
        }

    # -- what slaves and operators ask

    def get_delay_offsets(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.answer(ResponseCode.SUCCESS, body=self._later.levels.encode())

    def get_timer_check_point(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.answer(ResponseCode.SUCCESS, body=self._timed.files.check.encode())

    def get_timer_metrics(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        return request.answer(ResponseCode.SUCCESS, body=(yield from self._timed.files.metrics.encode_in_slices()))

    @property
    def _timed(self) -> TimerParts:
        if self._later.timed is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the timer is off here (timerWheelEnable=false): it has nothing to tell")
        return self._later.timed

    # -- what producers ask

    def recall(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Take a timed message back."""
        header = RecallMessageRequestHeader.from_fields(request.ext_fields)
        region = self._settings.region_id
        try:
            handle = self._checked(header)
            end = self._put(self._recall_message(channel, header, handle))
        except RequestRefused as refused:
            refused.fields = {properties.MSG_REGION: region}
            raise
        told = RecallMessageResponseHeader(msg_id=handle.msg_id, msg_region=region)
        done = request.answer(ResponseCode.SUCCESS, REMARK_LEFT, header=told)
        return self._answers.give(channel, request, done, end, header.topic)

    def _checked(self, header: RecallMessageRequestHeader) -> RecallHandle:
        """Everything that can be refused, in the original's order; then what the handle says."""
        settings, now_ms = self._settings, self._now_ms()
        if not settings.recall_message_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden: set recallMessageEnable=true to allow recalls"
            )
        if now_ms < settings.start_accept_send_request_time_stamp:
            raise _unavailable(f"until {settings.start_accept_send_request_time_stamp} (startAcceptSendRequestTimeStamp)")
        if not settings.broker_permission & PERM_WRITE and not settings.allow_recall_when_broker_not_writeable:
            raise _unavailable("while brokerPermission lets nobody write (allowRecallWhenBrokerNotWriteable)")
        if self._topics.find(header.topic) is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")
        try:
            handle = RecallHandle.parse(header.recall_handle)
        except MessageIllegal as error:
            raise _illegal(f"recall handle is invalid: {error}") from error
        if header.topic != handle.topic:
            raise _illegal(f"recall failed, topic not match: the handle is of a message to {handle.topic}")
        if handle.broker_name != settings.broker_name:
            who = f"{handle.broker_name} has the message, this is {settings.broker_name}"
            raise _illegal(f"recall failed, broker service not available: {who}")
        left_ms = handle.deliver_at_ms - now_ms
        if not 0 < left_ms < settings.timer_max_delay_sec * 1000:
            raise _illegal("recall failed, timestamp invalid: the message has come, or is about to")
        return handle

    def _recall_message(self, channel: Channel, header: RecallMessageRequestHeader, handle: RecallHandle) -> Message:
        """The message that takes another back, as it waits in the timer topic."""
        now_ms = self._now_ms()
        with_topic = self._settings.append_topic_for_timer_delete_key
        found: dict[str, str] = {
            properties.TAGS: _RECALL_TAG,
            properties.TIMER_DEL_UNIQUE_KEY: f"{handle.topic}+{handle.msg_id}" if with_topic else handle.msg_id,
            properties.UNIQUE_KEY: handle.msg_id,
            properties.TIMER_DELIVER_MS: str(handle.deliver_at_ms),
            properties.BORN_TIMESTAMP: str(now_ms),
        }
        if header.producer_group:
            found[properties.PRODUCER_GROUP] = header.producer_group
        message = Message(
            handle.topic.encode(),
            _RECALL_BODY,
            born_host=born_host_of(channel),
            born_time_ms=now_ms,
            properties=properties.encode(found),
        )
        placed = self._delay.place(message, found)
        assert placed is not None, "its time is in the future"
        return placed.message

    def _put(self, message: Message) -> LogOffset:
        try:
            return self._own.put(message)[-1].end
        except (StoreError, MessageIllegal) as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"recall failed, execute error: {error}") from error


def _unavailable(why: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, f"recall failed, broker service not available {why}")


def _illegal(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.ILLEGAL_OPERATION, remark)
