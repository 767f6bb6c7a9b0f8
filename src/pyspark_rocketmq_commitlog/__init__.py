"""Lets Spark find the format `rocketmq-commitlog` by the name of this package."""

from orbitmq.spark.commitlog.source import CommitLogSource as DefaultSource

__all__ = ["DefaultSource"]
