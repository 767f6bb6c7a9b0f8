"""Every record written by real brokers is read, means what the real client read, and is written
again byte for byte.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

import pytest

from orbitmq.message import batch, hosts, message_id, properties, tags
from orbitmq.message.layout import BLANK_SIZE, CRC_PROPERTY_SIZE, MAGIC_V2, Flaw
from orbitmq.message.properties import CRC32, INNER_BASE, INNER_NUM, KEYS, TAGS, UNIQUE_KEY
from orbitmq.message.record import decode_all
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import encode, encode_blank, record_size
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol import frame
from support.common.golden_data import RECORDS_IN_LOG, files, frames

ARCHIVES = ("store-4.9.8", "store-5.5.0", "ha-4.9.8")
INFLATED_SIZE_MAX = 1 << 20
EXT_ADDRESS_MAX = -(1 << 31) - 1

READ_BACK = sorted(  # those with a manifest: after a crash, the store as the original recovered it
    folder
    for folder in RECORDS_IN_LOG
    if "commitlog" not in folder
    and folder.replace("/store", "/recovered") not in RECORDS_IN_LOG.keys() - {folder}
)


class Found(NamedTuple):
    """A record of a golden log: its message, its bytes, and the cursor's fields without full
    decoding.
    """

    message: StoredMessage
    raw: bytes
    tags_code: int
    keys: str | None
    unique_key: str | None


class Log(NamedTuple):
    """All records of one commit log, the bytes after the last, and the blanks between files as
    (bytes, bytes left).
    """

    records: list[Found]
    end: int
    blanks: list[tuple[bytes, int]]


@cache
def logs() -> dict[str, Log]:
    """Return every commit log of the golden stores, by directory."""
    contents: dict[str, dict[int, bytes]] = defaultdict(dict)
    for archive in ARCHIVES:
        for path, content in files(archive).items():
            folder, _, name = path.rpartition("/")
            if folder.endswith("/commitlog") or "-commitlog" in folder:
                contents[folder.removesuffix("/commitlog")][int(name)] = content
    return {folder: walk(parts) for folder, parts in sorted(contents.items())}


def walk(parts: dict[int, bytes]) -> Log:
    """Read the files of a commit log to its end, verifying every checksum."""
    records, blanks, result = [], [], 0
    cursor = RecordCursor()
    for base, content in sorted(parts.items()):
        at = 0
        while (result := cursor.read(content, at, len(content))) > 0:
            message = cursor.message()
            assert message.log_offset == base + at
            records.append(
                Found(
                    message,
                    content[at : at + result],
                    cursor.tags_code(),
                    cursor.property(KEYS),
                    cursor.property(UNIQUE_KEY),
                )
            )
            at += result
        if result < 0:
            break
        blanks.append((content[at : at + BLANK_SIZE], len(content) - at))
    return Log(records, result, blanks)


def manifest(folder: str) -> Any:
    """Return what the real client read from this store."""
    archive, variant, _ = folder.split("/")
    return json.loads(files(archive)[f"{archive}/{variant}/manifest.json"])


def has_crc(found: Found) -> bool:
    return found.message.raw_properties[-CRC_PROPERTY_SIZE:].startswith(f"{CRC32}\x01".encode())


def packed(host: str) -> bytes:
    address, _, port = host.rpartition(":")
    return hosts.pack(address.strip("[]"), int(port))


def test_every_record_of_every_log_is_read() -> None:
    assert {folder: len(log.records) for folder, log in logs().items()} == RECORDS_IN_LOG


@pytest.mark.parametrize("folder", RECORDS_IN_LOG)
def test_a_log_ends_in_zeros_or_where_it_was_damaged(folder: str) -> None:
    damaged = folder.split("/")[1] in ("badcrc", "torn")
    assert logs()[folder].end == (Flaw.BODY_CRC if damaged else Flaw.MAGIC)


@pytest.mark.parametrize("folder", RECORDS_IN_LOG)
def test_every_record_is_written_again_byte_for_byte(folder: str) -> None:
    target = bytearray(70_000)
    for found in logs()[folder].records:
        stored = found.message
        message = stored.to_message()
        with_crc = has_crc(found)
        size = encode(
            message,
            target,
            5,
            stored.queue_offset,
            stored.log_offset,
            stored.store_time_ms,
            stored.store_host,
            with_crc,
        )
        assert size == record_size(message, stored.store_host, with_crc) == stored.size
        assert target[5 : 5 + size] == found.raw
        assert target[5 + size : 25 + size] == bytes(20)
        target[: 5 + size] = bytes(5 + size)


@pytest.mark.parametrize("folder", RECORDS_IN_LOG)
def test_every_blank_is_written_again_byte_for_byte(folder: str) -> None:
    target = bytearray(BLANK_SIZE)
    for raw, left in logs()[folder].blanks:
        assert encode_blank(target, 0, left) == BLANK_SIZE
        assert target == raw


def test_there_are_blanks_and_records_of_version_2_and_checksums_and_compressed_bodies() -> None:
    records = [found for log in logs().values() for found in log.records]
    assert sum(len(log.blanks) for log in logs().values()) == 95
    assert sum(found.raw[4:8] == MAGIC_V2.to_bytes(4, "big") for found in records) == 1
    assert sum(map(has_crc, records)) == RECORDS_IN_LOG["store-5.5.0/propcrc/store"]
    assert {found.message.sys_flag & 0x701 for found in records} == {
        0,
        0x001 | 0x100,
        0x001 | 0x200,
        0x001 | 0x300,
    }


def test_the_checksum_of_the_whole_record_is_verified_when_asked_for() -> None:
    cursor = RecordCursor()
    for folder, log in logs().items():
        expected_flaw = None if folder.endswith("propcrc/store") else Flaw.RECORD_CRC
        for found in log.records:
            assert cursor.read(found.raw, 0, len(found.raw), check_record=True) == (
                expected_flaw or found.message.size
            )


@pytest.mark.parametrize("folder", READ_BACK)
def test_records_say_what_the_real_client_read(folder: str) -> None:
    expected = manifest(folder)["messages"]
    seen = [
        (found, message)
        for found in logs()[folder].records
        for message in found.message.inflated(INFLATED_SIZE_MAX).inner_messages()
    ]
    order = sorted(expected, key=lambda each: (each["physicalOffset"], each["queueOffset"]))
    assert len(seen) == len(order)
    for (found, message), theirs in zip(seen, order, strict=True):
        assert {
            "physicalOffset": message.log_offset,
            "size": message.size,
            "topic": message.topic,
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "tags": message.properties().get(TAGS),
            "keys": message.properties().get(KEYS),
            "flag": message.flag,
            # The client of 4.9.8 inflates the body and leaves the flag as it is.
            "sysFlag": (
                found.message.sys_flag if folder.startswith("store-4.9.8") else message.sys_flag
            ),
            "bodyCrc": message.body_crc,
            "bornTimestamp": message.born_time_ms,
            "bornHost": message.born_host,
            "storeTimestamp": message.store_time_ms,
            "storeHost": message.store_host,
            "reconsumeTimes": message.reconsume_times,
            "preparedTransactionOffset": message.prepared_offset,
            "offsetMsgId": (
                None if message.size == 0 else message.msg_id
            ),  # the real client gives the messages of a batch none
            "bodyLength": len(message.body),
            "bodySha256": hashlib.sha256(message.body).hexdigest(),
            "properties": message.properties(),
        } == {
            **{name: value for name, value in theirs.items() if name != "bodyText"},
            "bornHost": packed(theirs["bornHost"]),
            "storeHost": packed(theirs["storeHost"]),
        }
        if message.size:
            assert (found.keys, found.unique_key) == (
                theirs["keys"],
                theirs["properties"].get(UNIQUE_KEY),
            )
            assert found.tags_code == tags.tags_code(theirs["tags"])


@pytest.mark.parametrize("folder", READ_BACK)
def test_offset_ids_are_read_and_written(folder: str) -> None:
    for theirs in manifest(folder)["messages"]:
        if theirs["offsetMsgId"] is not None:
            parts = message_id.parse_offset_id(theirs["offsetMsgId"])
            assert parts == (packed(theirs["storeHost"]), theirs["physicalOffset"])
            assert str(parts) == theirs["offsetMsgId"]


@pytest.mark.parametrize("folder", READ_BACK)
def test_unique_ids_are_read_and_written_and_tell_when_their_message_was_made(folder: str) -> None:
    read = 0
    for theirs in manifest(folder)["messages"]:
        unique_key = theirs["properties"].get(UNIQUE_KEY)
        if (
            unique_key is None or "@" in unique_key
        ):  # op records have none; those of pop's own records are derived from their content
            continue
        parts = message_id.parse_unique_id(unique_key)
        assert str(parts) == unique_key
        created_ms = parts.created_ms(theirs["storeTimestamp"] + 60_000, utc_month)
        assert -60_000 < created_ms - theirs["bornTimestamp"] < 60_000, theirs
        read += 1
    assert read > 0


def utc_month(now_ms: int) -> tuple[int, int]:
    assert datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m") == "2026-11"
    return (
        int(datetime(2026, 11, 1, tzinfo=UTC).timestamp()) * 1000,
        int(datetime(2026, 12, 1, tzinfo=UTC).timestamp()) * 1000,
    )


def queue_entries(folder: str) -> Iterator[tuple[str, int, int, int]]:
    """Return every consume queue entry: topic, log offset, record size, tags code; references to
    ext units are resolved.
    """
    contents: dict[tuple[str, str], dict[str, bytes]] = defaultdict(dict)
    for path, content in files(folder.split("/")[0]).items():
        if path.startswith(f"{folder}/") and "consumequeue" in path:
            kind, topic, queue, name = path.removeprefix(f"{folder}/").split("/")
            contents[kind, f"{topic}/{queue}"][name] = content
    end = logs()[folder].records[-1].message.log_offset
    for (kind, queue), parts in contents.items():
        if kind == "consumequeue_ext":
            continue
        data = b"".join(content for _, content in sorted(parts.items()))
        ext = b"".join(
            content for _, content in sorted(contents.get(("consumequeue_ext", queue), {}).items())
        )
        for at in range(0, len(data), 46 if kind == "batchconsumequeue" else 20):
            offset, size, code = struct.unpack_from(">qiq", data, at)
            if size == 0 or offset > end:  # recovery leaves entries of lost records behind
                break
            if code <= EXT_ADDRESS_MAX:
                _, code = struct.unpack_from(">hq", ext, code + (1 << 63))
            yield queue.split("/")[0], offset, size, code


@pytest.mark.parametrize("folder", READ_BACK)
def test_tags_codes_are_those_of_the_consume_queues(folder: str) -> None:
    by_offset = {found.message.log_offset: found for found in logs()[folder].records}
    entries = list(queue_entries(folder))
    assert {offset for _, offset, _, _ in entries} == by_offset.keys()
    assert len(entries) == len(by_offset)
    for topic, offset, size, code in entries:
        found = by_offset[offset]
        assert (found.message.topic, found.message.size) == (topic, size)
        if topic != "SCHEDULE_TOPIC_XXXX":  # its entries hold the delivery time there
            assert found.tags_code == code


def test_inner_batches_are_made_as_the_original_makes_them() -> None:
    inner = [
        found.message
        for log in logs().values()
        for found in log.records
        if found.message.is_inner_batch
    ]
    assert len(inner) == 3 * 7
    for stored in inner:
        items = batch.decode(stored.body)
        assert batch.encode(items) == stored.body
        theirs = stored.properties()
        message = stored.to_message()
        message.sys_flag = 0
        message.properties = properties.without(
            properties.without(stored.raw_properties, INNER_NUM), INNER_BASE
        )
        assert batch.make_inner(message) == len(items) == int(theirs[INNER_NUM])
        batch.set_inner_base(message, stored.queue_offset)
        assert (message.sys_flag, properties.parse(message.properties)) == (stored.sys_flag, theirs)
        assert len(message.properties) == len(stored.raw_properties)
        batch.check_inner(message, queue_holds_batches=True)


@pytest.mark.parametrize("request_code", [11, 12, 200050])
def test_answers_that_carry_messages_consist_of_records(request_code: int) -> None:
    answers = [
        each for each in frames() if each.request_code == request_code and not each.is_request
    ]
    read = 0
    for answer in answers:
        command = frame.decode(bytearray(answer.frame), 0, len(answer.frame))
        if command.code == 0 and command.body is not None:
            messages = list(decode_all(command.body))
            assert sum(message.size for message in messages) == len(command.body)
            read += len(messages)
    assert read > 0


def test_batches_of_real_clients_are_read_and_written_byte_for_byte() -> None:
    requests = [each for each in frames() if each.request_code == 320 and each.is_request]
    assert len(requests) >= 3
    for request in requests:
        body = frame.decode(bytearray(request.frame), 0, len(request.frame)).body
        assert body is not None
        items = batch.decode(body)
        assert len(items) > 1
        assert batch.encode(items) == body
