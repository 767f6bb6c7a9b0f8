"""The client: producers and consumers of messages, of ours and of Apache RocketMQ's clusters."""
