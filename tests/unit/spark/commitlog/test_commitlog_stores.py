"""Tests that stores are found by path, list and pattern, and that broker names are detected."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orbitmq.broker.metadata.topics import TopicRules, own_topics
from orbitmq.common.errors import ConfigurationError, StoreError
from orbitmq.protocol.bodies.nameserver import DataVersion
from orbitmq.protocol.bodies.topics import encode_topic_file
from orbitmq.spark.commitlog.options import CommitLogOptions
from orbitmq.spark.commitlog.stores import find_stores
from support.spark.commitlog import options
from support.store import golden_stores
from support.store.tools import LOG_FILE_SIZE, filled, golden


def names(root: Path | str, **others: str) -> list[str]:
    return [store.broker_name for store in find_stores(options(root, **others))]


@pytest.mark.parametrize("folder", golden_stores.folders())
def test_real_stores_tell_the_name_of_their_broker(tmp_path: Path, folder: str) -> None:
    assert names(golden(tmp_path, folder)) == ["golden-broker"]


def test_our_stores_tell_the_name_of_their_broker(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    assert names(tmp_path / "store") == ["store"]
    topics = encode_topic_file(
        own_topics(TopicRules(broker_name="broker-7")), DataVersion(timestamp=1)
    )
    (tmp_path / "store" / "config").mkdir(exist_ok=True)
    (tmp_path / "store" / "config" / "topics.json").write_bytes(topics)
    assert names(tmp_path / "store") == ["broker-7"]
    (tmp_path / "store" / "config" / "topics.json").write_bytes(topics[:100])
    assert names(tmp_path / "store") == ["store"]
    (tmp_path / "store" / "brokerIdentity").write_text("DefaultCluster#broker-8#2")
    assert names(tmp_path / "store") == ["broker-8"]
    assert names(tmp_path / "store", brokerName="mine") == ["mine"]


def test_several_stores_are_read_by_list_and_by_pattern(tmp_path: Path) -> None:
    for name in ("a", "b"):
        filled(tmp_path / name)
    assert names(f"{tmp_path}/a,{tmp_path}/b") == ["a", "b"]
    assert names(f"{tmp_path}/?") == ["a", "b"]
    assert names(f"{tmp_path}/?", brokerName="x,y") == ["x", "y"]
    with pytest.raises(
        ConfigurationError, match=r"brokerName has 1 names for 2 stores .*: give one per store"
    ):
        names(f"{tmp_path}/?", brokerName="x")


def test_two_stores_of_one_broker_are_refused(tmp_path: Path) -> None:
    shutil.copytree(golden(tmp_path), tmp_path / "replica")
    with pytest.raises(
        ConfigurationError,
        match="are stores of the same broker, golden-broker: read only one of them, or name them",
    ):
        names(f"{tmp_path}/store,{tmp_path}/replica")
    assert names(f"{tmp_path}/store,{tmp_path}/replica", brokerName="a,b") == ["a", "b"]


def test_a_broker_s_configuration_tells_where_its_log_is_and_who_it_is(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    shutil.move(tmp_path / "store" / "commitlog", tmp_path / "elsewhere")
    config = tmp_path / "broker.conf"
    text = f"brokerName=broker-c\nstorePathRootDir={tmp_path}/store\nstorePathCommitLog={tmp_path}/elsewhere\n"
    config.write_text(f"{text}mappedFileSizeCommitLog={LOG_FILE_SIZE}\n")
    [store] = find_stores(CommitLogOptions.of({"config": str(config)}))
    assert store.broker_name == "broker-c"
    assert [folder.path for folder in store.directory.log_folders] == [tmp_path / "elsewhere"]
    assert names(tmp_path / "store", config=str(config)) == ["broker-c"]
    with pytest.raises(
        ConfigurationError,
        match="it contains no commitlog/; if that is elsewhere, give the broker's configuration"
        " file as config",
    ):
        names(tmp_path / "store")
    with pytest.raises(ConfigurationError, match="applies to one store, but 2 are given"):
        names(f"{tmp_path}/store,{tmp_path}", config=str(config))
    with pytest.raises(StoreError, match="cannot be read"):
        names(tmp_path / "store", config=str(tmp_path / "none.conf"))


def test_a_path_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError,
        match=(
            "nowhere does not exist: give the directory that contains commitlog/, as this machine"
            " sees it"
        ),
    ):
        names(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match=r"x\* does not exist"):
        names(f"{tmp_path}/x*")
