"""Statistics, metrics and runtime information of a broker."""
