"""The same requests to two name servers, and what their answers differ in.

Equal means: code, remark, fields, flag and version of the header, and the body up to what a hash
map leaves open (the order of lists that stand for sets, and of members). What may differ, because
it must, is named here and nowhere else:

* `language` says who answers: JAVA there, PYTHON here;
* the header's encoding: here that of the request, there always JSON (a peer must read both anyway);
* a remark that is a Java exception with its stack frame: here it is the same code with words of our
  own;
* in the configuration (319), the values of OWN_VALUES.

A request whose answer differs on purpose is asked with `deviation=`, the reason; it must then
really differ.
"""

from __future__ import annotations

import re
import time
from typing import Any

from interop import subject
from interop.frames import Answer, Closed, Connection, Request
from interop.registrations import identity
from support.common.waiting import wait_until

# Where a server keeps its files and where it listens.
OWN_VALUES = frozenset({"kvConfigPath", "configStorePath", "rocketmqHome", "listenPort"})
CLUSTERS = Request(106)
ALL_TOPICS = Request(206)
SWITCHES_AS_AT_START = Request(
    318,
    None,
    b"enableTopicList=true\nenableAllTopicList=true\nneedWaitForService=false\nwaitSecondsForService=45\norderMessageEnable=false\n"
    b"returnOrderTopicConfigToBroker=true\nsupportActingMaster=false\nnotifyMinBrokerIdChanged=false\ndeleteTopicWithBrokerRegistration=false\n",
)
_JAVA_EXCEPTION = re.compile(r"[\w.$]+(?:Exception|Error): .*\(\w+\.java:\d+\)$", re.DOTALL)
_SETS = ("topicList", "brokerDatas", "queueDatas")


def _ordered(value: Any) -> Any:
    """`value` with the lists that stand for sets in one order."""
    if isinstance(value, dict):
        return {
            key: (
                sorted(map(_ordered, item), key=repr)
                if key in _SETS and isinstance(item, list)
                else _ordered(item)
            )
            for key, item in sorted(value.items())
        }
    return sorted(value, key=repr) if isinstance(value, list) else value


def comparable_config(lines: list[str], separator: str = "=") -> dict[str, str]:
    """The configuration in `key=value` lines, without what is each server's own."""
    pairs = [
        (key.strip(), value.strip())
        for key, value in (line.split(separator, 1) for line in lines if separator in line)
    ]
    return {key: "its own" if key in OWN_VALUES else value for key, value in pairs}


def _comparable(answer: Answer) -> dict[str, Any]:
    """What of an answer must be equal."""
    seen: dict[str, Any] = {
        "code": answer.code,
        "remark": answer.remark,
        "fields": answer.fields,
        "flag": answer.flag,
        "version": answer.version,
    }
    if answer.remark is not None and _JAVA_EXCEPTION.match(answer.remark):
        seen["remark"] = "an exception"
    if answer.body.startswith(b"{"):
        seen["body"] = _ordered(answer.json())
        seen["body length"] = len(answer.body)
    else:
        seen["body"] = comparable_config(answer.body.decode().splitlines())
    return seen


def differences(original: Answer | None, ours: Answer | None) -> list[str]:
    """What differs between two answers (None: the connection was closed instead), in words; empty
    when nothing does.
    """
    if original is None or ours is None:
        return (
            []
            if original is ours
            else [f"original: {original or 'closed'}", f"ours: {ours or 'closed'}"]
        )
    left, right = _comparable(original), _comparable(ours)
    if left["remark"] == "an exception" and right["code"] == left["code"] and right["remark"]:
        right["remark"] = left["remark"]
    return _unequal("", left, right)


def _unequal(path: str, original: Any, ours: Any) -> list[str]:
    """Where two values differ, down to the members that do."""
    if isinstance(original, dict) and isinstance(ours, dict):
        absent = "(absent)"
        keys = dict.fromkeys([*original, *ours])
        return [
            line
            for key in keys
            for line in _unequal(f"{path}/{key}", original.get(key, absent), ours.get(key, absent))
        ]
    return [] if original == ours else [f"{path}: original {original!r}, ours {ours!r}"]


class Conversation:
    """Asks two name servers the same over named connections, and keeps what differed until
    `check`.
    """

    def __init__(self, original: str, ours: str) -> None:
        self._addresses = (original, ours)
        self._connections: dict[str, tuple[Connection, Connection]] = {}
        self._differences: list[str] = []

    def on(self, name: str) -> tuple[Connection, Connection]:
        """The connections of that name, one to each, opened at first use."""
        if name not in self._connections:
            self._connections[name] = (
                Connection(self._addresses[0]),
                Connection(self._addresses[1]),
            )
        return self._connections[name]

    def close(self, name: str) -> None:
        """Close the connections of that name."""
        for connection in self._connections.pop(name):
            connection.close()

    def close_all(self) -> None:
        for name in list(self._connections):
            self.close(name)

    def ask(
        self, request: Request, *, on: str = "main", deviation: str | None = None
    ) -> Answer | None:
        """Ask both, note what differs, and return what the original answered (None: it closed the
        connection).
        """
        answers = self._both(request, on)
        differ = differences(*answers)
        if deviation is None and differ:
            self._note(request, differ)
        if deviation is not None and not differ and not subject.IS_ORIGINAL:
            self._note(request, [f"no difference any more, though one is declared: {deviation}"])
        if None in answers:
            self.close(on)
        return answers[0]

    def ask_settled(self, request: Request, within_s: float = 5.0) -> Answer | None:
        """Ask until both answer the same; for what each does in the background after it
        answered.
        """
        deadline = time.monotonic() + within_s
        while True:
            answers = self._both(request, "main")
            differ = differences(*answers)
            if not differ:
                return answers[0]
            if time.monotonic() > deadline:
                self._note(request, differ)
                return answers[0]
            time.sleep(0.1)

    def check(self) -> None:
        """Fail with everything that differed so far."""
        assert not self._differences, "the two name servers differ:\n" + "\n".join(
            self._differences
        )

    def _both(self, request: Request, on: str) -> tuple[Answer | None, Answer | None]:
        def ask(connection: Connection) -> Answer | None:
            try:
                return connection.ask(request)
            except Closed:
                return None

        original, ours = self.on(on)
        return ask(original), ask(ours)

    def _note(self, request: Request, differ: list[str]) -> None:
        self._differences.append("\n    ".join([str(request), *differ]))


def forget_everything(address: str) -> None:
    """Unregister every broker and delete every topic: of several brokers on one connection the
    original forgets one when it closes.
    """

    def is_empty() -> bool:
        return (
            connection.ask(CLUSTERS).json() == {"brokerAddrTable": {}, "clusterAddrTable": {}}
            and not connection.ask(ALL_TOPICS).json()["topicList"]
        )

    with Connection(address) as connection:
        connection.ask(SWITCHES_AS_AT_START)
        for broker in connection.ask(CLUSTERS).json()["brokerAddrTable"].values():
            for broker_id, broker_address in broker["brokerAddrs"].items():
                header = identity(
                    broker["brokerName"],
                    int(broker_id.strip("~")),
                    broker["cluster"],
                    broker_address,
                )
                connection.ask(Request(104, header))
        for name in connection.ask(ALL_TOPICS).json()["topicList"]:
            connection.ask(Request(216, {"topic": name}))
        wait_until(is_empty, f"{address} forgets every broker")
