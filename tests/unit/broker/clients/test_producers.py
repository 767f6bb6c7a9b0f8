"""Producers: found by group and by id as long as they give signs of life on an open connection."""

from __future__ import annotations

from orbitmq.broker.clients.producers import Producers
from orbitmq.broker.clients.registry import SILENCE_MS_MAX
from support.remoting.channels import Link, Peers, client

peers = Peers()


def test_a_client_is_found_by_group_and_by_id() -> None:
    producers, a, b = Producers(), peers.connect(), peers.connect()
    assert producers.register("g", a, client("ca"), 0)
    assert producers.register("g", b, client("cb"), 0)
    assert not producers.register("g", a, client("ca"), 5)
    assert [member.info.client_id for member in producers.members("g").values()] == ["ca", "cb"]
    assert producers.members("g")[a].heard_ms == 5
    assert (producers.channel_of_client("ca"), producers.channel_of_client("cb")) == (a, b)
    assert {
        group: [member.channel for member in members]
        for group, members in producers.groups().items()
    } == {"g": [a, b]}
    assert (producers.channel_of_client("cx"), list(producers.members("gx"))) == (None, [])


def test_a_client_that_leaves_one_of_its_groups_is_still_found_by_its_id() -> None:
    producers, channel = Producers(), peers.connect()
    for group in ("g1", "g2"):
        producers.register(group, channel, client("c"), 0)
    assert producers.unregister("g1", channel)
    assert not producers.unregister("g1", channel)
    assert list(producers) == ["g2"]
    assert producers.channel_of_client("c") is channel
    producers.unregister("g2", channel)
    assert producers.channel_of_client("c") is None
    assert len(producers) == 0


def test_a_client_that_connects_again_is_reached_by_its_new_connection_and_outlives_the_old_one() -> (
    None
):
    producers, old, new = Producers(), peers.connect(), peers.connect()
    producers.register("g", old, client("c"), 0)
    producers.register("g", new, client("c"), 0)
    assert producers.channel_of_client("c") is new
    list(producers.on_close(old))
    assert producers.channel_of_client("c") is new
    assert list(producers.members("g")) == [new]


def test_when_the_newer_connection_closes_first_the_older_one_is_found_again() -> None:
    producers, old, new = Producers(), peers.connect(), peers.connect()
    producers.register("g", old, client("c"), 0)
    producers.register("g", new, client("c"), 0)
    list(producers.on_close(new))
    assert producers.channel_of_client("c") is old


def test_a_connection_whose_client_takes_another_id_is_found_by_that_alone() -> None:
    producers, channel = Producers(), peers.connect()
    producers.register("g", channel, client("before"), 0)
    producers.register("g", channel, client("after"), 0)
    assert producers.channel_of_client("before") is None
    assert producers.channel_of_client("after") is channel
    list(producers.on_close(channel))
    assert producers.channel_of_client("after") is None


def test_a_closed_connection_leaves_all_its_groups() -> None:
    producers, a, b = Producers(), peers.connect(), peers.connect()
    for group in ("g1", "g2"):
        producers.register(group, a, client("ca"), 0)
    producers.register("g2", b, client("cb"), 0)
    list(producers.on_close(a))
    assert list(producers) == ["g2"]
    assert list(producers.members("g2")) == [b]


def test_a_client_expires_when_it_was_silent_for_longer_than_two_minutes() -> None:
    producers, silent, lively = Producers(), peers.connect(), peers.connect()
    for group in ("g1", "g2"):
        producers.register(group, silent, client("cs"), 0)
    producers.register("g1", lively, client("cl"), 1)
    assert list(producers.scan(SILENCE_MS_MAX)) == []
    assert list(producers.scan(SILENCE_MS_MAX + 1)) == [silent, silent], "for each of its groups"
    assert list(producers.members("g1")) == [lively]
    assert list(producers.scan(SILENCE_MS_MAX + 1)) == []


def test_any_channel_takes_turns_and_passes_over_those_that_are_closed_or_stuck() -> None:
    producers, channels = Producers(), [peers.connect() for _ in range(4)]
    for number, channel in enumerate(channels):
        producers.register("g", channel, client(f"c{number}"), 0)
    assert {producers.any_channel("g") for _ in range(4)} == set(channels)
    closed, stuck, *ready = channels
    closed.is_open = False
    assert isinstance(stuck.link, Link)
    stuck.link.reading = False
    assert {producers.any_channel("g") for _ in range(4)} == set(ready)
    for channel in ready:
        channel.is_open = False
    assert producers.any_channel("g") is stuck
    stuck.is_open = False
    assert producers.any_channel("g") is None
    assert producers.any_channel("gx") is None
