"""The configuration of a broker, as parts of it read it, for tests that change it at will."""

from __future__ import annotations

from typing import Any

from orbitmq.broker.config.broker_config import BrokerConfig

BROKER = "broker-a"


class _ChangeableConfig(BrokerConfig):
    __setattr__ = object.__setattr__


def broker_settings(**changes: object) -> Any:
    """Return a stock configuration with these values; its attributes may be set."""
    found = _ChangeableConfig(broker_name=BROKER, broker_ip1="127.0.0.1")
    for name, value in changes.items():
        assert hasattr(found, name), name
        setattr(found, name, value)
    return found
