"""Consumers: group membership, queue assignment, pulls, listeners and offsets."""
