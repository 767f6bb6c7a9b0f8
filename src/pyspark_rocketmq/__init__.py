"""Lets Spark find the format `rocketmq`: it searches modules whose name starts with `pyspark_`."""

from orbitmq.spark.source.data_source import RocketmqSource as DefaultSource

__all__ = ["DefaultSource"]
