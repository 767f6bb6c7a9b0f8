"""Messages that are delivered after the delay of their level."""
