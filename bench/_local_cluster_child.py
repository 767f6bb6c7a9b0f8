"""A test process: imports what a test imports, then starts clusters one after the other and sends a
message to each. Prints JSON.

Its argument is its start time by the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

CLUSTERS = 10


async def send_one(name_server: str) -> None:
    """Send a message as a user's test would."""
    from orbitmq.client.messages import Message
    from orbitmq.client.producer.producer import Producer

    async with Producer(name_server) as producer:
        await producer.send(Message("Topic", b"the first"))


def main() -> None:
    started_s = float(sys.argv[1])
    python_s = time.monotonic()
    import orbitmq.client.producer.producer
    from orbitmq.testing.local_cluster import LocalCluster

    assert orbitmq.client.producer.producer
    imported_s = time.monotonic()
    clusters = []
    for _ in range(CLUSTERS):
        begin_s = time.monotonic()
        with LocalCluster() as mq:
            up_s = time.monotonic()
            asyncio.run(send_one(mq.name_server))
            sent_s = time.monotonic()
        clusters.append(
            {
                "up_s": up_s - begin_s,
                "first_send_s": sent_s - begin_s,
                "end_s": time.monotonic() - sent_s,
                "sent_at_s": sent_s,
            }
        )
    first_s = clusters[0]["sent_at_s"] - started_s
    print(
        json.dumps({"import_s": imported_s - python_s, "process_s": first_s, "clusters": clusters})
    )


if __name__ == "__main__":
    main()
