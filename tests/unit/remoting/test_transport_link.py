"""A link over an asyncio transport."""

from __future__ import annotations

import asyncio
from typing import Any

from orbitmq.remoting.transport_link import TransportLink
from orbitmq.testing.manual_clock import ManualClock
from support.remoting.channels import Peers

NO_FRAME = b"\x7f\xff\xff\xff" * 4


class Transport(asyncio.Transport):
    """Notes what is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None:
        self.done.append("reads")

    def abort(self) -> None:
        self.done.append("aborted")

    def is_closing(self) -> bool:
        return "aborted" in self.done


def test_nothing_is_done_to_a_transport_while_it_says_that_it_has_room() -> None:
    """asyncio closes a socket twice if its transport is aborted inside of `resume_writing`."""

    async def scenario() -> None:
        peers, transport = Peers(), Transport()
        channel: Any = peers.connect()
        link = TransportLink(
            peers.endpoint, ManualClock(), unsent_max=1024, is_tls=True, of_server=channel
        )
        link.connection_made(transport)
        link.pause_writing()
        link.data_received(NO_FRAME[:2])  # arrived before it was paused
        link._pending += NO_FRAME[2:]
        link.resume_writing()
        assert transport.done == []
        await asyncio.sleep(0)
        assert transport.done == ["reads", "aborted"]

    asyncio.run(scenario())
