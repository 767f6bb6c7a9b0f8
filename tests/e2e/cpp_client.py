"""`python cpp_client.py NAMESRV`: sends and consumes with Apache's C++ client, and prints a JSON
line for each message sent or consumed.

A process of its own: the library starts threads that neither a fork nor the end of an interpreter
expects. It ends when every message was consumed as often as it should be, or when the time is up.
Imported, it only says what is sent, also where the library is missing.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

TIME_S_MAX = 60
TAGS = ("red", "green", "blue")
MAILS = 30  # every third is sent without waiting for an answer
ORDERS, STEPS = 5, 8
LONG = "später " * 2_000  # more than what the client begins to compress at

_printing = threading.Lock()
_news = threading.Condition()
_consumed: dict[str, int] = {}


def tell(**members: object) -> None:
    with _printing:
        print(json.dumps(members), flush=True)


def tag_of(number: int) -> str:
    return TAGS[number % 4 % 3]


def message(topic: str, key: str, tag: str, body: str) -> Any:
    from rocketmq.client import Message

    made = Message(topic)
    made.set_keys(key)
    made.set_tags(tag)
    made.set_property("Größe", "日本語 𝄞")
    made.set_body(body)
    return made


def send_first(producer: Any, first: Any) -> Any:
    """Send the first message. The client has a short time of its own for the route, which a busy
    machine may exceed: it says so then, and an application tries again.
    """
    from rocketmq.exceptions import ProducerSendSyncFailed

    deadline_s = time.monotonic() + TIME_S_MAX / 2
    while True:
        try:
            return producer.send_sync(first)
        except ProducerSendSyncFailed as error:
            if "No route info" not in str(error) or time.monotonic() > deadline_s:
                raise


def send(name_server: str) -> None:
    """One message of every kind that the client can send."""
    from rocketmq.client import Producer

    producer = Producer("cpp-producer", timeout=10_000)
    producer.set_namesrv_addr(name_server)
    producer.start()
    mails = [(f"mail-{n}", tag_of(n), LONG if n == 0 else f"mail {n}") for n in range(MAILS)]
    for number, (key, tag, body) in enumerate(mails):
        if number % 3 == 2:
            producer.send_oneway(message("Mails", key, tag, body))
            continue
        mail = message("Mails", key, tag, body)
        sent = producer.send_sync(mail) if number else send_first(producer, mail)
        tell(event="sent", key=key, status=sent.status.name, offset=sent.offset)
    for step in range(STEPS):
        for order in range(ORDERS):
            key = f"order-{order}-{step}"
            sent = producer.send_orderly(message("Steps", key, TAGS[0], key), order)
            tell(event="sent", key=key, status=sent.status.name, offset=sent.offset)
    producer.shutdown()


def consumer(name_server: str, name: str, topic: str, tags: str, *, orderly: bool = False) -> Any:
    """A push consumer that prints what it gets, in a group of its own."""
    from rocketmq.client import PushConsumer

    made = PushConsumer(f"cpp-{name}", orderly=orderly)
    made.set_namesrv_addr(name_server)
    made.set_instance_name(
        name
    )  # those that share an instance may wait ten seconds for their queues
    made.set_thread_count(4)

    def consume(got: Any) -> None:
        key = got.keys.decode()
        members = {
            "key": key,
            "tag": got.tags.decode(),
            "size": got.get_property("Größe").decode(),
            "body": got.body.decode(),
        }
        tell(event="consumed", by=name, queue=got.queue_id, offset=got.queue_offset, **members)
        with _news:
            _consumed[name] = _consumed.get(name, 0) + 1
            _news.notify()

    made.subscribe(topic, consume, tags)
    return made


def main(name_server: str) -> None:
    send(name_server)
    wanted = {
        "all": MAILS,
        "some": sum(tag_of(number) != "green" for number in range(MAILS)),
        "orderly": ORDERS * STEPS,
    }
    consumers = [
        consumer(name_server, "all", "Mails", "*"),
        consumer(name_server, "some", "Mails", "red || blue"),
        consumer(name_server, "orderly", "Steps", "*", orderly=True),
    ]
    for each in consumers:
        each.start()
    with _news:
        complete = _news.wait_for(
            lambda: all(_consumed.get(name, 0) >= count for name, count in wanted.items()),
            TIME_S_MAX,
        )
    for each in consumers:
        each.shutdown()
    tell(event="done", complete=complete)
    os._exit(0)  # the library's own end would wait for its timers


if __name__ == "__main__":
    main(sys.argv[1])
