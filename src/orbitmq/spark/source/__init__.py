"""Reads topics as tables and streams."""
