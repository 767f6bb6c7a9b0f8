"""Reads commit logs from their files, without a broker."""
