"""`make run`: starts what there is, uses it once over the wire, and says what to try.

On a terminal it goes on serving until Ctrl-C; without one it ends when it has shown its result.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import time
from pathlib import Path

from orbitmq import __version__, kernels
from orbitmq.admin import name_servers as admin
from orbitmq.common.clock import SystemClock
from orbitmq.common.service import Services, raise_file_limit, run_until_signal
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.name_server import NameServer
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig
from orbitmq.protocol.bodies.registration import RegisterBrokerBody
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.nameserver import RegisterBrokerRequestHeader
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.remoting.name_servers import NameServerList

PORT = 9876


def port_to_use() -> int:
    """The usual port, or 0 for a free one when somebody listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError:
            print(f"Port {PORT} is taken, so another one is used.")
            return 0
    return PORT


async def show(address: str) -> None:
    """Register a broker that exists only here, as a real one would, and ask for the route to its topic."""
    async with RemotingClient(ClientConfig(), SystemClock(), name_servers=NameServerList([address])) as client:
        header = RegisterBrokerRequestHeader(
            broker_name="demo-broker",
            broker_addr="127.0.0.1:10911",
            cluster_name="DemoCluster",
            ha_server_addr="127.0.0.1:10912",
            broker_id=0,
        )
        topics = {name: TopicConfig(name, read_queue_nums=4, write_queue_nums=4) for name in ("orders", "payments")}
        body = RegisterBrokerBody(DataVersion(counter=1), topics)
        await client.invoke(address, RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body.encode()))
        route = await admin.topic_route(client, "orders")
    for queues in route.queue_datas:
        broker = next(broker for broker in route.broker_datas if broker.broker_name == queues.broker_name)
        where = f"{queues.write_queue_nums} queues on {broker.broker_name} at {broker.broker_addrs[0]}"
        print(f"  a broker registered; the route to `orders`: {where}")
    print("  the broker's connection closed, and its route went with it")


def resident_mb() -> int:
    """The memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 // 1_000_000


async def main() -> None:
    raise_file_limit()
    print(f"OrbitMQ {__version__}, kernels {kernels.mode()}")
    with tempfile.TemporaryDirectory(prefix="orbitmq-demo-") as home:
        server = NameServer(NameServerConfig(listen_port=port_to_use(), kv_config_path=f"{home}/kvConfig.json"))
        services = Services()
        services.add("name server", start=server.start, stop=server.stop)
        if sys.stdin.isatty():
            services.add("demo", start=lambda: present(server))
            await run_until_signal(services, ready=lambda: print("Serving until Ctrl-C."))
            return
        await services.start()
        await present(server)
        await services.stop()


async def present(server: NameServer) -> None:
    """Say where it listens, use it, say what to try."""
    address = f"{server.address[0]}:{server.address[1]}"
    print(f"The name server listens on {address} ({resident_mb()} MB, ready after {time.process_time() * 1000:.0f} ms of CPU).")
    await show(address)
    print("Try, from another terminal:")
    for line in (
        f".venv/bin/orbitmq cluster list -n {address}",
        f".venv/bin/orbitmq kv put -n {address} shop currency EUR",
        f"mqadmin clusterList -n {address}           # Apache RocketMQ's own tools, brokers and clients work too",
        ".venv/bin/orbitmq --help",
    ):
        print(f"  {line}")


if __name__ == "__main__":
    asyncio.run(main())
