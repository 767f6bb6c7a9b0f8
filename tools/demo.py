"""`make run`: starts a name server and a broker, sends and reads a thousand messages over the wire, and says what to try.

On a terminal it goes on serving until Ctrl-C; without one it ends when it has shown its result.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from pathlib import Path

from orbitmq import __version__, kernels
from orbitmq.common.clock import SystemClock
from orbitmq.common.service import Services, raise_file_limit, run_until_signal
from orbitmq.embedded.cluster import ClusterSettings, EmbeddedCluster
from orbitmq.message.record import decode_all
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.pull import PullMessageRequestHeader
from orbitmq.protocol.headers.send import SendMessageRequestHeaderV2
from orbitmq.remoting.client import ClientConfig, RemotingClient

NAME_SERVER_PORT, BROKER_PORT = 9876, 10911
MESSAGES = 1000
HAS_SUBSCRIPTION = 4


def port_to_use(usual: int) -> int:
    """The usual port, or 0 for a free one when somebody listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", usual))
        except OSError:
            print(f"Port {usual} is taken, so another one is used.")
            return 0
    return usual


async def show(address: str) -> None:
    """Send messages as a real producer does, and read them back as a real consumer does."""
    async with RemotingClient(ClientConfig(), SystemClock()) as client:
        began = time.perf_counter()
        header = SendMessageRequestHeaderV2(
            producer_group="demo",
            topic="orders",
            default_topic="TBW102",
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=int(time.time() * 1000),
            flag=0,
        )
        send = RequestCode.SEND_MESSAGE_V2
        await asyncio.gather(
            *(client.invoke(address, RemotingCommand.request(send, header, b"order %d" % number)) for number in range(MESSAGES))
        )
        sent_s = time.perf_counter() - began
        offset, found = 0, 0
        while found < MESSAGES:
            pull = PullMessageRequestHeader(
                consumer_group="demo",
                topic="orders",
                queue_id=0,
                queue_offset=offset,
                max_msg_nums=32,
                sys_flag=HAS_SUBSCRIPTION,
                commit_offset=0,
                suspend_timeout_millis=0,
                sub_version=0,
                subscription="*",
            )
            answer = await client.invoke(address, RemotingCommand.request(RequestCode.PULL_MESSAGE, pull))
            found += sum(1 for _ in decode_all(answer.body or b""))
            offset = int((answer.ext_fields or {})["nextBeginOffset"])
    read_s = time.perf_counter() - began - sent_s
    print(f"  {MESSAGES} messages sent in {sent_s * 1000:.0f} ms, and read back in {read_s * 1000:.0f} ms")


def resident_mb() -> int:
    """The memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 // 1_000_000


async def main() -> None:
    raise_file_limit()
    print(f"OrbitMQ {__version__}, kernels {kernels.mode()}")
    settings = ClusterSettings(name_server_port=port_to_use(NAME_SERVER_PORT), broker_port=port_to_use(BROKER_PORT))
    cluster = EmbeddedCluster(settings)
    services = Services()
    services.add("cluster", start=cluster.start, stop=cluster.stop)
    if sys.stdin.isatty():
        services.add("demo", start=lambda: present(cluster))
        await run_until_signal(services, ready=lambda: print("Serving until Ctrl-C."))
        return
    await services.start()
    await use(cluster)
    await services.stop()
    print("It ends here, for there is no terminal. To have it stay: .venv/bin/orbitmq up")


async def use(cluster: EmbeddedCluster) -> None:
    """Say where it listens, and use it."""
    where = f"Name server {cluster.name_server_address}, broker {cluster.broker_address}"
    print(f"{where} ({resident_mb()} MB, ready after {time.process_time() * 1000:.0f} ms of CPU).")
    await show(cluster.broker_address)


async def present(cluster: EmbeddedCluster) -> None:
    """Use it, and say what to try."""
    await use(cluster)
    print("Try, from another terminal:")
    for line in (
        f".venv/bin/orbitmq cluster list -n {cluster.name_server_address}",
        f".venv/bin/orbitmq store dump {cluster.store} --limit 5",
        f"mqadmin topicStatus -n {cluster.name_server_address} -t orders     # Apache RocketMQ's own tools and clients work too",
        ".venv/bin/orbitmq --help",
    ):
        print(f"  {line}")


if __name__ == "__main__":
    asyncio.run(main())
