"""A broker without sockets that has the parts of an installed package in it, and that package,
which notes what its parts hear.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from orbitmq.broker.consume.pending_pulls import PendingPulls
from orbitmq.broker.consume.service import PullService
from orbitmq.broker.plugins.store import plugged
from orbitmq.broker.processors.plugin_hooks import Hooks
from orbitmq.broker.processors.pull import PullProcessor
from orbitmq.broker.processors.query import QueryProcessor
from orbitmq.broker.processors.send import SendProcessor
from orbitmq.message.record import decode_all
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.dispatch import Processor, RequestDispatcher
from support.broker.services import send_service, write_replies
from support.broker.socketless import BrokerRoom
from support.broker.two_paths import SEND, Totals
from support.remoting.channels import InlineSlices, sent

V2 = RequestCode.SEND_MESSAGE_V2

# Parts that note what they hear, and raise what the test puts into PROBLEMS by their name.
PARTS = """
import sys
from orbitmq.common.errors import InvalidMessageError, RequestRefusedError
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
STORES = (
    "[orbitmq.store_plugins]\na = parts_package:InnerStore\nb = parts_package:Store\nbad ="
    " parts_package:no_store\n"
)


class Room(BrokerRoom):
    """A broker with what is installed, and `messageStorePlugIn` as given."""

    def __init__(self, folder: Path, plugins: str = "", **store_settings: Any) -> None:
        super().__init__(folder, **store_settings)
        self.hooks = hooks = Hooks(self.clock.monotonic_ms)
        self.hold, self.totals = PendingPulls(), Totals()
        messages = plugged(self.store, plugins)
        sends = SendProcessor(
            send_service(self, self.totals, messages=messages),
            replies=write_replies(self, self.totals),
            hooks=hooks.sends,
        )
        self.pull_service = PullService(
            settings=self.settings,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            consumers=self.consumers,
            reads=messages.reads,
            pending=self.hold,
            clock=self.clock,
            listener=self.totals,
            filters=self.filters,
            record_of=self.store.reads.record_of,
            slices=InlineSlices(),
        )
        self.pulls = PullProcessor(self.pull_service, found=hooks.found)
        self.store.dispatcher.add_listener(self.pull_service.arrived)
        self.dispatcher = RequestDispatcher(self.clock, hooks.around_requests)
        query = QueryProcessor(
            self.settings, self.store, messages.reads, self.consumers, self.known_filters
        )
        processors: list[Processor] = [sends, self.pulls, query]
        for processor in processors:
            for code, handler in processor.handlers().items():
                self.dispatcher.register(code, handler)

    def request(
        self, code: int, fields: dict[str, str], body: bytes = b"", flag: int = 0
    ) -> RemotingCommand | None:
        """The answer that came at once."""
        self.dispatcher.dispatch(
            self.channel, RemotingCommand(code, ext_fields=fields, body=body, opaque=7, flag=flag)
        )
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
        return [
            message.body
            for queue in self.store.queues.plain
            for message in decode_all(self.reading(queue))
        ]

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
