"""Deprecated: use `orbitmq.client.consumer.pull_consumer`."""

from orbitmq.common.deprecation import moved

__getattr__ = moved(__name__, "orbitmq.client.consumer.pull_consumer")
