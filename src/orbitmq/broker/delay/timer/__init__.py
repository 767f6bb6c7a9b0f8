"""Timed messages: scheduled delivery with millisecond precision."""
