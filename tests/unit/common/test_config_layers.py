"""Where a value comes from, which source wins, and how an unusable value is reported."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.common.config import (
    APACHE_49,
    ClientAuth,
    Long,
    Settings,
    TlsSettings,
    Use,
    key,
    layers,
    load,
)
from orbitmq.common.config.keys import to_text
from orbitmq.common.errors import ConfigurationError


class Role(Enum):
    MASTER = "ASYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(Settings):
    SECTION: ClassVar[str] = "brokerConfig"
    SHOWN_SECTIONS: ClassVar[tuple[str, ...]] = ("brokerConfig",)

    broker_ip1: str | None = key(None, "Address.", name="brokerIP1", original_env="BROKER_IP")
    listen_port: int = key(10911, "Port.", minimum=0, maximum=65535)
    file_size: Long = key(1 << 30, "Size.")  # noqa: RUF009
    ratio: float = key(0.75, "Ratio.", minimum=0, maximum=1)
    broker_role: Role = key(Role.MASTER, "Role.")  # noqa: RUF009
    order: bool = key(False, "Order.")
    old_switch: bool = key(False, "It is always on.", use=Use.NO_EFFECT)
    dledger: bool = key(False, "There is no DLedger here.", use=Use.REFUSED)


@dataclass(frozen=True, kw_only=True)
class WithTls(BrokerSettings, TlsSettings):
    pass


def write(directory: Path, text: str, name: str = "broker.conf") -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


def test_a_value_comes_from_the_strongest_layer_that_has_one(tmp_path: Path) -> None:
    file = write(tmp_path, "listenPort=2\nbrokerIP1=file\nratio=0.5\n")
    environment = {"BROKER_IP": "original", "ORBITMQ_LISTEN_PORT": "3", "ORBITMQ_RATIO": "0.25"}
    assert load(BrokerSettings, environment={}).settings == BrokerSettings()
    assert load(BrokerSettings, environment=environment).settings.broker_ip1 == "original"
    settings = load(
        BrokerSettings, file=file, environment=environment, flags={"listenPort": "4"}
    ).settings
    assert (settings.broker_ip1, settings.ratio, settings.listen_port) == ("file", 0.25, 4)


def test_every_kind_of_value_is_read(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "brokerIP1=  ::1 "
        " \nlistenPort=+8\nfileSize=9223372036854775807\nbrokerRole=slave\norder=TRUE \nratio=1e-1",
    )
    expected = BrokerSettings(
        broker_ip1="::1",
        listen_port=8,
        file_size=2**63 - 1,
        broker_role=Role.SLAVE,
        order=True,
        ratio=0.1,
    )
    assert load(BrokerSettings, file=file, environment={}).settings == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "listenPort=abc",
            "listenPort=abc cannot be used: allowed is a whole number from 0 to 65535",
        ),
        (
            "listenPort=65536",
            "listenPort=65536 cannot be used: allowed is a whole number from 0 to 65535",
        ),
        ("listenPort=", "listenPort= cannot be used: allowed is a whole number from 0 to 65535"),
        (
            "fileSize=9223372036854775808",
            (
                "fileSize=9223372036854775808 cannot be used: allowed is a whole number from"
                " -9223372036854775808 to 9223372036854775807"
            ),
        ),
        ("ratio=1.5", "ratio=1.5 cannot be used: allowed is a number from 0 to 1"),
        ("ratio=nan", "ratio=nan cannot be used: allowed is a number from 0 to 1"),
        (
            "brokerRole=KING",
            "brokerRole=KING cannot be used: allowed is one of ASYNC_MASTER, SLAVE",
        ),
        ("order=yes", "order=yes cannot be used: allowed is true or false"),
        ("dledger=true", "dledger=true is refused: There is no DLedger here."),
        ("order=\\u1", "\\u must be followed by four hexadecimal digits"),
    ],
)
def test_a_value_that_cannot_be_used_is_an_error_that_says_where_it_stands_and_what_is_allowed(
    tmp_path: Path, line: str, message: str
) -> None:
    file = write(tmp_path, f"# first\n{line}\n")
    with pytest.raises(ConfigurationError) as caught:
        load(BrokerSettings, file=file, environment={})
    assert str(caught.value) == f"{file}:2: {message}"


def test_an_error_names_the_variable_or_the_command_line() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(BrokerSettings, environment={"ORBITMQ_LISTEN_PORT": "x"})
    assert (
        str(caught.value)
        == "environment variable ORBITMQ_LISTEN_PORT: listenPort=x cannot be used: allowed is a"
        " whole number from 0 to 65535"
    )
    with pytest.raises(ConfigurationError, match=r"^command line: listenPort=x cannot"):
        load(BrokerSettings, environment={}, flags={"listenPort": "x"})


def test_a_file_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(BrokerSettings, file="/no/such/file", environment={})
    cause = "No such file or directory; check the spelling of its path"
    assert str(caught.value) == f"configuration file /no/such/file cannot be read: {cause}"


def test_a_refused_key_may_say_its_default(tmp_path: Path) -> None:
    assert load(
        BrokerSettings, file=write(tmp_path, "dledger=false"), environment={}
    ) == layers.Loaded(BrokerSettings(), ())


def test_warnings_name_unknown_keys_with_the_nearest_known_one_and_keys_without_effect(
    tmp_path: Path,
) -> None:
    file = write(tmp_path, "listenport=1\nLISTENPORT=2\nwholly.different=1\noldSwitch=true\n")
    environment = {"ORBITMQ_LISTEN_PROT": "1", "ORBITMQ_PURE": "1", "PATH": "/bin"}
    assert load(BrokerSettings, file=file, environment=environment).warnings == (
        f"{file}:1: unknown key listenport is ignored: did you mean listenPort?",
        f"{file}:2: unknown key LISTENPORT is ignored: did you mean listenPort?",
        f"{file}:3: unknown key wholly.different is ignored: no key has a name like it.",
        (
            "environment variable ORBITMQ_LISTEN_PROT: unknown key is ignored: did you mean"
            " ORBITMQ_LISTEN_PORT?"
        ),
        f"{file}:4: oldSwitch has no effect: It is always on.",
    )


def test_the_tls_file_beats_the_configuration_file_and_yields_to_the_environment(
    tmp_path: Path,
) -> None:
    tls = write(
        tmp_path,
        "tls.server.keyPath=/tls/key\ntls.server.certPath=/tls/cert\ntls.server.mode=disabled\ntls.server.need.client.auth=require\n",
        "tls.properties",
    )
    file = write(
        tmp_path, f"tls.config.file={tls}\ntls.server.keyPath=/c/key\ntls.test.mode.enable=false\n"
    )
    settings = load(
        WithTls, file=file, environment={"ORBITMQ_TLS_SERVER_CERT_PATH": "/env/cert"}
    ).settings
    assert settings.tls_server_key_path == "/tls/key"
    assert settings.tls_server_cert_path == "/env/cert"
    assert settings.tls_server_need_client_auth is ClientAuth.REQUIRE
    assert not settings.tls_test_mode_enable
    assert (
        settings.tls_server_mode is TlsSettings().tls_server_mode
    )  # the original does not read the mode from there


def test_a_tls_file_that_is_named_must_be_there_the_default_one_need_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "DEFAULT_TLS_CONFIG_FILE", str(tmp_path / "default"))
    assert load(WithTls, environment={}).settings.tls_server_key_path is None
    write(tmp_path, "tls.server.keyPath=/default/key", "default")
    assert load(WithTls, environment={}).settings.tls_server_key_path == "/default/key"
    with pytest.raises(ConfigurationError, match=r"^configuration file /no/tls cannot be read"):
        load(WithTls, environment={"ORBITMQ_TLS_CONFIG_FILE": "/no/tls"})


def test_a_secret_is_not_in_an_error() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Secret(Settings):
        pin: int = key(0, "Pin.", secret=True, releases=APACHE_49)

    with pytest.raises(ConfigurationError, match=r"pin=\*\*\*\*\*\* cannot"):
        load(Secret, environment={"ORBITMQ_PIN": "geheim"})


@given(
    st.integers(0, 65535),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(0, 1),
    st.sampled_from(Role),
    st.booleans(),
)
def test_the_text_of_a_value_is_read_back(
    port: int, size: int, ratio: float, role: Role, order: bool
) -> None:
    settings = BrokerSettings(
        listen_port=port, file_size=size, ratio=ratio, broker_role=role, order=order
    )
    for each in BrokerSettings.all_keys():
        value = getattr(settings, each.attribute)
        assert each.parse(to_text(value) or "") == value
