"""Pulls with SQL92 expressions: the message rate of consumers that match a quarter of
all messages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Mapping
from functools import partial

from _broker_room import PULL_COUNT, QUEUES, Desk, broker
from _harness import Pace, Result, Workload, build_mqload, contest, running, say
from interop import apache
from orbitmq.protocol.bodies.clients import ConsumerData, HeartbeatData
from orbitmq.protocol.bodies.subscriptions import (
    SQL92,
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)

TOPIC = "BenchmarkTest"
MESSAGES = 200_000
KINDS = 64  # messages differ by a number below this
# the group and subscription version that mqload uses
GROUP, SUB_VERSION = "benchmark_consumer", 1_700_000_000_000
PROPERTIES = ("amount=%d", "region=north", "shop=shop-%d")
_SETTINGS = {"enablePropertyFilter": "true", "notifyConsumerIdsChangedEnable": "false"}
EXPRESSIONS = {
    "SQL92 of one term 8x1": "amount >= 48",
    "SQL92 of three terms 8x1": (
        "amount BETWEEN 16 AND 31 AND region IN ('north', 'south') AND shop IS NOT NULL"
    ),
}


def send(server: apache.Server, *arguments: str) -> Result:
    """Return mqload's report of a load of limited size."""
    command = [str(build_mqload()), "-j", "-p", str(server.port), "-c", "1", "-w", "64", *arguments]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=1800)
    report: Result = json.loads(run.stdout)
    return report


def measure(options: argparse.Namespace, pace: Pace) -> Result:
    """Measure each expression in turn, subscribed by the group's heartbeat, as push
    consumers do.
    """
    measured: Result = {}
    made = partial(broker, apache_version=options.apache, settings=_SETTINGS)
    with running(made, options.server) as servers:
        for contender, server in servers.items():
            say(f"filters: {contender} gets messages to pull")
            options_of_kind = [each for text in PROPERTIES for each in ("-i", text)]
            count = str(MESSAGES // (20 if options.quick else 1))
            send(
                server,
                "-m",
                "send",
                "-T",
                TOPIC,
                "-q",
                str(QUEUES),
                "-K",
                str(KINDS),
                "-N",
                count,
                *options_of_kind,
            )
        desks = {contender: Desk(server) for contender, server in servers.items()}
        asked = ("-m", "pull", "-f", "-T", TOPIC, "-q", str(QUEUES), "-n", str(PULL_COUNT))
        for name, expression in EXPRESSIONS.items():
            workload = Workload(
                name=name, arguments=asked, connections=QUEUES, window=1, answer_code=0
            )
            measured |= contest(
                servers,
                [workload],
                pace,
                partial(_subscribe, desks, expression),
                quiet_within_s=3.0,
            )
        for desk in desks.values():
            desk.close()
    return measured


def _subscribe(desks: Mapping[str, Desk], expression: str) -> None:
    """Subscribe the group to the expression; needed every two minutes."""
    wanted = SubscriptionData(
        TOPIC, sub_string=expression, sub_version=SUB_VERSION, expression_type=SQL92
    )
    consumer = ConsumerData(
        GROUP,
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        (wanted,),
    )
    for desk in desks.values():
        desk.beat(HeartbeatData("192.0.2.1@bench", consumers=(consumer,)))
