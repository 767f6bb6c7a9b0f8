"""The same requests to two brokers, and what their answers differ in.

As `conversation` says, and in answers of brokers these may differ too, because they must:

* a remark of ours may go on where the original's ends or says which page to read; where the
  original's is a Java exception, ours is in
  words of our own;
* rates; times: whether there is one must be equal, and -1 and 0 are none; how long something
  waited: whether it did at all;
* versions of tables, addresses with a port, folders;
* in a record: the ports of its hosts, when it was stored, and the order of its properties.

Maps whose keys are queues, and lists that stand for sets, are compared whatever their order.
"""

from __future__ import annotations

import json
import re
import struct
from typing import Any

from interop import subject
from interop.conversation import Conversation
from interop.frames import Answer, Request

_NO_REMARK = re.compile(
    r"[\w.$]+(?:Exception|Error)\b|Cannot invoke ", re.DOTALL
)  # Java's own words
_QUEUE_KEY = re.compile(r'\{"brokerName":"([^"]*)","queueId":(-?\d+),"topic":"([^"]*)"\}:')
_BARE_KEY = re.compile(r"([{,])(-?\d+):")
_SETS = (
    "topicList",
    "groupList",
    "consumeStatsList",
    "consumeTimeSpanSet",
    "offsetTable",
    "lockOKMQSet",
    "connectionSet",
)
_PAGE_TO_READ = re.compile(r"[ ,]*\nSee http.*", re.DOTALL)
_CHECK_POINT = struct.Struct(">7q")  # of the timer
_TIMES = re.compile(r"time_?stamp", re.IGNORECASE)
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_RECORD_MAGICS = (0xDAA320A7, 0xDAA320AB)


def _json(body: bytes) -> Any:
    """What the original's JSON says, whose keys may be objects and numbers; also when a text holds
    JSON.
    """
    text = _QUEUE_KEY.sub(lambda match: f'"{match[1]}/{match[3]}/{match[2]}":', body.decode())
    return json.loads(_BARE_KEY.sub(r'\1"~\2":', text))


def _records(body: bytes) -> list[dict[str, Any]]:
    """The messages of an answer, without what is each broker's own."""
    found = []
    while body:
        (size,) = struct.unpack_from(">i", body)
        record, body = body[:size], body[size:]
        (body_size,) = struct.unpack_from(">i", record, 84)
        at = 88 + body_size
        topic_size = record[at]
        (properties_size,) = struct.unpack_from(">h", record, at + 1 + topic_size)
        properties = record[at + 3 + topic_size :]
        assert len(properties) == properties_size
        found.append(
            {
                "fixed": record[:52].hex(),  # up to the address, but not the port, of the producer
                "store address": record[64:68].hex(),
                "after": record[72 : at + 1 + topic_size].hex(),
                "properties": sorted(filter(None, properties.split(b"\x02"))),
            }
        )
    return found


def _comparable(name: str, value: Any) -> Any:
    """A value of an answer as it must be equal; `name` is that of the member or field that it
    is.
    """
    if isinstance(value, dict):
        if value.keys() == {"counter", "stateVersion", "timestamp"}:
            return "a version"
        return {key: _comparable(key, item) for key, item in sorted(value.items())}
    if isinstance(value, list):
        items = [_comparable("", item) for item in value]
        return sorted(items, key=repr) if name in _SETS else items
    if isinstance(value, str) and value.startswith("{"):
        return _comparable(name, _json(value.encode()))
    if _TIMES.search(name):
        return "no time" if str(value) in ("-1", "0", "1969-12-31#23:59:59:999") else "a time"
    if name.endswith("Tps"):
        return "a rate"
    if name == "delayTime":
        return "none" if value == 0 else "since ever" if value > 10**12 else "some"
    return _ADDRESS.sub("its address", value) if isinstance(value, str) else value


def comparable(answer: Answer) -> dict[str, Any]:
    """What of an answer must be equal, but for its remark."""
    body: Any = answer.body
    if body[:1] in (b"{", b"["):
        body = _comparable("", _json(body))
    elif len(body) > 8 and struct.unpack_from(">I", body, 4)[0] in _RECORD_MAGICS:
        body = _records(body)
    elif len(body) == _CHECK_POINT.size:
        read_ms, *offsets, _, version_ms, _ = _CHECK_POINT.unpack(body)
        body = (read_ms > 0, *offsets, version_ms > 0)
    return {
        "code": answer.code,
        "fields": _comparable("", answer.fields),
        "flag": answer.flag,
        "version": answer.version,
        "body": body,
    }


def _remarks_differ(original: str | None, ours: str | None, code: int) -> bool:
    if original is not None and _NO_REMARK.match(original):
        return not ours
    if code == 0 or original is None:
        return original != ours
    wanted, said = (
        _ADDRESS.sub("its address", remark or "")
        for remark in (_PAGE_TO_READ.sub("", original), ours)
    )
    return not said.startswith(wanted)


def _unequal(path: str, original: Any, ours: Any) -> list[str]:
    """Where two values differ, down to the members that do."""
    if isinstance(original, dict) and isinstance(ours, dict):
        keys = dict.fromkeys([*original, *ours])
        return [
            line
            for key in keys
            for line in _unequal(
                f"{path}/{key}", original.get(key, "(absent)"), ours.get(key, "(absent)")
            )
        ]
    return [] if original == ours else [f"{path}: original {original!r}, ours {ours!r}"]


def broker_differences(original: Answer | None, ours: Answer | None) -> list[str]:
    """What differs between two answers (None: the connection was closed instead), in words; empty
    when nothing does.
    """
    if original is None or ours is None:
        return (
            []
            if original is ours
            else [f"original: {original or 'closed'}", f"ours: {ours or 'closed'}"]
        )
    found = _unequal("", comparable(original), comparable(ours))
    if _remarks_differ(original.remark, ours.remark, original.code):
        found.append(f"/remark: original {original.remark!r}, ours {ours.remark!r}")
    return found


class BrokerConversation(Conversation):
    """Asks two brokers the same over named connections, and keeps what differed until `check`."""

    def ask(
        self, request: Request, *, on: str = "main", deviation: str | None = None
    ) -> Answer | None:
        original, ours = self._both(request, on)
        differ = broker_differences(original, ours)
        if deviation is None and differ:
            self._note(request, differ)
        if deviation is not None and not differ and not subject.IS_ORIGINAL:
            self._note(request, [f"no difference any more, though one is declared: {deviation}"])
        if original is None or ours is None:
            self.close(on)
        return original

    def ask_each(self, *requests: Request) -> tuple[Answer, Answer]:
        """Ask each its own question, the original the first, and note what differs in the
        answers.
        """
        original, ours = (
            connection.ask(request)
            for connection, request in zip(self.on("main"), requests, strict=True)
        )
        if differ := broker_differences(original, ours):
            self._note(requests[0], differ)
        return original, ours
