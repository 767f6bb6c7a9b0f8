"""What every test shares: outside programs, how Hypothesis runs, where files go, and interrupts
that mean something to who is started.
"""

import gc
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["support.common.requirements"]

# Two busy cores say nothing of an example's own speed.
settings.register_profile("orbitmq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("orbitmq")

# Files of tests go to memory where there is room: a sync of a disk takes milliseconds, and stores
# sync all the time. What a disk forgets
# when the power goes is a ForgetfulDisk's to say. TMPDIR has them elsewhere.
_MEMORY = Path("/dev/shm")
_FREE_BYTES_MIN = 4 << 30
if (
    "TMPDIR" not in os.environ
    and os.access(_MEMORY, os.W_OK)
    and shutil.disk_usage(_MEMORY).free >= _FREE_BYTES_MIN
):
    os.environ["TMPDIR"] = str(_MEMORY)
    tempfile.tempdir = None

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as a shell starts what is to run in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers() -> int:
    """Two for each core: a test of processes waits for them half of its time."""
    return 2 * (os.cpu_count() or 1)


# Hundreds of tests collect garbage, and each collection would visit half a million objects that
# stay: modules and collected tests.
_UNFROZEN_MAX = 150_000


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    _freeze_many_objects()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    _freeze_many_objects()  # servers that run in this process unfreeze all at their end


def _freeze_many_objects() -> None:
    if len(gc.get_objects(generation=2)) > _UNFROZEN_MAX:
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """The root logger is afterwards as it was: commands that run in this process set it up for a
    whole process.
    """
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
