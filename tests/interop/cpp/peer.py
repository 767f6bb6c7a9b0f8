"""`python peer.py NAMESRV [ACCESS_KEY SECRET]`: Apache's C++ client does what the JSON lines of its
input say, and tells by JSON lines.

By the library in the wheel that `requirements.txt` names. Its orders are those of `go/orders.go`
that the library can do: send, transact, consume (by tags; how often a message may come again is the
group's own) and leave. A process of its own, which ends by force with its input: the library starts
threads that neither a fork nor the end of an interpreter expects.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from rocketmq import client
from rocketmq.client import TransactionStatus
from rocketmq.exceptions import ffi_check
from rocketmq.ffi import dll

Order = dict[str, Any]

TIMEOUT_MS = 10_000
STATES = {
    "commit": TransactionStatus.COMMIT,
    "rollback": TransactionStatus.ROLLBACK,
    "unknown": TransactionStatus.UNKNOWN,
}

_printing = threading.Lock()


def tell(event: str, **members: object) -> None:
    with _printing:
        print(json.dumps({"event": event, **members}), flush=True)


class Transactions:
    """The producer of a group, and how each of its transactions ends: at once, then each time that
    it is asked; the last one again.
    """

    def __init__(self, group: str) -> None:
        self.answers: dict[str, list[str]] = {}
        self.others = "unknown"
        self._calls = Counter[str]()
        self._counting = threading.Lock()
        self.producer = client.TransactionMQProducer(group, self.check, timeout=TIMEOUT_MS)

    def _next(self, key: str) -> str:
        with self._counting:
            self._calls[key] += 1
            answers = self.answers.get(key, [self.others])
            return answers[min(self._calls[key], len(answers)) - 1]

    def execute(self, message: Any, _: object) -> Any:
        return STATES[self._next(message.keys.decode())]

    def check(self, message: Any) -> Any:
        key = message.keys.decode()
        answer = self._next(key)
        tell("checked", key=key, state=answer, body=message.body.decode())
        return STATES[answer]


class Peer:
    """What one process has of the client: a producer and a consumer for each group, made when it is
    first needed.
    """

    def __init__(self, name_server: str, credentials: list[str]) -> None:
        self._name_server = name_server
        self._credentials = credentials
        self._producers: dict[str, Any] = {}
        self._transactions: dict[str, Transactions] = {}
        self._consumers: dict[str, Any] = {}
        self.deeds: dict[str, Callable[[Order], None]] = {
            "send": self.send, "transact": self.transact, "consume": self.consume, "leave": self.leave,
        }  # fmt: skip

    def _started(self, made: Any) -> Any:
        made.set_namesrv_addr(self._name_server)
        if self._credentials:
            made.set_session_credentials(*self._credentials, "")
        made.start()
        return made

    def _started_producer(self, made: Any, group: str) -> Any:
        ffi_check(dll.SetProducerInstanceName(made._handle, group.encode()))
        return self._started(made)

    def send(self, order: Order) -> None:
        group = order["group"]
        if group not in self._producers:
            self._producers[group] = self._started_producer(
                client.Producer(group, timeout=TIMEOUT_MS), group
            )
        result = self._producers[group].send_sync(message_of(order))
        tell("sent", key=order["key"], ok=result.status == client.SendStatus.OK, id=result.msg_id)

    def transact(self, order: Order) -> None:
        group = order["group"]
        if group not in self._transactions:
            self._transactions[group] = Transactions(group)
            self._started_producer(self._transactions[group].producer, group)
        transactions = self._transactions[group]
        transactions.answers[order["key"]] = order["states"]
        transactions.others = order.get("others", transactions.others)
        result = transactions.producer.send_message_in_transaction(
            message_of(order), transactions.execute
        )
        tell(
            "transacted",
            key=order["key"],
            ok=result.status == client.SendStatus.OK,
            id=result.msg_id,
        )

    def consume(self, order: Order) -> None:
        group, failures, calls, counting = (
            order["group"],
            order.get("failures", {}),
            Counter[str](),
            threading.Lock(),
        )

        def listener(got: Any) -> Any:
            key = got.keys.decode()
            tell(
                "consumed", group=group, topic=got.topic, key=key, tag=(got.tags or b"").decode(), body=got.body.decode(),
                times=got.reconsume_times, queue=got.queue_id, offset=got.queue_offset, bornMs=got.born_timestamp,
                storedMs=got.store_timestamp, id=got.id,
            )  # fmt: skip
            with counting:
                calls[key] += 1
                is_done = calls[key] > failures.get(key, 0)
            return (
                client.ConsumeStatus.CONSUME_SUCCESS
                if is_done
                else client.ConsumeStatus.RECONSUME_LATER
            )

        made = client.PushConsumer(group, orderly=order.get("orderly", False))
        made.set_instance_name(group)
        made.set_thread_count(4)
        made.subscribe(order["topic"], listener, order.get("expression", "*"))
        self._consumers[group] = self._started(made)
        tell("consuming", group=group)

    def leave(self, order: Order) -> None:
        self._consumers.pop(order["group"]).shutdown()
        tell("left", group=order["group"])


def message_of(order: Order) -> Any:
    made = client.Message(order["topic"])
    made.set_keys(order["key"])
    made.set_tags(order.get("tag", ""))
    made.set_body(order["body"])
    for name, value in order.get("properties", {}).items():
        made.set_property(name, value)
    if order.get("level", 0):
        made.set_delay_time_level(order["level"])
    return made


def main() -> None:
    peer = Peer(sys.argv[1], sys.argv[2:])
    tell("ready")
    for line in sys.stdin:
        order = json.loads(line)
        try:
            peer.deeds[order["order"]](order)
        except Exception as error:
            tell("failed", order=order["order"], key=order.get("key", ""), error=str(error))
    os._exit(0)


if __name__ == "__main__":
    main()
