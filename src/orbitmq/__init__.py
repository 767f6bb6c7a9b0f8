"""OrbitMQ: RocketMQ in Python."""

from orbitmq import kernels
from orbitmq.version import __version__

kernels.install_switch()

__all__ = ["__version__"]
