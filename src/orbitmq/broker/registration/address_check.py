"""The start-up check of the advertised address: the broker connects to itself, and logs a warning
if clients could not.

It never prevents a start: an address that only others reach, as behind some routers, is served as
well. Bounded in time, and run in the background.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from orbitmq.common.clock import Clock
from orbitmq.common.errors import OrbitError
from orbitmq.common.service import describe
from orbitmq.protocol.bodies.nameserver import decode_kv_table
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.remoting.hooks import RpcHook
from orbitmq.remoting.name_servers import split_address

TIMEOUT_MS: Final = 3000
_HINT: Final = (
    "this address is advertised to clients: set brokerIP1 to one that they can reach, bindAddress"
    " to where the broker listens (0.0.0.0 for all), and listenPort to an unused port"
)

log = logging.getLogger(__name__)


class AdvertisedAddressCheck:
    """Checks the advertised address, from `start` to `stop`. `boot_time` identifies this broker.

    A broker that speaks TLS only, or would refuse its own request, is only connected to.
    """

    def __init__(
        self,
        address: str,
        client: ClientConfig,
        clock: Clock,
        boot_time: Callable[[], str],
        *,
        speaks_plaintext: bool,
        hooks: Sequence[RpcHook] = (),
        may_ask: bool = True,
    ) -> None:
        self._address = address
        self._client = client
        self._clock = clock
        self._boot_time = boot_time
        self._hooks = hooks
        self._can_ask = may_ask and (speaks_plaintext or client.tls.enabled)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._check())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _check(self) -> None:
        why = await self.problem()
        if why is not None:
            log.warning(
                "own_address_fails address=%s why='%s' hint='%s'", self._address, why, _HINT
            )

    async def problem(self) -> str | None:
        """Return why clients cannot use the address, as far as this host can judge; None if they
        can.
        """
        try:
            if not self._can_ask:
                await self._connect()
                return None
            async with RemotingClient(self._client, self._clock, hooks=self._hooks) as client:
                answer = await client.invoke(
                    self._address,
                    RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO),
                    TIMEOUT_MS,
                )
            if answer.code != ResponseCode.SUCCESS:
                return None  # the program there does not identify itself
            found = decode_kv_table(answer.body or b"").get("bootTimestamp")
        except (OrbitError, OSError) as problem:
            return describe(problem)
        return None if found == self._boot_time() else "another program answers there"

    async def _connect(self) -> None:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            _, writer = await asyncio.open_connection(*split_address(self._address))
        writer.transport.abort()
