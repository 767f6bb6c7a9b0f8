"""SQL92 expressions over the properties of a message, as brokers filter by: text in, a test of properties out. Knows no broker."""
