"""Operations on a running cluster, ours or Apache's: the only door to them for the command line, the console and Spark.

`async with Admin("127.0.0.1:9876") as admin: await admin.topics.names()`. One small object per noun, one coroutine per operation, values in
and values out. Names of topics and groups are those that brokers know: a namespace of the session does not count here.
"""

from orbitmq.admin.admin import Admin

__all__ = ["Admin"]
