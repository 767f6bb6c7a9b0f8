"""Replies: brought to the client that asked, stored beside, and refused in words when they cannot
arrive.
"""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from orbitmq.broker.processors.plugin_hooks import Hooks
from orbitmq.broker.processors.replies import PUSH_TIMEOUT_MS, ReplyProcessor
from orbitmq.common.errors import RequestRefusedError
from orbitmq.message import hosts, properties
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel
from orbitmq.testing.faulty_disk import FaultyDisk
from support.broker.retries import RetriesRoom, retry_fields
from support.common.installed_packages import install, site_packages
from support.common.process_files import ProcessFiles
from support.remoting.channels import client, sent

REPLIES = "DefaultCluster_REPLY_TOPIC"
TO_ASKER = {"REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "7", "own": "größe"}


class Room(RetriesRoom):
    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, **settings)
        self.serve_replies()
        self.asker = self.peers.connect()
        self.producers.register("askers", self.asker, client("asker"), self.clock.monotonic_ms())

    def serve_replies(self) -> None:
        """With the hooks that are installed now."""
        self.replies = ReplyProcessor(
            self.settings,
            sends=self.service,
            producers=self.producers,
            own=self.own,
            replies=self.write_replies,
            now_ms=self.clock.now_ms,
            hooks=Hooks(self.clock.monotonic_ms).sends,
        )

    def reply(
        self, names: dict[str, str], then: Callable[[], None] = lambda: None, **changes: Any
    ) -> RemotingCommand:
        """The answer to a reply; `then` is done while its client is waited for."""
        fields = {
            **retry_fields(names, topic=REPLIES, producerGroup="p", reconsumeTimes=0),
            **changes,
        }
        request = RemotingCommand(
            RequestCode.SEND_REPLY_MESSAGE,
            ext_fields={name: str(value) for name, value in fields.items()},
            body=b"yes",
        )

        async def scenario() -> RemotingCommand:
            handler = cast(
                "Callable[[Channel, RemotingCommand], Awaitable[RemotingCommand]]",
                self.replies.handlers()[request.code],
            )
            asked = asyncio.ensure_future(handler(self.channel, request))
            await asyncio.sleep(0)
            then()
            return await asked

        return asyncio.run(scenario())

    def answers_with(self, code: int) -> Callable[[], None]:
        def then() -> None:
            (self.pushed,) = sent(self.asker)
            self.peers.answer(self.asker, self.pushed.reply(code))

        return then


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path)
    yield room
    room.close()


def test_a_reply_is_brought_with_all_that_is_said_of_it_and_stored(room: Room) -> None:
    answer = room.reply(TO_ASKER, room.answers_with(ResponseCode.SUCCESS), sysFlag=1)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    pushed = room.pushed.ext_fields or {}
    assert (room.pushed.code, room.pushed.body) == (
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        b"yes",
    )
    now_ms = str(room.clock.now_ms())
    said = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "PUSH_REPLY_TIME": now_ms}
    assert properties.parse(pushed["properties"]) == TO_ASKER | said
    assert (pushed["topic"], pushed["sysFlag"], pushed["flag"], pushed["storeTimestamp"]) == (
        REPLIES,
        "1",
        "5",
        now_ms,
    )
    assert (pushed["bornHost"], pushed["storeHost"]) == (
        room.channel.remote_address,
        hosts.text_of(room.service.store_host),
    )
    (stored,) = room.stored(REPLIES)
    assert (stored.body, stored.sys_flag, stored.msg_id) == (
        b"yes",
        1,
        (answer.ext_fields or {})["msgId"],
    )
    assert "PUSH_REPLY_TIME" not in stored.properties()


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ({}, "reply message properties[REPLY_TO_CLIENT] is null"),
        ({"REPLY_TO_CLIENT": "gone"}, "push reply message fail, channel of <gone> not found."),
    ],
)
def test_a_reply_that_nobody_can_get_is_refused_and_stored_all_the_same(
    room: Room, names: dict[str, str], why: str
) -> None:
    answer = room.reply(names)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith(why)
    assert len(room.stored(REPLIES)) == 1


def test_a_client_that_refuses_or_goes_away_is_told_of(room: Room) -> None:
    answer = room.reply(TO_ASKER, room.answers_with(ResponseCode.SYSTEM_BUSY))
    assert (
        answer.code,
        (answer.remark or "").startswith("push reply message to askerfail. it answered 2"),
    ) == (1, True)
    answer = room.reply(TO_ASKER, lambda: room.peers.endpoint.closed(room.asker, None))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").endswith("reply again as long as it waits")


def test_a_client_that_says_nothing_is_not_waited_for_for_ever(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.broker.processors.replies.PUSH_TIMEOUT_MS", 10)
    assert PUSH_TIMEOUT_MS == 10_000
    assert room.reply(TO_ASKER).code == ResponseCode.SYSTEM_ERROR


def test_replies_need_not_be_stored(room: Room) -> None:
    room.settings.store_reply_message_enable = False
    answer = room.reply(TO_ASKER, room.answers_with(ResponseCode.SUCCESS))
    assert (answer.code, (answer.ext_fields or {})["msgId"]) == (ResponseCode.SUCCESS, "0")
    with pytest.raises(RequestRefusedError) as refused:
        room.reply({"REPLY_TO_CLIENT": "gone"})
    assert (refused.value.code, refused.value.fields) == (
        ResponseCode.SYSTEM_ERROR,
        {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"},
    )
    assert room.stored(REPLIES) == []


def test_a_reply_that_was_brought_is_not_refused_because_the_disk_is_full(tmp_path: Path) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path / "store")
    room = Room(tmp_path, layer=disk)
    try:
        disk.fail("pwrite", errno.ENOSPC, times=100)
        answer = room.reply(TO_ASKER, room.answers_with(ResponseCode.SUCCESS))
        assert (answer.code, (answer.ext_fields or {})["msgId"]) == (ResponseCode.SUCCESS, "0")
    finally:
        disk.heal()
        room.close()


HOOK = """
HEARD = []

class Hook:
    def before(self, attempt): HEARD.append(attempt.topic)
    def after(self, attempt, result): HEARD.append((result.code, len(result.message_ids)))
"""


def test_send_hooks_hear_of_replies(room: Room, tmp_path: Path) -> None:
    with site_packages(tmp_path / "site") as site:
        install(site, "hook_package", "[orbitmq.send_hooks]\nmeter = hook_package:Hook\n", HOOK)
        room.serve_replies()
        room.reply(TO_ASKER, room.answers_with(ResponseCode.SUCCESS))
        room.reply({"REPLY_TO_CLIENT": "gone"})
        heard = sys.modules["hook_package"].HEARD
    assert heard == [REPLIES, (ResponseCode.SUCCESS, 1), REPLIES, (ResponseCode.SYSTEM_ERROR, 1)]
