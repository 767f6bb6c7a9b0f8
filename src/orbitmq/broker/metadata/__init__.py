"""Persistent metadata of a broker: topics, groups, consumer offsets, filters and consume modes."""
