"""Writes the generated pages below docs/reference/: `python tools/reference_pages.py [--check]`.

| page | source |
|---|---|
| error-codes.md | `ResponseCode` in protocol/codes.py, and the remedies below |
| client-errors.md | the docstrings in common/errors.py |
| metrics.md | the metrics that a broker declares |
| python-api.md | the public names of the packages; mkdocstrings adds the docstrings in the site |
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

from orbitmq.broker.observability.exporter_metrics import exporter_families, exporter_lag_views
from orbitmq.broker.observability.instruments import Instruments
from orbitmq.broker.observability.metric_sources import Identity, Sources
from orbitmq.broker.observability.metric_text import Metric
from orbitmq.broker.observability.metrics import Metrics
from orbitmq.common import errors
from orbitmq.protocol.codes import ResponseCode

ROOT: Final = Path(__file__).resolve().parent.parent
REFERENCE: Final = ROOT / "docs" / "reference"
SERVER_PACKAGES: Final = ("access", "broker", "nameserver", "remoting")
NO_SOURCES: Final = cast("Any", Sources)(**dict.fromkeys(Sources.__dataclass_fields__))
IDENTITY: Final = Identity(cluster="", broker_name="", address="")

ERROR_CODES: Final = """\
# Error codes

Every reply carries a code; 0 is success. The remark beside it names the cause and the remedy, so
read that first. `RequestRefusedError.code` holds the code in Python, `MQBrokerException` and
`MQClientException` in Java. *Sent* says whether OrbitMQ's servers send the code; the others reach
you only from Apache RocketMQ.
"""
CLIENT_ERRORS: Final = """\
# Errors of the client

Every error that OrbitMQ raises deliberately derives from `orbitmq.OrbitError`. Timeouts are also
`TimeoutError`, connection failures also `ConnectionError`, so `except TimeoutError` works without
an import. The names are in `orbitmq.common.errors`, those marked with a star also in `orbitmq`.
"""
METRICS: Final = """\
# Metrics

A broker with `metricsExporterType=PROM` serves metrics in Prometheus text format at
`http://HOST:5557/metrics` (`metricsPromExporterPort`). Names, types and labels are those of Apache
RocketMQ 5.5.0, so its dashboards and alerts work unchanged.

```yaml
scrape_configs:
  - job_name: orbitmq
    static_configs:
      - targets: ["broker-a:5557"]
```

## What to watch

| metric | alert when | it means |
|---|---|---|
| `rocketmq_consumer_lag_latency_milliseconds` | above your delivery goal | a group falls behind |
| `rocketmq_consumer_lag_messages` | grows for minutes | the same, counted in messages |
| `rocketmq_send_refused_total` | increases | the broker refuses sends; `cause` says why |
| `rocketmq_send_to_dlq_messages_total` | increases | messages became dead letters |
| `rocketmq_consumer_subscription_conflicts` | above 0 | members of a group subscribe differently |
| `rocketmq_half_messages` | grows | producers do not end their transactions |
| `rocketmq_timer_dequeue_lag` | stays above 0 | scheduled messages are late |
| `rocketmq_storage_flush_behind_bytes` | grows | the disk does not keep up |
| `rocketmq_storage_dispatch_behind_bytes` | stays above 0 | stored messages are not visible yet |
| `rocketmq_loop_lag_milliseconds` | above 100 | a request holds the event loop too long |
| `rocketmq_brokeruntime_commitlog_disk_ratio` | above 0.75 | the disk is nearly full |
"""
METRICS_TABLE: Final = """\
Every series also has the labels `cluster`, `node_type`, `node_id` and `otel_scope_name`, those of
`metricsLabel`, and for storage and timer `storage_type` and `storage_medium`. A metric without a
sample is left out of the reply; those named `pop` have none, since pop consumption is not served.
"""
EXPORTER_METRICS: Final = """\
The names of Apache's separate rocketmq-exporter, served by the broker itself for dashboards that
were built on it.
"""
PYTHON_API: Final = """\
# Python API

The public names, with the first sentence of their documentation. The site that `make docs` builds
shows every signature, attribute and method below.
"""
PACKAGES: Final = {
    "orbitmq": "The asyncio clients, and everything that applications need with them.",
    "orbitmq.blocking": (
        "The same clients for threads: equal names and arguments, without `await`."
    ),
    "orbitmq.testing": "A cluster, a manual clock and a faulty disk for your tests.",
}
NO_DIRECTIVE: Final = ("SQL92", "__version__")  # plain values, described here
VALUES: Final = {
    "SQL92": 'The filter type of SQL92 expressions: `subscribe(topic, "a > 5", SQL92)`.',
    "__version__": "The version of the installed package.",
}

SPECIFIC_TO_CONTROLLERS: Final = (
    "A controller refused a broker's role change.",
    ("Only with a controller of Apache RocketMQ: see its log."),
)
# Meaning and remedy of each code, by name.
REMEDIES: Final = {
    "RPC_TIME_OUT": ("The callee did not reply in time (local).", "Check the network, then retry."),
    "RPC_SEND_TO_CHANNEL_FAILED": ("The request could not be written (local).", "Retry."),
    "RPC_ADDR_IS_NULL": ("No address is known for the callee (local).", "Check the route."),
    "RPC_UNKNOWN": ("A call failed for another reason (local).", "Read the cause."),
    "SUCCESS": ("Done.", "–"),
    "SYSTEM_ERROR": (
        "The request failed; 4.9-style access control refuses with this code too.",
        "Read the remark. If it names an exception, look at the server's log.",
    ),
    "SYSTEM_BUSY": (
        "The server is behind: disk, CPU, or too many requests in flight.",
        "Back off and retry; clients do. The remark names the cause:"
        " [when it is busy](../broker.md#when-it-is-busy).",
    ),
    "REQUEST_CODE_NOT_SUPPORTED": (
        "The server does not serve this request.",
        "Check that you ask the right kind of server, and its version.",
    ),
    "TRANSACTION_FAILED": (
        "The transaction ended already, or its half message is unknown.",
        "Nothing: the first outcome counts. [Transactions](../transactions.md).",
    ),
    "FLUSH_DISK_TIMEOUT": (
        "The message is stored, but the disk did not confirm it in time.",
        "Do not resend blindly: it may be delivered. Look at the disk.",
    ),
    "SLAVE_NOT_AVAILABLE": (
        "The request needs a master, or a replica that is not there.",
        "Ask the master; with Apache's SYNC_MASTER, start its replica.",
    ),
    "FLUSH_SLAVE_TIMEOUT": (
        "The message is stored, but no replica confirmed it in time.",
        "Do not resend blindly. Look at the replica.",
    ),
    "MESSAGE_ILLEGAL": (
        "The message breaks a rule: size, properties, topic, delay.",
        "Change the message; the remark states the value and the limit.",
    ),
    "SERVICE_NOT_AVAILABLE": (
        "The store accepts no writes: the disk is full or failed, or the broker stops.",
        "Free space, or replace the disk; clients retry on another broker.",
    ),
    "VERSION_NOT_SUPPORTED": ("The client's version is too old.", "Upgrade the client."),
    "NO_PERMISSION": (
        "Access control, or the permission of topic, group or broker, forbids it.",
        "Grant the right named in the remark: [access control](../access-control.md).",
    ),
    "TOPIC_NOT_EXIST": (
        "The topic is unknown, and auto-creation is off or does not apply.",
        "Create it: `orbitmq topic create NAME`.",
    ),
    "TOPIC_EXIST_ALREADY": ("The topic exists already.", "Update it instead."),
    "PULL_NOT_FOUND": ("No message at this offset yet.", "Pull again; clients do."),
    "PULL_RETRY_IMMEDIATELY": (
        "No matching message in the scanned range.",
        "Pull again from the offset in the reply; clients do.",
    ),
    "PULL_OFFSET_MOVED": (
        "The offset is outside the queue: expired, or beyond its end.",
        "Continue at the offset in the reply; clients do. `orbitmq group reset` sets another one.",
    ),
    "QUERY_NOT_FOUND": ("Nothing was found for this key, id, offset or name.", "Check the name."),
    "SUBSCRIPTION_PARSE_FAILED": (
        "The filter expression is invalid.",
        "Correct it where the remark points: [filters](../filters.md).",
    ),
    "SUBSCRIPTION_NOT_EXIST": (
        "The group does not subscribe to this topic.",
        "Subscribe, and wait for the next heartbeat.",
    ),
    "SUBSCRIPTION_NOT_LATEST": (
        "The pull carries an older subscription than the group's.",
        "Nothing: the client sends the new one with its next heartbeat.",
    ),
    "SUBSCRIPTION_GROUP_NOT_EXIST": (
        "The consumer group is unknown, and auto-creation is off.",
        "Create it: `orbitmq group create NAME`.",
    ),
    "FILTER_DATA_NOT_EXIST": (
        "The broker knows no filter of this group yet.",
        "Nothing: the next heartbeat registers it.",
    ),
    "FILTER_DATA_NOT_LATEST": (
        "The broker's filter of this group is outdated.",
        "Nothing: the next heartbeat updates it.",
    ),
    "INVALID_PARAMETER": ("A field of the request is invalid.", "Correct what the remark names."),
    "TRANSACTION_SHOULD_COMMIT": ("Reserved.", "–"),
    "TRANSACTION_SHOULD_ROLLBACK": ("Reserved.", "–"),
    "TRANSACTION_STATE_UNKNOW": ("Reserved.", "–"),
    "TRANSACTION_STATE_GROUP_WRONG": ("Reserved.", "–"),
    "NO_BUYER_ID": ("Reserved; clients retry on another broker.", "–"),
    "NOT_IN_CURRENT_UNIT": ("Reserved; clients retry on another broker.", "–"),
    "CONSUMER_NOT_ONLINE": (
        "No member of the group is connected.",
        "Start a consumer, or use a request that needs none.",
    ),
    "CONSUME_MSG_TIMEOUT": (
        "The consumer did not report in time.",
        "Check that the consumer runs and its listener returns.",
    ),
    "NO_MESSAGE": ("Nothing to pop.", "Ask again."),
    "POLLING_FULL": ("Too many held pop requests.", "Ask again later."),
    "POLLING_TIMEOUT": ("A held pop request expired.", "Ask again."),
    "BROKER_NOT_EXIST": ("The broker is unknown.", "Check its name."),
    "BROKER_DISPATCH_NOT_COMPLETE": ("The broker still dispatches its log.", "Ask again later."),
    "BROADCAST_CONSUMPTION": ("The group broadcasts.", "Use a clustering group."),
    "FLOW_CONTROL": ("A limit of the broker was reached.", "Ask again later."),
    "NOT_LEADER_FOR_QUEUE": ("The queue moved to another broker.", "Refresh the route."),
    "ILLEGAL_OPERATION": (
        "Not allowed in this state: a recall that is off or too late, a transaction that is over.",
        "Read the remark: [delay](../delay.md), [transactions](../transactions.md).",
    ),
    "GO_AWAY": (
        "The server shuts down.",
        "Reconnect elsewhere; clients do.",
    ),
    "LMQ_QUOTA_EXCEEDED": ("Too many light queues.", "Delete some."),
    "LITE_SUBSCRIPTION_QUOTA_EXCEEDED": ("Too many lite subscriptions.", "Delete some."),
    "USER_NOT_EXIST": ("The user is unknown.", "Check the name."),
    "POLICY_NOT_EXIST": ("The policy is unknown.", "Check the name."),
    "UPDATE_AND_CREATE_ACL_CONFIG_FAILED": (
        "`mqadmin updateAclConfig` failed (4.9).",
        "Read the remark.",
    ),
    "DELETE_ACL_CONFIG_FAILED": ("`mqadmin deleteAclConfig` failed (4.9).", "Read the remark."),
    "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED": (
        "`mqadmin updateGlobalWhiteAddr` failed (4.9).",
        "Read the remark.",
    ),
}


def error_codes() -> str:
    """Return the page of response codes."""
    sent = _sent_codes()
    rows = []
    for name, code in ResponseCode.__members__.items():
        meaning, remedy = (
            SPECIFIC_TO_CONTROLLERS if name.startswith("CONTROLLER_") else REMEDIES[name]
        )
        rows.append((code, f"`{name}`", "yes" if name in sent else "", meaning, remedy))
    rows.sort(key=lambda row: row[0])
    head = ("code", "name", "sent", "meaning", "what to do")
    return _page("error_codes", ERROR_CODES, _table(head, rows))


def client_errors() -> str:
    """Return the page of exceptions, in the order of their hierarchy."""
    public = set(import_module("orbitmq").__all__)
    rows = []
    for name, error in inspect.getmembers(errors, inspect.isclass):
        if issubclass(error, errors.OrbitError) and error.__module__ == errors.__name__:
            bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
            star = " ★" if name in public else ""
            rows.append((f"`{name}`{star}", bases, inspect.cleandoc(error.__doc__ or "")))
    old = [(f"`{before}`", f"`{now}`") for before, now in sorted(errors.OLD_NAMES.items())]
    return _page(
        "client_errors",
        CLIENT_ERRORS,
        _table(("error", "derives from", "meaning"), rows),
        "## Old names\n\nThey work with a `DeprecationWarning` until the next release.\n",
        _table(("old", "new"), old),
    )


def metrics() -> str:
    """Return the page of metrics."""
    declared = sorted(
        Metrics(IDENTITY, NO_SOURCES, Instruments(IDENTITY, NO_SOURCES.is_system_topic)).declared()
    )
    exporter = _exporter_names()
    head = ("metric", "type", "labels", "meaning")
    return _page(
        "metrics",
        METRICS,
        "## Metrics of RocketMQ 5\n\n" + METRICS_TABLE,
        _table(head, [_metric_row(each) for each in declared if each.name not in exporter]),
        "## Metrics of rocketmq-exporter\n\n" + EXPORTER_METRICS,
        _table(head, [_metric_row(each) for each in declared if each.name in exporter]),
    )


def python_api() -> str:
    """Return the page of public names; its directives are for mkdocstrings."""
    parts = []
    for package, sentence in PACKAGES.items():
        module = import_module(package)
        rows = [(f"`{name}`", _summary(module, name)) for name in sorted(module.__all__)]
        directives = "\n".join(
            f"::: {package}.{name}\n" for name in sorted(module.__all__) if name not in NO_DIRECTIVE
        )
        parts += [f"## {package}\n\n{sentence}\n", _table(("name", "what it is"), rows), directives]
    return _page("python_api", PYTHON_API, *parts)


PAGES: Final[dict[str, Callable[[], str]]] = {
    "error-codes.md": error_codes,
    "client-errors.md": client_errors,
    "metrics.md": metrics,
    "python-api.md": python_api,
}


def _page(maker: str, introduction: str, *parts: str) -> str:
    title, _, rest = introduction.partition("\n")
    note = f"<!-- Written by {maker}() in tools/reference_pages.py: run `make docs`. -->"
    return "\n".join((title, "", note, rest, *parts)).rstrip() + "\n"


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    cells = [[str(cell).replace("\n", " ").replace("|", "\\|") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def _sent_codes() -> set[str]:
    """Return the names of the codes that the sources of our servers mention."""
    found: set[str] = set()
    for package in SERVER_PACKAGES:
        for path in (ROOT / "src" / "orbitmq" / package).rglob("*.py"):
            found.update(re.findall(r"ResponseCode\.([A-Z_]+)", path.read_text(encoding="utf-8")))
    return found


def _exporter_names() -> set[str]:
    families = exporter_families(IDENTITY, NO_SOURCES)
    views = exporter_lag_views(IDENTITY)
    return {each.name for family in families for each in family.metrics} | {
        metric.name for view in views for metric in view.metrics
    }


def _metric_row(metric: Metric) -> tuple[str, ...]:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
    return f"`{metric.name}`", metric.kind, labels, metric.help


def _summary(module: object, name: str) -> str:
    """Return the first sentence of a name's docstring."""
    if name in VALUES:
        return VALUES[name]
    text = " ".join(inspect.cleandoc(getattr(module, name).__doc__ or "").split())
    return re.split(r"(?<=\.) (?=[A-Z`])", text)[0]


def main() -> int:
    """Write the pages, or with --check report those that are out of date."""
    stale = []
    for name, make in PAGES.items():
        page, text = REFERENCE / name, make()
        if "--check" not in sys.argv[1:]:
            REFERENCE.mkdir(exist_ok=True)
            page.write_text(text, encoding="utf-8")
        elif not page.exists() or page.read_text(encoding="utf-8") != text:
            stale.append(str(page.relative_to(ROOT)))
    if stale:
        print(f"{', '.join(stale)}: out of date; run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
