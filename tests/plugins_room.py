"""A broker without sockets that has the parts of an installed package in it, and that package, which notes what its parts hear."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

from broker_room import BrokerRoom
from client_room import InlineSlices, sent
from hot_room import SEND, Totals
from log_room import HOST
from orbitmq.broker.long_polling import PullHold
from orbitmq.broker.plugins.hooks import Hooks
from orbitmq.broker.plugins.store import plugged
from orbitmq.broker.processors.pull import PullProcessor
from orbitmq.broker.processors.query import QueryProcessor
from orbitmq.broker.processors.send import SendProcessor
from orbitmq.message.record import decode_all
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.dispatch import Dispatcher, Processor

V2 = RequestCode.SEND_MESSAGE_V2

# Parts that note what they hear, and raise what the test puts into PROBLEMS by their name.
PARTS = """
import sys
from orbitmq.common.errors import MessageIllegal, RequestRefused
from orbitmq.store.reads import GetStatus

HEARD = []
PROBLEMS = {}

def note(*heard):
    HEARD.append(heard)
    if heard[0] in PROBLEMS:
        raise PROBLEMS[heard[0]]

class Validator:
    def validate(self, remote_address, request): note("validate", request.code)

class Rpc:
    def before(self, remote_address, request): note("rpc before", request.code)
    def after(self, remote_address, request, response): note("rpc after", None if response is None else response.code)

class Sends:
    name = "first"
    def before(self, attempt): note(f"{self.name} before", attempt)
    def after(self, attempt, result): note(f"{self.name} after", attempt, result)

class MoreSends(Sends):
    name = "second"

class Consumes:
    def delivered(self, delivery): note("delivered", delivery)

class Store:
    name = "outer"

    def __init__(self, store):
        self._store = store
        self.reads = self

    def append(self, message):
        message.body = bytes(message.body) + self.name.encode()
        appended = self._store.append(message)
        note(f"{self.name} append")
        return appended

    def append_batch(self, messages):
        appended = self._store.append_batch(messages)
        note(f"{self.name} append_batch")
        return appended

    def get(self, *arguments, **named):
        note(f"{self.name} get")
        return self._store.reads.get(*arguments, **named)._replace(status=GetStatus.NO_MATCHED_MESSAGE, message_count=0)

    def record_at(self, offset):
        note(f"{self.name} record_at")

    def query_records(self, *arguments, **named):
        note(f"{self.name} query")
        return self._store.reads.query_records(*arguments, **named)._replace(record_count=0)

class InnerStore(Store):
    name = "inner"

def no_store(store):
    return store.reads
"""
VALIDATOR = "[orbitmq.access_validators]\nguard = parts_package:Validator\n"
RPC = "[orbitmq.rpc_hooks]\ntrace = parts_package:Rpc\n"
SENDS = "[orbitmq.send_hooks]\nmeter = parts_package:MoreSends\naudit = parts_package:Sends\n"
CONSUMES = "[orbitmq.consume_hooks]\nbill = parts_package:Consumes\n"
STORES = "[orbitmq.store_plugins]\na = parts_package:InnerStore\nb = parts_package:Store\nbad = parts_package:no_store\n"


class Room(BrokerRoom):
    """A broker with what is installed, and `messageStorePlugIn` as given."""

    def __init__(self, folder: Path, plugins: str = "", **store_settings: Any) -> None:
        super().__init__(folder, **store_settings)
        self.hooks = hooks = Hooks(self.clock.monotonic_ms)
        self.hold, self.totals = PullHold(), Totals()
        messages = plugged(self.store, plugins)
        sends = SendProcessor(
            self.settings,
            self.topics,
            self.groups,
            self.store,
            HOST,
            self.clock.now_ms,
            lambda: "NEW-KEY",
            self.totals,
            Random(1),
            lambda: None,
            messages,
        )
        self.pulls = PullProcessor(
            self.settings,
            self.topics,
            self.groups,
            self.offsets,
            self.consumers,
            messages.reads,
            self.hold,
            self.clock,
            self.totals,
            self.filters,
            self.store.reads.record_of,
            InlineSlices(),
            hooks.found,
        )
        self.store.dispatcher.listeners.append(self.pulls.arrived)
        self.dispatcher = Dispatcher(self.clock, hooks.around_requests)
        query = QueryProcessor(self.settings, self.store, messages.reads, self.consumers, self.known_filters)
        processors: list[Processor] = [hooks.around_sends(sends), self.pulls, query]
        for processor in processors:
            for code, handler in processor.handlers().items():
                self.dispatcher.register(code, handler)

    def request(self, code: int, fields: dict[str, str], body: bytes = b"", flag: int = 0) -> RemotingCommand | None:
        """The answer that came at once."""
        self.dispatcher.dispatch(self.channel, RemotingCommand(code, ext_fields=fields, body=body, opaque=7, flag=flag))
        return self.answer()

    def answer(self) -> RemotingCommand | None:
        answers = sent(self.channel)
        assert len(answers) <= 1, "a request has one answer"
        return answers[0] if answers else None

    def send(self, body: bytes = b"x", flag: int = 0, **fields: str) -> RemotingCommand | None:
        return self.request(V2, SEND | fields, body, flag)

    def asked(self, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
        answer = self.request(code, fields, body)
        assert answer is not None
        return answer

    @property
    def bodies(self) -> list[bytes]:
        """What is stored in the queue that messages are sent to, whatever plug-ins say."""
        return [message.body for queue in self.store.queues.plain for message in decode_all(self.reading(queue))]

    def reading(self, queue: Any) -> bytes:
        return bytes(self.store.reads.get(queue, 0, count_max=32).records)  # type: ignore[arg-type]


def parts() -> Any:
    return sys.modules["parts_package"]


def heard() -> list[Any]:
    """What parts heard since this was asked last."""
    found = list(parts().HEARD)
    parts().HEARD.clear()
    return found


def names_heard() -> list[str]:
    return [each[0] for each in heard()]
