"""A broker of ours as a process of its own: `python broker_process.py FILE` runs it with that configuration until SIGTERM."""

from __future__ import annotations

import asyncio
import sys

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import load_broker
from orbitmq.common.service import Services, run_until_signal


def main(file: str) -> None:
    broker = Broker(load_broker(file=file).settings)
    services = Services()
    services.add("broker", start=broker.start, stop=broker.stop)
    asyncio.run(run_until_signal(services))


if __name__ == "__main__":
    main(sys.argv[1])
