"""Replication of the commit log: a master sends its log, slaves write and acknowledge it."""
