"""A remoting server with a single handler, to measure remoting alone: `python _bare_server.py
PORT`, stopped by SIGTERM.

It prints the mode of its kernels before it listens, so the measuring process can verify it.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys

from orbitmq import kernels
from orbitmq.common.clock import SystemClock
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import RequestDispatcher
from orbitmq.remoting.server import RemotingServer, ServerConfig

ECHO_CODE = 7


def echo(_channel: Channel, request: RemotingCommand) -> RemotingCommand:
    """Return the fields and the body of the request."""
    answer = request.reply(0, body=request.body)
    answer.ext_fields = request.ext_fields
    return answer


async def serve(port: int) -> None:
    print(f"kernels: {kernels.mode()}", flush=True)
    clock = SystemClock()
    dispatcher = RequestDispatcher(clock)
    dispatcher.register(ECHO_CODE, echo)
    server = RemotingServer(ServerConfig(port=port), dispatcher, clock)
    server.start()
    gc.freeze()
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    await server.stop()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
