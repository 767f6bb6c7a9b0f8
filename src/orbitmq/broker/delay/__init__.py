"""Messages that come later: by delay levels, and at a time of their own."""
