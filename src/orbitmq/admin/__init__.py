"""Operations on a running OrbitMQ or Apache RocketMQ cluster: the single entry point for the
command line, the console and Spark.

`async with Admin("127.0.0.1:9876") as admin: await admin.topics.names()`. One small object per
noun, one coroutine per operation, values in and values out. Topic and group names are those that
brokers know: a namespace of the session does not apply here.
"""

from orbitmq.admin.admin import Admin

__all__ = ["Admin"]
