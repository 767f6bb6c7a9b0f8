"""A consumer that reads ahead and shares its queues: what it hands out, what it commits, what it
shares, and where it goes on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from orbitmq import (
    CacheLimits,
    InvalidStateError,
    LitePullConsumer,
    Message,
    MessageModel,
    MessageQueue,
    NotFoundError,
    Producer,
)
from orbitmq.testing import LocalCluster
from support.client.pull_consumers import (
    BY_HAND,
    FROM_FIRST,
    numbers,
    polled,
    run,
    send,
    subscribed,
)
from support.common.waiting import until

# -- messages


def test_polls_bring_every_message_once_and_those_of_a_queue_in_order() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(50))
        async with subscribed(mq) as consumer:
            found = await polled(consumer, 50)
            assert numbers(found) == list(range(50))
            for queue in consumer.assignment:
                offsets = [message.queue_offset for message in found if message.queue == queue]
                assert offsets == list(range(len(offsets)))
            assert await consumer.poll(timeout_ms=0) == []
            waiting = asyncio.create_task(consumer.poll(timeout_ms=60_000))
            await send(mq, [50])
            assert numbers(await waiting) == [50]

    run(scenario)


def test_only_messages_of_the_tags_come_and_the_others_count_as_consumed() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(20), tags=["a", "b", "c", None])
        async with subscribed(mq, expression="a || b") as consumer:
            found = await polled(consumer, 10)
            assert {message.tags for message in found} == {"a", "b"}
            await consumer.commit()
            assert (
                sum([await consumer.committed(queue) or 0 for queue in consumer.assignment]) == 20
            )

    run(scenario)


def test_a_message_counts_as_consumed_when_the_next_is_asked_for() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(10))
        seen: list[int] = []

        async def fail_at_the_fourth() -> None:
            async with subscribed(mq) as consumer:
                async for message in consumer:
                    seen.append(int(message.body))
                    if len(seen) == 4:
                        raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail_at_the_fourth()
        async with subscribed(mq) as consumer:
            async for message in consumer:
                seen.append(int(message.body))
                if len(seen) == 11:
                    break
        assert sorted(seen) == sorted(
            [*range(10), seen[3]]
        )  # the one that failed came again, and no other
        async with subscribed(
            mq
        ) as consumer:  # what the end of a block without an error left, counts too
            assert [await consumer.committed(queue) for queue in consumer.assignment] == [10]

    run(scenario, queues=1)


def test_what_is_given_back_comes_again_first_and_in_order() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(6))
        async with subscribed(mq) as consumer:
            assert [int(message.body) for message in await polled(consumer, 3, 3)] == [0, 1, 2]
            consumer.give_back()
            assert [int(message.body) for message in await polled(consumer, 2, 2)] == [0, 1]
            assert [int(message.body) for message in await polled(consumer, 4)] == [2, 3, 4, 5]

    run(scenario, queues=1)


def test_closing_ends_a_loop_that_waits_for_messages() -> None:
    async def scenario(mq: LocalCluster) -> None:
        consumer = subscribed(mq)
        await consumer.start()

        async def count() -> int:
            return len([message async for message in consumer])

        counting = asyncio.create_task(count())
        await send(mq, range(5))
        await until(lambda: all_counted(mq, consumer, 5))
        await consumer.close()
        assert await counting == 5

    async def all_counted(mq: LocalCluster, consumer: LitePullConsumer, count: int) -> bool:
        return sum([consumer.position(queue) or 0 for queue in consumer.assignment]) == count

    run(scenario)


def test_reading_ahead_stops_at_the_limits_and_goes_on_when_there_is_room() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(100))
        settings = replace(
            FROM_FIRST, pull_count=2, cached_count_max=12, limits=CacheLimits(count_max=4)
        )
        async with subscribed(mq, settings) as consumer:

            async def is_full() -> bool:
                told = str(await consumer.explain())
                return (
                    "messages are unfinished, more than 4" in told
                    or "messages of all queues are prefetched and not yet polled, the limit is 12"
                    in told
                )

            await until(is_full)
            info = consumer.running_info()
            assert sum(queue.cached_count for queue in info.queues.values()) < 20
            assert numbers(await polled(consumer, 100)) == list(range(100))

    run(scenario)


# -- commits


def test_with_commits_by_hand_nothing_else_moves_the_offsets() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(10))
        async with subscribed(mq, BY_HAND) as consumer:
            await polled(consumer, 4)
            (queue,) = consumer.assignment
            assert (consumer.position(queue), await consumer.committed(queue)) == (4, None)
        async with subscribed(mq, BY_HAND) as consumer:
            await polled(consumer, 4)
            await consumer.commit()
            assert await consumer.committed(queue) == 4
            await polled(consumer, 3)
            await consumer.seek(queue, 9)
            assert await consumer.committed(queue) == 4
        async with subscribed(mq, BY_HAND) as consumer:
            assert numbers(await polled(consumer, 6)) == [4, 5, 6, 7, 8, 9]
            await consumer.commit({queue: 2})
            with pytest.raises(InvalidStateError, match="-1 is not a valid offset"):
                await consumer.commit({queue: -1})
            with pytest.raises(
                InvalidStateError,
                match=r"11 is not yet an offset of .*: the next message will have 10",
            ):
                await consumer.commit({queue: 11})
            assert await consumer.committed(queue) == 2
            with pytest.raises(InvalidStateError, match="is not assigned to this consumer"):
                await consumer.commit({queue: 3, MessageQueue("T", "broker-a", 7): 0})
        async with subscribed(mq, BY_HAND) as consumer:
            assert numbers(await polled(consumer, 8)) == [2, 3, 4, 5, 6, 7, 8, 9]

    run(scenario, queues=1)


def test_automatic_commits_come_in_time_without_any_call() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(10))
        async with subscribed(mq, replace(FROM_FIRST, auto_commit_ms=1_000)) as consumer:
            await polled(consumer, 6)
            await polled(consumer, 2)
            (queue,) = consumer.assignment

            async def are_committed() -> bool:
                return await consumer.committed(queue) == 6

            await until(are_committed)

    run(scenario, queues=1)


def test_a_commit_that_the_broker_does_not_get_is_an_error() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(3))
        async with subscribed(mq, BY_HAND) as consumer:
            await polled(consumer, 3)
            await asyncio.to_thread(mq.stop_broker)
            with pytest.raises(Exception, match=r"broker-a|cannot connect|died|closed"):
                await consumer.commit()
            await asyncio.to_thread(mq.restart)
            await consumer.commit()

    run(scenario)


# -- sharing


def test_members_share_and_share_anew_and_every_message_comes_once() -> None:
    async def scenario(mq: LocalCluster) -> None:
        seen: Counter[int] = Counter()

        async def consume(*consumers: LitePullConsumer, up_to: int) -> None:
            async def ask(consumer: LitePullConsumer) -> None:
                while len(seen) < up_to:
                    seen.update(numbers(await consumer.poll(timeout_ms=50)))
                await consumer.poll(timeout_ms=0)
                await consumer.commit()

            await asyncio.gather(*map(ask, consumers))

        await send(mq, range(100))
        async with subscribed(mq) as first:
            await consume(first, up_to=100)
            async with subscribed(mq) as second:
                await until(lambda: are_shared(first, second))
                await send(mq, range(100, 200))
                await consume(first, second, up_to=200)
                async with subscribed(mq) as third:
                    await until(lambda: are_shared(first, second, third))
                    await send(mq, range(200, 300))
                    await consume(first, second, third, up_to=300)
            await until(lambda: are_shared(first))
            await send(mq, range(300, 400))
            await consume(first, up_to=400)
        assert seen == Counter(range(400))

    async def are_shared(*consumers: LitePullConsumer) -> bool:
        parts = [consumer.assignment for consumer in consumers]
        return (
            all(parts) and sum(map(len, parts)) == len(frozenset[MessageQueue]().union(*parts)) == 4
        )

    run(scenario)


def test_a_queue_that_another_member_gets_begins_where_this_one_was() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(40))
        async with subscribed(mq) as first:
            taken = await polled(first, 10)
            taken += await polled(
                first, 5, 5
            )  # by which the ten count as consumed, and these five do not
            held = {(message.queue, message.queue_offset) for message in taken[10:]}
            async with subscribed(mq) as second:

                async def has_two() -> bool:
                    return len(second.assignment) == 2

                await until(has_two)
                others = []
                while any(second.position(queue) != 10 for queue in second.assignment):
                    others += await second.poll()
                before = {(message.queue, message.queue_offset) for message in taken[:10]}
                again = {(message.queue, message.queue_offset) for message in others}
                assert not before & again
                assert {place for place in held if place[0] in second.assignment} <= again

    run(scenario)


def test_everybody_gets_everything_of_a_group_that_broadcasts_and_goes_on_after_a_restart(
    tmp_path: Path,
) -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(10))
        all_of = [
            replace(
                FROM_FIRST, message_model=MessageModel.BROADCASTING, offsets_folder=tmp_path / name
            )
            for name in ("a", "b")
        ]
        async with subscribed(mq, all_of[0]) as first, subscribed(mq, all_of[1]) as second:
            assert (
                numbers(await polled(first, 10))
                == numbers(await polled(second, 10))
                == list(range(10))
            )
        await send(mq, range(10, 15))
        async with subscribed(mq, all_of[0]) as first:
            assert numbers(await polled(first, 5)) == list(range(10, 15))
            await first.commit()
            assert sum([await first.committed(queue) or 0 for queue in first.assignment]) == 15

    run(scenario)


# -- queues that are given


def test_assigned_queues_are_read_whoever_else_reads_them() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(20), tags=["a"] * 4 + ["b"] * 4)
        first, second = (LitePullConsumer(mq.name_server, "g", settings=BY_HAND) for _ in range(2))
        async with first, second:
            queues = await first.queues("T")
            for consumer in (first, second):
                await consumer.assign(queues[:3])
                assert consumer.assignment == frozenset(queues[:3])
                assert {message.queue for message in await polled(consumer, 15)} == set(queues[:3])
            await first.assign(queues[3:], "a")
            assert first.assignment == frozenset(queues[3:])
            last = await first.poll()
            assert {(message.queue, message.tags) for message in last} == {(queues[3], "a")}

    run(scenario)


def test_queues_of_several_topics_are_assigned_together() -> None:
    async def scenario(mq: LocalCluster) -> None:
        mq.create_topic("U", 2)
        await send(mq, range(4))
        async with Producer(mq.name_server) as producer:
            for number in range(4, 8):
                await producer.send(Message("U", b"%d" % number))
        async with LitePullConsumer(mq.name_server, "g", settings=FROM_FIRST) as consumer:
            wanted = [*await consumer.queues("T"), *await consumer.queues("U")]
            with pytest.raises(NotFoundError, match="topic U has no"):
                await consumer.assign([*wanted, MessageQueue("U", "broker-a", 2)])
            await consumer.assign(wanted)
            assert consumer.assignment == set(wanted)
            assert numbers(await polled(consumer, 8)) == list(range(8))

    run(scenario)


def test_who_is_assigned_queues_cannot_subscribe_and_the_other_way_round() -> None:
    async def scenario(mq: LocalCluster) -> None:
        async with subscribed(mq) as consumer:
            with pytest.raises(InvalidStateError, match="this consumer uses subscribe"):
                await consumer.assign(await consumer.queues("T"))
        async with LitePullConsumer(mq.name_server, "g") as consumer:
            with pytest.raises(
                InvalidStateError, match=r"subscribe\(\) to a topic, or assign\(\) queues first"
            ):
                await consumer.poll()
            with pytest.raises(NotFoundError, match="no route to topic missing"):
                await consumer.assign([MessageQueue("missing", "broker-a", 0)])
            with pytest.raises(NotFoundError, match=r"has no .*queue_id=9"):
                await consumer.assign([MessageQueue("T", "broker-a", 9)])
            await consumer.assign(await consumer.queues("T"))
            with pytest.raises(InvalidStateError, match="this consumer uses assign"):
                consumer.subscribe("T")

    run(scenario)


# -- places


def test_it_goes_on_wherever_it_is_told_to() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(10))
        async with subscribed(mq) as consumer:
            found = await polled(consumer, 10)
            (queue,) = consumer.assignment
            await consumer.seek(queue, 7)
            assert consumer.position(queue) == 7
            assert numbers(await polled(consumer, 3)) == [7, 8, 9]
            await consumer.seek_to_begin(queue)
            assert numbers(await polled(consumer, 2, 2)) == [0, 1]
            await consumer.seek_to_end(queue)
            await send(mq, [10])
            assert numbers(await polled(consumer, 1)) == [10]
            await consumer.seek_to_time(queue, found[5].stored_at_ms)
            again = await polled(consumer, 1, 1)
            assert again[0].stored_at_ms >= found[5].stored_at_ms
            assert again[0].queue_offset <= 5
            with pytest.raises(
                InvalidStateError,
                match=("has no offset 12: it ranges from 0 to 11, the next message to arrive"),
            ):
                await consumer.seek(queue, 12)
            with pytest.raises(InvalidStateError, match="is not assigned to this consumer"):
                await consumer.seek(MessageQueue("T", "broker-a", 3), 0)
            assert consumer.position(queue) == again[0].queue_offset + 1
            await consumer.seek(queue, 3)  # and what is committed goes back too
        async with subscribed(mq) as consumer:
            assert numbers(await polled(consumer, 8)) == list(range(3, 11))

    run(scenario, queues=1)


def test_nothing_comes_of_a_queue_that_is_paused() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(40))
        async with subscribed(mq) as consumer:
            paused = sorted(consumer.assignment)[:2]
            consumer.pause(paused)
            found = await polled(consumer, 20)
            assert not {message.queue for message in found} & set(paused)
            assert await consumer.poll(timeout_ms=0) == []
            assert "it is paused: call resume() to continue" in str(await consumer.explain())
            consumer.resume(paused)
            assert numbers(found + await polled(consumer, 20)) == list(range(40))
            with pytest.raises(InvalidStateError, match="is not assigned to this consumer"):
                consumer.pause([MessageQueue("T", "broker-a", 9)])

    run(scenario)
