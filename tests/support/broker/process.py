"""A broker as a process of its own, and the few requests that tests of its life send to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from orbitmq.message.record import decode_all
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.pull import PullMessageRequestHeader
from orbitmq.protocol.headers.send import SendMessageRequestHeaderV2
from orbitmq.protocol.headers.topics import CreateTopicRequestHeader
from orbitmq.remoting.client import RemotingClient

STOPS_WITHIN_S = 60.0  # it takes a second or two; a machine may be busy
SMALL_FILES = {
    "mappedFileSizeCommitLog": "1048576",
    "maxIndexNum": "1000",
    "maxHashSlotNum": "1000",
}
PATIENT = {"brokerFastFailureEnable": "false"}  # or a machine that is busy makes sends fail
SUBSCRIPTION = 4


class BrokerProcess:
    """`orbitmq broker run` with these keys; what it says goes to files in `folder`."""

    def __init__(self, folder: Path, keys: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._out, self._err = folder / "out", folder / "err"
        pairs = [
            text
            for name, value in (SMALL_FILES | PATIENT | dict(keys)).items()
            for text in ("--set", f"{name}={value}")
        ]
        command = [
            sys.executable,
            "-c",
            "from orbitmq.cli.main import main; main()",
            "broker",
            "run",
            *pairs,
        ]
        with self._err.open("wb") as errors:
            environment = {
                name: value
                for name, value in os.environ.items()
                if not name.startswith("ORBITMQ_") or name == "ORBITMQ_PURE"
            }
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> str:
        """What it says when it is up."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "listens on" in line, self.errors()
        return line

    def errors(self) -> str:
        """What it logged, or why it did not start."""
        return self._err.read_text()

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def terminate(self) -> None:
        """Tell it to stop."""
        self.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Its exit code."""
        try:
            return self._process.wait(STOPS_WITHIN_S)
        finally:
            self.end()

    def end(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def send_request(topic: str, body: bytes, queue_id: int = 0) -> RemotingCommand:
    """An ordinary send, which makes the topic, with one queue, if it is not there."""
    header = SendMessageRequestHeaderV2(
        producer_group="p",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties=f"UNIQ_KEY\x01{body.decode()}\x02",
    )
    return RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body)


def create_request(topic: str) -> RemotingCommand:
    """What an operator asks for who wants a topic of one queue."""
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        order=False,
    )
    return RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def pull_request(topic: str, offset: int, queue_id: int = 0) -> RemotingCommand:
    """A pull that does not wait."""
    header = PullMessageRequestHeader(
        consumer_group="g",
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
    )
    return RemotingCommand.request(RequestCode.PULL_MESSAGE, header)


async def all_bodies(client: RemotingClient, address: str, topic: str) -> list[bytes]:
    """Every message of the first queue of a topic."""
    found: list[bytes] = []
    while True:
        answer = await client.invoke(address, pull_request(topic, len(found)))
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.PULL_NOT_FOUND, answer
            return found
        found += [message.body for message in decode_all(answer.body or b"")]
