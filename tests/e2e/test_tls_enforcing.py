"""Servers that take TLS only speak it to each other, without a further key, as the original's
do.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.common.clock import SystemClock
from orbitmq.common.config import TlsMode
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.name_server import NameServer
from orbitmq.protocol.codes import ResponseCode
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.remoting.tls import ClientTls
from support.broker.process import send_request
from support.broker.running import broker
from support.remoting.peers import run


@pytest.mark.parametrize("says_no", [False, True])
def test_a_broker_that_takes_tls_only_registers_by_tls_unless_it_is_told_not_to(
    tmp_path: Path, says_no: bool
) -> None:
    async def scenario() -> None:
        kv = str(tmp_path / "kv.json")
        name_server = NameServer(
            NameServerConfig(listen_port=0, tls_server_mode=TlsMode.ENFORCING, kv_config_path=kv)
        )
        await name_server.start()
        try:
            where = f"127.0.0.1:{name_server.address[1]}"
            keys = {"namesrvAddr": where, "tls.server.mode": "enforcing"} | (
                {"useTLS": "false"} if says_no else {}
            )
            async with broker(tmp_path / "store", registerBrokerTimeoutMills="5000", **keys) as ask:
                assert ask.components.link.name_servers == {where: not says_no}
                async with RemotingClient(
                    ClientConfig(tls=ClientTls(enabled=True)), SystemClock()
                ) as client:
                    assert (
                        await client.invoke(ask.address, send_request("T", b"x"), 30_000)
                    ).code == ResponseCode.SUCCESS
        finally:
            await name_server.stop()

    run(scenario)
