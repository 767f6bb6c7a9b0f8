"""Transactions: messages that nobody may read until their producer says how its local transaction ended."""
