"""Writes docs/configuration.md from the declared keys: `python tools/configuration_page.py
[--check]`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.common.config import Key, Settings, Use
from orbitmq.nameserver.config import NameServerConfig

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

COMMON = """\
# Configuration

<!-- Written by tools/configuration_page.py from the declared keys: run `make docs`. -->

Most deployments set a few of these keys, all of them of a broker. Every other key has a default
that works; the tables below have them all.
"""

INTRODUCTION = """\
## Where values come from

A value comes from the strongest layer that has one, from weak to strong:

1. the default,
2. the file of `-c FILE`: Java properties with RocketMQ's own key names, so an existing `namesrv.conf` or `broker.conf` works as it is;
   without `-c`, what earlier run-time updates changed (below),
3. for `tls.*` keys, the file that `tls.config.file` names (not for `tls.enable`, `tls.server.mode` and `tls.config.file` itself),
4. the environment variable in the table,
5. the command line.

In the original `tls.*` are JVM properties (`-Dtls.server.mode=…`), which the `tls.config.file` overrides; here the environment stands for
them and overrides the file, as it does for every key. A `tls.config.file` that is named and missing is an error here; the original goes on
in test mode. `ROCKETMQ_HOME`, `NAMESRV_ADDR` and `ROCKETMQ_SERIALIZE_TYPE` are the defaults of their keys, weaker than the file, as in the
original; none need be set. Where 4.9 and 5.5 have
different defaults, they are those of 5.5.

Values that cannot be used stop the start with file, line, key, value and what is allowed, all of them in one message (the original keeps
the default silently, and takes every boolean that is not `true` for false). A key that does not exist is a warning that names the nearest
one; of a key that stands in a file twice the last line counts, with a warning. A key **without effect** is accepted, so that files can be
shared, and gives a warning when it is set to something else than its default. A **refused** key may be set to its default only. `~` in a
path is the home of the user (the original makes a folder of that name).

**Run-time updates** (`orbitmq nameserver config --set`, `mqadmin updateNamesrvConfig`, `mqadmin updateBrokerConfig`) reach the keys marked
*dynamic*: every used key that the original applies at run time, but for paths, addresses, ports, plug-ins and access control
([decision](decisions/0018-run-time-updates.md)). All changes of an update are made, or none. A known key that is not dynamic is answered
with NO_PERMISSION and the reason, as the original answers keys of its black list; an unknown key is refused with the nearest one (the
original ignores it). With `-c FILE` the whole configuration is then kept, sorted, in that file. Without, what updates changed is kept in
`configStorePath` of a name server, in `config/broker.properties` of a broker's store, and read again at the next start, weaker than the
environment and the command line (the original never reads it again). The file as you wrote it is in `<file>.bak` from the first update on;
a backup that is there is never overwritten, so move it away if the next update should keep another one.

`mqadmin getNamesrvConfig` lists the sections `namesrvConfig` and `nettyServerConfig`, `mqadmin getBrokerConfig` the sections
`brokerConfig`, `messageStoreConfig`, `nettyServerConfig` and `nettyClientConfig`, and both what else the `-c` file sets; values of
passwords are masked.
"""  # noqa: E501

BROKER = """\
# Broker

A broker serves this host alone until it is told otherwise: `brokerIP1`, which clients are told to connect to, is 127.0.0.1, and so is
`bindAddress` while it is not set. Whoever sets `brokerIP1` to another address listens there, too, and is warned while [access
control](access-control.md) is off. `listenPort` - 2 and `listenPort` + 1 belong to the broker as well.

DLedger, a controller and RocksDB are refused rather than ignored, since a broker without them is another one than was meant.
"""  # noqa: E501

NAME_SERVER_SECTIONS = {
    "namesrvConfig": "What a name server does",
    "authConfig": "Access control, as of brokers",
}
BROKER_SECTIONS = {
    "brokerConfig": "What a broker is, and does",
    "messageStoreConfig": "What it keeps, and for how long",
    "authConfig": "Access control",
    "4.9": "What only 4.9 has",
}
SHARED_SECTIONS = {
    "nettyServerConfig": "Where it listens, and its sockets",
    "orbitmq": "What the original has no key for, or only a JVM property",
    "tls": "TLS, for the server and for calls to others",
    "nettyClientConfig": "Calls to others",
}
# The keys of a broker that most deployments set, by question.
COMMON_KEYS = {
    "Which broker is it, and where do clients reach it?": (
        *("brokerClusterName", "brokerName", "brokerIP1", "listenPort", "namesrvAddr"),
    ),
    "Where are messages stored, for how long, and how durably?": (
        *("storePathRootDir", "flushDiskType", "fileReservedTime", "diskMaxUsedSpaceRatio"),
        "protectUnconsumed",
    ),
    "What may clients do?": (
        *("autoCreateTopicEnable", "autoCreateSubscriptionGroup", "maxMessageSize"),
        *("enablePropertyFilter", "subscriptionConflict", "dedupWindowMs"),
    ),
    "Who may connect, and who watches?": (
        *("authenticationEnabled", "authorizationEnabled", "tls.server.mode"),
        "metricsExporterType",
    ),
}
SHORT_MIN = 3  # as many keys without effect for one reason are a list, not rows


def page() -> str:
    """The whole page."""
    name_server = _tables(NameServerConfig, {**NAME_SERVER_SECTIONS, **SHARED_SECTIONS})
    broker = _tables(BrokerConfig, {**BROKER_SECTIONS, **SHARED_SECTIONS}, inert_as_lists=True)
    parts = [COMMON, *_common_keys(), INTRODUCTION, "# Name server", "", *name_server]
    return "\n".join([*parts, BROKER, *broker])


def _common_keys() -> list[str]:
    """Return the table of the keys that most deployments set."""
    keys = {key.name: key for key in BrokerConfig.all_keys()}
    lines = ["| key | default | what it says |", "|---|---|---|"]
    for question, names in COMMON_KEYS.items():
        lines.append(f"| **{question}** | | |")
        for key in map(keys.__getitem__, names):
            default = f"`{key.default_text}`" if key.default_text else "–"
            lines.append(f"| `{key.name}` | {default} | {key.declared.doc} |")
    return [*lines, ""]


def _tables(
    kind: type[Settings], sections: dict[str, str], *, inert_as_lists: bool = False
) -> list[str]:
    lines = []
    for section, title in sections.items():
        keys = [key for key in kind.all_keys() if key.section == section]
        inert = _by_reason(keys) if inert_as_lists else {}
        rows = [_row(key) for key in keys if key.declared.doc not in inert]
        lines += [f"## {title} (`{section}`)", ""]
        if rows:
            lines += [
                "| key | default | type | use | what, or why not | environment | releases |",
                "|---|---|---|---|---|---|---|",
                *rows,
                "",
            ]
        for reason, names in inert.items():
            lines += [f"**No effect**: {reason} {', '.join(names)}.", ""]
    return lines


def _by_reason(keys: list[Key]) -> dict[str, list[str]]:
    """The keys without effect, with their defaults, by the reason why."""
    reasons: dict[str, list[str]] = {}
    for key in keys:
        if key.declared.use is Use.NO_EFFECT:
            reasons.setdefault(key.declared.doc, []).append(
                f"`{key.name}`" + (f" {key.default_text}" if key.default_text else "")
            )
    return {reason: names for reason, names in reasons.items() if len(names) >= SHORT_MIN}


def _row(key: Key) -> str:
    declared = key.declared
    use = declared.use.value + (", dynamic" if declared.dynamic else "")
    if declared.use is not Use.USED:
        use = f"**{use}**"
    default = f"`{key.default_text}`" if key.default_text else "–"
    bounds = (
        key.allowed
        if declared.minimum is not None or declared.maximum is not None or key.enum is not None
        else ""
    )
    if declared.maximum is None:
        bounds = bounds.rpartition(" to ")[0] or bounds
    kind = f"{key.kind}: {bounds.removeprefix('a whole number ')}" if bounds else key.kind
    return (
        f"| `{key.name}` | {default} | {kind} | {use} | {declared.doc} | `{key.env}` |"
        f" {declared.releases} |"
    )


def main() -> int:
    """Write the page, or with --check say whether it is up to date."""
    if "--check" in sys.argv[1:]:
        if PAGE.read_text(encoding="utf-8") == page():
            return 0
        print(f"{PAGE} is stale: run python tools/configuration_page.py", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
