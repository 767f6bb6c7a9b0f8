"""A member of a group that consumes in order, as a process that can be killed: `python
ordered_member.py NAME_SERVER GROUP TOPIC`.

It prints a line for each message that it is through with: queue id, queue offset and body.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from orbitmq import ConsumeFromWhere, ConsumerSettings, PushConsumer, ReceivedMessage

SETTINGS = ConsumerSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, in_order=True)
PAUSE_S = 0.01  # for each message: it is in the middle of its work whenever it is killed


class Line(NamedTuple):
    """A message that was consumed."""

    queue_id: int
    offset: int
    body: str


def of(message: ReceivedMessage) -> Line:
    return Line(message.queue.queue_id, message.queue_offset, message.body.decode())


def check_order(lines: Iterable[Line], counts: dict[int, int]) -> None:
    """Every message came, so many of each queue, and each for the first time when all before it of
    its queue had.
    """
    offsets: dict[int, list[int]] = defaultdict(list)
    for line in lines:
        offsets[line.queue_id].append(line.offset)
    assert {queue_id: list(dict.fromkeys(found)) for queue_id, found in offsets.items()} == {
        queue_id: list(range(count)) for queue_id, count in counts.items()
    }


class OrderedMember:
    """The process, and what it has consumed up to now."""

    def __init__(self, name_server: str, group: str, topic: str) -> None:
        command = [sys.executable, str(Path(__file__)), name_server, group, topic]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines: list[Line] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            queue_id, offset, body = text.split(maxsplit=2)
            self.lines.append(Line(int(queue_id), int(offset), body.strip()))

    def kill(self) -> None:
        """End it as the system does, and hear the last that it said."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


async def main(name_server: str, group: str, topic: str) -> None:
    async def listener(message: ReceivedMessage) -> None:
        await asyncio.sleep(PAUSE_S)
        line = of(message)
        print(line.queue_id, line.offset, line.body, flush=True)

    consumer = PushConsumer(name_server, group, listener, settings=SETTINGS)
    consumer.subscribe(topic)
    async with consumer:
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
