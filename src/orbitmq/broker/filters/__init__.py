"""Filters by SQL92 expressions: those of groups that are known, and what they let pass."""
