"""Tests a driver that is SIGKILLed at every point of a batch and restarted: files get every message
once, topics at least once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.testing import LocalCluster
from support.spark.faults import Command, Outcome, copy_pipeline, place_of
from support.spark.messages import as_row, messages_in, rows_of, sent

pytestmark = pytest.mark.crash
BATCH = 50
SENT_BEFORE_EACH_KILL = 5 * BATCH
SENT_AT_LAST = 40
SOURCE_POINTS = ("latestOffset", "partitions", "read", "sourceCommit")
FILE_POINTS = ("fileWrite", "beforeFileCommit", "afterFileCommit")
SINK_POINTS = ("write", "beforeSinkCommit", "afterSinkCommit")
BEFORE_WRITE = {
    "latestOffset",
    "partitions",
    "sourceCommit",
}  # no row of a batch is in flight then


def send_more(mq: LocalCluster, count: int) -> None:
    sent(mq.name_server, "from", count, first=len(messages_in(mq.name_server, "from")))


@pytest.mark.timeout(3600)  # eight starts of Spark
def test_an_archive_whose_driver_is_killed_at_every_point_has_every_message_once(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    points = (*SOURCE_POINTS, *FILE_POINTS)
    with LocalCluster(topics={"from": 2}) as mq:
        folder = tmp_path / "files"
        job = (
            "spark",
            "archive",
            "from",
            "--to",
            str(folder),
            "-n",
            mq.name_server,
            "--consumer-group",
            "archive",
            "--master",
            "local[2]",
        )
        limits = ("--option", f"maxOffsetsPerTrigger={BATCH}", "--option", "minPartitions=2")
        command = Command(tmp_path / "command", *job, *limits, "--every", "0s")
        for point in points:
            send_more(mq, SENT_BEFORE_EACH_KILL)
            command.killed_at(point)
        send_more(mq, SENT_AT_LAST)
        command.run("--once")
        wanted = [as_row(message) for message in messages_in(mq.name_server, "from")]

    spark = request.getfixturevalue("spark")
    rows = rows_of(spark.read.parquet(str(folder)))
    places = [
        [(row["brokerName"], row["queueId"], row["queueOffset"]) for row in each]
        for each in (wanted, rows)
    ]
    outcome = Outcome.of(*places)
    written = spark.read.parquet(
        *map(str, folder.glob("date=*/*.parquet"))
    ).count()  # includes files that the log does not list
    outcome.tell(
        "driver killed, to Parquet",
        kills=len(points),
        rows_in_files_that_do_not_count=written - outcome.delivered,
    )
    assert outcome == Outcome(attempted=len(wanted), delivered=len(wanted), lost=0, duplicated=0)
    assert len(wanted) == len(points) * SENT_BEFORE_EACH_KILL + SENT_AT_LAST
    assert [
        {name: value for name, value in row.items() if name != "date"} for row in rows
    ] == wanted


@pytest.mark.timeout(3600)  # eight starts of Spark
def test_a_topic_whose_driver_is_killed_at_every_point_misses_nothing_and_repeats_at_most_the_batch_at_hand(
    tmp_path: Path,
) -> None:
    points = (*SOURCE_POINTS, *SINK_POINTS)
    with LocalCluster(topics={"from": 2, "to": 2}) as mq:
        file = tmp_path / "copy.yaml"
        file.write_text(copy_pipeline(mq.name_server, BATCH))
        command = Command(
            tmp_path / "command", "pipeline", "run", str(file), "--master", "local[2,4]"
        )
        repeated: dict[str, int] = {}
        for point, before in zip(points, (None, *points), strict=False):
            send_more(mq, SENT_BEFORE_EACH_KILL)
            command.killed_at(point)
            if before is not None:  # its cost shows in the next run
                repeated[before] = outcome_of(mq).duplicated - sum(repeated.values())
        send_more(mq, SENT_AT_LAST)
        command.run("--once")
        outcome = outcome_of(mq)
        repeated[points[-1]] = outcome.duplicated - sum(repeated.values())

    outcome.tell("driver killed, to a topic", kills=len(points), duplicated_by_kill=repeated)
    assert outcome.lost == 0
    assert outcome.attempted == len(points) * SENT_BEFORE_EACH_KILL + SENT_AT_LAST
    if slow := command.slow_starts():  # which repeat batches too
        assert outcome.duplicated <= BATCH * (len(points) + slow)
        return
    assert all(count <= BATCH for count in repeated.values())
    assert not any(repeated[point] for point in BEFORE_WRITE)
    assert repeated["write"] > 0
    assert (
        repeated["beforeSinkCommit"] == repeated["afterSinkCommit"] == BATCH
    )  # the whole batch is sent again


def outcome_of(mq: LocalCluster) -> Outcome:
    wanted = map(place_of, messages_in(mq.name_server, "from"))
    return Outcome.of(
        wanted, (message.body.decode() for message in messages_in(mq.name_server, "to"))
    )
