"""Deprecated: use `orbitmq.spark.sink.stream_writer`."""

from orbitmq.common.deprecation import moved

__getattr__ = moved(__name__, "orbitmq.spark.sink.stream_writer")
