"""A broker whose disk stalls, asked over the wire: sends that waited behind a write are refused
with the cause, and served again.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import socket
import termios
import threading
import urllib.request
from pathlib import Path

from orbitmq.broker.broker import Broker
from orbitmq.broker.config.broker_config import load_broker
from orbitmq.protocol import frame
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.testing.faulty_disk import FaultyDisk
from orbitmq.testing.manual_clock import ManualClock
from support.broker.two_paths import SEND, request
from support.common.free_ports import free_port
from support.common.waiting import wait_until

WAIT_S = 60
STALL_MS = 5_000
A_SEND = request(RequestCode.SEND_MESSAGE_V2, SEND, b"x")


class Peer:
    """A client that sends frames and reads the answers, one after the other."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, WAIT_S)
        self._received = b""

    def write(self, data: bytes) -> None:
        """Send it, and see that it is in the socket of the broker, whether that reads it or not."""
        self._socket.sendall(data)
        wait_until(
            lambda: fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)) == bytes(4),
            "all bytes arrive",
        )

    def read(self) -> RemotingCommand:
        while not (
            stop := frame.frame_end(self._received, 0, len(self._received), frame.FrameLimits())
        ):
            received = self._socket.recv(65_536)
            assert received, "the broker closed the connection"
            self._received += received
        answer: RemotingCommand = frame.decode(self._received, 0, stop)
        self._received = self._received[stop:]
        return answer

    def ask(self, data: bytes) -> RemotingCommand:
        self.write(data)
        return self.read()

    def close(self) -> None:
        self._socket.close()


class StallingDisk(FaultyDisk):
    """A disk whose next write takes `STALL_MS` of the clock: from when the test hears of it until
    it lets it go on.
    """

    def __init__(self, root: Path, clock: ManualClock) -> None:
        super().__init__(OsFileLayer(), root)
        self._clock = clock
        self.stalled, self.released = threading.Event(), threading.Event()

    def stall_next_write(self) -> None:
        self.stalled.clear()
        self.released.clear()
        self.stall("pwrite", self._wait)

    def _wait(self) -> None:
        self.heal()
        self.stalled.set()
        assert self.released.wait(WAIT_S)
        self._clock.advance_ms(STALL_MS)


def sent_behind_a_stall(disk: StallingDisk, first: Peer, second: Peer) -> RemotingCommand:
    """What the second peer is answered, whose send came while a write for the first one's held the
    broker.
    """
    disk.stall_next_write()
    first.write(A_SEND)
    assert disk.stalled.wait(WAIT_S)
    second.write(A_SEND)
    disk.released.set()
    assert first.read().code == ResponseCode.SUCCESS
    return second.read()


def until_served(peer: Peer) -> None:
    """Send until it is taken, as a client does."""

    def is_served() -> bool:
        answer = peer.ask(A_SEND)
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY), answer
        return answer.code == ResponseCode.SUCCESS

    wait_until(is_served)


def test_sends_behind_a_write_that_stalls_are_refused_with_the_cause_and_served_again(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    disk = StallingDisk(tmp_path, clock)
    metrics_port = free_port("127.0.0.1")
    flags = {
        "listenPort": str(free_port("127.0.0.1")),
        "storePathRootDir": str(tmp_path),
        "mappedFileSizeCommitLog": str(1 << 20),
        "maxHashSlotNum": "100",
        "maxIndexNum": "1000",
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": str(metrics_port),
    }
    broker = Broker(load_broker(flags=flags).settings, clock, disk)

    def scenario() -> None:
        first, second = Peer(broker.address), Peer(broker.address)
        for peer in (first, second):
            until_served(peer)
        # The beat may come between the stall and the turn behind it, and the send is served: so a
        # stall is not always seen.
        answers = (sent_behind_a_stall(disk, first, second) for _ in range(50))
        refused = next(answer for answer in answers if answer.code != ResponseCode.SUCCESS)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        remark = refused.remark or ""
        assert remark.startswith(
            "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue:"
            " 4900ms"
        )
        assert (
            f"the disk took {STALL_MS} of the last {STALL_MS} ms for writes of the commit log;"
            " retry in a moment" in remark
        )
        until_served(second)
        until_served(first)
        info = json.loads(first.ask(request(RequestCode.GET_BROKER_RUNTIME_INFO, {})).body or b"")[
            "table"
        ]
        assert (
            info["sendThreadPoolQueueHeadWaitTimeMills"]
            == info["pullThreadPoolQueueHeadWaitTimeMills"]
            == "4900"
        )
        with urllib.request.urlopen(
            f"http://127.0.0.1:{metrics_port}/metrics", timeout=WAIT_S
        ) as page:
            lines = page.read().decode().splitlines()
        (counted,) = [line for line in lines if line.startswith("rocketmq_send_refused_total{")]
        assert 'cause="disk_write"' in counted
        assert float(counted.rsplit(" ", 1)[1]) >= 1
        for peer in (first, second):
            peer.close()

    async def main() -> None:
        await broker.start()
        try:
            await asyncio.to_thread(scenario)
        finally:
            disk.heal()
            disk.released.set()
            await broker.stop()

    asyncio.run(main())
