"""The offset file of a broadcast consumer: exclusive while it is open, then free for the next one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.client.consumer.file_offsets import FileOffsets
from orbitmq.common.errors import ConfigurationError, InvalidStateError
from orbitmq.protocol.bodies.clients import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)


def test_a_second_one_is_refused_until_the_first_one_is_closed_and_then_goes_on_where_that_was(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        first, second = (FileOffsets(tmp_path / "g" / "offsets.json") for _ in range(2))
        first.open()
        first.open()
        with pytest.raises(InvalidStateError, match="its own instance_name or offsets_folder"):
            second.open()
        await second.write({QUEUE: 3})  # ignored: it does not own the file
        await first.write({QUEUE: 7})
        await second.close()
        with pytest.raises(InvalidStateError):
            second.open()
        await first.close()
        await first.write({QUEUE: 9})  # too late
        second.open()
        assert await second.read(QUEUE) == 7
        await second.close()

    asyncio.run(scenario())


def test_one_of_another_process_is_refused_until_that_is_gone(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from orbitmq.client.consumer.file_offsets import FileOffsets
FileOffsets(Path(sys.argv[1])).open()
print("open", flush=True)
sys.stdin.read()
"""
    path = tmp_path / "offsets.json"
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(InvalidStateError):
            FileOffsets(path).open()
        other.kill()
    offsets = FileOffsets(path)
    offsets.open()
    asyncio.run(offsets.close())


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ConfigurationError, match=r"file/g/offsets\.json.*set offsets_folder"):
        FileOffsets(tmp_path / "file" / "g" / "offsets.json").open()
