"""Clusters, brokers and name servers as operators look at them and configure them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.admin import Admin
from orbitmq.client.session.client_session import ClientSession
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import InvalidStateError, NotFoundError, RequestRefusedError
from orbitmq.testing.local_cluster import LocalCluster
from support.admin.cluster import administer, send


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, topics={"T": 1}) as running:
        yield running


def test_every_broker_is_told_with_what_it_does(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        places = await admin.cluster.brokers()
        assert [
            (place.cluster, place.name, place.broker_id, place.is_master) for place in places
        ] == [
            ("DefaultCluster", "broker-a", 0, True),
            ("DefaultCluster", "broker-b", 0, True),
        ]
        assert [place.address for place in places] == [
            mq.broker_address("broker-a"),
            mq.broker_address("broker-b"),
        ]
        assert await admin.cluster.brokers("Nowhere") == []
        await send(admin, "T", b"1", b"2")
        info = await admin.cluster.info()
        assert sorted(info.brokers) == ["broker-a", "broker-b"]
        runtimes = await admin.cluster.runtimes()
        assert sorted(runtimes.found) == sorted(place.address for place in places)
        assert sum(runtime.put_today or 0 for runtime in runtimes.found.values()) >= 2
        for runtime in runtimes.found.values():
            assert runtime.version == "V5_5_0"
            assert runtime.log_first_offset == 0
            assert runtime.disk_ratio is not None
            assert 0 < runtime.disk_ratio < 1
            assert runtime.entries["brokerActive"] == "true"

    administer(mq.name_server, scenario)


def test_the_configuration_of_a_broker_is_read_and_changed(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        address = mq.broker_address("broker-b")
        assert (await admin.cluster.config(address))["brokerName"] == "broker-b"
        await admin.cluster.update_config(address, {"defaultQueryMaxNum": "16"})
        assert (await admin.cluster.config(address))["defaultQueryMaxNum"] == "16"
        with pytest.raises(RequestRefusedError, match=f"{address} refused: .*NO_PERMISSION"):
            await admin.cluster.update_config(address, {"brokerConfigPath": "/x"})

    administer(mq.name_server, scenario)


def test_name_servers_keep_values_and_are_configured(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        names = admin.name_servers
        await names.kv_put("shop", "currency", "EUR")
        assert await names.kv_get("shop", "currency") == "EUR"
        assert await names.kv_list("shop") == {"currency": "EUR"}
        await names.kv_delete("shop", "currency")
        with pytest.raises(NotFoundError, match="there is no key currency in namespace shop"):
            await names.kv_get("shop", "currency")
        with pytest.raises(NotFoundError, match="there is no namespace nothing"):
            await names.kv_list("nothing")
        assert (await names.configs())[mq.name_server]["waitSecondsForService"] == "45"
        await names.update_config({"waitSecondsForService": "7"})
        assert (await names.configs())[mq.name_server]["waitSecondsForService"] == "7"

    administer(mq.name_server, scenario)


def test_producers_are_kept_from_a_broker_and_let_back(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        async def permissions() -> dict[str, int]:
            return {
                queues.broker_name: queues.perm
                for queues in (await admin.topics.route("T")).queue_datas
            }

        assert (await admin.name_servers.wipe_write_perm("broker-b"))[mq.name_server] > 0
        assert await permissions() == {"broker-a": 6, "broker-b": 4}
        assert (await admin.name_servers.add_write_perm("broker-b"))[mq.name_server] > 0
        assert await permissions() == {"broker-a": 6, "broker-b": 6}
        assert await admin.name_servers.wipe_write_perm("nobody") == {mq.name_server: 0}

    administer(mq.name_server, scenario)


def test_an_admin_uses_a_session_that_others_use_too_and_leaves_it_open(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        session = ClientSession(ClientSettings(name_servers=mq.name_server))
        try:
            for _ in range(2):
                async with Admin(session) as shared:
                    assert "T" in await shared.topics.names()
        finally:
            await session.close()
        with pytest.raises(InvalidStateError, match="this session is closed: create a new one"):
            async with Admin(session) as shared:
                await shared.topics.names()

    administer(mq.name_server, scenario)
