"""Tests `orbitmq spark report`: its figures match a plain computation, and its page is
self-contained.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from orbitmq.blocking.consumers import PullConsumer
from orbitmq.blocking.producers import Producer
from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.testing import LocalCluster
from support.cli.commands import Shell
from support.spark.messages import messages_in

pytestmark = pytest.mark.usefixtures("spark")
RANKS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, topics={"orders": 2, "clicks": 1}) as cluster:
        noise = random.Random(7)
        with Producer(cluster.name_server) as producer:
            for number in range(200):
                topic = "clicks" if number % 4 == 0 else "orders"
                tags = None if number % 10 == 0 else f"<tag {number % 3}>"
                producer.send(Message(topic, noise.randbytes(noise.randrange(1, 2_000)), tags=tags))
        with PullConsumer(cluster.name_server, "readers") as consumer:
            for queue in consumer.queues("orders"):
                consumer.update_offset(queue, 3)
        yield cluster


def percentile(values: Sequence[int], rank: float) -> float:
    """Return a percentile with linear interpolation."""
    ordered = sorted(values)
    place = rank * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def figures(messages: Sequence[ReceivedMessage]) -> dict[str, Any]:
    sizes = [len(message.body) for message in messages]
    waits = [message.stored_at_ms - message.born_at_ms for message in messages]
    found: dict[str, Any] = {"messages": len(messages), "bytes": sum(sizes)}
    found |= {
        f"size_{name}": pytest.approx(percentile(sizes, rank)) for name, rank in RANKS.items()
    }
    return found | {
        f"latency_{name}_ms": pytest.approx(percentile(waits, rank)) for name, rank in RANKS.items()
    }


def check(row: dict[str, Any], messages: Sequence[ReceivedMessage]) -> None:
    wanted = figures(messages)
    assert {name: row[name] for name in wanted} == wanted


def test_figures_are_those_of_a_plain_computation(mq: LocalCluster) -> None:
    (found,) = Shell(mq.name_server).json("spark", "report", "orders", "clicks")
    messages = [*messages_in(mq.name_server, "clicks"), *messages_in(mq.name_server, "orders")]
    assert [row["topic"] for row in found["topics"]] == ["clicks", "orders"]
    for row in found["topics"]:
        check(row, [each for each in messages if each.topic == row["topic"]])
    assert len(found["queues"]) == 6
    for row in found["queues"]:
        place = row["topic"], row["broker"], row["queue"]
        check(
            row,
            [
                each
                for each in messages
                if (each.topic, each.queue.broker_name, each.queue.queue_id) == place
            ],
        )
    assert len(found["tags"]) == len({(each.topic, each.tags) for each in messages})
    for row in found["tags"]:
        check(
            row,
            [
                each
                for each in messages
                if (each.topic, each.tags or "") == (row["topic"], row["tag"])
            ],
        )
    width_ms = found["interval_ms"]
    for row in found["timeline"]:
        inside = [
            each
            for each in messages
            if each.topic == row["topic"]
            and each.stored_at_ms // width_ms * width_ms == row["at_ms"]
        ]
        assert (row["messages"], row["bytes"]) == (
            len(inside),
            sum(len(each.body) for each in inside),
        )
        assert row["per_s"] == pytest.approx(len(inside) * 1000 / width_ms)
    assert sum(row["messages"] for row in found["timeline"]) == 200
    assert (found["since_ms"], found["until_ms"]) == (
        min(e.stored_at_ms for e in messages),
        max(e.stored_at_ms for e in messages),
    )
    lag = sum(1 for each in messages if each.topic == "orders") - 4 * 3
    assert [(row["topic"], row["group"], row["lag"]) for row in found["groups"]] == [
        ("orders", "readers", lag)
    ]


class Elements(HTMLParser):
    """Parses a page; an element that is not closed is an error."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.links: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.links += [str(value) for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_has_plots_and_needs_nothing_else(mq: LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    messages = messages_in(mq.name_server, "orders")
    times = sorted(each.stored_at_ms for each in messages)
    result = Shell(mq.name_server).run(
        "spark", "report", "orders", "--since", f"@{times[20]}", "--html", str(file)
    )
    assert result.exit_code == 0, result.stderr
    count = sum(each.stored_at_ms >= times[20] for each in messages)
    assert result.stdout.splitlines()[3].split()[:2] == ["orders", str(count)]
    text = file.read_text()
    page = Elements(text)
    assert page.names.count("svg") == 6
    assert "polyline" in page.names or "circle" in page.names
    assert page.links == []
    assert "http" not in text.replace("http-equiv", "")
    assert "script" not in page.names
    assert "&lt;tag 1&gt;" in text
    assert "<tag" not in text


def test_a_time_without_messages_is_no_error(mq: LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "empty.html"
    (found,) = Shell(mq.name_server).json(
        "spark", "report", "clicks", "--until", "@1", "--html", str(file)
    )
    assert found["topics"] == found["timeline"] == []
    assert "no messages" in file.read_text()
    assert "no route to topic nobody" in Shell(mq.name_server).fails("spark", "report", "nobody")
    wrong = Shell(mq.name_server).fails(
        "spark", "report", "clicks", "--html", str(tmp_path / "no" / "x.html")
    )
    assert "--html" in wrong.splitlines()[-1]
