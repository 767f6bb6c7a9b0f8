"""Processors: the requests of a broker, a class for each family, from typed header and body to the answer."""
