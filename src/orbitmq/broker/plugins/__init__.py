"""What other packages can put into a broker, by entry points: validators, hooks around sends and pulls, wrappers of the store."""
