"""Reading: pulls and long polling, filters, and consumers that fall behind."""
