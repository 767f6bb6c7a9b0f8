"""Producers: sends, transactions, recalls, and requests with replies."""

from orbitmq.common.deprecation import moved

__getattr__ = moved(__name__, "orbitmq.client.producer.producer")
