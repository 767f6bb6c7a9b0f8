"""The clients of `orbitmq` without asyncio: the same names and arguments, and each call returns
when it is done.

`with blocking.Producer("127.0.0.1:9876") as producer: producer.send(Message("topic", b"body"))`.
Any number of threads may share a client. All clients of a process run on one event loop in a
dedicated thread, which ends with the last client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.blocking.admin import Admin
    from orbitmq.blocking.consumers import LitePullConsumer, PullConsumer, PushConsumer
    from orbitmq.blocking.producers import Producer, TransactionProducer
    from orbitmq.blocking.trace import Trace

__all__ = [
    "Admin",
    "LitePullConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "Trace",
    "TransactionProducer",
]

_MODULES = {
    "Admin": "admin",
    "LitePullConsumer": "consumers",
    "Producer": "producers",
    "PullConsumer": "consumers",
    "PushConsumer": "consumers",
    "Trace": "trace",
    "TransactionProducer": "producers",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
