"""Pipelines: a YAML file declares source, steps and sinks, and Spark runs it as a batch or a
stream.
"""
