"""Work that is done again and again until its task is cancelled; failures are logged and do not end it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from orbitmq.common.errors import RemoteError

log = logging.getLogger(__name__)


async def repeat(period_s: float, work: Callable[[], Awaitable[None]]) -> None:
    """Do `work` every `period_s`, for the first time after that long."""
    while True:
        await asyncio.sleep(period_s)
        try:
            await work()
        except RemoteError as problem:
            log.warning("periodic_work_failed work=%s why='%s'", work.__qualname__, problem)
        except Exception:
            log.exception("periodic_work_failed work=%s", work.__qualname__)
