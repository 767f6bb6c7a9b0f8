"""The room that tests of processors share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.broker.socketless import BrokerRoom


@pytest.fixture
def room(tmp_path: Path) -> Iterator[BrokerRoom]:
    room = BrokerRoom(tmp_path)
    yield room
    room.close()
