"""What another package implements to have a part in a broker, and the groups of entry points by which parts are found.

Everything here is called on the loop thread, which serves all connections: it must not block, neither wait for a network or a disk nor
compute for long. Work that takes time goes to a thread of the package's own.

Order of a request: access validators, RPC hooks (`orbitmq.remoting.hooks`), the handler; in a send, send hooks, then the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from orbitmq.common.installed import PartGroup
from orbitmq.message.record_write import Message
from orbitmq.protocol.command import RemotingCommand
from orbitmq.store.log_batch import Appended
from orbitmq.store.reads import GetResult, MessageFilter, QueryResult
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset

# -- who may ask


class AccessValidator(Protocol):
    """Says who may ask for what."""

    def validate(self, remote_address: str, request: RemotingCommand) -> None:
        """Called once for every request that has a handler, on both ports, before anything else is done about it.

        Return to let it pass. RequestRefused, as a rule with ResponseCode.NO_PERMISSION, is the answer, and nothing is done. Any other
        exception is answered with SYSTEM_ERROR and the validator's name, and nothing is done either. The request is not to be changed.
        """


# -- sends


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAttempt:
    """What a producer wants to send."""

    producer_group: str
    topic: str
    queue_id: int  # below 0: the broker will choose
    born_host: str  # host:port of the producer
    properties: Mapping[str, str]  # of the message; a batch has those that it has as a whole
    body_size: int  # as it came: of the compressed body, or of all messages of a batch
    is_batch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """What came of it: what the producer is told, and how long it took."""

    code: int  # a ResponseCode
    remark: str | None
    message_ids: tuple[str, ...]  # none of a message that was refused
    queue_id: int | None
    queue_offset: int | None  # of the first message of a batch
    cost_ms: int  # from the request to its answer, with the wait for the disk


class SendHook(Protocol):
    """Hears of sends, and may refuse them."""

    def before(self, attempt: SendAttempt) -> None:
        """Called before a send is checked, and before a topic is created for it.

        RequestRefused is the answer; nothing is stored, and no later hook hears of it. Any other exception is answered with SYSTEM_ERROR
        and the hook's name.
        """

    def after(self, attempt: SendAttempt, result: SendResult) -> None:
        """Called once for every send that all hooks let pass, when its answer is known, that of a one-way send too.

        Whatever it raises is logged and changes nothing.
        """


# -- pulls


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The messages that a pull found."""

    consumer_group: str
    topic: str
    queue_id: int
    offset: int  # that was asked for
    next_offset: int  # to be asked for next
    message_count: int
    size: int  # of their records, in bytes
    client_address: str  # host:port


class ConsumeHook(Protocol):
    """Hears what consumers are given."""

    def delivered(self, delivery: Delivery) -> None:
        """Called when a pull found messages, at once or after it waited, before its answer leaves.

        Whatever it raises is logged and changes nothing: who may pull is a validator's to say.
        """


# -- the store


class PluggableReads(Protocol):
    """How messages come out of a store. Offsets, times and sizes of queues are the store's own."""

    def get(self, queue: QueueKey, offset: QueueOffset, *, count_max: int, wanted: MessageFilter | None = None) -> GetResult:
        """Messages of a queue, for each pull. `next_offset` must be behind all that was looked at, or consumers stand still."""

    def record_at(self, offset: LogOffset) -> bytes | None:
        """The record at a place in the log, for who knows a message's id."""

    def query_records(self, topic: str, key: str, *, count_max: int, begin_ms: int, end_ms: int, by_tags: bool) -> QueryResult:
        """The records with a key."""


class PluggableStore(Protocol):
    """What of a store a plug-in may change: messages on their way in, and on their way out.

    A plug-in is a callable that is given the store, or the plug-in inside of it, when the broker is built and the store is not open yet,
    and that returns an object with these members. Files, queues, flushing and retention stay the store's.

    RequestRefused, MessageIllegal and StoreError are answered as those of the store; any other exception with SYSTEM_ERROR and the
    plug-in's name. A message that was appended by a call that then raises is not stored.
    """

    @property
    def reads(self) -> PluggableReads:
        """Asked for once, when the broker is built."""

    def append(self, message: Message) -> Appended:
        """Called for every message that is sent alone; returns what the next store says of the message that was appended."""

    def append_batch(self, messages: Sequence[Message]) -> list[Appended]:
        """The same for the messages of a batch, all or none, one Appended each."""


ACCESS_VALIDATORS: Final[PartGroup[AccessValidator]] = PartGroup("orbitmq.access_validators", "access validator", ("validate",))
SEND_HOOKS: Final[PartGroup[SendHook]] = PartGroup("orbitmq.send_hooks", "send hook", ("before", "after"))
CONSUME_HOOKS: Final[PartGroup[ConsumeHook]] = PartGroup("orbitmq.consume_hooks", "consume hook", ("delivered",))
STORE_PLUGINS: Final[PartGroup[PluggableStore]] = PartGroup("orbitmq.store_plugins", "store plug-in", ("append", "append_batch", "reads"))
