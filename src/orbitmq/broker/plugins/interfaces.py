"""The interfaces that other packages implement to extend a broker, and the groups of entry points
by which they are found.

Everything here is called on the loop thread, which serves all connections: it must not block, that
is, neither wait for a network or a disk nor compute for long. Slow work belongs in a thread of the
package's own.

Order of a request: access validators, RPC hooks (`orbitmq.remoting.hooks`), the handler; in a send,
send hooks, then the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from orbitmq.common.installed import PartGroup
from orbitmq.message.flags import TransactionType
from orbitmq.message.record_write import MessageRecord
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.command import RemotingCommand
from orbitmq.store.log_batch import Appended
from orbitmq.store.reads import GetResult, MessageFilter, QueryResult
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset

# -- authorization


class AccessValidator(Protocol):
    """Authorizes requests."""

    def validate(self, remote_address: str, request: RemotingCommand) -> None:
        """Called once for every request that has a handler, on both ports, before anything else is
        done with it.

        Return to let it pass. A RequestRefusedError, usually with ResponseCode.NO_PERMISSION,
        becomes the reply, and nothing is done. Any other exception is answered with SYSTEM_ERROR
        and the validator's name, and nothing is done either. The request must not be changed.
        """


# -- sends


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAttempt:
    """A message or batch that a producer sends."""

    producer_group: str
    topic: str
    queue_id: int  # below 0: the broker chooses
    born_host: str  # host:port of the producer
    properties: Mapping[str, str]  # of the message; for a batch, those of the batch as a whole
    body_size: int  # as received: of the compressed body, or of all messages of a batch
    is_batch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """The result of a send: the reply to the producer, and its latency."""

    code: int  # a ResponseCode
    remark: str | None
    message_ids: tuple[str, ...]  # empty if the message was refused
    queue_id: int | None
    queue_offset: int | None  # of the first message of a batch
    cost_ms: int  # from the request to its reply, including the wait for the disk


class SendHook(Protocol):
    """Observes sends, and may refuse them."""

    def before(self, attempt: SendAttempt) -> None:
        """Called before a send is checked, and before a topic is created for it.

        A RequestRefusedError becomes the reply; nothing is stored, and later hooks are not called.
        Any other exception is answered with SYSTEM_ERROR and the hook's name.
        """

    def after(self, attempt: SendAttempt, result: SendResult) -> None:
        """Called once for every send that all hooks let pass, when its reply is known, even that of
        a one-way send.

        Exceptions are logged and change nothing.
        """


# -- pulls


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The messages that a pull found."""

    consumer_group: str
    topic: str
    queue_id: int
    offset: int  # the requested offset
    next_offset: int  # the offset of the next pull
    message_count: int
    size: int  # of their records, in bytes
    client_address: str  # host:port


class ConsumeHook(Protocol):
    """Observes deliveries to consumers."""

    def delivered(self, delivery: Delivery) -> None:
        """Called when a pull found messages, at once or after it was held, before its reply leaves.

        Exceptions are logged and change nothing: to authorize pulls, use a validator.
        """


# -- redeliveries


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBack:
    """A message that a consumer could not consume, and that is stored again."""

    consumer_group: str
    topic: str  # the topic it was first sent to
    message_id: str  # the id that the consumer knows
    reconsume_times: int  # the number of earlier redeliveries
    is_dead_letter: bool  # it is not redelivered any more
    client_address: str  # host:port


class SendBackHook(Protocol):
    """Observes messages that consumers could not consume."""

    def sent_back(self, message: SentBack) -> None:
        """Called when a message that was sent back is stored, before the reply leaves.

        Exceptions are logged and change nothing.
        """


# -- the store


class PluggableReads(Protocol):
    """Reads messages from a store. Offsets, times and sizes of queues are the store's own."""

    def get(
        self,
        queue: QueueKey,
        offset: QueueOffset,
        *,
        count_max: int,
        wanted: MessageFilter | None = None,
    ) -> GetResult:
        """Return messages of a queue, for each pull. `next_offset` must be after everything that
        was read, or consumers make no progress.
        """

    def record_at(self, offset: LogOffset) -> bytes | None:
        """Return the record at a log offset, for lookups by message id."""

    def query_records(
        self, topic: str, key: str, *, count_max: int, begin_ms: int, end_ms: int, by_tags: bool
    ) -> QueryResult:
        """Return the records with a key."""


class PluggableStore(Protocol):
    """The part of a store that a plug-in may change: messages on their way in and out.

    A plug-in is a callable that receives the store, or the plug-in inside of it, when the broker is
    built and the store is not open yet, and returns an object with these members. Files, queues,
    flushing and retention stay with the store.

    RequestRefusedError, InvalidMessageError and StoreError are answered like those of the store;
    any other exception with SYSTEM_ERROR and the plug-in's name. A message appended by a call that
    then raises is not stored.
    """

    @property
    def reads(self) -> PluggableReads:
        """Read once, when the broker is built."""

    def append(self, message: MessageRecord) -> Appended:
        """Called for every message that is sent alone; returns the next store's result for the
        appended message.
        """

    def append_batch(self, messages: Sequence[MessageRecord]) -> list[Appended]:
        """The same for the messages of a batch, all or none, one Appended each."""


# -- transactions


class TransactionChecks(Protocol):
    """Checks back with producers about transactions that have not ended, and decides what is kept
    of those that stay open.

    An implementation is a callable that receives the broker's own checks and returns an object with
    these members. Exceptions are logged, and the transaction is retried in the next round.
    """

    def can_ask(self, group: str) -> bool:
        """Return whether any member of a producer group can be reached now; if not, its
        transactions wait, and no check is counted.
        """

    def ask(self, half: StoredMessage) -> None:
        """Check a half message, which was just stored again: the reply names its queue offset and
        its log offset.

        The reply is an END_TRANSACTION, from any producer.
        """

    def given_up(self, half: StoredMessage) -> MessageRecord | None:
        """Return what is stored for a half message that is not checked any more; None: nothing. Its
        topic is created if it does not exist.
        """


class TransactionService(Protocol):
    """Everything that a broker does for transactions.

    An implementation is a callable that receives the broker's own service and the selected checks,
    and returns an object with these members. A RequestRefusedError becomes the reply; any other
    exception is answered with SYSTEM_ERROR and the implementation's name.
    """

    def load(self) -> None:
        """Called once, when the store is open and offsets are loaded, before any request is
        served.
        """

    def prepare(self, message: MessageRecord, found: Mapping[str, str]) -> MessageRecord | None:
        """Return what is stored for a message with these properties until its transaction ends;
        None if it belongs to none.
        """

    def end(self, half: StoredMessage, kind: TransactionType) -> LogOffset:
        """Commit a half message, or roll it back; return the log offset up to which the log must be
        flushed for that to be durable.

        Group and offsets of the request match the half message; the service itself must know
        whether it has already ended.
        """

    def is_undone(self, half: StoredMessage) -> bool:
        """Return whether a half message was rolled back: a later send with its key is then a new
        message, even within `dedupWindowMs`.
        """

    def resume(self, stored: StoredMessage) -> LogOffset:
        """Restart the checks of a half message; `stored` is what was kept of it, or the half
        message itself.
        """

    def tick(self) -> None:
        """Called ten times a second to do what is due."""


ACCESS_VALIDATORS: Final[PartGroup[AccessValidator]] = PartGroup(
    "orbitmq.access_validators", "access validator", ("validate",)
)
SEND_HOOKS: Final[PartGroup[SendHook]] = PartGroup(
    "orbitmq.send_hooks", "send hook", ("before", "after")
)
CONSUME_HOOKS: Final[PartGroup[ConsumeHook]] = PartGroup(
    "orbitmq.consume_hooks", "consume hook", ("delivered",)
)
SEND_BACK_HOOKS: Final[PartGroup[SendBackHook]] = PartGroup(
    "orbitmq.send_back_hooks", "send-back hook", ("sent_back",)
)
STORE_PLUGINS: Final[PartGroup[PluggableStore]] = PartGroup(
    "orbitmq.store_plugins", "store plug-in", ("append", "append_batch", "reads")
)
TRANSACTION_CHECKS: Final[PartGroup[TransactionChecks]] = PartGroup(
    "orbitmq.transaction_checks", "transaction check", ("can_ask", "ask", "given_up")
)
TRANSACTION_SERVICES: Final[PartGroup[TransactionService]] = PartGroup(
    "orbitmq.transaction_services",
    "transaction service",
    ("load", "prepare", "end", "is_undone", "resume", "tick"),
)
