"""Extension points of a broker for other packages, by entry points: validators, hooks around sends
and pulls, wrappers of the store, transactions.
"""
