"""Transactions: half messages, hidden from consumers until their producer commits or rolls back."""
