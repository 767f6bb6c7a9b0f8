"""`orbitmq store`: look at, check and mend a store's files, without a broker. What is done is in
`store.tools`; here it is asked for.
"""

from __future__ import annotations

import logging
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.output import emit, moment, output_option, say, shortened
from orbitmq.cli.store_report import (
    opened,
    progress,
    readable,
    run_check,
    show_findings,
    show_left,
    store_options,
)
from orbitmq.common.errors import StoreError

if TYPE_CHECKING:
    from orbitmq.store.tools.check import Checked
    from orbitmq.store.tools.directory import StoreDirectory
    from orbitmq.store.tools.findings import Finding
    from orbitmq.store.tools.repair import Plan

EXIT_FINDINGS = 1


_SILENT = logging.NullHandler()  # what the store logs is in the findings


@click.group("store", cls=CommandGroup, old_names={"ls": "list"})
def group() -> None:
    """Look at, check and repair the files of a store."""
    logging.getLogger("orbitmq.store").addHandler(_SILENT)


@group.command("info")
@store_options
@output_option
def info(
    directory: Path | None,
    config_file: Path | None,
    index_slots: int | None,
    index_entries: int | None,
    output: str,
) -> None:
    """Show what is in the store DIR.

    \b
    Examples:
      orbitmq store info /var/rocketmq/store
      orbitmq store info --config broker.conf -o json
    """
    from orbitmq.store.tools import summary

    with readable(), opened(directory, config_file, index_slots, index_entries) as store:
        with progress("reading") as report:
            log = summary.log_summary(store, report)
        queues = list(summary.queue_summaries(store))
        parts = store.sizes_on_disk()
        numbers = store.checkpoint
        found: dict[str, object] = {
            "directory": str(store.root),
            "release": store.release(),
            "stopped": "cleanly" if store.is_clean else "no: abort is there",
            "open_by": store.lock_owner(),
            "log_files": log.files,
            "log_file_size": log.file_size,
            "log_first_offset": log.first_offset,
            "log_end_offset": log.end_offset,
            "records": log.records,
            "bad_places": log.bad_places,
            "first_store_time": moment(log.first_store_time_ms),
            "last_store_time": moment(log.last_store_time_ms),
            "topics": len({queue.topic for queue in queues}),
            "queues": len(queues),
            "queue_file_size": store.queue_file_size,
            "ext_file_size": store.ext_file_size if store.ext else None,
            "batch_file_size": store.batch_file_size if store.batch else None,
            "index_files": len(store.index_files),
            "index_slots": store.index_shape.slots if store.index_shape else None,
            "index_entries_max": store.index_shape.entries if store.index_shape else None,
            "index_entries": summary.index_entries(store),
            "checkpoint": None if numbers is None else numbers._asdict(),
            "config_files": [
                name
                for name in store.layer.list(store.root / "config")
                if not name.endswith(".bak")
            ],
            "parts": {
                name: {"files": files, "bytes": size, "bytes_on_disk": used}
                for name, (files, size, used) in parts.items()
            },
        }
    if output != "table":
        emit([found], [], output)
        return
    checkpoint, sizes = found.pop("checkpoint"), found.pop("parts")
    emit(
        [{"what": name.replace("_", " "), "value": value} for name, value in found.items()],
        ["what", "value"],
        output,
    )
    if isinstance(checkpoint, dict):
        say()
        rows = [
            {
                "checkpoint": name,
                "value": value,
                "time": moment(value) if name.endswith("_ms") else None,
            }
            for name, value in checkpoint.items()
        ]
        emit(rows, ["checkpoint", "value", "time"], output)
    assert isinstance(sizes, dict)
    say()
    emit(
        [{"part": name, **row} for name, row in sizes.items()],
        ["part", "files", "bytes", "bytes_on_disk"],
        output,
    )


@group.command("list")
@store_options
@click.option("-t", "--topic", help="Only the queues of this topic.")
@output_option
def ls(
    directory: Path | None,
    config_file: Path | None,
    index_slots: int | None,
    index_entries: int | None,
    topic: str | None,
    output: str,
) -> None:
    """List topics and queues of the store DIR: offsets, entries, last store time.

    \b
    Examples:
      orbitmq store list /var/rocketmq/store
      orbitmq store list /var/rocketmq/store -t orders -o json
    """
    from orbitmq.store.tools import summary

    with readable(), opened(directory, config_file, index_slots, index_entries) as store:
        queues = list(summary.queue_summaries(store, topic))
        if topic is not None and not queues:
            raise StoreError(
                f"{store.root} has no topic {topic}: `orbitmq store list {store.root}` lists those"
                " it has"
            )
    rows = [
        {**queue._asdict(), "last_store_time": moment(queue.last_store_time_ms)} for queue in queues
    ]
    emit(
        rows,
        [
            "topic",
            "queue_id",
            "kind",
            "min_offset",
            "max_offset",
            "entries",
            "files",
            "last_store_time",
        ],
        output,
    )


@group.command("dump")
@store_options
@click.option(
    "--offset",
    type=click.IntRange(0),
    metavar="N",
    help="From the record at this byte of the log on.",
)
@click.option("-t", "--topic", help="With --queue: of this queue. With --key: by the index.")
@click.option(
    "-q",
    "--queue",
    "queue_id",
    type=click.IntRange(0),
    metavar="N",
    help="The queue of --topic.  [default: 0]",
)
@click.option(
    "--from",
    "begin",
    type=click.IntRange(0),
    metavar="N",
    help="With --topic: from this offset of the queue on.  [default: 0]",
)
@click.option("--key", help="Messages that have this key, or this unique key.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    metavar="N",
    help="How many at most.",
)
@click.option(
    "--body",
    type=click.Choice(["text", "hex", "base64", "none"]),
    default="text",
    show_default=True,
    help="How to show bodies.",
)
@output_option
def dump(
    directory: Path | None,
    config_file: Path | None,
    index_slots: int | None,
    index_entries: int | None,
    offset: int | None,
    topic: str | None,
    queue_id: int | None,
    begin: int | None,
    key: str | None,
    limit: int,
    body: str,
    output: str,
) -> None:
    """Print messages of the store DIR: from the log, a queue, or by a key.

    \b
    Examples:
      orbitmq store dump /var/rocketmq/store --limit 5
      orbitmq store dump /var/rocketmq/store -t orders -q 3 --from 1000 --body hex
      orbitmq store dump /var/rocketmq/store -t orders --key 4711 -o json
    """
    from orbitmq.store.tools import dump as records
    from orbitmq.store.types import QueueKey

    if offset is not None and (topic is not None or key is not None):
        raise click.UsageError("--offset stands alone: it is a place in the log, of whatever topic")
    if queue_id is not None and topic is None:
        raise click.UsageError("--queue needs --topic")
    if begin is not None and (topic is None or key is not None):
        raise click.UsageError(
            "--from is an offset of a queue: it needs --topic, and goes without --key"
        )
    with readable(), opened(directory, config_file, index_slots, index_entries) as store:
        if key is not None:
            if topic is not None and not store.is_clean:
                say(
                    "the store was not stopped, its index is not complete on disk: the whole log is"
                    " searched",
                    err=True,
                )
            messages = records.by_key(store, key, topic)
        elif topic is not None:
            messages = records.from_queue(store, QueueKey(topic, queue_id or 0), begin or 0)
        else:
            messages = records.from_log(store, offset)
        rows = [records.row(message, records.BodyForm(body)) for message in islice(messages, limit)]
    if output != "table":
        emit(rows, [], output)
        return
    columns = [
        "offset",
        "size",
        "topic",
        "queue_id",
        "queue_offset",
        "store_time",
        "tags",
        "keys",
        *([] if body == "none" else ["body"]),
    ]
    shown: list[dict[str, object]] = [
        {**row, "store_time": moment(row["store_time_ms"])} for row in rows
    ]
    for row in shown:
        row["body"] = shortened(str(row.get("body", "")))
    emit(shown, columns, output)


@group.command("check")
@store_options
@output_option
def check(
    directory: Path | None,
    config_file: Path | None,
    index_slots: int | None,
    index_entries: int | None,
    output: str,
) -> None:
    """Check every byte of the store DIR that can be checked; changes nothing.

    Reads the log once and compares queues, index, checkpoint and configuration with it. Exit code
    0: clean, notes at most; 1: something is damaged or lost.

    \b
    Examples:
      orbitmq store check /var/rocketmq/store
      orbitmq store check --config broker.conf -o json
    """
    with readable(), opened(directory, config_file, index_slots, index_entries) as store:
        checked = run_check(store)
    show_findings(checked, output)
    if not checked.findings.clean:
        raise click.exceptions.Exit(EXIT_FINDINGS)


@group.command("repair")
@store_options
@click.option(
    "--truncate-damage",
    is_flag=True,
    help="Give up the log from the first bad record on, and every message behind it.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option
def repair(
    directory: Path | None,
    config_file: Path | None,
    index_slots: int | None,
    index_entries: int | None,
    truncate_damage: bool,
    yes: bool,
    output: str,
) -> None:
    """Repair the damage that a check of the store DIR finds; shows the plan, and asks first.

    Rebuilds damaged queues and index from the log, truncates a torn end, restores configuration
    from its backup. Records that checkpoint and manifest know and the log lacks are lost: they are
    listed, and the exit code is 1. A corrupt record in the middle of the log stays and is skipped,
    unless --truncate-damage is given. Everything removed is kept in DIR/repair-<time>. The store is
    checked again at the end.

    \b
    Examples:
      orbitmq store repair /var/rocketmq/store
      orbitmq store repair /var/rocketmq/store --yes
    """
    from orbitmq.store.tools.repair import plan, refuse_open

    with (
        readable(),
        opened(directory, config_file, index_slots, index_entries, warn=False) as store,
    ):
        refuse_open(store)
        checked = run_check(store)
        carry_out(
            store,
            checked,
            plan(checked, truncate_damage=truncate_damage),
            yes,
            output,
            reload=(config_file, index_slots, index_entries),
        )


@group.command("rebuild")
@store_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option
def rebuild(
    directory: Path | None,
    config_file: Path | None,
    index_slots: int | None,
    index_entries: int | None,
    yes: bool,
    output: str,
) -> None:
    """Rebuild queues and index of the store DIR from its log.

    The old ones are kept in DIR/repair-<time>. Queues without a message left in the log stay as
    they are. The store is checked before and after.

    \b
    Examples:
      orbitmq store rebuild /var/rocketmq/store
      orbitmq store rebuild --config broker.conf --yes
    """
    from orbitmq.store.tools.repair import plan_rebuild, refuse_open

    with (
        readable(),
        opened(directory, config_file, index_slots, index_entries, warn=False) as store,
    ):
        refuse_open(store)
        checked = run_check(store)
        carry_out(
            store,
            checked,
            plan_rebuild(store, checked),
            yes,
            output,
            reload=(config_file, index_slots, index_entries),
        )


def carry_out(
    store: StoreDirectory,
    checked: Checked,
    plan: Plan,
    yes: bool,
    output: str,
    *,
    reload: tuple[Path | None, int | None, int | None],
) -> None:
    """Show a plan, ask, do it, and check again."""
    from orbitmq.common.clock import SystemClock
    from orbitmq.store.recovery import Progress as Passed
    from orbitmq.store.tools.repair import Repair

    show_left(plan.left)
    if not plan.steps:
        say("nothing to do" if not plan.left else "nothing that can be mended here", err=True)
        if plan.left:
            raise click.exceptions.Exit(EXIT_FINDINGS)
        return
    work = Repair(store, checked, SystemClock())
    if output == "table":
        emit(plan_rows(plan), ["to_do", "target", "why"], output)
    say(f"what is taken away is kept in {work.backup.folder}", err=True)
    if not yes:
        click.confirm("Go on?", abort=True, err=True)
    with progress("building") as report:

        def passed(seen: Passed) -> None:
            report(seen.offset - seen.begin, seen.end - seen.begin)

        work.run(plan.steps, passed)
    config_file, index_slots, index_entries = reload
    with opened(store.root, config_file, index_slots, index_entries) as mended:
        after = run_check(mended)
    show_findings(after, output)
    lost = lost_by(checked, plan)
    for finding in lost:
        say(f"lost: {finding.file}: {finding.what}", err=True)
    if lost or not after.findings.clean:
        raise click.exceptions.Exit(EXIT_FINDINGS)


def lost_by(checked: Checked, plan: Plan) -> list[Finding]:
    """What was lost, and is not found any more now that the store goes on without it."""
    from orbitmq.store.tools.findings import Severity

    done = {(step.action, step.target) for step in plan.steps}
    return [
        finding
        for finding in checked.findings
        if finding.severity is Severity.LOSS and finding.mend in done
    ]


def plan_rows(plan: Plan) -> list[dict[str, object]]:
    """A row for each step; targets of the same step for the same reason share one."""
    rows: list[dict[str, object]] = []
    for (action, why), steps in groupby(plan.steps, key=lambda step: (step.action, step.why)):
        targets = [step.target for step in steps]
        target = targets[0] if len(targets) == 1 else f"{targets[0]} and {len(targets) - 1} more"
        rows.append({"to_do": action.value, "target": target, "why": why})
    return rows
