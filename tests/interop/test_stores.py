"""One store, opened in turn by OrbitMQ and by the real brokers: each finds all that the others
wrote, field by field.

Every message is asked for by its place in its queue, by its place in the log, by each of its keys
and by time; the real client reads them once more. In between, both sides append messages of every
kind, stop, and are killed.
"""

from __future__ import annotations

import base64
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from interop import apache, programs, store_answers, stores, subject
from interop.apache import Release, Server
from interop.frames import Request, ask
from interop.store_answers import Answers, Questions
from orbitmq.message.flags import COMPRESSED
from orbitmq.message.message_id import parse_offset_id
from orbitmq.message.properties import KEYS, TAGS, UNIQUE_KEY
from orbitmq.message.stored_message import StoredMessage
from orbitmq.testing.manual_clock import ManualClock
from support.common.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.needs("java", "maven"), pytest.mark.timeout(300)]

BODY_SIZE_MAX = 1 << 20
TAKEN_MIN = 600  # messages that our process has stored when it is killed
NO_TLS = (
    "-Dtls.server.mode=disabled",
)  # making keys takes a broker longer than all else of its start


@dataclass(frozen=True)
class Look:
    """What our store finds in a folder."""

    records: Sequence[StoredMessage]
    questions: Questions
    answers: Answers

    @classmethod
    def at(cls, root: Path, scratch: Path, *, clean: bool) -> Look:
        """Look at a copy, so that whoever comes next gets the folder as it was left; nothing may be
        lost or damaged.
        """
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(root, scratch)
        store = stores.open_store(scratch)
        recovered = store.open()
        assert (recovered.clean, recovered.quarantined, recovered.lost_reason) == (clean, 0, None)
        records = store_answers.records_of(store)
        questions = Questions.about(records)
        answers = store_answers.by_us(store, questions)
        store.close()
        return cls(records, questions, answers)


@pytest.fixture(scope="module")
def names(module_home: Path) -> Iterator[Server]:
    server = subject.name_server(module_home / "names")
    with apache.running(server):
        yield server


def broker_name(release: Release, home: Path) -> str:
    return f"{home.name}-{release.version}".replace(".", "_")


def broker_of(release: Release, home: Path, names: Server) -> Server:
    """A broker on the store in `home`, with a name of its own."""
    name = broker_name(release, home)
    return apache.broker(
        release, home, [names.address], name=name, settings=stores.BROKER_SETTINGS, options=NO_TLS
    )


def check_served(
    broker: Server, release: Release, look: Look, what: str, left_out: frozenset[str] = frozenset()
) -> None:
    """The broker says of everything what our store says of it."""
    left_out |= frozenset() if release.is_5 else store_answers.NOT_BY_4_9
    ours = {
        question: answer
        for question, answer in look.answers.items()
        if question.split(" ")[0] not in left_out
    }
    store_answers.check_same(
        f"{release.version}, {what}",
        ours,
        lambda: store_answers.by_broker(broker.address, look.questions, is_5=release.is_5),
    )


def use(release: Release, home: Path, names: Server, series: str) -> list[dict[str, Any]]:
    """Have the real client send to the broker of `home` and read from it; what it sent and read."""
    name = broker_name(release, home)

    def is_routed(topic: str) -> bool:
        route = ask(names.address, Request(105, {"topic": topic}))
        return route.code == 0 and name in {
            queue["brokerName"] for queue in route.json()["queueDatas"]
        }

    wait_until(lambda: all(map(is_routed, stores.TOPICS)), "the routes of the topics")
    return programs.send_and_read(
        release, home / "client", names.address, name, series, stores.TOPICS
    )


def check_client(lines: Sequence[Mapping[str, Any]], look: Look) -> None:
    """All that the real client sent is in our store as it was sent, and all that it read is there
    as it was read.
    """
    by_offset = {record.log_offset: record for record in look.records}
    sent = [line for line in lines if line["event"] == "sent"]
    read = [line for line in lines if line["event"] == "read"]
    assert len(sent) == 119
    assert len(read) > len(sent)
    for line in sent:
        record = by_offset[parse_offset_id(line["offsetId"]).log_offset].inflated(BODY_SIZE_MAX)
        named = record.properties()
        told = {
            "topic": record.topic,
            "queueId": record.queue_id,
            "queueOffset": record.queue_offset,
            "offsetId": record.msg_id,
        }
        told |= {
            "flag": record.flag,
            "body": base64.b64encode(record.body).decode(),
            "size": named["Größe"],
        }
        told |= {
            "uniqueKey": named[UNIQUE_KEY],
            "keys": named[KEYS],
            **({"tags": named[TAGS]} if TAGS in named else {}),
        }
        assert {"event": "sent", **told} == line
    for (
        line
    ) in read:  # of a body that it inflated, the client of 4.9 still says that it is compressed
        record = by_offset[line["logOffset"]].inflated(BODY_SIZE_MAX)
        told = {
            "topic": record.topic,
            "queueId": record.queue_id,
            "queueOffset": record.queue_offset,
            "logOffset": record.log_offset,
        }
        told |= {
            "flag": record.flag,
            "sysFlag": line["sysFlag"] & COMPRESSED | record.sys_flag,
            "reconsumeTimes": record.reconsume_times,
            "size": record.size,
        }
        told |= {
            "bornTime": record.born_time_ms,
            "bornHost": record.born_host.hex(),
            "crc": record.body_crc,
            "offsetId": record.msg_id,
        }
        told |= {
            "storeTime": record.store_time_ms,
            "storeHost": record.store_host.hex(),
            "preparedOffset": record.prepared_offset,
        }
        told |= {"properties": record.properties(), "body": base64.b64encode(record.body).decode()}
        assert {"event": "read", **told} == line


def check_kept(before: Look, after: Look) -> None:
    """What was found by its place before still is, as it was."""
    by_place = {
        question: answer
        for question, answer in before.answers.items()
        if question.startswith("message ")
    }
    assert by_place.keys() <= after.answers.keys()
    assert store_answers.differences(by_place, after.answers) == []


@pytest.mark.parametrize("ending", ["closed", "killed"])
def test_a_store_of_ours_goes_to_the_original_and_comes_back_and_goes_again(
    release: Release, ending: str, names: Server, tmp_path: Path
) -> None:
    home = tmp_path / ending
    root, scratch, clean = home / "store", tmp_path / "scratch", ending == "closed"
    taken = stores.write_closed(root) if clean else stores.write_killed(root, TAKEN_MIN, "first")
    if clean and release.is_5:
        taken += stores.add_inner_batches(root)
    stores.write_topics(root)
    ours = Look.at(root, scratch, clean=clean)
    assert set(taken) <= set(ours.questions.log_offsets)
    broker = broker_of(release, home, names)
    with apache.running(broker):
        check_served(broker, release, ours, "what we wrote")
        lines = use(release, home, names, "java")
        if not clean:
            broker.send_signal(signal.SIGKILL)
            broker.wait_ended()
    theirs = Look.at(root, scratch, clean=clean)
    check_kept(ours, theirs)
    check_client(lines, theirs)
    delivered = {record.body for record in theirs.records if record.topic == stores.DELAYED_TOPIC}
    assert delivered >= {b"first level 1", b"level 1"}  # ours, and the client's

    if clean:
        store = stores.open_store(root)
        store.open()
        taken += stores.put_all(store, "third")
        store.close()
    else:
        taken += stores.write_killed(root, TAKEN_MIN, "third")
    again = Look.at(root, scratch, clean=clean)
    check_kept(theirs, again)
    assert set(taken) <= set(again.questions.log_offsets)
    with apache.running(broker):
        # After a kill the original deletes an index file that is not full, and fills it again only
        # from the part of the log that it scans.
        check_served(
            broker,
            release,
            again,
            "what both wrote",
            frozenset() if clean else store_answers.BY_INDEX,
        )
        broker.send_signal(
            signal.SIGKILL
        )  # nobody needs the store any more, and a stop takes seconds


@dataclass(frozen=True)
class Made:
    """A store that a real broker made, and what the real client sent and read then."""

    root: Path
    lines: Sequence[Mapping[str, Any]]


@pytest.fixture(scope="module")
def makers(apache_5: Release, apache_4: Release, module_home: Path) -> Mapping[str, Made]:
    """A store of each release, by version. The two brokers run at the same time, each with a name
    server of its own: a client that sends in a transaction takes any queue of a topic that it
    finds.
    """
    homes = {release: module_home / f"maker-{release.version}" for release in (apache_5, apache_4)}
    names = {release: subject.name_server(home / "names") for release, home in homes.items()}
    brokers = {release: broker_of(release, home, names[release]) for release, home in homes.items()}
    lines = {}
    with apache.running(*names.values()), apache.running(*brokers.values()):
        for release, broker in brokers.items():
            for topic, count in stores.TOPICS.items():
                header = {
                    "topic": topic,
                    "defaultTopic": "TBW102",
                    "readQueueNums": f"{count}",
                    "writeQueueNums": f"{count}",
                    "perm": "6",
                }
                said = ask(
                    broker.address,
                    Request(
                        17,
                        {
                            **header,
                            "topicFilterType": "SINGLE_TAG",
                            "topicSysFlag": "0",
                            "order": "false",
                        },
                    ),
                )
                assert said.code == 0, said
            lines[release] = use(release, homes[release], names[release], "java")
    return {
        release.version: Made(home / "store", lines[release]) for release, home in homes.items()
    }


def files_in(root: Path) -> dict[str, bytes]:
    """The content of log, queues and index."""
    found = [
        path
        for name in ("commitlog", "consumequeue", "index")
        for path in sorted((root / name).rglob("*"))
        if path.is_file()
    ]
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def test_a_store_of_the_original_is_continued_by_us_and_then_by_the_other_release(
    release: Release,
    makers: Mapping[str, Made],
    apache_5: Release,
    apache_4: Release,
    names: Server,
    tmp_path: Path,
) -> None:
    made, other = makers[release.version], apache_4 if release.is_5 else apache_5
    root, scratch = tmp_path / "follower" / "store", tmp_path / "scratch"
    shutil.copytree(made.root, root)
    theirs = Look.at(root, scratch, clean=True)
    changed = {
        name for name, content in files_in(root).items() if files_in(scratch)[name] != content
    }
    assert not changed or (not release.is_5 and len(changed) == 1), (
        changed
    )  # of 4.9, the last record gets the index entry of its tags
    check_client(made.lines, theirs)
    store = stores.open_store(root)
    store.open()
    stores.put_all(store, "ours")
    store.close()
    both = Look.at(root, scratch, clean=True)
    check_kept(theirs, both)
    broker = broker_of(other, root.parent, names)
    with apache.running(broker):
        check_served(broker, other, both, f"what {release.version} and we wrote")
        broker.send_signal(signal.SIGKILL)


def test_the_records_of_the_original_put_once_more_make_the_same_files(
    release: Release, makers: Mapping[str, Made], tmp_path: Path
) -> None:
    """Byte for byte: log with its blanks, queue entries, and index with its chains, in which only
    5.5.0 has tags.
    """
    made = makers[release.version]
    look = Look.at(made.root, tmp_path / "scratch", clean=True)
    clock = ManualClock(look.records[0].store_time_ms)
    store = stores.open_store(tmp_path / "ours", clock, look.records[0].store_host)
    store.open()
    for _, run in groupby(
        look.records, key=lambda record: (record.topic == "Batches", record.store_time_ms)
    ):
        batch = list(run)
        for records in [batch] if batch[0].topic == "Batches" else [[record] for record in batch]:
            clock.set_wall_ms(records[0].store_time_ms)
            stores.put(store, [record.to_message() for record in records])
    store.close()
    ours, theirs = files_in(tmp_path / "ours"), files_in(made.root)

    def named(files: Mapping[str, bytes], *folders: str) -> dict[str, bytes]:
        return {name: content for name, content in files.items() if name.startswith(folders)}

    assert named(ours, "commitlog", "consumequeue") == named(theirs, "commitlog", "consumequeue")
    if release.is_5:  # its files have the names of other times
        assert list(named(ours, "index").values()) == list(named(theirs, "index").values())
