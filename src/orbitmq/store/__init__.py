"""The store: the commit log and what is derived from it, on local disk, in the original's formats."""
