"""A name server and brokers in this process: one builder for `orbitmq up`, tests and demos."""
