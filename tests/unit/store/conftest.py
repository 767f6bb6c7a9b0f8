"""The rooms that tests of flushing share."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.store.config import FlushMode
from support.store.flushing import FlushRoom


@pytest.fixture
def room(tmp_path: Path) -> FlushRoom:
    return FlushRoom(tmp_path / "store").open()


@pytest.fixture
def sync_room(tmp_path: Path) -> FlushRoom:
    return FlushRoom(tmp_path / "store", FlushMode.SYNC).open()
