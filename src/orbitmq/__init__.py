"""OrbitMQ: RocketMQ in Python.

Here are the names that applications need; `orbitmq.blocking` has the clients once more, without
asyncio. A name is loaded when it is first used, so that a command or a broker does not wait for
what it has no use for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from orbitmq import kernels
from orbitmq.version import __version__

if TYPE_CHECKING:
    from orbitmq.access.credentials import Credentials
    from orbitmq.admin.admin import Admin
    from orbitmq.client.consumer.consume_services import ConsumeLater
    from orbitmq.client.consumer.lite_pull_consumer import LitePullConsumer, LitePullSettings
    from orbitmq.client.consumer.process_queue import CacheLimits
    from orbitmq.client.consumer.pull_consumer import PullConsumer
    from orbitmq.client.consumer.pulling import PullResult, PullStatus
    from orbitmq.client.consumer.push_consumer import ConsumerSettings, PushConsumer
    from orbitmq.client.messages import (
        Message,
        ReceivedMessage,
        SendResult,
        SendStatus,
        TransactionState,
    )
    from orbitmq.client.producer.outbox import ProducerSettings
    from orbitmq.client.producer.producer import Producer
    from orbitmq.client.producer.transaction_producer import TransactionProducer, TransactionResult
    from orbitmq.client.session.client_session import ClientSession
    from orbitmq.client.settings import ClientSettings
    from orbitmq.client.trace import Trace
    from orbitmq.common.errors import (
        ConfigurationError,
        CorruptRecordError,
        InvalidMessageError,
        InvalidStateError,
        NotFoundError,
        OrbitError,
        RemoteError,
        RemoteTimeoutError,
        RemoteUnavailableError,
        RequestRefusedError,
        RequestTimeoutError,
        SendFailedError,
        SendRefusedError,
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
    "CorruptRecordError",
    "Credentials",
    "InvalidMessageError",
    "InvalidStateError",
    "LitePullConsumer",
    "LitePullSettings",
    "Message",
    "MessageModel",
    "MessageQueue",
    "NotFoundError",
    "OrbitError",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "ReceivedMessage",
    "RemoteError",
    "RemoteTimeoutError",
    "RemoteUnavailableError",
    "RequestRefusedError",
    "RequestTimeoutError",
    "SendFailedError",
    "SendRefusedError",
    "SendResult",
    "SendStatus",
    "Trace",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "__version__",
]

_MODULES = {
    "admin.admin": "Admin",
    "client.consumer.consume_services": "ConsumeLater",
    "access.credentials": "Credentials",
    "client.consumer.lite_pull_consumer": "LitePullConsumer LitePullSettings",
    "client.messages": "Message ReceivedMessage SendResult SendStatus TransactionState",
    "client.producer.outbox": "ProducerSettings",
    "client.consumer.process_queue": "CacheLimits",
    "client.producer.producer": "Producer",
    "client.consumer.pull_consumer": "PullConsumer",
    "client.consumer.pulling": "PullResult PullStatus",
    "client.consumer.push_consumer": "ConsumerSettings PushConsumer",
    "client.session.client_session": "ClientSession",
    "client.settings": "ClientSettings",
    "client.trace": "Trace",
    "client.producer.transaction_producer": "TransactionProducer TransactionResult",
    "common.errors": (
        "ConfigurationError CorruptRecordError InvalidMessageError NotFoundError OrbitError"
        " RemoteError RemoteTimeoutError RemoteUnavailableError RequestRefusedError"
        " RequestTimeoutError SendFailedError SendRefusedError InvalidStateError"
    ),
    "protocol.bodies.clients": "MessageQueue",
    "protocol.bodies.subscriptions": "SQL92 ConsumeFromWhere MessageModel",
    "remoting.tls": "ClientTls",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

kernels.install_switch()


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        errors = import_module(f"{__name__}.common.errors")
        if name in errors.OLD_NAMES:
            return getattr(errors, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
