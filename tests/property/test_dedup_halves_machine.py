"""Half messages that are sent twice, and end, against a list of them: at once and later, also when
the broker dies or the power goes.

With SYNC_FLUSH a half message can end when the disk has it, and only then is anything seen of what
ends it.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orbitmq.broker.processors.transactions import TransactionProcessor
from orbitmq.broker.transactions.ending import HalfMessageRewriter, TransactionEnding
from orbitmq.broker.transactions.service import Transactions
from orbitmq.message.flags import TransactionType
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.store.config import FlushMode
from orbitmq.testing.forgetful_disk import ForgetfulDisk
from orbitmq.testing.manual_clock import ManualClock
from support.broker.retries import RetriesRoom, retry_fields
from support.broker.transactions import Nothing
from support.store.logs import HOST
from support.store.stores import InlineFlusher

WINDOW_MS = 10_000
KEYS = st.sampled_from(["K1", "K2"])
COMMIT, ROLLBACK = TransactionType.COMMIT, TransactionType.ROLLBACK


class Half(NamedTuple):
    """A half message: when it was stored, and what its producer was told."""

    key: str
    stored_ms: int
    msg_id: str
    queue_offset: int

    @property
    def log_offset(self) -> int:
        return int(self.msg_id[16:], 16)


class End(NamedTuple):
    """How a transaction ended, and where the log ended before."""

    kind: TransactionType
    log_offset: int


class HalvesRoom(RetriesRoom):
    """With transactions."""

    def _more_parts(self) -> dict[str, Any]:
        nothing: Any = Nothing()
        self.transactions = Transactions(
            self.settings,
            store=self.store,
            reads=self.store.reads,
            own=self.own,
            offsets=self.offsets,
            delay=self.delay,
            checks=nothing,
            store_host=HOST,
            clock=self.clock,
            listener=nothing,
            ensure_topic=lambda topic: None,
        )
        self.transactions.load()
        ending = TransactionEnding(
            settings=self.settings,
            service=self.transactions,
            record_at=self.store.reads.record_at,
            now_ms=self.clock.now_ms,
        )
        self.ends = TransactionProcessor(ending, self.write_replies)
        return {
            "rewriters": (HalfMessageRewriter(self.transactions), self.delay),
            "is_undone": ending.is_undone,
        }


class DedupHalvesMachine(RuleBasedStateMachine):
    @initialize(flush_mode=st.sampled_from(FlushMode))
    def begin(self, flush_mode: FlushMode) -> None:
        self.is_sync = flush_mode is FlushMode.SYNC
        self.folder = tempfile.TemporaryDirectory(prefix="orbitmq-dedup-halves-")
        root = Path(self.folder.name)
        self.disk = ForgetfulDisk(ManualClock(), root / "limbo")
        self.room = HalvesRoom(
            root,
            dedup=(WINDOW_MS, 1000),
            layer=self.disk,
            flush_mode=flush_mode,
            make_flusher=InlineFlusher,
        )
        self.flushed = 0
        self.halves: list[Half] = []  # in the order of the log
        self.ends: dict[Half, End] = {}

    def teardown(self) -> None:
        if hasattr(self, "room"):
            self.room.close()
            self.folder.cleanup()

    def is_read(self, log_offset: int) -> bool:
        return not self.is_sync or log_offset < self.flushed

    def known(self, key: str) -> Half | None:
        """The half message of a key that another one is taken for: the last, if it is young enough
        and was not rolled back.
        """
        found = next((half for half in reversed(self.halves) if half.key == key), None)
        if found is None or self.room.clock.now_ms() - found.stored_ms > WINDOW_MS:
            return None
        return None if found in self.ends and self.ends[found].kind is ROLLBACK else found

    @rule(key=KEYS, is_flushed=st.booleans())
    def send(self, key: str, is_flushed: bool) -> None:
        end, known = self.room.store.log.end_offset, self.known(key)
        names = {
            "UNIQ_KEY": key,
            "TRAN_MSG": "true",
            "PGROUP": "p",
            "WAIT": "false",
        }  # so that the answer comes at once
        fields = retry_fields(names, topic="T", queueId=0, reconsumeTimes=0)
        answer = self.room.begin(
            self.room.sends, RequestCode.SEND_MESSAGE, fields, key.encode(), version=513
        )
        assert answer is not None
        assert answer.ext_fields is not None
        told = Half(
            key,
            self.room.clock.now_ms(),
            answer.ext_fields["msgId"],
            int(answer.ext_fields["queueOffset"]),
        )
        if known is not None:
            assert told._replace(stored_ms=known.stored_ms) == known
            assert self.room.store.log.end_offset == end, "it is not stored again"
        else:
            assert told.log_offset >= end, "it is new"
            self.halves.append(told)
        if is_flushed:
            self.flush()

    @precondition(lambda self: self.halves)
    @rule(data=st.data(), kind=st.sampled_from([COMMIT, ROLLBACK]))
    def say(self, data: st.DataObject, kind: TransactionType) -> None:
        half = data.draw(st.sampled_from(self.halves))
        begin = int(self.room.store.log.end_offset)
        fields = {
            "producerGroup": "p",
            "tranStateTableOffset": half.queue_offset,
            "commitLogOffset": half.log_offset,
            "commitOrRollback": int(kind),
            "msgId": half.key,
        }
        if half in self.ends:
            assert (
                self.room.refusal(self.room.ends, RequestCode.END_TRANSACTION, fields).code
                == ResponseCode.TRANSACTION_FAILED
            )
        elif not self.is_read(half.log_offset):
            assert (
                "is not on disk yet"
                in self.room.refusal(self.room.ends, RequestCode.END_TRANSACTION, fields).remark
            )
        else:
            answer = self.room.begin(self.room.ends, RequestCode.END_TRANSACTION, fields)
            assert self.is_sync if answer is None else answer.code == ResponseCode.SUCCESS
            self.ends[half] = End(kind, begin)

    @rule(passed_ms=st.sampled_from([1, 2000, WINDOW_MS // 2, WINDOW_MS + 1]))
    def time_passes(self, passed_ms: int) -> None:
        self.room.clock.advance_ms(passed_ms)
        self.room.transactions.tick()

    @rule()
    def flush(self) -> None:
        self.room.store.flush()
        self.flushed = int(self.room.store.log.end_offset)
        self.room.channel = self.room.peers.connect()  # the one before got answers

    @rule()
    def the_broker_dies(self) -> None:
        self.room.die()
        self.flushed = int(self.room.store.log.end_offset)

    @rule()
    def the_power_goes(self) -> None:
        """What was not flushed is lost."""
        self.room.die(self.disk)
        self.flushed = end = int(self.room.store.log.end_offset)
        self.halves = [half for half in self.halves if half.log_offset < end]
        self.ends = {
            half: how
            for half, how in self.ends.items()
            if half in self.halves and how.log_offset < end
        }

    @invariant()
    @precondition(lambda self: hasattr(self, "room"))
    def consumers_see_what_was_committed_once(self) -> None:
        seen = Counter(message.body.decode() for message in self.room.stored("T"))
        assert seen == Counter(
            half.key
            for half, how in self.ends.items()
            if how.kind is COMMIT and self.is_read(how.log_offset)
        )


DedupHalvesMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None
)
TestDedupHalvesMachine = DedupHalvesMachine.TestCase
