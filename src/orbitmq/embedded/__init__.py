"""A name server and a broker in this process: one builder for `orbitmq up`, tests and demos."""
