"""Access control: who signed a request, what the request asks for, and whether that one may have it. Knows no sockets."""
