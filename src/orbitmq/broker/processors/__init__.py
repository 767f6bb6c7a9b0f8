"""Processors translate between the wire and the services, one class per family of requests."""
