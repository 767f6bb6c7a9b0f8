"""Tables of topics, groups and offsets that are changed and told in slices, and what others do
between two of them.
"""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.common.errors import RefusedError
from orbitmq.common.slices import SLICE_UNITS, Slices, finish, sorted_in_slices
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import LIST_ITEMS_MAX, DataVersion, TopicConfig
from orbitmq.protocol.bodies.offsets import ConsumerOffsets
from orbitmq.protocol.bodies.topics import decode_topic_list, encode_all_topics
from support.broker.socketless import BrokerRoom

MANY = 3 * SLICE_UNITS


def many_topics(**members: Any) -> list[TopicConfig]:
    return [TopicConfig(f"many-{number:04d}", 4, 4, **members) for number in range(MANY)]


def stepped(work: Slices[Any], slices: int) -> Slices[Any]:
    """Run some slices; there have to be more."""
    for _ in range(slices):
        next(work)
    return work


def test_nobody_sees_a_part_of_a_list_of_topics(room: BrokerRoom) -> None:
    before = dict(room.topics.table)
    version = room.topics.data_version
    work = room.topics.update_in_slices(many_topics())
    seen = set()
    try:
        while True:
            next(work)
            seen.add(len(room.topics) - len(before))
    except StopIteration as end:
        changed = end.value
    assert seen == {0, MANY}
    assert changed == [config.name for config in many_topics()]
    assert room.topics.data_version.counter == version.counter + MANY
    assert room.registered[-MANY:] == changed
    assert not room.topics.is_saved("many-0000")
    room.loop.run()
    assert room.topics.is_saved("many-0000")


def test_a_list_of_topics_that_is_dropped_before_all_are_checked_changes_nothing(
    room: BrokerRoom,
) -> None:
    before = dict(room.topics.table)
    stepped(room.topics.update_in_slices(many_topics()), 2).close()
    assert dict(room.topics.table) == before


def test_a_topic_that_is_created_while_a_list_with_it_is_checked_keeps_what_may_not_change(
    room: BrokerRoom,
) -> None:
    work = stepped(
        room.topics.update_in_slices(many_topics(attributes={"+queue.type": "BatchCQ"})), 2
    )
    room.topics.update(TopicConfig("many-0001", 4, 4, attributes={"+queue.type": "SimpleCQ"}))
    with pytest.raises(RefusedError, match=r"queue\.type"):
        finish(work)
    assert room.topics.find("many-0000") is None
    assert room.topics.table["many-0001"].attributes == {"queue.type": "SimpleCQ"}


def test_an_attribute_that_is_set_while_a_list_is_checked_stays(room: BrokerRoom) -> None:
    work = stepped(room.topics.update_in_slices(many_topics(attributes={"+reserve.time": "7"})), 2)
    room.topics.update(TopicConfig("many-0001", 4, 4, attributes={"+message.type": "FIFO"}))
    finish(work)
    assert room.topics.table["many-0001"].attributes == {
        "message.type": "FIFO",
        "reserve.time": "7",
    }
    assert room.topics.table["many-0002"].attributes == {"reserve.time": "7"}


def test_changes_of_one_topic_in_one_list_follow_each_other(room: BrokerRoom) -> None:
    first, then = (
        TopicConfig("Twice", 4, 4, attributes={name: value})
        for name, value in (("+message.type", "FIFO"), ("+reserve.time", "7"))
    )
    work = room.topics.update_in_slices([first, *many_topics(), then])
    next(work)
    room.topics.update(TopicConfig("Twice", 1, 1))
    finish(work)
    assert room.topics.table["Twice"].attributes == {"message.type": "FIFO", "reserve.time": "7"}


def test_nobody_sees_a_part_of_a_list_of_groups(room: BrokerRoom) -> None:
    before = len(room.groups)
    work = room.groups.update_in_slices([GroupConfig(f"many-{number}") for number in range(MANY)])
    seen = set()
    for _ in work:
        seen.add(len(room.groups) - before)
    assert seen == {0, MANY}


def test_a_group_that_is_changed_while_a_list_with_it_is_checked_has_what_the_list_says(
    room: BrokerRoom,
) -> None:
    work = stepped(
        room.groups.update_in_slices(
            [GroupConfig(f"many-{number}", retry_max_times=3) for number in range(MANY)]
        ),
        2,
    )
    room.groups.update(GroupConfig("many-1", retry_max_times=9))
    finish(work)
    assert room.groups.table["many-1"].retry_max_times == 3


def test_a_list_of_too_many_topics_is_refused_with_how_many_are_taken() -> None:
    body = fastjson.dumps({"topicConfigList": [{}] * (LIST_ITEMS_MAX + 1)})
    with pytest.raises(Exception, match=f"up to {LIST_ITEMS_MAX} are taken at a time"):
        finish(decode_topic_list(body))


def test_all_topics_are_told_as_they_were_at_first(room: BrokerRoom) -> None:
    room.topics.update(*many_topics())
    table = dict(room.topics.table)
    work = stepped(encode_all_topics(table, DataVersion(), DataVersion()), 1)
    room.topics.delete("many-0700")
    told = fastjson.loads(finish(work))
    assert told["topicConfigTable"].keys() == table.keys()


def test_a_page_is_made_of_the_names_that_were_there_at_first(room: BrokerRoom) -> None:
    finish(
        room.topics.update_in_slices([TopicConfig(f"page-{number:05d}") for number in range(9000)])
    )
    work = stepped(room.topics.page_in_slices(0, 100_000), 1)
    room.topics.delete("page-00000")
    page = finish(work)
    assert list(page) == sorted([*room.topics.table, "page-00000"])


def test_offsets_that_are_told_in_slices_have_the_bytes_of_one_call(room: BrokerRoom) -> None:
    for number in range(1500):
        room.offsets.commit(f"group-{number % 200}", f"T{number}", number % 4, number)
        room.offsets.commit_pull(f"group-{number % 200}", f"T{number}", number % 4, number + 1)
    assert finish(room.offsets.encode_in_slices()) == room.offsets.encode(pretty=False)


def test_offsets_that_are_committed_and_deleted_meanwhile_break_no_answer(room: BrokerRoom) -> None:
    for number in range(1500):
        room.offsets.commit(f"group-{number}", "T", 0, number)
    work = stepped(room.offsets.encode_in_slices(), 1)
    room.offsets.delete_group("group-1499")
    room.offsets.commit("group-1498", "T", 3, 77)
    room.offsets.commit("new", "T", 0, 1)
    told = ConsumerOffsets.decode(finish(work)).offsets
    assert told["T@group-1498"] == {0: 1498, 3: 77}
    assert "T@new" not in told


@pytest.mark.parametrize("count", [0, 1, 3999, 4000, 4001, 12_345])
def test_names_are_sorted_in_slices_as_in_one_call(count: int) -> None:
    names = [f"{number * 7919 % 100_003}" for number in range(count)]
    assert finish(sorted_in_slices(names)) == sorted(names)
