"""The message: as producers send it, as it is stored and delivered, and the formats of
its parts.
"""
