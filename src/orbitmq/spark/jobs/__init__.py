"""Ready-made jobs on topics, one per command of `orbitmq spark`. They take and return values; the
CLI prints them.
"""
