"""Flushing: the schedule, the threads that call fsync, and the waiters for durable messages."""
