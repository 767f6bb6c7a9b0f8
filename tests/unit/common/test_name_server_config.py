"""The name server's configuration matches the original: its keys, texts and responses to
an update.
"""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import pytest

from orbitmq.common import properties
from orbitmq.common.config import TlsMode, load
from orbitmq.common.errors import ConfigurationError, RequestRefusedError
from orbitmq.nameserver.config import NameServerConfig

ORIGINAL = Path(__file__).parent / "original"
BLACK_LIST_REMARK = "Can not update config in black list."


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "namesrv.conf"
    path.write_text(text)
    return str(path)


def from_file(tmp_path: Path, text: str) -> NameServerConfig:
    return load(NameServerConfig, file=written(tmp_path, text), environment={}).settings


def original_pairs(name: str) -> list[tuple[str, str]]:
    return [(entry.key, entry.value) for entry in properties.parse((ORIGINAL / name).read_text())]


def test_render_lists_what_the_original_lists_and_what_the_file_says(tmp_path: Path) -> None:
    path = written(
        tmp_path, "kvConfigPath=HOME/kvConfig.json\nbindAddress=0.0.0.0\nmaxConnections=7\n"
    )
    environment = {"ROCKETMQ_HOME": "HOME", "ORBITMQ_CONFIG_STORE_PATH": "HOME/conf/namesrv.conf"}
    lines = (
        load(NameServerConfig, file=path, environment=environment).settings.render().splitlines()
    )
    original = (ORIGINAL / "namesrv-config-5.5.0.properties").read_text().splitlines()
    assert lines == sorted([*original, "maxConnections=7"], key=lambda line: line.split("=")[0])


@pytest.mark.parametrize("release", ["4.9.7", "5.5.0"])
def test_every_key_of_the_original_is_declared_with_its_default(release: str) -> None:
    known = NameServerConfig.keys_by_name()
    deviations = {"rocketmqHome": "HOME", "kvConfigPath": "HOME/namesrv/kvConfig.json"}
    deviations |= {"configStorePath": "HOME/namesrv/namesrv.properties", "bindAddress": "0.0.0.0"}
    assert NameServerConfig().use_tls is False
    listed = original_pairs(f"mqnamesrv-p-{release}.txt")
    for name, value in listed:
        if name in deviations:
            assert value == deviations[name]
        else:
            assert known[name].default_text == value or (
                name == "useTLS" and known[name].default is None
            )
    names = {name for name, _ in listed}
    has_release = {
        key.name
        for key in known.values()
        if release[:3] in key.declared.releases and key.section not in ("tls", "authConfig")
    }
    assert has_release == names


def test_code_reads_attributes_and_cannot_set_them() -> None:
    config = NameServerConfig(listen_port=0)
    assert (config.listen_port, config.bind_address, config.tls_server_mode) == (
        0,
        "127.0.0.1",
        TlsMode.PERMISSIVE,
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.listen_port = 1  # type: ignore[misc]
    with pytest.raises(
        ConfigurationError, match="listenPort=-1: allowed is a whole number from 0 to 65535"
    ):
        NameServerConfig(listen_port=-1)


def test_an_update_changes_what_code_reads_and_keeps_it_in_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "# mine\nlistenPort=19876\nsome.plugin=x=1\ntls.server.keyPassword=geheim\n"
    path = tmp_path / "namesrv.conf"
    config = from_file(tmp_path, text)
    with caplog.at_level(logging.INFO):
        config.update("enableTopicList = false\nwaitSecondsForService:7\n")
    assert (config.enable_topic_list, config.wait_seconds_for_service) == (False, 7)
    assert [record.getMessage() for record in caplog.records] == [
        "config_updated key=enableTopicList old=true new=false",
        "config_updated key=waitSecondsForService old=45 new=7",
    ]
    again = load(NameServerConfig, file=str(path), environment={})
    assert again.settings == config
    kept = path.read_text().splitlines()
    assert [line.split("=")[0] for line in kept] == sorted(line.split("=")[0] for line in kept)
    assert {
        "enableTopicList=false",
        "listenPort=19876",
        "some.plugin=x=1",
        "tls.server.keyPassword=geheim",
    } <= set(kept)
    assert (tmp_path / "namesrv.conf.bak").read_text() == text
    assert "some.plugin=x=1" in config.render()


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    config = from_file(tmp_path, "tls.server.keyPassword=geheim\n")
    assert config.tls_server_key_password == "geheim"
    assert "tls.server.keyPassword=******\n" in config.render()
    assert ("tls.server.keyPassword", "******") in config.rows()
    assert "geheim" not in repr(config)


@pytest.mark.parametrize(
    ("text", "code", "remark"),
    [
        ("configStorePath=/etc/passwd", 16, BLACK_LIST_REMARK),
        ("kvConfigPath=/tmp/x\nenableTopicList=false", 16, BLACK_LIST_REMARK),
        ("rocketmqHome=-c $@|sh . echo id", 16, BLACK_LIST_REMARK),
        ("configBlackList=x", 16, BLACK_LIST_REMARK),
        ("mine=1", 16, BLACK_LIST_REMARK),
        (
            "enableTopicList=false\nlistenPort=1",
            16,
            (
                f"{BLACK_LIST_REMARK} listenPort cannot be changed while the server runs: set it in the configuration"
                " file and restart. Nothing was changed."
            ),
        ),
        (
            "defaultThreadPoolNums=9",
            16,
            (
                f"{BLACK_LIST_REMARK} defaultThreadPoolNums has no effect here: One event loop"
                " serves all requests: there are no such threads. Nothing was changed."
            ),
        ),
        (
            "enableTopicList=false\nenableTopicLists=true",
            1,
            "unknown key enableTopicLists: did you mean enableTopicList? Nothing was changed.",
        ),
        (
            "a=\\u00zz",
            1,
            "string2Properties error: line 1: \\u must be followed by four hexadecimal digits",
        ),
        (
            "waitSecondsForService=5\nenableTopicList=maybe",
            1,
            "enableTopicList=maybe cannot be used: allowed is true or false. Nothing was changed.",
        ),
        (
            "enableTopicList=false\nwaitSecondsForService=99999999999",
            1,
            (
                "waitSecondsForService=99999999999 cannot be used: allowed is a whole number from 0"
                " to 2147483647. Nothing was changed."
            ),
        ),
    ],
)
def test_an_update_that_is_refused_changes_nothing(
    tmp_path: Path, text: str, code: int, remark: str
) -> None:
    before = "configBlackList=mine;other\n"
    config = from_file(tmp_path, before)
    rendered = config.render()
    with pytest.raises(RequestRefusedError) as caught:
        config.update(text)
    assert (caught.value.code, caught.value.remark) == (code, remark)
    assert config.render() == rendered
    assert (tmp_path / "namesrv.conf").read_text() == before


def test_an_update_that_cannot_be_kept_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = NameServerConfig(config_store_path=str(tmp_path / "file" / "namesrv.properties"))
    with pytest.raises(RequestRefusedError) as caught:
        config.update("enableTopicList=false")
    assert caught.value.code == 1
    assert caught.value.remark.startswith(
        f"The configuration cannot be kept in {tmp_path}/file/namesrv.properties ("
    )
    assert caught.value.remark.endswith("). Nothing was changed.")
    assert config.enable_topic_list


def test_no_dynamic_key_holds_a_path() -> None:
    dynamic = [key for key in NameServerConfig.all_keys() if key.declared.dynamic]
    assert {key.kind for key in dynamic} <= {"bool", "int", "long"}


def test_an_update_without_content_is_no_update(tmp_path: Path) -> None:
    NameServerConfig(config_store_path=str(tmp_path / "store")).update("")
    assert list(tmp_path.iterdir()) == []


def test_updates_of_a_name_server_without_a_file_are_found_at_the_next_start(
    tmp_path: Path,
) -> None:
    environment = {
        "ORBITMQ_CONFIG_STORE_PATH": str(tmp_path / "namesrv.properties"),
        "ORBITMQ_LISTEN_PORT": "19876",
    }
    load(NameServerConfig, environment=environment).settings.update("enableTopicList=false")
    load(NameServerConfig, environment=environment).settings.update("waitSecondsForService=7")
    assert (
        tmp_path / "namesrv.properties"
    ).read_text() == "enableTopicList=false\nwaitSecondsForService=7\n"
    again = load(NameServerConfig, environment=environment).settings
    assert (again.enable_topic_list, again.wait_seconds_for_service) == (False, 7)
