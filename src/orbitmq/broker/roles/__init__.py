"""Roles of a broker: what a slave takes over from its master."""
