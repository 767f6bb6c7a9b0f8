"""Spark looks for formats in modules whose names begin so: this one is `rocketmq`."""

from orbitmq.spark.source import RocketmqSource as DefaultSource

__all__ = ["DefaultSource"]
