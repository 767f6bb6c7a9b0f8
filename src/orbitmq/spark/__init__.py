"""Apache Spark integration: RocketMQ topics as tables and streams, decoded straight into Arrow.

No other package imports this one, so Spark is loaded only when it is used.
"""
