"""Writing: admission, deduplication, retries, internal messages, and replies that are delayed until
a message is durable.
"""
