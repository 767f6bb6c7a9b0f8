"""Requests about scheduled delivery: progress, pending messages, and recalls.

A recall is itself a timed message: it enters the slot of the message it names, which is then not
delivered. Invariant: a refused recall stores nothing; after SUCCESS the message is never delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.delay.service import DelayService, TimerParts
from orbitmq.broker.metadata.topics import Topics
from orbitmq.broker.processors.admin_replies import REMARK_LEFT
from orbitmq.broker.processors.refusals import with_fields
from orbitmq.broker.processors.write_replies import WriteReplies
from orbitmq.broker.produce.deferral import MessageRewriter
from orbitmq.broker.produce.durable_replies import Write
from orbitmq.broker.produce.internal_writer import InternalMessageWriter
from orbitmq.common.errors import InvalidMessageError, RequestRefusedError, StoreError
from orbitmq.common.slices import Slices
from orbitmq.message import properties
from orbitmq.message.recall_handle import RecallHandle
from orbitmq.message.record_write import MessageRecord
from orbitmq.protocol.bodies.nameserver import PERM_WRITE
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from orbitmq.remoting.born_host import born_host_of
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.types import LogOffset

_RECALL_TAG: Final = "_RECALL_TAG_"
_RECALL_BODY: Final = b"0"


class DelayProcessor:
    """Serves RECALL_MESSAGE and requests for the progress of scheduled delivery."""

    def __init__(
        self,
        settings: BrokerConfig,
        *,
        later: DelayService,
        delay: MessageRewriter,
        own: InternalMessageWriter,
        replies: WriteReplies,
        topics: Topics,
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._later = later
        self._delay = delay
        self._own = own
        self._replies = replies
        self._topics = topics
        self._now_ms = now_ms

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_ALL_DELAY_OFFSET: self.get_delay_offsets,
            RequestCode.GET_TIMER_CHECK_POINT: self.get_timer_check_point,
            RequestCode.GET_TIMER_METRICS: self.get_timer_metrics,
            RequestCode.RECALL_MESSAGE: self.recall,
        }

    # -- for slaves and operators

    def get_delay_offsets(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.reply(ResponseCode.SUCCESS, body=self._later.levels.encode())

    def get_timer_check_point(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.reply(ResponseCode.SUCCESS, body=self._timed.files.check.encode())

    def get_timer_metrics(
        self, _channel: Channel, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        return request.reply(
            ResponseCode.SUCCESS, body=(yield from self._timed.files.metrics.encode_in_slices())
        )

    @property
    def _timed(self) -> TimerParts:
        if self._later.timed is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                "the timer is off here (timerWheelEnable=false): there is no progress to report",
            )
        return self._later.timed

    # -- for producers

    def recall(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Recall a timed message before its delivery."""
        header = RecallMessageRequestHeader.from_fields(request.ext_fields)
        region = self._settings.region_id
        with with_fields(lambda: {properties.MSG_REGION: region}):
            handle = self._checked(header)
            end = self._put(self._recall_message(channel, header, handle))
        fields = RecallMessageResponseHeader(msg_id=handle.msg_id, msg_region=region)
        done = request.reply(ResponseCode.SUCCESS, REMARK_LEFT, header=fields)
        return self._replies.reply(channel, request, done, Write(end=end, topic=header.topic))

    def _checked(self, header: RecallMessageRequestHeader) -> RecallHandle:
        """Check everything that can be refused, in RocketMQ's order; return the parsed handle."""
        settings, now_ms = self._settings, self._now_ms()
        if not settings.recall_message_enable:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                "recall failed, operation is forbidden: set recallMessageEnable=true to allow"
                " recalls",
            )
        if now_ms < settings.start_accept_send_request_time_stamp:
            raise _unavailable(
                f"until {settings.start_accept_send_request_time_stamp}"
                " (startAcceptSendRequestTimeStamp)"
            )
        if (
            not settings.broker_permission & PERM_WRITE
            and not settings.allow_recall_when_broker_not_writeable
        ):
            raise _unavailable(
                "while brokerPermission forbids writes (allowRecallWhenBrokerNotWriteable)"
            )
        if self._topics.find(header.topic) is None:
            raise RequestRefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist"
            )
        try:
            handle = RecallHandle.parse(header.recall_handle)
        except InvalidMessageError as error:
            raise _illegal(f"recall handle is invalid: {error}") from error
        if header.topic != handle.topic:
            raise _illegal(
                f"recall failed, topic not match: the handle is of a message to {handle.topic}"
            )
        if handle.broker_name != settings.broker_name:
            who = f"the message is on {handle.broker_name}, this is {settings.broker_name}"
            raise _illegal(f"recall failed, broker service not available: {who}")
        left_ms = handle.deliver_at_ms - now_ms
        if not 0 < left_ms < settings.timer_max_delay_sec * 1000:
            raise _illegal(
                "recall failed, timestamp invalid: the message was delivered, or is about to be"
            )
        return handle

    def _recall_message(
        self, channel: Channel, header: RecallMessageRequestHeader, handle: RecallHandle
    ) -> MessageRecord:
        """Build the recall as the timer topic holds it."""
        now_ms = self._now_ms()
        with_topic = self._settings.append_topic_for_timer_delete_key
        found: dict[str, str] = {
            properties.TAGS: _RECALL_TAG,
            properties.TIMER_DEL_UNIQUE_KEY: (
                f"{handle.topic}+{handle.msg_id}" if with_topic else handle.msg_id
            ),
            properties.UNIQUE_KEY: handle.msg_id,
            properties.TIMER_DELIVER_MS: str(handle.deliver_at_ms),
            properties.BORN_TIMESTAMP: str(now_ms),
        }
        if header.producer_group:
            found[properties.PRODUCER_GROUP] = header.producer_group
        message = MessageRecord(
            handle.topic.encode(),
            _RECALL_BODY,
            born_host=born_host_of(channel),
            born_time_ms=now_ms,
            properties=properties.encode(found),
        )
        placed = self._delay.rewrite(message, found)
        assert placed is not None, "its time is in the future"
        return placed.message

    def _put(self, message: MessageRecord) -> LogOffset:
        try:
            return self._own.put(message)[-1].end
        except (StoreError, InvalidMessageError) as error:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"recall failed, execute error: {error}"
            ) from error


def _unavailable(why: str) -> RequestRefusedError:
    return RequestRefusedError(
        ResponseCode.SERVICE_NOT_AVAILABLE, f"recall failed, broker service not available {why}"
    )


def _illegal(remark: str) -> RequestRefusedError:
    return RequestRefusedError(ResponseCode.ILLEGAL_OPERATION, remark)
