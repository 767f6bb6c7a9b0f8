"""The sections of a broker's configuration; `orbitmq.broker.config` puts them together."""
