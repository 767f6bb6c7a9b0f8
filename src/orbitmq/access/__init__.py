"""Access control: authenticates and authorizes requests. Knows no sockets."""
