"""Construction of a broker: its components, and the request layer on top of them."""
