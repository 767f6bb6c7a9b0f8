"""The broker's configuration is the original's, its keys, texts and updates; and what it refuses,
derives and warns of.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from orbitmq.broker.config.broker_config import BrokerConfig, load_broker
from orbitmq.broker.config.replication_keys import BrokerRole
from orbitmq.broker.config.server_keys import MetricsExporter
from orbitmq.common import properties
from orbitmq.common.config import Loaded, Use
from orbitmq.common.errors import ConfigurationError, RequestRefusedError
from orbitmq.protocol.command import SerializeType
from orbitmq.remoting.settings import client_config, server_config
from orbitmq.store.config import FlushMode

ORIGINAL = Path(__file__).parent / "original"
OF_THE_HOST = {"rocketmqHome", "storePathRootDir", "brokerName", "bindAddress"}
OF_5 = {
    "autoDeleteUnusedStats",
    "registerBrokerTimeoutMills",
    "transactionCheckInterval",
}  # whose defaults 4.9 had otherwise


def original(release: str) -> dict[str, str]:
    """What a broker of that release, started without a file, answers to "get config"."""
    text = (ORIGINAL / f"broker-config-{release}.properties").read_text()
    return {entry.key: entry.value for entry in properties.parse(text)}


def from_file(tmp_path: Path, text: str, **environment: str) -> Loaded[BrokerConfig]:
    path = tmp_path / "broker.conf"
    path.write_text(text)
    return load_broker(file=str(path), environment=environment)


def test_render_of_a_default_broker_is_the_originals_byte_for_byte_but_for_the_host() -> None:
    environment = {
        "ROCKETMQ_HOME": "HOME",
        "ORBITMQ_STORE_PATH_ROOT_DIR": "HOME/store",
        "ORBITMQ_BROKER_NAME": "vm",
        "ORBITMQ_BIND_ADDRESS": "0.0.0.0",
    }
    rendered = load_broker(environment=environment).settings.render()
    assert rendered == (ORIGINAL / "broker-config-5.5.0.properties").read_text()


@pytest.mark.parametrize("release", ["4.9.7", "5.5.0"])
def test_every_key_of_the_original_is_declared_for_its_releases_with_its_default(
    release: str,
) -> None:
    known, listed = BrokerConfig.keys_by_name(), original(release)
    defaults = dict(BrokerConfig(store_path_root_dir="HOME/store").rows())
    for name, value in listed.items():
        if (
            known[name].section != "nettyClientConfig"
        ):  # declared for name servers too, which have it since 5
            assert release[:3] in known[name].declared.releases, name
        if name not in OF_THE_HOST:
            assert defaults[name] == (original("5.5.0")[name] if name in OF_5 else value), name
    sections = {*BrokerConfig.SHOWN_SECTIONS, "4.9"} - {"nettyClientConfig"}
    declared = {
        key.name
        for key in known.values()
        if release[:3] in key.declared.releases and key.section in sections
    }
    shown = {name for name in declared if known[name].default is not None} | {"rocketmqHome"}
    assert shown == {name for name in listed if known[name].section != "nettyClientConfig"}


def test_a_key_is_declared_once() -> None:
    names = [key.name for key in BrokerConfig.all_keys()]
    attributes = [key.attribute for key in BrokerConfig.all_keys()]
    assert len(set(names)) == len(names)
    assert len(set(attributes)) == len(attributes)
    assert {key.env for key in BrokerConfig.all_keys()} >= {
        "ORBITMQ_BROKER_IP1",
        "ORBITMQ_SEND_MESSAGE_THREAD_POOL_NUMS",
    }


def test_a_broker_is_for_this_host_alone_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    config = BrokerConfig()
    assert (config.bind_address, config.broker_ip1, config.broker_ip2) == (
        "127.0.0.1",
        "127.0.0.1",
        "127.0.0.1",
    )
    assert config.warnings == ()
    assert config.broker_name == socket.gethostname()
    assert (config.listen_port, config.fast_listen_port, config.ha_listen_port) == (
        10911,
        10909,
        10912,
    )
    assert server_config(config).port == 10911
    assert client_config(config).connect_timeout_ms == 3000


def test_a_broker_binds_the_address_that_clients_are_told_and_says_that_it_is_open(
    tmp_path: Path,
) -> None:
    loaded = from_file(tmp_path, "brokerIP1=broker.example\nlistenPort=20911\n")
    config = loaded.settings
    assert (config.bind_address, config.broker_ip2) == ("broker.example", "broker.example")
    assert (config.fast_listen_port, config.ha_listen_port) == (20909, 20912)
    assert loaded.warnings == (
        (
            "the broker listens on broker.example without access control: anyone who reaches that"
            " address can send, read and delete; put it behind a firewall, or set"
            " bindAddress=127.0.0.1"
        ),
    )
    behind_nat = from_file(tmp_path, "brokerIP1=203.0.113.5\nbindAddress=127.0.0.1\n")
    assert (behind_nat.settings.bind_address, behind_nat.warnings) == ("127.0.0.1", ())
    assert (
        from_file(tmp_path, "bindAddress=0.0.0.0\n").warnings[0]
        == "the broker listens on 0.0.0.0 and advertises brokerIP1=127.0.0.1, which is the clients'"
        " own host: set brokerIP1 to an address of this host that clients can reach"
    )
    assert from_file(tmp_path, "bindAddress=127.0.0.2\nbrokerIP1=127.0.0.1\n").warnings == ()
    assert from_file(tmp_path, "brokerIP1=localhost\n").warnings == ()
    assert from_file(tmp_path, "brokerIP1=::1\n").warnings == ()


def test_a_file_of_the_original_works_as_it_is(tmp_path: Path) -> None:
    loaded = from_file(
        tmp_path,
        "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\ndeleteWhen ="
        " 04\nfileReservedTime = 48\nbrokerRole = ASYNC_MASTER\nflushDiskType ="
        " SYNC_FLUSH\nnamesrvAddr = 10.0.0.1:9876;10.0.0.2:9876\nsendMessageThreadPoolNums ="
        " 64\nfilterServerNums=0\nautoCreateTopicEnabl=false\n",
    )
    config = loaded.settings
    assert (config.broker_name, config.file_reserved_time, config.flush_disk_type) == (
        "broker-a",
        48,
        FlushMode.SYNC,
    )
    assert config.namesrv_addr == "10.0.0.1:9876;10.0.0.2:9876"
    where = tmp_path / "broker.conf"
    assert loaded.warnings == (
        (
            f"{where}:11: unknown key autoCreateTopicEnabl is ignored: did you mean"
            " autoCreateTopicEnable?"
        ),
        (
            f"{where}:9: sendMessageThreadPoolNums has no effect: One event loop serves requests"
            " as they arrive: there are no such threads or queues."
        ),
    )
    assert "sendMessageThreadPoolNums=64\n" in config.render()
    assert "autoCreateTopicEnabl=false\n" in config.render()


def test_a_name_that_is_no_key_is_told_with_the_key_that_is_meant_or_none(tmp_path: Path) -> None:
    loaded = from_file(
        tmp_path, "abortFile=/store/abort\nfileReserveTime=48\nbrokerIp=10.0.0.1\nuseEpoll=true\n"
    )
    assert [warning.partition("unknown key ")[2] for warning in loaded.warnings] == [
        (
            "abortFile is ignored: no release reads it: everything but the commit log is in"
            " storePathRootDir."
        ),
        "fileReserveTime is ignored: did you mean fileReservedTime?",
        "brokerIp is ignored: did you mean brokerIP1?",
        "useEpoll is ignored: no key has a name like it.",
    ]


def test_name_servers_come_from_the_environment_of_the_original_unless_they_are_said(
    tmp_path: Path,
) -> None:
    environment = {"NAMESRV_ADDR": "10.0.0.1:9876"}
    assert load_broker(environment=environment).settings.namesrv_addr == "10.0.0.1:9876"
    assert (
        from_file(tmp_path, "namesrvAddr=10.0.0.2:9876\n", **environment).settings.namesrv_addr
        == "10.0.0.2:9876"
    )
    assert (
        load_broker(
            environment=environment, flags={"namesrvAddr": "10.0.0.3:1"}
        ).settings.namesrv_addr
        == "10.0.0.3:1"
    )


def test_an_address_server_has_two_names_in_files_of_which_the_originals_wins(
    tmp_path: Path,
) -> None:
    config = from_file(
        tmp_path,
        "rocketmq.namesrv.domain=a\nrmqAddressServerDomain=b:80\nrmqAddressServerSubGroup=mine\n",
    ).settings
    assert (config.address_server, config.address_server_group) == ("b:80", "mine")
    config = from_file(
        tmp_path, "rocketmq.namesrv.domain=a\nrocketmq.namesrv.domain.subgroup=theirs\n"
    ).settings
    assert (config.address_server, config.address_server_group) == ("a", "theirs")


@pytest.mark.parametrize(
    ("lines", "speaks_tls"),
    [
        ("", False),
        ("tls.server.mode=enforcing", True),
        ("tls.server.mode=enforcing\ntls.enable=false", False),
        ("tls.server.mode=enforcing\nuseTLS=false", False),
        ("tls.enable=true", True),
        ("tls.enable=false\nuseTLS=true", True),
    ],
)
def test_a_server_that_takes_tls_only_speaks_it_to_others_unless_it_is_said_otherwise(
    tmp_path: Path, lines: str, speaks_tls: bool
) -> None:
    config = from_file(tmp_path, lines + "\n").settings
    assert client_config(config).tls.enabled is speaks_tls
    assert f"useTLS={str(speaks_tls).lower()}\n" in config.render()


def test_the_encoding_of_headers_comes_from_the_environment_of_the_original_or_a_key(
    tmp_path: Path,
) -> None:
    for loaded in (
        load_broker(environment={"ROCKETMQ_SERIALIZE_TYPE": "ROCKETMQ"}),
        from_file(tmp_path, "rocketmq.serialize.type=ROCKETMQ\n", ROCKETMQ_SERIALIZE_TYPE="JSON"),
    ):
        assert client_config(loaded.settings).serialize_type is SerializeType.ROCKETMQ
        assert server_config(loaded.settings).serialize_type is SerializeType.ROCKETMQ
    with pytest.raises(
        ConfigurationError,
        match=(
            r"ROCKETMQ_SERIALIZE_TYPE: rocketmq.serialize.type=XML cannot be used: allowed is"
            r" one of"
        ),
    ):
        load_broker(environment={"ROCKETMQ_SERIALIZE_TYPE": "XML"})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("brokerRole=SLAVE\nbrokerId=0", "Slave's brokerId must be > 0: give each slave"),
        ("inSyncReplicas=0", "inSyncReplicas=0 cannot be used"),
        ("minInSyncReplicas=65", "minInSyncReplicas=65 cannot be used"),
        (
            "allAckInSyncStateSet=true",
            ":1: allAckInSyncStateSet=true is refused: There is no controller yet",
        ),
        (
            "enableDLegerCommitLog=true",
            ":1: enableDLegerCommitLog=true is refused: Elected masters are not supported yet.",
        ),
        (
            "aclEnable=true\nauthenticationEnabled=true",
            "aclEnable and authenticationEnabled cannot both be true",
        ),
        ("dedupWindowMs=1000\nmessageIndexEnable=false", "dedupWindowMs=1000 needs the index"),
        ("authorizationEnabled=true", "authorizationEnabled=true needs authenticationEnabled=true"),
        (
            "authenticationProvider=com.example.Mine",
            "authenticationProvider=com.example.Mine cannot be used: classes of others",
        ),
        ("enableControllerMode=true", ":1: enableControllerMode=true is refused"),
        ("storeType=defaultRocksDB", ":1: storeType=defaultRocksDB is refused"),
        (
            "namesrvAddr=10.0.0.1",
            (
                "namesrvAddr=10.0.0.1 cannot be used: '10.0.0.1' is not an address of the form"
                " host:port; several are"
            ),
        ),
        (
            "deleteWhen=4am",
            (
                "deleteWhen=4am cannot be used: it takes hours from 00 to 23, separated by"
                " semicolons, such as 04 or 02;14"
            ),
        ),
        (
            "messageDelayLevel=1s 2x",
            "messageDelayLevel=1s 2x cannot be used: it takes numbers with s, m, h or d",
        ),
        (
            "metricsExporterType=LOG",
            "metricsExporterType=LOG is refused: metrics are exported to Prometheus only",
        ),
        (
            "metricsExporterType=4",
            ":1: metricsExporterType=4 cannot be used: allowed is one of DISABLE, PROM",
        ),
        (
            "flushDiskType=NOW",
            ":1: flushDiskType=NOW cannot be used: allowed is one of ASYNC_FLUSH, SYNC_FLUSH",
        ),
        (
            "recoverBadRecord=ignore",
            ":1: recoverBadRecord=ignore cannot be used: allowed is one of quarantine, truncate",
        ),
        (
            "fileReservedTime=1d",
            ":1: fileReservedTime=1d cannot be used: allowed is a whole number",
        ),
        ("listenPort=2", "listenPort=2 cannot be used: allowed is a whole number from 3 to 65534"),
        ("brokerIP1=", "brokerIP1= cannot be used: set the address that clients connect to"),
        (
            "brokerPermission=8",
            ":1: brokerPermission=8 cannot be used: allowed is a whole number from 0 to 7",
        ),
    ],
)
def test_what_cannot_work_stops_the_start_with_what_to_do(
    tmp_path: Path, line: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        from_file(tmp_path, line + "\n")
    assert problem in str(caught.value)


def test_keys_of_access_control_are_never_shown(tmp_path: Path) -> None:
    config = from_file(
        tmp_path,
        'authenticationEnabled=true\ninitAuthenticationUser={"username":"a","password":"hush-hush"}\n'
        'innerClientAuthenticationCredentials={"accessKey":"a","secretKey":"hush-hush"}\nbindAddress=0.0.0.0\nbrokerIP1=203.0.113.5\n',
    )
    assert config.warnings == ()
    told = f"{config.settings.render()} {config.settings.rows()} {config.settings!r}"
    assert "hush-hush" not in told
    assert "initAuthenticationUser=******\n" in told


def test_a_master_is_number_0(tmp_path: Path) -> None:
    loaded = from_file(tmp_path, "brokerRole=ASYNC_MASTER\nbrokerId=5\n")
    assert (loaded.settings.broker_id, loaded.settings.broker_role) == (0, BrokerRole.ASYNC_MASTER)
    assert loaded.warnings == (
        "brokerId=5 is ignored, 0 is used: a broker with brokerRole=ASYNC_MASTER is a master",
    )
    assert from_file(tmp_path, "brokerRole=ASYNC_MASTER\n").warnings == ()


def test_a_slave_has_the_number_that_is_configured(tmp_path: Path) -> None:
    loaded = from_file(tmp_path, "brokerRole=SLAVE\nbrokerId=5\n")
    assert (loaded.settings.broker_id, loaded.settings.is_slave) == (5, True)
    assert loaded.warnings == ()


def test_the_gap_of_a_slave_in_sync_has_two_names(tmp_path: Path) -> None:
    for text, gap in (
        ("", 256 << 20),
        ("haMaxGapNotInSync=7\n", 7),
        ("haSlaveFallbehindMax=8\n", 8),
        ("haMaxGapNotInSync=7\nhaSlaveFallbehindMax=8\n", 7),
    ):
        assert from_file(tmp_path, text).settings.ha_max_gap_not_in_sync == gap


def test_the_configuration_of_a_stock_broker_passes(tmp_path: Path) -> None:
    for release in ("4.9.7", "5.5.0"):
        stock = {name: text for name, text in original(release).items() if name not in OF_THE_HOST}
        config = from_file(tmp_path, properties.write(stock)).settings
        assert (config.broker_role, config.in_sync_replicas, config.min_in_sync_replicas) == (
            BrokerRole.ASYNC_MASTER,
            1,
            1,
        )
        assert not config.all_ack_in_sync_state_set


def test_metrics_are_served_to_prometheus_on_request(tmp_path: Path) -> None:
    assert BrokerConfig().metrics_exporter_type is MetricsExporter.DISABLE
    config = from_file(tmp_path, "metricsExporterType=PROM\n").settings
    assert (config.metrics_exporter_type, config.metrics_prom_exporter_port) == (
        MetricsExporter.PROM,
        5557,
    )


def test_how_often_it_registers_has_bounds() -> None:
    periods = {
        written: BrokerConfig(register_name_server_period=written).register_period_ms
        for written in (-1, 10_001, 30_000, 90_000)
    }
    assert periods == {-1: 10_000, 10_001: 10_001, 30_000: 30_000, 90_000: 60_000}


def test_an_update_changes_what_is_read_and_is_kept_in_the_file(tmp_path: Path) -> None:
    config = from_file(tmp_path, "listenPort=20911\nnoSuchKey=17\n").settings
    config.update("brokerPermission=4\ndeleteWhen=02;14\nnamesrvAddr=127.0.0.1:9876\n")
    assert (config.broker_permission, config.delete_when, config.namesrv_addr) == (
        4,
        "02;14",
        "127.0.0.1:9876",
    )
    again = from_file(tmp_path, (tmp_path / "broker.conf").read_text())
    assert again.settings == config
    assert "noSuchKey=17\n" in config.render()


def test_updates_of_a_broker_without_a_file_are_kept_in_its_store_and_found_at_the_next_start(
    tmp_path: Path,
) -> None:
    flags = {"storePathRootDir": str(tmp_path), "listenPort": "20911"}
    load_broker(environment={}, flags=flags).settings.update("fileReservedTime=1")
    load_broker(environment={}, flags=flags).settings.update(
        "maxTransferCountOnMessageInMemory=5\nnamesrvAddr="
    )
    kept = tmp_path / "config" / "broker.properties"
    assert (
        kept.read_text()
        == "fileReservedTime=1\nmaxTransferCountOnMessageInMemory=5\nnamesrvAddr=\n"
    )
    kept.write_text(
        kept.read_text() + "listenPort=1\nno.such.key=1\n"
    )  # as files of others have it: only what an update may change counts
    again = load_broker(environment={"ORBITMQ_STORE_PATH_ROOT_DIR": str(tmp_path)})
    config = again.settings
    assert (
        config.file_reserved_time,
        config.max_transfer_count_on_message_in_memory,
        config.listen_port,
    ) == (1, 5, 10911)
    assert again.warnings == ()
    stronger = load_broker(environment={}, flags=flags | {"fileReservedTime": "9"})
    assert stronger.settings.file_reserved_time == 9
    assert stronger.warnings == (
        f"{kept}:1: fileReservedTime as an update left it is not used: command line sets it too",
    )
    assert (
        from_file(tmp_path, f"storePathRootDir={tmp_path}\n").settings.file_reserved_time == 72
    ), "a file of its own says everything"


def test_what_updates_left_that_cannot_be_used_stops_the_start_with_its_place(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "config" / "broker.properties"
    kept.parent.mkdir()
    kept.write_text("fileReservedTime=soon\n")
    with pytest.raises(
        ConfigurationError, match=r"broker\.properties:1: fileReservedTime=soon cannot be used"
    ):
        load_broker(environment={}, flags={"storePathRootDir": str(tmp_path)})


@pytest.mark.parametrize(
    ("text", "code", "remark"),
    [
        ("rocketmqHome=-c $@|sh . echo id", 16, "Can not update config in black list."),
        ("brokerConfigPath=/etc/passwd", 16, "Can not update config in black list."),
        ("configBlackList=x", 16, "Can not update config in black list."),
        (
            "brokerName=other",
            16,
            "Can not update config in black list. brokerName cannot be changed while the server runs",
        ),
        (
            "listenPort=1",
            16,
            "Can not update config in black list. listenPort cannot be changed while the server runs",
        ),
        (
            "fileReservedTime=1\nstorePathRootDir=/",
            16,
            "Can not update config in black list. storePathRootDir cannot be changed while the server runs",
        ),
        (
            "sendMessageThreadPoolNums=9",
            16,
            (
                "Can not update config in black list. sendMessageThreadPoolNums has no effect here:"
                " One event"
            ),
        ),
        (
            "enableDLegerCommitLog=true",
            16,
            (
                "Can not update config in black list. enableDLegerCommitLog is refused: Elected"
                " masters are not supported yet."
            ),
        ),
        (
            "fileReservedTime=1\nfileReserveTime=2",
            1,
            "unknown key fileReserveTime: did you mean fileReservedTime?",
        ),
        (
            "fileReservedTime=1\ndeleteWhen=25",
            1,
            "deleteWhen=25 cannot be used: it takes hours from 00 to 23",
        ),
        (
            "fileReservedTime=1\nnamesrvAddr=x",
            1,
            "namesrvAddr=x cannot be used: 'x' is not an address of the form host:port",
        ),
        (
            "autoCreateTopicEnable=maybe",
            1,
            (
                "autoCreateTopicEnable=maybe cannot be used: allowed is true or false. Nothing was"
                " changed."
            ),
        ),
    ],
)
def test_an_update_that_is_refused_changes_nothing(
    tmp_path: Path, text: str, code: int, remark: str
) -> None:
    before = "brokerName=mine\n"
    config = from_file(tmp_path, before).settings
    rendered = config.render()
    with pytest.raises(RequestRefusedError) as caught:
        config.update(text)
    assert caught.value.code == code
    assert caught.value.remark.startswith(remark)
    assert config.render() == rendered
    assert (tmp_path / "broker.conf").read_text() == before


def test_no_update_reaches_a_path_an_identity_or_a_key_without_effect() -> None:
    dynamic = [key for key in BrokerConfig.all_keys() if key.declared.dynamic]
    assert {key.name for key in dynamic if key.kind not in ("bool", "int", "long")} == {
        "namesrvAddr",
        "deleteWhen",
        "regionId",
        "subscriptionConflict",
    }
    assert all(key.declared.use is Use.USED for key in dynamic)
    identity = {
        "brokerName",
        "brokerId",
        "brokerClusterName",
        "brokerIP1",
        "brokerIP2",
        "listenPort",
        "bindAddress",
        "brokerRole",
    }
    assert not identity & {key.name for key in dynamic}


def test_every_problem_of_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as problem:
        from_file(
            tmp_path,
            "fileReservedTime=soon\nstoreType=rocks\nlistenPort=0\nnamesrvAddr=nonsense\n",
        )
    first, *lines = str(problem.value).splitlines()
    assert first == "4 settings cannot be used:"
    assert [re.sub(r" is refused.*| cannot be used.*", "", line) for line in lines] == [
        f"  {tmp_path / 'broker.conf'}:{number}: {text}"
        for number, text in (
            (1, "fileReservedTime=soon"),
            (3, "listenPort=0"),
            (2, "storeType=rocks"),
            (4, "namesrvAddr=nonsense"),
        )
    ]


def test_a_problem_that_follows_from_a_value_that_cannot_be_read_is_not_named(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigurationError) as problem:
        from_file(tmp_path, "authenticationEnabled=yes\nauthorizationEnabled=true\n")
    assert ":1: authenticationEnabled=yes cannot be used" in str(problem.value)
    assert "authorizationEnabled" not in str(problem.value)


def test_all_roles_are_offered(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"one of ASYNC_MASTER, SYNC_MASTER, SLAVE$"):
        from_file(tmp_path, "brokerRole=MASTER")


def test_a_path_may_begin_with_the_home_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    text = "storePathRootDir=~/x\nstorePathCommitLog=~/a, ~/b\naclFolder=~/acl\n"
    config = from_file(tmp_path, text).settings
    assert config.store_path_root_dir == f"{tmp_path}/x"
    assert config.store_path_commit_log == f"{tmp_path}/a,{tmp_path}/b"
    assert config.acl_folder == f"{tmp_path}/acl"
    assert BrokerConfig.updates_path({"storePathRootDir": "~/x"}) == (
        f"{tmp_path}/x/config/broker.properties"
    )


def test_a_path_without_a_value_is_refused_and_a_key_that_comes_twice_warned_of(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigurationError, match=r":1: storePathRootDir= .*: allowed is a path$"):
        from_file(tmp_path, "storePathRootDir\n")
    loaded = from_file(tmp_path, "fileReservedTime=1\nbrokerName=a\nfileReservedTime=2\n")
    file = tmp_path / "broker.conf"
    assert loaded.settings.file_reserved_time == 2
    assert loaded.warnings == (f"{file}:3: fileReservedTime is set again: {file}:1 is ignored",)


def test_a_file_that_an_update_wrote_gives_no_warnings_of_its_own(tmp_path: Path) -> None:
    loaded = from_file(tmp_path, "listenPort=11911\nbrokerIP1=127.0.0.2\n")
    loaded.settings.update("fileReservedTime=48\n")
    file = tmp_path / "broker.conf"
    assert "brokerIP2=127.0.0.2\n" in file.read_text()
    assert load_broker(file=str(file), environment={}).warnings == ()
    file.write_text(file.read_text() + "useTransientStorePool=true\ntransientStorePoolSize=9\n")
    warnings = load_broker(file=str(file), environment={}).warnings
    assert any("transientStorePoolSize has no effect" in warning for warning in warnings)


def test_the_backup_of_a_file_is_the_one_that_somebody_wrote(tmp_path: Path) -> None:
    written = "# by hand\nlistenPort=11911\n"
    loaded = from_file(tmp_path, written)
    loaded.settings.update("fileReservedTime=48\n")
    loaded.settings.update("fileReservedTime=49\n")
    again = load_broker(file=str(tmp_path / "broker.conf"), environment={}).settings
    again.update("fileReservedTime=50\n")
    assert (tmp_path / "broker.conf.bak").read_text() == written
    assert "fileReservedTime=50\n" in (tmp_path / "broker.conf").read_text()


def test_the_keys_that_differ_from_their_defaults_are_few() -> None:
    config = BrokerConfig(broker_name="a", file_reserved_time=48)
    changed = dict(config.changed_rows())
    assert changed.keys() >= {"brokerName", "fileReservedTime"}
    assert "flushDiskType" not in changed
    assert len(changed) < len(config.rows()) / 10
