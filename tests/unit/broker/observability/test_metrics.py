"""Metrics: names, types and labels against a recorded RocketMQ 5.5.0 broker, and the text format,
parsed back.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.observability import metric_text
from orbitmq.broker.observability.instruments import Instruments
from orbitmq.broker.observability.metric_sources import (
    BrokerFigures,
    ConsumerClient,
    Identity,
    Lag,
    PopBuffers,
    PopRevive,
    ProducerClient,
    Sources,
    StorageFigures,
    TimerFigures,
)
from orbitmq.broker.observability.metric_text import GaugeTable, render, view
from orbitmq.broker.observability.metrics import Metrics, parse_labels
from orbitmq.broker.observability.recorder import StatsRecorder
from orbitmq.broker.observability.stats import StatName, Stats
from orbitmq.common.visible import visible_lines
from orbitmq.testing.manual_clock import ManualClock

# Recorded name without `rocketmq_`, type, and labels without the four that all series have.
RECORDED = """\
broker_permission gauge
consumer_connections gauge consume_mode consumer_group is_system language protocol_type version
consumer_group_create_execution_time_milliseconds histogram invocation_status
consumer_group_number gauge
consumer_inflight_messages gauge consumer_group is_retry is_system topic
consumer_lag_latency_milliseconds gauge consumer_group is_retry is_system topic
consumer_lag_messages gauge consumer_group is_retry is_system topic
consumer_queueing_latency_milliseconds gauge consumer_group is_retry is_system topic
consumer_ready_messages gauge consumer_group is_retry is_system topic
message_size histogram is_system message_type topic
messages_in_total counter is_system message_type topic
messages_out_total counter consumer_group is_system topic
pop_buffer_scan_time_consume_milliseconds histogram
pop_checkpoint_buffer_size gauge
pop_offset_buffer_size gauge
pop_revive_lag_milliseconds gauge queue_id
pop_revive_latency_milliseconds gauge queue_id
processor_watermark gauge processor
producer_connections gauge language protocol_type version
rpc_latency_milliseconds histogram is_long_polling protocol_type request_code response_code result
storage_dispatch_behind_bytes gauge storage_medium storage_type
storage_flush_behind_bytes gauge storage_medium storage_type
storage_message_reserve_time_milliseconds gauge storage_medium storage_type
storage_size_bytes gauge storage_medium storage_type
throughput_in_total counter is_system message_type topic
throughput_out_total counter consumer_group is_system topic
timer_dequeue_lag gauge storage_medium storage_type
timer_dequeue_latency_milliseconds gauge storage_medium storage_type
timer_enqueue_lag gauge storage_medium storage_type
timer_enqueue_latency_milliseconds gauge storage_medium storage_type
timer_message_snapshot gauge storage_medium storage_type timer_bound_s
topic_create_execution_time_milliseconds histogram invocation_status is_system
topic_number gauge"""

T = TypeVar("T")
SYSTEM_TOPIC = "TBW102"
IDENTITY = Identity(cluster="DefaultCluster", broker_name="broker-a", address="127.0.0.1:10911")
FIXED = {
    "cluster": "DefaultCluster",
    "node_type": "broker",
    "node_id": "broker-a",
    "otel_scope_name": "broker-meter",
}
EXPORTER = {"cluster": "DefaultCluster", "broker": "broker-a"}
RUNTIME_INFO = {
    "bootTimestamp": "1794810053303",
    "brokerVersionDesc": "V5_5_0",
    "putTps": "0.0 0.24942631946522995 ",
    "getTotalTps": "43.96482813749001 40.17359783168992 0.0",
    "putLatency99": "1.00",
    "commitLogDiskRatio": "0.16",
    "putMessageAverageSize": "3.448281700344828E8",
    "commitLogDirCapacity": "Total : 252.0 GiB, Free : 237.8 GiB.",
    "remainHowManyDataToFlush": "2.9 KiB",
    "putMessageDistributeTime": (
        "[<=0ms]:8 [0~10ms]:7 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0"
        " [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:2 "
    ),
}


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


class Parsed(NamedTuple):
    kinds: dict[str, str]
    samples: list[Sample]

    def values(self, name: str, **labels: str) -> list[float]:
        """Return the values of the series that have at least these labels."""
        return [
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def one(self, name: str, **labels: str) -> Sample:
        """Return the only sample with this name and at least these labels."""
        (sample,) = [
            sample
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sample


LINE = re.compile(
    r'([a-zA-Z_:][\w:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\n"])*",?)*)\})? (\S+)'
)
ESCAPES = {r"\\": "\\", r"\n": "\n", r"\"": '"'}
LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\[\\n"])*)"')


def parse(pieces: Iterable[bytes]) -> Parsed:
    """Parse the text format; fail on a malformed line, a repeated family, or a sample outside its
    family.
    """
    kinds: dict[str, str] = {}
    samples = []
    family = ""
    text = b"".join(pieces).decode()
    assert text.endswith("\n")
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family not in kinds
            kinds[family] = kind
        elif not line.startswith("# HELP "):
            match = LINE.fullmatch(line)
            assert match is not None, line
            name, labels, value = match.groups()
            assert name.removeprefix(family) in (
                ("_bucket", "_count", "_sum") if kinds[family] == "histogram" else ("",)
            ), line
            found = {
                label: re.sub(r'\\[\\n"]', lambda escape: ESCAPES[escape.group()], content)
                for label, content in LABEL.findall(labels or "")
            }
            samples.append(Sample(name, found, float(value)))
    return Parsed(kinds, samples)


def is_system_topic(topic: str) -> bool:
    return topic == SYSTEM_TOPIC


def new_instruments(**limits: int) -> Instruments:
    return Instruments(IDENTITY, is_system_topic, **limits)


def sources(stats: Stats | None = None) -> Sources:
    lag = Lag("g", "T", False, 30, 1_500, 10, 700, 20, 470, 1, True)
    return Sources(
        stats=stats or Stats(0),
        is_system_topic=is_system_topic,
        broker=lambda: BrokerFigures(6, 17, 9, 21),
        storage=lambda: StorageFigures(15_150_739_456, 3_636, 0, 3_733),
        runtime_info=lambda: RUNTIME_INFO,
        processor_queues=lambda: [("send", 3), ("pull", 0)],
        producers=lambda: [ProducerClient(group, "java", "v5_5_0") for group in ("p", "p", "q")],
        consumers=lambda: [
            ConsumerClient("g", "java", "v5_5_0", "push", "10.0.0.1@7", "10.0.0.1:999"),
            ConsumerClient("g", "java", "v5_5_0", "push", "10.0.0.2@8", "10.0.0.2:888"),
            ConsumerClient("CID_RMQ_SYS_x", "python", "v5_5_0", "pull", "c", "10.0.0.3:777"),
        ],
        topic_offsets=lambda: [("T", 500), ("%RETRY%g", 5), ("%DLQ%g", 2)],
        lags=lambda: [
            lag,
            lag._replace(is_retry=True, lag=4),
            lag._replace(topic="%RETRY%g", lag=5),
            lag._replace(group="b", is_clustering=False),
        ],
        half_messages=lambda: [("T", 2)],
        timer=lambda: TimerFigures(1, 2, 3, 4),
        timing_messages=lambda: [("T", 8)],
        timer_snapshot=lambda: [(5, 1), (60, 2)],
        pop_buffers=lambda: PopBuffers(11, 12),
        pop_revive=lambda: [PopRevive(0, 1, 2), PopRevive(1, 3, 4)],
    )


def test_names_types_and_labels_match_a_recorded_broker() -> None:
    instruments = new_instruments()
    metrics = Metrics(IDENTITY, sources(), instruments)
    incoming = instruments.incoming("T", "normal")
    assert incoming is not None
    incoming.add(1, 909)
    instruments.outgoing("T", "g").add(1, 909)
    instruments.rpc("send_message_v2", "success").observe(2)
    instruments.topic_created(True, False).observe(71)
    instruments.group_created(True).observe(16)
    instruments.pop_scan_ms.series().observe(0)
    parsed = parse(metrics.render())
    recorded = {f"rocketmq_{row.split()[0]}": row.split()[1:] for row in RECORDED.splitlines()}
    assert {name: parsed.kinds.get(name) for name in recorded} == {
        name: kind for name, (kind, *_) in recorded.items()
    }
    for name, (_, *labels) in recorded.items():
        of_family = [
            sample
            for sample in parsed.samples
            if re.fullmatch(f"{name}(_bucket|_count|_sum)?", sample.name)
        ]
        assert of_family
        for sample in of_family:
            assert FIXED.items() <= sample.labels.items()
            assert sorted(sample.labels.keys() - FIXED.keys() - {"le"}) == labels, sample


def test_the_text_of_a_series_matches_apache_rocketmq() -> None:
    instruments = new_instruments()
    metrics = Metrics(IDENTITY, sources(), instruments)
    incoming = instruments.incoming("demo", "normal")
    assert incoming is not None
    for _ in range(4):
        incoming.add(1, 909)
    text = b"".join(metrics.render()).decode()
    labels = (
        'cluster="DefaultCluster",is_system="false",message_type="normal",node_id="broker-a",node_type="broker",'
        'otel_scope_name="broker-meter",topic="demo"'
    )
    assert (
        f"# TYPE rocketmq_messages_in_total counter\nrocketmq_messages_in_total{{{labels}}} 4.0\n"
        in text
    )
    assert f"\nrocketmq_throughput_in_total{{{labels}}} 3636.0\n" in text
    bounds = ("1024.0", "4096.0", "524288.0", "1048576.0", "2097152.0", "4194304.0", "+Inf")
    buckets = "".join(
        f'rocketmq_message_size_bucket{{{labels},le="{bound}"}} 4\n' for bound in bounds
    )
    assert (
        f"{buckets}rocketmq_message_size_count{{{labels}}} 4\nrocketmq_message_size_sum{{{labels}}}"
        " 3636.0\n" in text
    )


def test_a_bucket_includes_its_upper_bound() -> None:
    instruments = new_instruments()
    metrics = Metrics(IDENTITY, sources(), instruments)
    incoming = instruments.incoming("T", "normal")
    assert incoming is not None
    incoming.add(1, 1024)
    incoming.add(1, 1025)
    incoming.add(10, 50_000, puts=2)  # 5,000 each
    incoming.add(1, 5 << 20)
    parsed = parse(metrics.render())
    assert parsed.values("rocketmq_message_size_bucket") == [1, 2, 4, 4, 4, 4, 5]
    assert parsed.values("rocketmq_message_size_sum") == [1024 + 1025 + 2 * 5000 + (5 << 20)]
    assert parsed.values("rocketmq_messages_in_total") == [13]


def test_equal_labels_share_a_series_and_retry_topics_have_no_incoming_series() -> None:
    instruments = new_instruments()
    metrics = Metrics(IDENTITY, sources(), instruments)
    for _ in range(3):
        instruments.outgoing("T", "g").add(2, 100)
        instruments.dead_letters("T", "CID_rmq_sys_a").add()
    instruments.outgoing(SYSTEM_TOPIC, "g").add(1, 1)
    assert instruments.incoming("%RETRY%g", "normal") is None
    assert instruments.incoming("%DLQ%g", "normal") is None
    parsed = parse(metrics.render())
    assert parsed.values("rocketmq_messages_out_total", topic="T", is_system="false") == [6]
    assert parsed.values("rocketmq_throughput_out_total", topic=SYSTEM_TOPIC, is_system="true") == [
        1
    ]
    assert parsed.values("rocketmq_send_to_dlq_messages_total", is_system="true") == [3]


def test_deleting_a_topic_or_group_drops_its_series() -> None:
    instruments = new_instruments()
    metrics = Metrics(IDENTITY, sources(), instruments)
    figures = StatsRecorder(ManualClock(), "DefaultCluster", is_system_topic, instruments)
    for topic in ("T", "T2"):
        figures.stored(topic, 1, 10)
        for group in ("g", "h"):
            figures.pulled(group, topic, 0, 1, 10)
    figures.delete_topic("T")
    figures.delete_group("g")
    names = (
        "messages_in_total",
        "message_size_count",
        "throughput_in_total",
        "messages_out_total",
        "throughput_out_total",
    )
    counted = [
        sample
        for sample in parse(metrics.render()).samples
        if sample.name.removeprefix("rocketmq_") in names
    ]
    assert {
        (sample.labels["topic"], sample.labels.get("consumer_group", "h")) for sample in counted
    } == {("T2", "h")}
    assert {sample.name.removeprefix("rocketmq_") for sample in counted} == set(names)
    figures.stored("T", 1, 10)
    assert parse(metrics.render()).values("rocketmq_messages_in_total", topic="T") == [1], (
        "a topic that is created again starts at zero"
    )


def test_gauges_are_read_on_each_scrape() -> None:
    metrics = Metrics(IDENTITY, sources(), new_instruments())
    parsed = parse(metrics.render())
    assert parsed.values("rocketmq_broker_permission") == [6]
    assert parsed.values("rocketmq_processor_watermark", processor="send") == [3]
    assert parsed.values(
        "rocketmq_producer_connections", language="java", version="v5_5_0", protocol_type="remoting"
    ) == [3]
    assert parsed.values(
        "rocketmq_consumer_connections", consumer_group="g", consume_mode="push", is_system="false"
    ) == [2]
    assert parsed.values("rocketmq_consumer_connections", is_system="true") == [1]
    lag = {"consumer_group": "g", "topic": "T", "is_retry": "false"}
    names = (
        "lag_messages",
        "lag_latency_milliseconds",
        "inflight_messages",
        "queueing_latency_milliseconds",
        "ready_messages",
    )
    assert [parsed.values(f"rocketmq_consumer_{name}", **lag) for name in names] == [
        [30],
        [1500],
        [10],
        [700],
        [20],
    ]
    assert parsed.values("rocketmq_consumer_lag_messages", is_retry="true") == [4]
    assert parsed.values("rocketmq_consumer_lag_messages", topic="%RETRY%g") == []
    assert parsed.values(
        "rocketmq_storage_size_bytes", storage_type="local", storage_medium="disk"
    ) == [15_150_739_456]
    assert parsed.values("rocketmq_timer_message_snapshot", timer_bound_s="60") == [2]
    assert parsed.values("rocketmq_half_messages") == [2]


def test_a_metric_without_samples_is_left_out() -> None:
    given_sources = replace(
        sources(),
        storage=lambda: StorageFigures(1, 2, 3, None),
        lags=tuple,
        timer=lambda: None,
        pop_revive=tuple,
    )
    parsed = parse(Metrics(IDENTITY, given_sources, new_instruments()).render())
    assert parsed.values("rocketmq_storage_dispatch_behind_bytes") == [3]
    absent = (
        "storage_message_reserve_time_milliseconds",
        "consumer_lag_messages",
        "timer_enqueue_lag",
        "pop_revive_lag_milliseconds",
    )
    assert not parsed.kinds.keys() & {f"rocketmq_{name}" for name in (*absent, "messages_in_total")}


def test_exporter_metrics_have_its_labels_and_the_rates_of_the_last_minute() -> None:
    stats = Stats(0)
    for name, key, value in (
        (StatName.TOPIC_PUT_NUMS, "T", 50),
        (StatName.TOPIC_PUT_NUMS, "%RETRY%g", 1),
        (StatName.TOPIC_PUT_SIZE, "T", 5000),
        (StatName.GROUP_GET_NUMS, "T@g", 20),
        (StatName.GROUP_GET_SIZE, "T@g", 2000),
        (StatName.GROUP_GET_NUMS, "U@g", 0),
        (StatName.SNDBCK_PUT_NUMS, "T@g", 3),
        (StatName.BROKER_PUT_NUMS, "DefaultCluster", 51),
        (StatName.BROKER_GET_NUMS, "DefaultCluster", 20),
    ):
        stats.counter(name, key).add(value)
    stats.tick(10_000)
    parsed = parse(Metrics(IDENTITY, sources(stats), new_instruments()).render())
    assert parsed.one("rocketmq_producer_tps") == (
        "rocketmq_producer_tps",
        {**EXPORTER, "topic": "T"},
        5.0,
    )
    assert parsed.values("rocketmq_producer_message_size") == [500]
    assert parsed.one("rocketmq_consumer_tps", topic="T") == (
        "rocketmq_consumer_tps",
        {**EXPORTER, "topic": "T", "group": "g"},
        2.0,
    )
    assert parsed.values("rocketmq_consumer_message_size", topic="T") == [200]
    assert parsed.values("rocketmq_send_back_nums") == [3]
    assert parsed.one("rocketmq_broker_tps") == (
        "rocketmq_broker_tps",
        {**EXPORTER, "brokerIP": "127.0.0.1:10911"},
        5.1,
    )
    assert parsed.values("rocketmq_broker_qps") == [2]
    assert parsed.one("rocketmq_producer_offset").labels["topic"] == "T"
    assert parsed.one("rocketmq_topic_retry_offset").labels["topic"] == "%RETRY%g"
    assert parsed.one("rocketmq_topic_dlq_offset") == (
        "rocketmq_topic_dlq_offset",
        {**EXPORTER, "group": "g"},
        2.0,
    )
    assert parsed.values("rocketmq_producer_count", group="p") == [2]
    count = parsed.one("rocketmq_group_count", group="g")
    assert count.labels == {
        "caddr": "10.0.0.1:999,10.0.0.2:888",
        "localaddr": "10.0.0.1@7,10.0.0.2@8",
        "group": "g",
    }
    diff = {"group": "g", "topic": "T", "countOfOnlineConsumers": "1", "msgModel": "1"}
    assert parsed.one("rocketmq_group_diff") == ("rocketmq_group_diff", diff, 30.0)
    assert parsed.one("rocketmq_group_retrydiff").value == 5
    assert parsed.values("rocketmq_consumer_offset", topic="T", group="g") == [470]
    assert parsed.values("rocketmq_consumer_offset", topic="T", group="b") == [470]
    assert parsed.values("rocketmq_group_get_latency_by_storetime", topic="T") == [1500]


def test_runtime_info_gauges_match_the_exporter() -> None:
    parsed = parse(Metrics(IDENTITY, sources(), new_instruments()).render())

    def shown(name: str) -> list[float]:
        return parsed.values(f"rocketmq_brokeruntime_{name}")

    assert parsed.one("rocketmq_brokeruntime_put_latency_99").labels == {
        "cluster": "DefaultCluster",
        "brokerIP": "127.0.0.1:10911",
        "brokerHost": "",
        "des": "V5_5_0",
        "boottime": "1794810053303",
        "broker_version": "513",
    }
    assert (shown("put_tps10"), shown("put_tps60"), shown("put_tps600")) == (
        [0.0],
        [0.24942631946522995],
        [],
    )
    assert shown("gettotal_tps60") == [40.17359783168992]
    assert shown("put_message_average_size") == [344828170.0344828]
    assert shown("commitlogdir_capacity_total") == [252.0 * 2**30]
    assert shown("commitlogdir_capacity_free") == [237.8 * 2**30]
    assert shown("remain_howmanydata_toflush") == [2.9 * 1024]
    assert (shown("pmdt_0ms"), shown("pmdt_0to10ms"), shown("pmdt_10stomore")) == ([8], [7], [2])
    assert shown("commitlog_disk_ratio") == [0.16]
    assert shown("dispatch_behind_bytes") == []


@given(
    st.dictionaries(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.text('%s\\\n"{},=a')),
        st.floats(allow_nan=False),
    )
)
def test_label_values_survive_escaping_except_control_characters_which_are_replaced(
    rows: dict[tuple[str, str], float],
) -> None:
    fixed = {"cluster": '100%s "quoted"\\'}
    table = GaugeTable(
        lambda: [(key, (number,)) for key, number in rows.items()],
        view(lambda row: row, ("b", "a"), fixed, ("m", "help")),
    )
    text = b"".join(render([table]))
    if not rows:
        assert text == b""
        return
    assert text.decode() == visible_lines(text.decode())
    samples = [
        ({**fixed, "b": visible_lines(b), "a": a}, number) for (b, a), number in rows.items()
    ]
    assert [(sample.labels, sample.value) for sample in parse([text]).samples] == samples


def test_series_beyond_the_limit_share_the_overflow_series(
    caplog: pytest.LogCaptureFixture,
) -> None:
    instruments = new_instruments(series_max=2)
    metrics = Metrics(IDENTITY, sources(), instruments)
    with caplog.at_level(logging.WARNING):
        for topic in ("A", "B", "C", "D", "A"):
            instruments.commits.series(topic).add()
    parsed = parse(metrics.render())
    assert parsed.values("rocketmq_commit_messages_total", topic="A") == [2]
    assert parsed.one("rocketmq_commit_messages_total", otel_metric_overflow="true") == (
        "rocketmq_commit_messages_total",
        {**FIXED, "otel_metric_overflow": "true"},
        2.0,
    )
    assert len(caplog.records) == 1


def rendered(metrics: Metrics, items_read: Callable[[], int]) -> list[bytes]:
    """Return the text in pieces; fail if the loop has to wait for too many items of a source."""
    pieces = []
    before = items_read()
    for piece in metrics.render():
        assert items_read() - before <= metric_text.STEPS_PER_PIECE
        before = items_read()
        pieces.append(piece)
    return pieces


def test_many_topics_are_read_and_rendered_in_small_pieces() -> None:
    read = 0

    def rows() -> Iterator[tuple[str, int]]:
        nonlocal read
        for number in range(10_000):
            read += 1
            yield f"topic-{number}", number

    metrics = Metrics(IDENTITY, replace(sources(), half_messages=rows), new_instruments())
    pieces = rendered(metrics, lambda: read)
    assert max(piece.count(b"\n") for piece in pieces) <= metric_text.STEPS_PER_PIECE * 20
    assert len(parse(pieces).values("rocketmq_half_messages")) == 10_000


def test_many_clients_are_counted_in_small_pieces() -> None:
    read = 0

    def repeated(client: T) -> Iterator[T]:
        nonlocal read
        for _ in range(10_000):
            read += 1
            yield client

    producer = ProducerClient("p", "java", "v5_5_0")
    consumer = ConsumerClient("g", "java", "v5_5_0", "push", "c", "10.0.0.1:999")
    many = replace(
        sources(), producers=lambda: repeated(producer), consumers=lambda: repeated(consumer)
    )
    parsed = parse(rendered(Metrics(IDENTITY, many, new_instruments()), lambda: read))
    for name in ("producer_connections", "consumer_connections", "producer_count", "group_count"):
        assert parsed.values(f"rocketmq_{name}") == [10_000]


def test_configured_labels_are_on_every_series_and_malformed_ones_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        labels = parse_labels("zone:a,,no-name:1,bare,instance_id:x,too:many:colons")
    assert labels == {"zone": "a", "instance_id": "x"}
    assert len(caplog.records) == 3
    parsed = parse(Metrics(replace(IDENTITY, labels=labels), sources(), new_instruments()).render())
    assert parsed.one("rocketmq_topic_number").labels == {**FIXED, **labels}
