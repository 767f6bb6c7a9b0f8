"""The configuration of a broker: its keys by theme, and the store settings derived from them."""
