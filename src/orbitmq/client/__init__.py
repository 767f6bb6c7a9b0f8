"""The client library: producers and consumers for OrbitMQ and Apache RocketMQ clusters."""
