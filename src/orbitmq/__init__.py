"""OrbitMQ: RocketMQ in Python.

Here are the names that applications need; `orbitmq.blocking` has the clients once more, without asyncio. A name is loaded when it is first
used, so that a command or a broker does not wait for what it has no use for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from orbitmq import kernels
from orbitmq.version import __version__

if TYPE_CHECKING:
    from orbitmq.admin.admin import Admin
    from orbitmq.client.consuming import ConsumeLater
    from orbitmq.client.credentials import Credentials
    from orbitmq.client.lite_pull_consumer import LitePullConsumer, LitePullSettings
    from orbitmq.client.messages import Message, ReceivedMessage, SendResult, SendStatus, TransactionState
    from orbitmq.client.outbox import ProducerSettings
    from orbitmq.client.process_queue import CacheLimits
    from orbitmq.client.producer import Producer
    from orbitmq.client.pull_consumer import PullConsumer
    from orbitmq.client.pulling import PullResult, PullStatus
    from orbitmq.client.push_consumer import ConsumerSettings, PushConsumer
    from orbitmq.client.session import ClientSession
    from orbitmq.client.settings import ClientSettings
    from orbitmq.client.trace import Trace
    from orbitmq.client.transaction_producer import TransactionProducer, TransactionResult
    from orbitmq.common.errors import (
        ConfigurationError,
        CorruptRecord,
        MessageIllegal,
        NotFound,
        OrbitError,
        RemoteError,
        RemoteTimeout,
        RemoteUnavailable,
        RequestRefused,
        RequestTimeout,
        SendFailed,
        WrongCall,
    )
    from orbitmq.protocol.bodies.clients import MessageQueue
    from orbitmq.protocol.bodies.subscriptions import SQL92, ConsumeFromWhere, MessageModel
    from orbitmq.remoting.tls import ClientTls

__all__ = [
    "SQL92",
    "Admin",
    "CacheLimits",
    "ClientSession",
    "ClientSettings",
    "ClientTls",
    "ConfigurationError",
    "ConsumeFromWhere",
    "ConsumeLater",
    "ConsumerSettings",
    "CorruptRecord",
    "Credentials",
    "LitePullConsumer",
    "LitePullSettings",
    "Message",
    "MessageIllegal",
    "MessageModel",
    "MessageQueue",
    "NotFound",
    "OrbitError",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "ReceivedMessage",
    "RemoteError",
    "RemoteTimeout",
    "RemoteUnavailable",
    "RequestRefused",
    "RequestTimeout",
    "SendFailed",
    "SendResult",
    "SendStatus",
    "Trace",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "WrongCall",
    "__version__",
]

_MODULES = {
    "admin.admin": "Admin",
    "client.consuming": "ConsumeLater",
    "client.credentials": "Credentials",
    "client.lite_pull_consumer": "LitePullConsumer LitePullSettings",
    "client.messages": "Message ReceivedMessage SendResult SendStatus TransactionState",
    "client.outbox": "ProducerSettings",
    "client.process_queue": "CacheLimits",
    "client.producer": "Producer",
    "client.pull_consumer": "PullConsumer",
    "client.pulling": "PullResult PullStatus",
    "client.push_consumer": "ConsumerSettings PushConsumer",
    "client.session": "ClientSession",
    "client.settings": "ClientSettings",
    "client.trace": "Trace",
    "client.transaction_producer": "TransactionProducer TransactionResult",
    "common.errors": "ConfigurationError CorruptRecord MessageIllegal NotFound OrbitError RemoteError RemoteTimeout RemoteUnavailable "
    "RequestRefused RequestTimeout SendFailed WrongCall",
    "protocol.bodies.clients": "MessageQueue",
    "protocol.bodies.subscriptions": "SQL92 ConsumeFromWhere MessageModel",
    "remoting.tls": "ClientTls",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

kernels.install_switch()


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
