"""Deprecated: use `orbitmq.client.consumer.rebalance`."""

from orbitmq.common.deprecation import moved

__getattr__ = moved(__name__, "orbitmq.client.consumer.rebalance")
