"""SQL92 filter expressions over message properties: text in, a predicate over properties out. Knows
no broker.
"""
