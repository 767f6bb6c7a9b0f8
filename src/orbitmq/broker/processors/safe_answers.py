"""Answers to whoever sent a message, once he may forget it: the disk has it, if the broker waits for that, and a restart knows its topic.

Knows store and topics, and nothing of what was sent. Invariant: an answer leaves once, or not at all to one who wants none.
"""

from __future__ import annotations

from typing import Final

from orbitmq.broker.topics import Topics
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel
from orbitmq.store.config import FlushMode
from orbitmq.store.group_commit import Outcome
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset

OUTCOMES: Final = {
    Outcome.DONE: (ResponseCode.SUCCESS, None),
    Outcome.TIMED_OUT: (
        ResponseCode.FLUSH_DISK_TIMEOUT,
        "the disk did not confirm the message in time; it is stored, and may be safe soon",
    ),
}


class SafeAnswers:
    """See above."""

    def __init__(self, store: MessageStore, topics: Topics) -> None:
        self._store = store
        self._topics = topics

    def give(
        self,
        channel: Channel,
        request: RemotingCommand,
        answer: RemotingCommand,
        end: LogOffset,
        topic: str,
        *,
        waits: bool = True,
        count: int = 1,
    ) -> RemotingCommand | None:
        """The answer to a request whose messages, so many and up to `end`, are stored; None when it comes later by the channel.

        `topic` is where they will be read; with `waits` off the disk is not waited for.
        """
        is_safe = self._store.config.flush_mode is FlushMode.ASYNC or not waits
        if is_safe and self._topics.is_saved(topic):
            return answer
        if request.is_oneway:
            return None

        def tell(outcome: Outcome) -> None:
            if outcome is not Outcome.DONE:
                answer.code, answer.remark = OUTCOMES.get(outcome, (ResponseCode.SERVICE_NOT_AVAILABLE, self._store.refusal))
            self._send_when_topic_is_saved(channel, topic, answer)

        if is_safe:
            tell(Outcome.DONE)
        else:
            self._store.when_safe(end, tell, count)
        return None

    def _send_when_topic_is_saved(self, channel: Channel, topic: str, answer: RemotingCommand) -> None:
        """Send the answer; for a topic that is new, once a restart would know it too: without it nobody could read the message."""

        def tell(failure: Exception | None) -> None:
            if failure is not None and answer.code == ResponseCode.SUCCESS:
                answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
                answer.remark = (
                    f"the message is stored, and its topic[{topic}], which is new, could not be saved: {failure}; it is tried again, "
                    "and has to be created anew if the broker stops before"
                )
            channel.send(answer)

        if self._topics.is_saved(topic):
            channel.send(answer)
        else:
            self._topics.when_saved(tell)
