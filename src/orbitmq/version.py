"""The version of OrbitMQ, and the release of Apache RocketMQ that it is on the wire and on disk."""

__version__ = "0.1.0"

ROCKETMQ_VERSION = "5.5.0"
