"""A topic that is deleted stays deleted, and one that is created again has its new messages,
whatever ends the broker in between.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq import blocking
from orbitmq.testing import LocalCluster
from support.embedded.local_cluster import send

SMALL = {
    "mappedFileSizeConsumeQueue": "600",
    "mappedFileSizeCommitLog": str(16 << 10),
    "flushDiskType": "SYNC_FLUSH",
}
OLD = [b"old %d" % number for number in range(50)]
NEW = [b"new %d" % number for number in range(10)]


def found(mq: LocalCluster) -> list[tuple[int, bytes]]:
    """The offsets and bodies of all messages of the topic."""
    with blocking.PullConsumer(mq.name_server, "readers") as reader:
        (queue,) = reader.queues("T")
        messages, at = list[tuple[int, bytes]](), reader.min_offset(queue)
        while at < reader.max_offset(queue):
            pulled = reader.pull(queue, at)
            messages += [(message.queue_offset, message.body) for message in pulled.messages]
            at = pulled.next_offset
        return messages


def delete(mq: LocalCluster) -> None:
    with blocking.Admin(mq.name_server) as admin:
        admin.topics.delete("T")


def queue_files(mq: LocalCluster) -> list[Path]:
    return sorted((mq.store() / "consumequeue" / "T" / "0").iterdir())


@pytest.mark.parametrize(
    "ends", ["killed", "stopped", "killed, queues zeroed", "stopped, queues missing"]
)
def test_a_topic_that_was_created_again_has_its_new_messages_and_no_old_ones(ends: str) -> None:
    with LocalCluster(topics={"T": 1}, broker=SMALL) as mq:
        send(mq, *OLD)
        delete(mq)
        mq.create_topic("T", 1)
        send(mq, *NEW)
        mq.kill() if "killed" in ends else mq.stop_broker()
        for file in queue_files(mq) if "queues" in ends else []:
            file.write_bytes(bytes(600)) if "zeroed" in ends else file.unlink()
        mq.restart()
        assert found(mq) == list(enumerate(NEW))
        send(mq, b"next")
        assert found(mq) == list(enumerate([*NEW, b"next"]))


@pytest.mark.parametrize("ends", ["killed", "stopped"])
def test_a_topic_that_was_deleted_has_no_messages_when_it_is_created_later(ends: str) -> None:
    with LocalCluster(topics={"T": 1}, broker=SMALL) as mq:
        send(mq, *OLD)
        delete(mq)
        for _ in range(2):
            mq.kill() if ends == "killed" else mq.stop_broker()
            mq.restart()
        assert not (mq.store() / "consumequeue" / "T").exists()
        mq.create_topic("T", 1)
        send(mq, *NEW)
        mq.kill() if ends == "killed" else mq.stop_broker()
        mq.restart()
        assert found(mq) == list(enumerate(NEW))


def test_topics_are_made_again_from_their_queues_when_their_file_is_gone() -> None:
    with LocalCluster(topics={"T": 1}, broker=SMALL) as mq:
        send(mq, *OLD)
        mq.stop_broker()
        for name in ("topics.json", "topics.json.bak"):
            (mq.store() / "config" / name).unlink(missing_ok=True)
        mq.restart()
        assert found(mq) == list(enumerate(OLD))
