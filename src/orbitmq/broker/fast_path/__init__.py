"""Fast path: serves ordinary sends, pulls and END_TRANSACTION requests straight from the
connections' receive buffers, before they are decoded.
"""
