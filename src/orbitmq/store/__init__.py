"""The store: the commit log and the files derived from it, on local disk, in Apache RocketMQ's
formats.
"""
