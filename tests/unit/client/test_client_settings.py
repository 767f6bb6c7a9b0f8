"""Client settings, their checks, and client ids."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import replace

import pytest

from orbitmq.client import settings as of_settings
from orbitmq.client.producer.outbox import ProducerSettings
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import ConfigurationError
from orbitmq.protocol.command import SerializeType
from orbitmq.remoting.client import ClientConfig
from orbitmq.remoting.tls import ClientTls


def test_clients_of_one_address_and_one_process_id_have_ids_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in containers behind one address
    ids = []
    for _ in range(2):
        monkeypatch.setattr(of_settings, "_INSTANCES", itertools.count())
        ids.append(ClientSettings().client_id())
    assert ids[0] != ids[1]
    assert all(re.fullmatch(r"[0-9.]+@1#[0-9]+#0", client_id) for client_id in ids)


def test_an_instance_name_and_a_unit_name_make_an_id_that_stays() -> None:
    settings = ClientSettings(instance_name="till-1", unit_name="north")
    assert settings.client_id() == settings.client_id() == settings.stable_id()
    assert settings.client_id().endswith("@till-1@north")
    assert ClientSettings().stable_id().endswith("@DEFAULT")


@pytest.mark.parametrize(
    ("kind", "setting", "value", "least"),
    [
        (ClientSettings, "heartbeat_ms", 0, 1),
        (ClientSettings, "route_refresh_ms", -5, 1),
        (ClientSettings, "timeout_ms", "3000", 1),
        (ProducerSettings, "timeout_ms", 0, 1),
        (ProducerSettings, "retries", -1, 0),
        (ProducerSettings, "retries", True, 0),
        (ProducerSettings, "size_max", 0, 1),
        (ProducerSettings, "compress_over", None, 0),
        (ProducerSettings, "new_topic_queue_count", 0, 1),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    kind: type, setting: str, value: object, least: int
) -> None:
    with pytest.raises(
        ConfigurationError,
        match=f"{kind.__name__}: {setting}={value!r} is invalid: .* at least {least}",
    ):
        kind(**{setting: value})


def test_tls_counts_beside_limits_of_connections_and_is_refused_when_both_say_something_else() -> (
    None
):
    tls, limits = ClientTls(enabled=True), ClientConfig(invoke_max=7)
    assert ClientSettings(tls=tls, remoting=limits).remoting_config() == replace(limits, tls=tls)
    assert ClientSettings(remoting=ClientConfig(tls=tls)).remoting_config().tls == tls
    assert ClientSettings(tls=tls, remoting=ClientConfig(tls=tls)).remoting_config().tls == tls
    with pytest.raises(ConfigurationError, match=r"tls and remoting\.tls are both set and differ"):
        ClientSettings(
            tls=tls, remoting=ClientConfig(tls=ClientTls(enabled=True, verify_server=True))
        )


def test_the_environment_says_how_headers_are_encoded_as_for_clients_of_the_original(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ClientSettings(name_servers="a:1").remoting_config().serialize_type is SerializeType.JSON
    monkeypatch.setenv("ROCKETMQ_SERIALIZE_TYPE", "ROCKETMQ")
    assert (
        ClientSettings(name_servers="a:1").remoting_config().serialize_type
        is SerializeType.ROCKETMQ
    )
    assert (
        ClientSettings(name_servers="a:1", remoting=ClientConfig()).remoting_config().serialize_type
        is SerializeType.JSON
    )
    monkeypatch.setenv("ROCKETMQ_SERIALIZE_TYPE", "XML")
    with pytest.raises(
        ConfigurationError,
        match="ROCKETMQ_SERIALIZE_TYPE=XML is not supported: use JSON or ROCKETMQ",
    ):
        ClientSettings(name_servers="a:1")
