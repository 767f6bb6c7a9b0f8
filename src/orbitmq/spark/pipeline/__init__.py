"""Pipelines: a file says what is read, what is done with it and where it goes, and Spark does it, once or for as long as it is let."""
