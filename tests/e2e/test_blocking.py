"""Clients without asyncio: in many threads, with listeners, after a fork, interrupted, and closed
again.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from orbitmq import (
    ConsumeFromWhere,
    ConsumeLater,
    ConsumerSettings,
    InvalidMessageError,
    InvalidStateError,
    LitePullSettings,
    Message,
    MessageQueue,
    OrbitError,
    PullStatus,
    ReceivedMessage,
    RemoteUnavailableError,
    SendResult,
    TransactionState,
)
from orbitmq.blocking import (
    Admin,
    LitePullConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    Trace,
    TransactionProducer,
)
from orbitmq.client.trace_records import Consumed, Published, TraceRecord, TransactionEnded, decode
from orbitmq.testing import LocalCluster
from support.common.waiting import wait_until

FROM_FIRST = ConsumerSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
PULLED_FROM_FIRST = LitePullSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(topics={"T": 4}) as mq:
        yield mq
    assert not loop_threads(), "the loop ends with the last client"


def loop_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "orbitmq-blocking"]


def pulled(consumer: LitePullConsumer, count: int) -> list[int]:
    found: list[ReceivedMessage] = []

    def are_all_here() -> bool:
        found.extend(consumer.poll(count_max=count - len(found)))
        return len(found) == count

    wait_until(are_all_here, f"{count} messages")
    return sorted(int(message.body) for message in found)


def script(program: str, *arguments: str) -> subprocess.Popen[str]:
    """A program of its own, which is done with signals and forks what this process should not."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )


# -- producers


def test_many_threads_send_by_one_producer_over_one_connection(cluster: LocalCluster) -> None:
    with Producer(cluster.name_server) as producer:

        def send(number: int) -> SendResult:
            return producer.send(Message("T", b"%d" % number))

        with ThreadPoolExecutor(16) as threads:
            results = list(threads.map(send, range(400)))
        assert len({(result.queue, result.queue_offset) for result in results}) == 400
        with LitePullConsumer(cluster.name_server, "g", settings=PULLED_FROM_FIRST) as consumer:
            consumer.subscribe("T")
            assert pulled(consumer, 400) == list(range(400))
        assert (
            len(producer._wrapped.session.client.connections) == 2
        )  # a name server's, and a broker's
        producer.send_oneway(Message("T", b"400"))
        assert len(producer.send_batch([Message("T", b"x")] * 3)) == 1
        assert len(producer.queues("T")) == 4


def test_errors_arrive_as_they_are_and_show_who_called(cluster: LocalCluster) -> None:
    with Producer(cluster.name_server) as producer:
        with pytest.raises(
            InvalidMessageError, match="the body of a message to T is empty"
        ) as caught:
            producer.send(Message("T", b""))
        frames = [frame.name for frame in traceback.extract_tb(caught.tb)]
        assert frames[0] == "test_errors_arrive_as_they_are_and_show_who_called"
        assert frames[-2:] == ["message", "_check"]  # of the outbox
        with pytest.raises(InvalidMessageError):  # and once more, on the same loop
            producer.send(Message("T", b""))


def test_a_producer_of_transactions_sends_ordinary_messages_too(cluster: LocalCluster) -> None:
    def execute(message: Message, argument: object) -> TransactionState:
        return TransactionState.COMMIT

    with TransactionProducer(
        cluster.name_server, group="p", execute=execute, check=lambda _: TransactionState.UNKNOWN
    ) as producer:
        assert producer.send(Message("T", b"1")).queue.topic == "T"
        with pytest.raises(InvalidMessageError, match="is empty"):
            producer.send_in_transaction(Message("T", b""))


# -- consumers


def test_a_trace_tells_of_what_was_sent_committed_and_consumed(cluster: LocalCluster) -> None:
    with (
        Trace(cluster.name_server) as trace,
        Producer(cluster.name_server) as producer,
        TransactionProducer(
            cluster.name_server,
            group="t",
            execute=lambda *_: TransactionState.COMMIT,
            check=lambda _: TransactionState.UNKNOWN,
        ) as transactions,
        PushConsumer(
            cluster.name_server,
            "pushed",
            lambda message: heard.append(message.msg_id),
            settings=FROM_FIRST,
        ) as pushed,
        LitePullConsumer(cluster.name_server, "pulled", settings=PULLED_FROM_FIRST) as lite,
    ):
        heard: list[str] = []
        clients = (producer, transactions, pushed, lite)
        for client in clients:
            client.observers.append(trace)
        ids = {
            producer.send(Message("T", b"0")).msg_id,
            transactions.send_in_transaction(Message("T", b"1")).sent.msg_id,
        }
        for consumer in (pushed, lite):
            consumer.subscribe("T")
        assert pulled(lite, 2) == [0, 1]
        lite.poll(timeout_ms=1)  # now those count as consumed
        wait_until(lambda: set(heard) == ids)
    assert trace.dropped_count == 0
    with LitePullConsumer(cluster.name_server, "auditors", settings=PULLED_FROM_FIRST) as auditor:
        auditor.subscribe("RMQ_SYS_TRACE_TOPIC")
        found: list[TraceRecord] = []
        while (
            len(found) < 11
        ):  # two sent, one transaction ended, and two begun and ended by each consumer
            found += [
                record for message in auditor.poll() for record in decode(message.body.decode())
            ]
    assert {record.msg_id for record in found if isinstance(record, Published)} == ids
    assert len([record for record in found if isinstance(record, TransactionEnded)]) == 1
    assert {record.group for record in found if isinstance(record, Consumed)} == {
        "pushed",
        "pulled",
    }


def test_a_listener_runs_in_threads_and_may_use_blocking_clients(cluster: LocalCluster) -> None:
    with Producer(cluster.name_server) as producer:
        for number in range(10):
            producer.send(Message("T", b"%d" % number))
        cluster.create_topic("copies")

        def listen(message: ReceivedMessage) -> None:
            producer.send(Message("copies", message.body))

        pushed = PushConsumer(cluster.name_server, "g", listen, settings=FROM_FIRST)
        pushed.subscribe("T")
        with (
            pushed,
            LitePullConsumer(cluster.name_server, "copied", settings=PULLED_FROM_FIRST) as consumer,
        ):
            consumer.subscribe("copies")
            assert pulled(consumer, 10) == list(range(10))
            assert {queue.topic for queue in pushed.queues} >= {"T"}
            assert "group g" in str(pushed.explain())
            pushed.suspend()
            pushed.resume()
            pushed.unsubscribe("T")


def test_a_loop_over_messages_ends_when_another_thread_closes(cluster: LocalCluster) -> None:
    consumer = LitePullConsumer(cluster.name_server, "g", settings=PULLED_FROM_FIRST)
    consumer.subscribe("T")
    seen: list[bytes] = []
    with Producer(cluster.name_server) as producer, consumer:
        looping = threading.Thread(target=lambda: seen.extend(message.body for message in consumer))
        looping.start()
        for number in range(5):
            producer.send(Message("T", b"%d" % number))
        wait_until(lambda: sum(consumer.position(queue) or 0 for queue in consumer.assignment) == 5)
    looping.join(60)
    assert not looping.is_alive()
    assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4"]


def test_places_and_offsets_can_be_told_and_set(cluster: LocalCluster) -> None:
    with Producer(cluster.name_server) as producer:
        queue = producer.queues("T")[0]
        for number in range(5):
            producer.send(Message("T", b"%d" % number), queue=queue)
    with LitePullConsumer(cluster.name_server, "g", settings=PULLED_FROM_FIRST) as consumer:
        consumer.assign([queue])
        assert pulled(consumer, 5) == [0, 1, 2, 3, 4]
        consumer.commit()
        assert (
            consumer.committed(queue),
            consumer.position(queue),
            sorted(consumer.assignment),
        ) == (5, 5, [queue])
        consumer.seek(queue, 3)
        assert pulled(consumer, 2) == [3, 4]
        consumer.seek_to_begin(queue)
        assert pulled(consumer, 1) == [0]
        consumer.give_back()
        consumer.pause([queue])
        assert consumer.poll(timeout_ms=0) == []
        consumer.resume([queue])
        assert pulled(consumer, 5) == [0, 1, 2, 3, 4]
        consumer.seek_to_end(queue)
        consumer.seek_to_time(queue, 0)
        assert pulled(consumer, 5) == [0, 1, 2, 3, 4]
    with PullConsumer(cluster.name_server, "g") as plain:
        assert len(plain.queues("T")) == 4
        assert plain.pull(queue, 2).status is PullStatus.FOUND
        assert (
            plain.fetch_offset(queue),
            plain.min_offset(queue),
            plain.max_offset(queue),
            plain.offset_at(queue, 0),
        ) == (5, 0, 5, 0)
        plain.update_offset(queue, 1)
        assert plain.fetch_offset(queue) == 1


def test_operators_need_no_coroutines(cluster: LocalCluster) -> None:
    with Producer(cluster.name_server) as producer, Admin(cluster.name_server) as admin:
        sent = producer.send(Message("T", b"body", keys="k"))
        assert "T" in admin.topics.names()
        assert admin.topics.stats("T").message_count == 1
        assert admin.messages.get(sent.offset_msg_id).message.body == b"body"
        now_ms = time.time_ns() // 1_000_000
        assert [message.body for message in admin.messages.between("T", 0, now_ms + 1_000)] == [
            b"body"
        ]
        for _ in admin.messages.between("T", 0, now_ms + 1_000):
            break
        assert admin.cluster.brokers()[0].name == "broker-a"
        assert admin.offsets.end(sent.queue) == 1
        assert admin.groups.names() is not None
        assert admin.name_servers.configs()


# -- life


def test_the_thread_of_the_loop_ends_with_the_last_client(cluster: LocalCluster) -> None:
    first, second = Producer(cluster.name_server), Producer(cluster.name_server)
    assert not loop_threads()
    with first:
        with second:
            assert len(loop_threads()) == 1
        assert len(loop_threads()) == 1
        first.send(Message("T", b"1"))
    assert not loop_threads()
    with Producer(cluster.name_server) as third:
        third.send(Message("T", b"1"))


def test_calls_at_the_wrong_time_or_place_say_what_to_do(cluster: LocalCluster) -> None:
    producer = Producer(cluster.name_server)
    message = Message("T", b"1")
    with pytest.raises(InvalidStateError, match="not started: use it in `with`"):
        producer.send(message)
    producer.close()  # of what never began is nothing
    with producer:

        def from_the_loop(queues: object, _: Message) -> MessageQueue:
            return producer.queues("T")[0]

        with pytest.raises(InvalidStateError, match="would deadlock"):
            producer.send(message, selector=from_the_loop)
        with pytest.raises(InvalidStateError, match="already started"):
            producer.start()
    producer.close()  # once more changes nothing
    with pytest.raises(InvalidStateError, match="is closed"):
        producer.send(message)


def test_nothing_stays_of_a_client_that_could_not_start() -> None:
    consumer = PushConsumer("127.0.0.1:1", "g", lambda _: None)
    consumer.subscribe("T")
    with pytest.raises(RemoteUnavailableError, match="no name server answers"):
        consumer.start()
    assert not loop_threads()


def test_many_threads_may_close_and_use_a_client_at_the_same_time(cluster: LocalCluster) -> None:
    for _ in range(5):
        producer = Producer(cluster.name_server)
        producer.start()
        producer.send(Message("T", b"first"))

        def send(producer: Producer = producer) -> None:
            for _ in iter(lambda: producer.send(Message("T", b"more")), None):
                pass

        with ThreadPoolExecutor(6) as threads:
            sending = [threads.submit(send) for _ in range(4)]
            closing = [threads.submit(producer.close) for _ in range(2)]
            for done in closing:
                done.result(60)
            for ended in sending:
                assert isinstance(ended.exception(60), (OrbitError, CancelledError))


def test_after_a_fork_old_clients_say_so_and_new_ones_work(cluster: LocalCluster) -> None:
    program = """
        import os, sys
        from orbitmq import Message, InvalidStateError
        from orbitmq.blocking import Producer

        with Producer(sys.argv[1]) as producer:
            producer.send(Message("T", b"parent"))
            child = os.fork()
            if child == 0:
                try:
                    producer.send(Message("T", b"lost"))
                except InvalidStateError as problem:
                    print(problem, flush=True)
                with Producer(sys.argv[1]) as own:
                    own.send(Message("T", b"child"))
            else:
                _, status = os.waitpid(child, 0)
                producer.send(Message("T", b"parent again"))
        if child:
            print("status", status)
        """
    with script(program, cluster.name_server) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "is a fork: create a new client after the fork" in output
    assert "status 0" in output
    with LitePullConsumer(cluster.name_server, "g", settings=PULLED_FROM_FIRST) as consumer:
        consumer.subscribe("T")
        found: list[bytes] = []

        def three_came() -> bool:
            found.extend(message.body for message in consumer.poll())
            return len(found) >= 3

        wait_until(three_came)
    assert sorted(found) == [b"child", b"parent", b"parent again"]


@pytest.mark.parametrize(
    "asks",
    ["for message in consumer: got.append(message)", "while True: got += consumer.poll(60_000)"],
)
def test_an_interrupt_ends_the_wait_and_the_client_leaves_its_group(
    cluster: LocalCluster, asks: str
) -> None:
    program = f"""
        import sys
        from orbitmq.blocking import LitePullConsumer

        got = []
        consumer = LitePullConsumer(sys.argv[1], "g")
        consumer.subscribe("T")
        try:
            with consumer:
                print("waits", flush=True)
                {asks}
        except KeyboardInterrupt:
            print("interrupted", len(got), flush=True)
        """
    with Admin(cluster.name_server) as admin, script(program, cluster.name_server) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        wait_until(lambda: len(admin.groups.connections("g").members) == 1)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        assert (output, process.returncode) == ("interrupted 0\n", 0)
        assert not admin.groups.connections("g").members


def test_who_is_interrupted_while_closing_may_close_again(cluster: LocalCluster) -> None:
    program = """
        import os, signal, sys, threading
        from orbitmq import ConsumeFromWhere, ConsumerSettings, Message
        from orbitmq.blocking import Producer, PushConsumer

        begun, end = threading.Event(), threading.Event()

        def listen(message):
            begun.set()
            end.wait()

        settings = ConsumerSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, close_timeout_ms=100_000)
        consumer = PushConsumer(sys.argv[1], "g", listen, settings=settings)
        consumer.subscribe("T")
        with Producer(sys.argv[1]) as producer:
            producer.send(Message("T", b"1"))
        def interrupt():
            while consumer._closing is None:
                pass
            os.kill(os.getpid(), signal.SIGINT)

        consumer.start()
        begun.wait()
        threading.Thread(target=interrupt).start()
        try:
            consumer.close()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        end.set()
        consumer.close()
        print([thread.name for thread in threading.enumerate() if thread.name == "orbitmq-blocking"])
        """
    with script(program, cluster.name_server) as process:
        output, _ = process.communicate(timeout=60)
    assert (output, process.returncode) == ("interrupted\n[]\n", 0)


def test_a_message_that_a_plain_listener_wants_later_is_not_lost(cluster: LocalCluster) -> None:
    taken = threading.Event()
    attempts: list[int] = []

    def listen(message: ReceivedMessage) -> None:
        attempts.append(message.reconsume_times)
        if len(attempts) < 3:
            raise ConsumeLater
        taken.set()

    in_order = ConsumerSettings(
        consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, in_order=True, retry_pause_ms=10
    )
    consumer = PushConsumer(cluster.name_server, "g", listen, settings=in_order)
    consumer.subscribe("T")
    with Producer(cluster.name_server) as producer, consumer:
        producer.send(Message("T", b"1"))
        assert taken.wait(60)
    assert attempts == [0, 1, 2]
