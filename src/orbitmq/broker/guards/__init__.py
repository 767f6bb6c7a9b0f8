"""Guards: against sends that come twice, and against members of one group that subscribe differently."""
