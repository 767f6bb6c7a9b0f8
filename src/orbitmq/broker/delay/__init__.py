"""Scheduled delivery: by delay level, and at a given time."""
