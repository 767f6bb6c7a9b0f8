"""The broker: stores messages, serves them to consumers, and keeps topics, groups and offsets."""
