"""The blocking clients have the methods of the async ones, with the same arguments."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import orbitmq
from orbitmq import admin, blocking
from orbitmq.admin.access import AccessOperations
from orbitmq.admin.cluster import ClusterOperations
from orbitmq.admin.dead_letters import DeadLetterOperations
from orbitmq.admin.groups import GroupOperations
from orbitmq.admin.messages import MessageOperations
from orbitmq.admin.name_servers import NameServerOperations
from orbitmq.admin.offsets import OffsetOperations
from orbitmq.admin.topics import TopicOperations
from orbitmq.blocking import admin as nouns

# Called by sessions and brokers, not by applications.
_INNER = {
    *(
        "producer_group",
        "consumer_data",
        "topics",
        "routes_changed",
        "serves",
        "send_outgoing",
        "new_ids",
    ),
    *(
        "queues_changed",
        "rebalance_soon",
        "refused",
        "reset_offsets",
        "committed_offsets",
        "running_info",
        "consume_directly",
    ),
    *("half_properties", "send_half", "end_of", "end", "master_of"),
}
_FACES: list[tuple[type, type, set[str]]] = [
    (orbitmq.Producer, blocking.Producer, _INNER),
    (orbitmq.TransactionProducer, blocking.TransactionProducer, _INNER),
    (orbitmq.PushConsumer, blocking.PushConsumer, _INNER),
    (orbitmq.Trace, blocking.Trace, set()),
    (orbitmq.LitePullConsumer, blocking.LitePullConsumer, _INNER),
    (orbitmq.PullConsumer, blocking.PullConsumer, _INNER),
    (admin.Admin, blocking.Admin, set()),
    (AccessOperations, nouns.Access, set()),
    (ClusterOperations, nouns.Cluster, set()),
    (NameServerOperations, nouns.NameServers, set()),
    (TopicOperations, nouns.Topics, set()),
    (GroupOperations, nouns.Groups, set()),
    (OffsetOperations, nouns.Offsets, set()),
    (DeadLetterOperations, nouns.DeadLetters, set()),
    # `follow` never ends; blocking programs use a pull consumer instead.
    (MessageOperations, nouns.Messages, {"follow"}),
]


@pytest.mark.parametrize(
    ("behind", "face", "left_out"), _FACES, ids=lambda value: getattr(value, "__qualname__", "")
)
def test_a_blocking_client_has_every_method_of_its_async_one(
    behind: type, face: type, left_out: set[str]
) -> None:
    names = {name for name in dir(behind) if not name.startswith("_")} - left_out
    assert names <= set(dir(face)), "is there a method that only the async client has?"
    for name in names - {"start", "close"}:
        method = inspect.getattr_static(behind, name)
        if inspect.isfunction(method):
            assert list(inspect.signature(getattr(face, name)).parameters) == list(
                inspect.signature(method).parameters
            )


@pytest.mark.parametrize("module", [orbitmq, blocking], ids=["orbitmq", "blocking"])
def test_every_public_name_is_there(module: object) -> None:
    names = module.__all__  # type: ignore[attr-defined]
    assert set(names) <= set(dir(module)) or module is blocking
    assert all(getattr(module, name) is not None for name in names)
    with pytest.raises(AttributeError, match="has no attribute 'Consumer'"):
        module.Consumer  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_loads_no_client() -> None:
    program = (
        "import sys, orbitmq; print(sorted(name for name in sys.modules if"
        " name.startswith('orbitmq.')))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert output == "['orbitmq.kernels', 'orbitmq.version']\n"
