"""Answers to whoever sent a message, once he may forget it: the disk has it, if the broker waits for that, and a restart knows its topic.

Knows store and topics, and nothing of what was sent. Invariant: an answer leaves once, or not at all to one who wants none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from orbitmq.broker.topics import Topics
from orbitmq.common.errors import reason_of
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


class AnswerListener(Protocol):
    """Hears of answers that did not leave within the turn of their request."""

    def monotonic_ms(self) -> int: ...

    def answered(self, request: int, response: int, took_ms: int) -> None: ...


class SafeAnswers:
    """See above."""

    def __init__(self, store: MessageStore, topics: Topics, listener: AnswerListener) -> None:
        self._store = store
        self._topics = topics
        self._listener = listener

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
        settled: Callable[[], object] = lambda: None,
    ) -> RemotingCommand | None:
        """The answer to a request whose messages, so many and up to `end`, are stored; None when it comes later by the channel.

        `topic` is where they will be read; with `waits` off the disk is not waited for. `settled` is called when it was, if it has to be.
        """
        is_safe = self._store.config.flush_mode is FlushMode.ASYNC or not waits
        if is_safe or request.is_oneway:
            settled()
        if is_safe and self._topics.is_saved(topic):
            return answer
        if request.is_oneway:
            return None
        begun_ms = self._listener.monotonic_ms()

        def send() -> None:
            self._listener.answered(request.code, answer.code, self._listener.monotonic_ms() - begun_ms)
            channel.send(answer)

        def tell(outcome: Outcome) -> None:
            if not is_safe:
                settled()
            if outcome is not Outcome.DONE:
                answer.code, answer.remark = OUTCOMES.get(outcome, (ResponseCode.SERVICE_NOT_AVAILABLE, self._store.refusal))
            self._send_when_topic_is_saved(topic, answer, send)

        if is_safe:
            tell(Outcome.DONE)
        else:
            self._store.when_safe(end, tell, count)
        return None

    def _send_when_topic_is_saved(self, topic: str, answer: RemotingCommand, send: Callable[[], object]) -> None:
        """Send the answer; for a topic that is new, once a restart would know it too: without it nobody could read the message."""

        def tell(failure: Exception | None) -> None:
            if failure is not None and answer.code == ResponseCode.SUCCESS:
                answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
                answer.remark = (
                    f"the message is stored, and its topic[{topic}], which is new, could not be saved: {reason_of(failure)}; "
                    "it is tried again, and has to be created anew if the broker stops before"
                )
            send()

        if self._topics.is_saved(topic):
            send()
        else:
            self._topics.when_saved(tell)
