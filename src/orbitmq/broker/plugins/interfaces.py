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
from orbitmq.message.flags import TransactionType
from orbitmq.message.record_write import Message
from orbitmq.message.stored_message import StoredMessage
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


# -- messages that come again


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBack:
    """A message that a consumer could not consume, and that is stored once more."""

    consumer_group: str
    topic: str  # where it was sent to at first
    message_id: str  # by which the consumer has it
    reconsume_times: int  # how often it came again before
    is_dead_letter: bool  # it comes no more
    client_address: str  # host:port


class SendBackHook(Protocol):
    """Hears what consumers could not consume."""

    def sent_back(self, message: SentBack) -> None:
        """Called when a message that was sent back is stored, before its answer leaves.

        Whatever it raises is logged and changes nothing.
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


# -- transactions


class TransactionChecks(Protocol):
    """Asks producers how transactions ended of which they said nothing, and says what is kept of those that stay open.

    A part is a callable that is given the broker's own, and that returns an object with these members. What they raise is logged, and the
    transaction is looked at again in the next round.
    """

    def can_ask(self, group: str) -> bool:
        """Whether anybody of a producer group can be asked now; while not, its transactions wait, and no question is counted."""

    def ask(self, half: StoredMessage) -> None:
        """Ask about a half message, which was just stored once more: who answers names its queue offset and its log offset.

        The answer is END_TRANSACTION, from whomever it comes.
        """

    def given_up(self, half: StoredMessage) -> Message | None:
        """What is to be stored of a half message that is asked about no more; None: nothing. Its topic is made if it is not there."""


class TransactionService(Protocol):
    """Everything that a broker does about transactions.

    A part is a callable that is given the broker's own service, and the checks that are in force, and that returns an object with these
    members. RequestRefused is the answer to whoever asked; any other exception is answered with SYSTEM_ERROR and the part's name.
    """

    def load(self) -> None:
        """Called once, when the store is open and offsets are loaded, before anybody is served."""

    def prepare(self, message: Message, found: Mapping[str, str]) -> Message | None:
        """What is stored of a message that is sent with these properties, until its transaction ends; None when it is of none."""

    def end(self, half: StoredMessage, kind: TransactionType) -> LogOffset:
        """Commit a half message, or roll it back; up to where the log must be on disk for that to be safe.

        Group and offsets of the request are those of the half message; that it has not ended yet is the service's to know.
        """

    def is_undone(self, half: StoredMessage) -> bool:
        """Whether a half message was rolled back: one that is sent with its key then is another, also within `dedupWindowMs`."""

    def resume(self, stored: StoredMessage) -> LogOffset:
        """Let the questions about a half message begin again; `stored` is what was kept of it, or itself."""

    def tick(self) -> None:
        """Called ten times a second: what is due."""


ACCESS_VALIDATORS: Final[PartGroup[AccessValidator]] = PartGroup("orbitmq.access_validators", "access validator", ("validate",))
SEND_HOOKS: Final[PartGroup[SendHook]] = PartGroup("orbitmq.send_hooks", "send hook", ("before", "after"))
CONSUME_HOOKS: Final[PartGroup[ConsumeHook]] = PartGroup("orbitmq.consume_hooks", "consume hook", ("delivered",))
SEND_BACK_HOOKS: Final[PartGroup[SendBackHook]] = PartGroup("orbitmq.send_back_hooks", "send-back hook", ("sent_back",))
STORE_PLUGINS: Final[PartGroup[PluggableStore]] = PartGroup("orbitmq.store_plugins", "store plug-in", ("append", "append_batch", "reads"))
TRANSACTION_CHECKS: Final[PartGroup[TransactionChecks]] = PartGroup(
    "orbitmq.transaction_checks", "transaction check", ("can_ask", "ask", "given_up")
)
TRANSACTION_SERVICES: Final[PartGroup[TransactionService]] = PartGroup(
    "orbitmq.transaction_services", "transaction service", ("load", "prepare", "end", "is_undone", "resume", "tick")
)
