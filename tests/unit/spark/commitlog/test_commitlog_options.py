"""Tests the options of a commit log read: their meaning, and the errors for invalid ones."""

from __future__ import annotations

import pickle

import pytest

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.commitlog.options import CommitLogOptions


def test_paths_come_one_by_one_or_as_a_list() -> None:
    assert CommitLogOptions.of({"path": "/data/a, /data/b*"}).paths == ("/data/a", "/data/b*")
    assert CommitLogOptions.of(
        {"paths": '["/data/a,1","file:///data/b","file:/data/c"]'}
    ).paths == ("/data/a,1", "/data/b", "/data/c")


def test_names_are_known_whatever_their_case_and_values_travel() -> None:
    found = CommitLogOptions.of(
        {
            "path": "/data",
            "TOPICPATTERN": "a.*",
            "starttimestamp": "2026-01-31T12:00:00Z",
            "endTimestamp": "1769860801000",
            "onDamage": "SKIP",
            "damagereport": "/tmp/report",
            "maxPartitionBytes": "1000",
            "brokerName": "a,b",
            "checkBody": "false",
        }
    )
    assert (found.begin_ms, found.end_ms) == (1_769_860_800_000, 1_769_860_801_000)
    assert (found.skips_damage, found.damage_report, found.part_size_max) == (
        True,
        "/tmp/report",
        1000,
    )
    assert (found.broker_names, found.check_body) == (("a", "b"), False)
    assert ["abc" in found.topics, "xa" in found.topics] == [True, False]
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no store is given: pass load() the directory that contains commitlog/"),
        ({"path": "/d", "topic": "a"}, "unknown option topic; did you mean topics?"),
        (
            {"path": "/d", "topics": "a", "topicPattern": "b"},
            "options topics and topicPattern exclude each other",
        ),
        (
            {"path": "/d", "topicPattern": "("},
            "option topicPattern='(': is not a regular expression",
        ),
        ({"path": "/d", "onDamage": "ignore"}, "option onDamage='ignore': must be fail or skip"),
        (
            {"path": "/d", "damageReport": "/r"},
            "option damageReport='/r': needs onDamage=skip",
        ),
        (
            {"path": "/d", "startTimestamp": "noon"},
            "option startTimestamp='noon': must be milliseconds since 1970",
        ),
        (
            {"path": "/d", "startTimestamp": "5", "endTimestamp": "5"},
            "option endTimestamp='5': must be after startTimestamp, which is 5",
        ),
        (
            {"path": "/d", "maxPartitionBytes": "0"},
            "option maxPartitionBytes='0': must be a whole number of at least 1",
        ),
        ({"path": "/d", "checkBody": "maybe"}, "option checkBody='maybe': must be true or false"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        CommitLogOptions.of(options)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
