"""Spark: RocketMQ topics as tables and streams, Arrow from the stored record on. Nothing here is imported unless Spark is used."""
